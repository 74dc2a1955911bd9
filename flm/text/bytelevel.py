"""GPT-2's byte alphabet: every byte has a printable character of its own in the vocabulary.

Source of the mapping: Radford et al. 2019, the encoder released with GPT-2.
"""

_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))


def _alphabet() -> dict[str, int]:
    table = {chr(byte): byte for byte in _PRINTABLE}
    rest = (byte for byte in range(256) if byte not in _PRINTABLE)
    table.update({chr(0x100 + shift): byte for shift, byte in enumerate(rest)})
    return table


BYTE_OF_CHAR: dict[str, int] = _alphabet()


def to_bytes(token: str) -> bytes:
    """The bytes a byte-level token stands for; characters outside the alphabet are UTF-8."""
    try:
        return bytes([BYTE_OF_CHAR[char] for char in token])
    except KeyError:
        return token.encode("utf-8", "replace")
