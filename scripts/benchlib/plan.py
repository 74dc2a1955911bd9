"""What to measure, and how long prompts and replies are."""

from dataclasses import dataclass

SLACK = 1.15
"""Prompts come out a little longer than asked for, and templates add to them."""
MIN_KV_TOKENS = 16384


@dataclass(frozen=True, slots=True)
class Plan:
    """Lengths in tokens. ``only`` names the scenarios that are wanted, all of them when it is
    empty; ``minutes`` starts no round that would not end in time."""

    prompt_lens: tuple[int, ...] = (512, 4000)
    decode_len: int = 128
    num_clients: int = 8
    client_prompt_len: int = 64
    client_tokens: int = 64
    shared_len: int = 2000
    turn_len: int = 3000
    arrival_len: int = 4000
    repeated_words: int = 150
    repeat: int = 3
    only: frozenset[str] = frozenset()
    minutes: float | None = None

    @property
    def kv_tokens(self) -> int:
        """The KV cache that every server is given: room for what is read at the same time, even
        where nothing that requests have in common is shared."""
        own = self.client_prompt_len + self.client_tokens
        longest = max(*self.prompt_lens, self.turn_len, self.arrival_len) + 2 * self.decode_len
        wanted = SLACK * max(self.num_clients * (self.shared_len + own), longest)
        return max(MIN_KV_TOKENS, -(-int(wanted) // 1024) * 1024)

    def wants(self, scenario: str) -> bool:
        """Whether a scenario is part of it."""
        return not self.only or scenario in self.only
