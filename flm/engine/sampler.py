"""The tokens of a step: rows of logits in, sampled tokens out, guesses verified on the way.

A sequence with drafts has a row of logits behind each guess. Its rows are sampled one after the
other, each exactly as if it were alone: with the window, the grammar and the random number that the
tokens before it leave. As long as the sampled token is the guessed one, the next row is the one
that would have been computed for it. The first other token is as good; the rows behind it are not
looked at, and no random number is drawn for them.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch import Tensor

from flm.engine.masks import EarlyMask
from flm.engine.protocol import Logprobs, TokenOut
from flm.engine.sequence import Sequence as EngineSequence
from flm.errors import FlmError, InternalError, InvalidRequestError
from flm.log import logger
from flm.sampling.batch import NO_TOKEN, Sampled, SamplingRow
from flm.sampling.pipeline import Sampler
from flm.sampling.window import Window


@dataclass(slots=True, eq=False)
class Turn:
    """A sequence that samples, from row ``row`` of the step's logits on: the one before its first
    draft. ``tokens`` are those that it has sampled in this step. ``mask`` is that of the first
    row, where it was made before."""

    sequence: EngineSequence
    row: int
    drafts: tuple[int, ...] = ()
    mask: EarlyMask | None = None
    tokens: list[TokenOut] = field(default_factory=list)

    @property
    def request_id(self) -> str:
        """The request's id."""
        return self.sequence.id

    def describe(self, vocab_size: int) -> SamplingRow:
        """How to sample the next token. Advances the generator unless it is greedy."""
        sequence, request = self.sequence, self.sequence.request
        ahead = [token.token_id for token in self.tokens]
        banned_ids = sequence.banned_after(len(self.tokens))
        return SamplingRow(
            params=request.sampling,
            window=sequence.window_after(ahead) if request.sampling.has_penalties else Window(),
            uniform=None if sequence.random is None else sequence.random.next_uniform(),
            mask=self._mask(),
            # A tokenizer may name end tokens that the model has no logits for.
            banned_ids=tuple(token for token in banned_ids if token < vocab_size),
            logit_bias=request.logit_bias,
            num_logprobs=request.num_logprobs,
        )

    def _mask(self) -> bytes | None:
        grammar = self.sequence.request.grammar
        if grammar is None:
            return None
        mask = self.mask
        if mask is None or self.tokens:  # the early one is that of the first row only
            mask = EarlyMask(grammar)
            mask.make()
        self.sequence.mask_s = mask.seconds
        return mask.take()

    def accept(self, sampled: Sampled) -> bool:
        """Take the next token; True if it was the guessed one and does not end the sequence, so
        that the next row can be sampled.

        Raises:
            InvalidRequestError: nothing could be sampled.
        """
        request, token_id = self.sequence.request, sampled.token_id
        if token_id == NO_TOKEN:
            raise InvalidRequestError(
                "No token can follow: the grammar, min_tokens, the stop tokens and logit_bias "
                "together rule out all of them. Loosen one of these."
            )
        if request.grammar is not None:
            request.grammar.accept(token_id)
        place = len(self.tokens)
        reason = self.sequence.end_with(token_id, place)
        wants_logprobs = request.num_logprobs is not None
        self.tokens.append(
            TokenOut(
                self.request_id,
                token_id,
                logprobs_of(sampled) if wants_logprobs else None,
                num_drafted=len(self.drafts) if place == 0 else 0,
                was_drafted=self._is_guess(place, token_id),
            )
        )
        return reason is None and self._is_guess(place, token_id)

    def _is_guess(self, place: int, token_id: int) -> bool:
        return place < len(self.drafts) and self.drafts[place] == token_id


def next_tokens(
    turns: Sequence[Turn], logits: Tensor, failures: dict[str, FlmError], sampler: Sampler
) -> dict[str, tuple[TokenOut, ...]]:
    """The tokens of every turn, by request id, from ``logits`` [num_rows, vocab].

    A turn that fails goes to ``failures``; what it sampled before stays.
    """
    going = [turn for turn in turns if turn.request_id not in failures]
    while going:
        described: dict[str, SamplingRow] = {}
        for turn in going:
            with blamed_on(turn.request_id, failures):
                described[turn.request_id] = turn.describe(logits.shape[1])
        going = [turn for turn in going if turn.request_id in described]
        if not going:
            break
        wanted = [turn.row + len(turn.tokens) for turn in going]
        rows = logits if wanted == list(range(len(logits))) else logits[wanted]
        sampled = _sample_each(rows, described, failures, sampler)
        going = [turn for turn in going if _goes_on(turn, sampled, failures)]
    return {turn.request_id: tuple(turn.tokens) for turn in turns if turn.tokens}


def _goes_on(turn: Turn, sampled: Mapping[str, Sampled], failures: dict[str, FlmError]) -> bool:
    found = sampled.get(turn.request_id)
    if found is not None:
        with blamed_on(turn.request_id, failures):
            return turn.accept(found)
    return False


def _sample_each(
    logits: Tensor,
    rows: Mapping[str, SamplingRow],
    failures: dict[str, FlmError],
    sampler: Sampler,
) -> dict[str, Sampled]:
    """Sample all rows, [B, vocab], at once; if that fails, one by one to find the culprit."""
    try:
        return dict(zip(rows, sampler.sample(logits, list(rows.values())), strict=True))
    except Exception:  # noqa: BLE001
        logger.exception("Sampling failed for %s; trying each alone.", ", ".join(rows))
    found: dict[str, Sampled] = {}
    for place, (request_id, row) in enumerate(rows.items()):
        with blamed_on(request_id, failures):
            found[request_id] = sampler.sample(logits[place : place + 1], [row])[0]
    return found


def without_numbers(
    rows: Mapping[str, range], logits: Tensor, sampler: Sampler
) -> dict[str, FlmError]:
    """The requests with a NaN or a positive infinity among their logits, [num_rows, vocab]."""
    fine = sampler.are_numbers(logits)
    if all(fine):
        return {}
    found: dict[str, FlmError] = {}
    for request_id, own in rows.items():
        if not all(fine[own.start : own.stop]):
            logger.error("The model gave logits that are not numbers for %s", request_id)
            found[request_id] = InternalError(
                "The model gave values that are not numbers for this request. Try --dtype float32; "
                "if that does not help, the model's files may be damaged."
            )
    return found


@contextmanager
def blamed_on(request_id: str, failures: dict[str, FlmError]) -> Iterator[None]:
    """Turn an exception into the failure of one request, which keeps its first one."""
    try:
        yield
    except FlmError as error:
        logger.warning("Request %s failed: %s", request_id, error)
        failures.setdefault(request_id, error)
    except Exception:  # noqa: BLE001
        logger.exception("Request %s failed", request_id)
        failures.setdefault(
            request_id,
            InternalError("This request failed inside the engine; see the server's log."),
        )


def logprobs_of(entry: Sampled) -> Logprobs:
    """What the protocol says of a sampled token with log probabilities."""
    assert entry.logprob is not None
    return Logprobs(entry.token_id, entry.logprob, entry.top)
