"""Sampled tokens to the deltas of one choice: detokenise, parse, match stop strings.

Three places hold text back: half a character, a tag that may be beginning, a stop string that may
be beginning. A token is reported with the delta that settles its last character, so what is
reported never runs ahead of what can be shown.
"""

import secrets
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from flm.text.detokenize import Detokenizer
from flm.text.parsers.base import CallPart, Parser, Piece
from flm.text.stop import StopMatcher
from flm.text.tokenizer import Tokenizer
from flm.types import Channel, TextDelta, TokenLogprob, ToolCallDelta

Delta = TextDelta | ToolCallDelta


@dataclass(frozen=True, slots=True)
class _Token:
    """A token that waits for its text. ``end`` counts output characters up to its last one."""

    token_id: int
    end: int
    logprob: TokenLogprob | None


class OutputPipeline:
    """One choice of a reply.

    Stop strings match the answer only, not reasoning and not tool calls. When one matches, the
    text ends before it, ``is_stopped`` is True, and the tokens behind the one that completed it
    are not reported. ``num_tokens`` counts the reported ones, ``num_reasoning_tokens`` those of
    them in the reasoning channel (its tags included). ``num_calls`` and ``num_whole_calls`` count
    the tool calls that have begun, and of them those that are complete and well formed.
    """

    def __init__(
        self,
        *,
        index: int,
        tokenizer: Tokenizer,
        stops: Iterable[str],
        parser: Parser,
        skip_control: bool = True,
    ) -> None:
        self.index = index
        self.is_stopped = False
        self.num_tokens = 0
        self.num_reasoning_tokens = 0
        self.num_calls = 0
        self.num_whole_calls = 0
        shown = (tokenizer.control_id(marker) for marker in parser.markers)
        self._detokenizer = Detokenizer(
            tokenizer,
            skip_control=skip_control,
            shown_ids=frozenset(token_id for token_id in shown if token_id is not None),
        )
        self._parser = parser
        self._matcher = StopMatcher(stops)
        self._waiting: deque[_Token] = deque()
        self._num_chars = 0  # output characters so far
        self._num_parsed = 0  # of them, those the parser has understood
        self._deltas: list[Delta] = []

    def feed(self, token_id: int, logprob: TokenLogprob | None = None) -> list[Delta]:
        """Take one token in; give out what it settles. After a stop, nothing."""
        if self.is_stopped:
            return []
        text = self._detokenizer.feed(token_id)
        if logprob is not None and self._detokenizer.skips(token_id):
            logprob = replace(logprob, is_hidden=True)
        self._num_chars += len(text)
        # A token that ends inside a character waits for the character that comes of it.
        end = self._num_chars + self._detokenizer.is_inside_character
        self._waiting.append(_Token(token_id, end, logprob))
        self._route(self._parser.feed(text))
        if not self.is_stopped:
            self._emit(self._parser.channel, "", self._num_settled)
        return self._taken()

    def flush(self) -> list[Delta]:
        """The end of the reply: everything held back, and every token not yet reported."""
        if self.is_stopped:
            return []
        tail = self._detokenizer.flush()
        self._num_chars += len(tail)
        self._route([*self._parser.feed(tail), *self._parser.flush()])
        if not self.is_stopped:
            self._release_held()
            self._emit(self._parser.channel, "", self._num_chars + 1)
        return self._taken()

    # --- text ----------------------------------------------------------------------------------

    @property
    def stop_string(self) -> str | None:
        """The stop string that ended the text, if one did."""
        return self._matcher.matched

    @property
    def _num_settled(self) -> int:
        """Output characters that nothing can take back."""
        return self._num_parsed - len(self._matcher.held)

    def _route(self, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            if self.is_stopped:
                return
            if piece.channel == "content" and piece.text:
                self._match(piece)
            else:
                # A stop string does not reach across markup, reasoning or a call.
                self._release_held()
                self._num_parsed += piece.raw_len
                if piece.call is None:
                    self._emit(piece.channel, piece.text, self._num_settled)
                else:
                    self._emit_call(piece.call, self._num_settled)

    def _match(self, piece: Piece) -> None:
        start = self._num_settled
        step = self._matcher.feed(piece.text)
        self._num_parsed += piece.raw_len
        if step.matched is None:
            self._emit("content", step.text, self._num_settled)
        else:
            self._stop(step.text, start + len(step.text) + len(step.matched))

    def _stop(self, text: str, match_end: int) -> None:
        """End the text; report tokens up to the one that holds the match's last character."""
        self.is_stopped = True
        last = next(i for i, token in enumerate(self._waiting) if token.end >= match_end)
        kept = [self._waiting[i] for i in range(last + 1)]
        self._waiting.clear()
        self._add("content", text, kept)

    def _release_held(self) -> None:
        text = self._matcher.flush()
        if text:
            self._emit("content", text, self._num_settled)

    # --- deltas --------------------------------------------------------------------------------

    def _emit(self, channel: Channel, text: str, num_settled: int) -> None:
        """A delta with the tokens whose characters are settled."""
        self._add(channel, text, self._settled_tokens(num_settled))

    def _emit_call(self, part: CallPart, num_settled: int) -> None:
        tokens = self._settled_tokens(num_settled)
        self.num_tokens += len(tokens)
        is_first = part.name is not None
        self.num_calls += is_first
        self.num_whole_calls += part.is_last
        self._append(
            ToolCallDelta(
                index=self.index,
                call_index=part.index,
                id=f"call_{secrets.token_hex(12)}" if is_first else None,
                name=part.name,
                arguments=part.arguments,
                token_ids=_ids(tokens),
                logprobs=_logprobs(tokens),
            )
        )

    def _settled_tokens(self, num_settled: int) -> list[_Token]:
        tokens: list[_Token] = []
        while self._waiting and self._waiting[0].end <= num_settled:
            tokens.append(self._waiting.popleft())
        return tokens

    def _add(self, channel: Channel, text: str, tokens: Sequence[_Token]) -> None:
        if not text and not tokens:
            return
        self.num_tokens += len(tokens)
        if channel == "reasoning":
            self.num_reasoning_tokens += len(tokens)
        self._append(TextDelta(self.index, text, channel, _ids(tokens), _logprobs(tokens)))

    def _append(self, delta: Delta) -> None:
        joined = _joined(self._deltas[-1], delta) if self._deltas else None
        if joined is None:
            self._deltas.append(delta)
        else:
            self._deltas[-1] = joined

    def _taken(self) -> list[Delta]:
        deltas, self._deltas = self._deltas, []
        return deltas


def _ids(tokens: Sequence[_Token]) -> tuple[int, ...]:
    return tuple(token.token_id for token in tokens)


def _logprobs(tokens: Sequence[_Token]) -> tuple[TokenLogprob, ...]:
    return tuple(token.logprob for token in tokens if token.logprob is not None)


def _joined(one: Delta, other: Delta) -> Delta | None:
    """Two deltas as one, where the second goes on with what the first said."""
    token_ids, logprobs = one.token_ids + other.token_ids, one.logprobs + other.logprobs
    if isinstance(one, ToolCallDelta):
        if not isinstance(other, ToolCallDelta) or other.call_index != one.call_index:
            return None
        arguments = one.arguments + other.arguments
        return replace(one, arguments=arguments, token_ids=token_ids, logprobs=logprobs)
    if not isinstance(other, TextDelta) or other.channel != one.channel:
        return None
    return replace(one, text=one.text + other.text, token_ids=token_ids, logprobs=logprobs)
