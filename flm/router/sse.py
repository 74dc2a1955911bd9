"""Server-sent events from bytes, however they are cut. No line is too long."""

from collections.abc import Iterator

_BOM = b"\xef\xbb\xbf"


class SSEDecoder:
    """Gathers bytes and yields the data of each event.

    Lines end with CR, LF or both; comments and other fields are passed over.
    """

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._data: list[bytes] = []
        self._ends_in_cr = False
        self._is_first = True

    def feed(self, chunk: bytes) -> Iterator[str]:
        """The events that ``chunk`` completes.

        Raises:
            UnicodeDecodeError: an event is not UTF-8.
        """
        if self._ends_in_cr and chunk:
            # The LF of a CR LF that was cut in two.
            chunk = chunk.removeprefix(b"\n")
            self._ends_in_cr = False
        if b"\n" not in chunk and b"\r" not in chunk:
            self._pieces.append(chunk)
            return
        self._ends_in_cr = chunk.endswith(b"\r")
        self._pieces.append(chunk)
        text = b"".join(self._pieces).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = text.split(b"\n")
        self._pieces = [rest] if rest else []
        for line in lines:
            yield from self._line(line)

    def finish(self) -> Iterator[str]:
        """The event that the end of the bytes leaves open, if any."""
        rest = b"".join(self._pieces)
        self._pieces = []
        if rest:
            yield from self._line(rest)
        yield from self._line(b"")

    def _line(self, line: bytes) -> Iterator[str]:
        if self._is_first:
            line = line.removeprefix(_BOM)
            self._is_first = False
        if not line:
            if self._data:
                data = b"\n".join(self._data)
                self._data = []
                yield data.decode("utf-8")
        elif line.startswith(b"data"):
            name, _, value = line.partition(b":")
            if name == b"data":
                self._data.append(value.removeprefix(b" "))
