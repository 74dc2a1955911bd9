"""What every body that asks for text has, whatever dialect it is written in."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from flm.adaptation import Mode
from flm.errors import InvalidRequestError
from flm.server.schemas.types import Int64, NotNegative, Number, Schema, TokenId
from flm.types import OutputConstraint, Prompt

NOT_READ = "This field is not read."

Bias = tuple[int | str, float]
"""A token, by its id or as a text of one or more tokens, and what is added to its logit."""


def checked(read: Callable[[Any], object]) -> Callable[[Any], Any]:
    """A validator that keeps the value as it came once ``read`` accepts it."""

    def check(value: Any) -> Any:
        read(value)
        return value

    return check


@dataclass(frozen=True, slots=True)
class Unread:
    """A field that another server has and this one does not: why, and the values that ask for
    what is done anyway."""

    reason: str
    is_met: Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Unmet:
    """A field of the body that has no effect, and why."""

    field: str
    reason: str
    asked: Any = None


class GenerationBody(Schema):
    """The fields that every dialect shares: those that stick, and our own additions. What a dialect
    names otherwise it tells through the properties.

    Sampling fields outside their range are ignored and recorded, so they have no bounds here.
    ``unread`` are known fields without effect, ``aliases`` maps our names to the dialect's own,
    ``length_fields`` limit the new tokens, the first that is sent wins; ``reads_unknown`` are
    undeclared fields that are read all the same.
    """

    unread: ClassVar[Mapping[str, Unread]] = {}
    aliases: ClassVar[Mapping[str, str]] = {}
    length_fields: ClassVar[tuple[str, ...]] = ("max_tokens",)
    reads_unknown: ClassVar[frozenset[str]] = frozenset()

    model: str | None = Field(None, description="Absent: the loaded model.")
    temperature: Number | None = Field(None, description=">= 0; 0 is greedy. Sticks.")
    top_k: Int64 | None = Field(None, description=">= 1; 1 is greedy. Sticks.")
    top_p: Number | None = Field(None, description="0 to 1. Sticks.")
    min_p: Number | None = Field(None, description="0 to 1. Sticks.")
    repetition_penalty: Number | None = Field(None, description="> 0; 1 is off. Sticks.")
    frequency_penalty: Number | None = Field(None, description=">= 0; 0 is off. Sticks.")
    presence_penalty: Number | None = Field(None, description=">= 0; 0 is off. Sticks.")
    repeat_last_n: Annotated[int, Field(strict=True, ge=-1, le=2**63 - 1)] | None = Field(
        None, description="Length of the penalty window in tokens; -1: the whole reply. Sticks."
    )
    think: bool | None = Field(None, description="Reason before the answer. Sticks.")
    reasoning_effort: str | None = Field(
        None, description="none, minimal, low, medium, high, xhigh or max. Sticks."
    )
    seed: Int64 | None = Field(None, description="For this request only.")
    min_tokens: NotNegative | None = Field(
        None,
        description="End-of-sequence and stop tokens cannot come before so many tokens. More than "
        "max_tokens is HTTP 400, more than the context has room for is recorded as clamped.",
    )
    stop_token_ids: list[TokenId] | None = Field(
        None, description="Tokens that end the reply as an end-of-sequence token does."
    )
    ignore_eos: bool | None = Field(None, description="Go on past end-of-sequence tokens.")
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = Field(
        None, description="Token id (as a string) to a number from -100 to 100."
    )
    stream: bool | None = Field(None, description="Send the reply as server-sent events.")
    cache_prompt: bool | None = Field(
        None, description="false: neither use nor fill the prefix cache."
    )
    adaptations: Mode | None = Field(
        None, description="note: tell what was changed; silent: do not; refuse: answer 400 instead."
    )

    request_id: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="A name under which POST /api/cancel finds this request."
    )

    @field_validator("logit_bias")
    @classmethod
    def _token_ids(cls, bias: dict[str, float] | None) -> dict[str, float] | None:
        for key in bias if bias is not None else ():
            if not (key.isascii() and key.isdigit() and len(key) <= 10) or str(int(key)) != key:
                raise InvalidRequestError(
                    f"logit_bias maps token ids to numbers; {key[:40]!r} is not a token id.",
                    param="logit_bias",
                )
        return bias

    @property
    def constraint(self) -> OutputConstraint | None:
        """What the answer must be; None: any text."""
        return None

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings; empty ones stand for none."""
        return ()

    @property
    def prompts(self) -> tuple[Prompt, ...] | None:
        """What is continued as it is; None for a chat."""
        return None

    @property
    def num_choices(self) -> int:
        """Replies to each prompt."""
        return 1

    @property
    def num_logprobs(self) -> int | None:
        """Alternatives wanted at each position; None: no log probabilities."""
        return None

    @property
    def gives_prompt_back(self) -> bool:
        """True when the reply begins with the prompt."""
        return False

    @property
    def may_say_nothing(self) -> bool:
        """True when a limit of no tokens is one, and not the absence of a limit."""
        return self.gives_prompt_back

    @property
    def opens_reply(self) -> bool:
        """True when a chat's prompt ends where the model's reply begins."""
        return True

    @property
    def is_counted(self) -> bool:
        """True when only the number of the prompt's tokens is wanted."""
        return False

    @property
    def streams(self) -> bool:
        """True when the reply is sent piece by piece."""
        return self.stream is True

    @property
    def seed_in_force(self) -> int | None:
        """The seed; None: the reply is drawn from the model's own stream."""
        return self.seed

    @property
    def biases(self) -> tuple[Bias, ...]:
        """What is added to the logits of which tokens."""
        bias = self.logit_bias if self.logit_bias is not None else {}
        return tuple((int(key), value) for key, value in bias.items())

    @property
    def with_timings(self) -> bool:
        """True when the reply tells how long it took."""
        return False

    @property
    def with_token_timings(self) -> bool:
        """True when every part of a stream tells how long it took so far."""
        return False

    @property
    def with_progress(self) -> bool:
        """True when a stream tells of every part of the prompt that was read."""
        return False

    @property
    def with_token_ids(self) -> bool:
        """True when the reply tells the ids of its tokens."""
        return False

    @property
    def include_usage(self) -> bool:
        """True when a stream ends with a chunk of counts."""
        return False

    def sticky_value(self, name: str) -> Any:
        """The value that the body carries for a field that sticks; None: none."""
        return getattr(self, name)

    def asked_value(self, name: str) -> Any:
        """As ``sticky_value``, in the words of the body, for the record."""
        return self.sticky_value(name)

    def sampling_value(self, name: str, vocab_size: int) -> Any:  # noqa: ARG002
        """As ``sticky_value``, with what only the model can tell put in."""
        return self.sticky_value(name)

    def length_value(self, name: str) -> int | None:
        """The limit that one of ``length_fields`` asks for; None: none."""
        value: int | None = getattr(self, name)
        return value

    def own_name(self, name: str) -> str:
        """What this body calls a field: its alias, unless the field alone was sent."""
        alias = self.aliases.get(name)
        if alias is None or (getattr(self, alias) is None and getattr(self, name) is not None):
            return name
        return alias

    def unmet(self) -> Iterator[Unmet]:
        """The declared fields that ask for what is not done."""
        yield from ()

    def unmet_by(self, context_len: int) -> Iterator[Unmet]:  # noqa: ARG002
        """As ``unmet``, for a model with a context of so many tokens."""
        yield from ()


Effort = Literal["none", "low", "medium", "high"]
EFFORT_ALIASES: dict[str, Effort] = {
    "none": "none",
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "max": "high",
}
