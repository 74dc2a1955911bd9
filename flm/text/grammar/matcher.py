"""One sequence under a grammar: which tokens may come next."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from flm.errors import InternalError, InvalidRequestError
from flm.text.grammar.vocabulary import Vocabulary

_QUIET = " <non-verbose/>"


@dataclass(frozen=True, slots=True)
class Closing:
    """When to end a text that could go on: after ``num_tokens``, as soon as ``ids`` (none: nothing)
    complete it."""

    num_tokens: int
    ids: tuple[int, ...]


class GrammarMatcher:
    """Follows the tokens of one sequence. Belongs to one thread at a time.

    Args:
        vocabulary: of the model.
        engine: a fresh copy of the compiled grammar; nobody else may use it.
        vocab_size: the number of logits of the model, which may exceed its tokens.
        eos_ids: the tokens that end this sequence; those of the model when empty.
        start_after_ids: the grammar begins behind this sequence of tokens (the end of a reasoning
            block that is open); None or empty: at once.
        open_ids: tokens that may come first instead of the grammar's, and open such a block;
            it then ends with ``start_after_ids``. Empty: the block is open from the start.
        closing: when the text is to end though the grammar would let it go on; None: never.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        engine: Any,
        *,
        vocab_size: int,
        eos_ids: frozenset[int] = frozenset(),
        start_after_ids: tuple[int, ...] | None = None,
        open_ids: tuple[int, ...] = (),
        closing: Closing | None = None,
    ) -> None:
        self._engine = engine
        self._closing = closing
        self._num_tokens = 0
        self._vocabulary = vocabulary
        self._num_bytes = (vocab_size + 7) // 8
        self._eos_ids = eos_ids or vocabulary.eos_ids
        self._close_ids = start_after_ids if start_after_ids is not None else ()
        self._opening = open_ids if self._close_ids else ()
        self._num_opened = 0
        self._is_reasoning = bool(self._close_ids) and not self._opening
        self._recent: deque[int] = deque(maxlen=len(self._close_ids))
        self._is_done = False
        self._free = (
            self._all_but(self._eos_ids - set(self._close_ids)) if self._close_ids else None
        )

    @property
    def is_complete(self) -> bool:
        """True when the text may end here."""
        if self._is_reasoning or self._num_opened:
            return False
        return self._is_done or bool(self._engine.is_accepting())

    def mask(self) -> bytes | None:
        """The allowed tokens as a little-endian bit set over the model's logits; None: all.

        In a reasoning block everything is allowed but to end the text, which would leave out what
        the grammar is for.

        Raises:
            InvalidRequestError: the grammar is too complex to follow further.
        """
        if self._is_reasoning:
            return self._free
        if self._num_opened:
            return self._only([self._opening[self._num_opened]])
        if self._is_done:
            return self._only(self._eos_ids)
        rest = self._closing_ids()
        if rest is not None:
            return self._only(rest[:1] or self._eos_ids)
        bits = self._grammar_bits()
        if self._opening:
            _set(bits, self._opening[0])
        return bytes(bits)

    def accept(self, token_id: int) -> None:
        """Advance past a token.

        Raises:
            InternalError: the mask did not allow it.
            InvalidRequestError: the grammar is too complex to follow further.
        """
        self._num_tokens += 1
        if self._is_reasoning:
            self._recent.append(token_id)
            self._is_reasoning = tuple(self._recent) != self._close_ids
        elif self._opening and token_id == self._opening[self._num_opened]:
            self._num_opened += 1
            if self._num_opened == len(self._opening):
                self._opening, self._num_opened, self._is_reasoning = (), 0, True
        else:
            self._accept_in_grammar(token_id)

    def _accept_in_grammar(self, token_id: int) -> None:
        if self._num_opened:
            raise self._refused(token_id)
        self._opening = ()
        if token_id in self._eos_ids and self.is_complete and not self._continues_with(token_id):
            self._is_done = True
        elif self._is_done or not self._continues_with(token_id):
            self._check_engine()
            raise self._refused(token_id)
        else:
            self._engine.consume_token(token_id)
            self._check_engine()

    def _closing_ids(self) -> tuple[int, ...] | None:
        """What is left of the tokens that end the text, if it is time and they do."""
        closing = self._closing
        if closing is None or self._num_tokens < closing.num_tokens:
            return None
        for start in range(len(closing.ids) + 1):
            rest = closing.ids[start:]
            ended = [*rest, self._vocabulary.end_id]
            if self._engine.validate_tokens(ended) == len(ended):
                return rest
        return None

    def _continues_with(self, token_id: int) -> bool:
        is_token = 0 <= token_id < self._vocabulary.size
        return is_token and bool(self._engine.validate_tokens([token_id]))

    def _refused(self, token_id: int) -> InternalError:
        text = self._vocabulary.tokenizer.token_text(token_id)
        return InternalError(f"The grammar does not allow token {token_id} ({text!r}) here.")

    def _check_engine(self) -> None:
        if self._engine.is_error():
            reason = " ".join(str(self._engine.get_error()).split()).removesuffix(_QUIET)
            raise InvalidRequestError(
                f"The grammar became too complex to follow: {reason}. Make the schema or grammar "
                "simpler."
            )

    # --- bit sets ------------------------------------------------------------------------------

    def _grammar_bits(self) -> bytearray:
        bits = bytearray(self._engine.compute_bitmask())
        self._check_engine()
        end = self._vocabulary.end_id
        may_end = bits[end >> 3] >> (end & 7) & 1
        bits[end >> 3] &= (1 << (end & 7)) - 1
        del bits[(end >> 3) + 1 :]
        bits = bits.ljust(self._num_bytes, b"\0")[: self._num_bytes]
        if may_end:
            for token_id in self._eos_ids:
                _set(bits, token_id)
        return bits

    def _all_but(self, token_ids: Iterable[int]) -> bytes:
        bits = bytearray(b"\xff" * self._num_bytes)
        for token_id in token_ids:
            if token_id >> 3 < len(bits):
                bits[token_id >> 3] &= ~(1 << (token_id & 7)) & 0xFF
        return bytes(bits)

    def _only(self, token_ids: Any) -> bytes:
        bits = bytearray(self._num_bytes)
        for token_id in token_ids:
            _set(bits, token_id)
        return bytes(bits)


def _set(bits: bytearray, token_id: int) -> None:
    """A tokenizer may name end tokens that the model has no logits for; they stay out."""
    if token_id >> 3 < len(bits):
        bits[token_id >> 3] |= 1 << (token_id & 7)
