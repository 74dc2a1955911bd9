"""The prompt given back in front of a completion, and engine log probabilities put into words."""

from collections.abc import Sequence

from flm.engine.protocol import Logprobs
from flm.text.tokenizer import Tokenizer
from flm.types import PromptEcho, TokenLogprob, TopLogprob


def prompt_echo(
    tokenizer: Tokenizer,
    index: int,
    prompt_ids: tuple[int, ...],
    logprobs: Sequence[Logprobs | None],
) -> PromptEcho:
    """The echo of one choice. ``logprobs`` is empty, or has an entry per prompt token whose first
    is None because nothing precedes that token."""
    entries = tuple(
        TokenLogprob(
            token_id=token_id,
            text=tokenizer.token_text(token_id),
            raw=tokenizer.token_bytes(token_id),
            logprob=None if entry is None else entry.logprob,
            top=() if entry is None else top_logprobs(tokenizer, entry),
        )
        for token_id, entry in zip(prompt_ids, logprobs, strict=False)
    )
    text = tokenizer.decode(prompt_ids, skip_control=False)
    return PromptEcho(index=index, text=text, token_ids=prompt_ids, logprobs=entries)


def token_logprob(tokenizer: Tokenizer, entry: Logprobs) -> TokenLogprob:
    """One sampled token with its alternatives, in words."""
    return TokenLogprob(
        token_id=entry.token_id,
        text=tokenizer.token_text(entry.token_id),
        raw=tokenizer.token_bytes(entry.token_id),
        logprob=entry.logprob,
        top=top_logprobs(tokenizer, entry),
    )


def top_logprobs(tokenizer: Tokenizer, entry: Logprobs) -> tuple[TopLogprob, ...]:
    """The alternatives of one position, best first."""
    return tuple(
        TopLogprob(
            token_id=token_id,
            text=tokenizer.token_text(token_id),
            raw=tokenizer.token_bytes(token_id),
            logprob=logprob,
        )
        for token_id, logprob in entry.top
    )
