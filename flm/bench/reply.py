"""What is asked of a target and what is measured of its answer."""

from dataclasses import dataclass

Message = dict[str, str]


@dataclass(frozen=True, slots=True)
class Reply:
    """One answered request. Times are seconds since the request was sent.

    ``cached_tokens`` of the prompt were in the target's cache and not read again. ``times`` are
    those of every piece of text, where they are known.
    """

    text: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    first_token_s: float
    last_token_s: float
    times: tuple[float, ...] = ()

    @property
    def prefill_tps(self) -> float:
        """Prompt tokens read per second, until the first new token is there."""
        return (self.prompt_tokens - self.cached_tokens) / self.first_token_s

    @property
    def decode_tps(self) -> float:
        """New tokens per second after the first one; 0 when there is only one."""
        span = self.last_token_s - self.first_token_s
        return (self.completion_tokens - 1) / span if span > 0 else 0.0
