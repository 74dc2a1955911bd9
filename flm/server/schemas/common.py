"""The fields that chat and completions share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from flm.adaptation import Mode
from flm.errors import InvalidRequestError
from flm.server.schemas.output import (
    CONSTRAINT_SCHEMA,
    FORMAT_SCHEMA,
    format_constraint,
    guided_constraints,
    structured_constraint,
)
from flm.server.schemas.types import Int64, NotNegative, Number, Schema, TokenId
from flm.types import OutputConstraint, Prompt

Bias = tuple[int | str, float]
"""A token, by its id or as a text of one or more tokens, and what is added to its logit."""
MAX_CHOICES = 128
MAX_STOPS = 16


def _stop_kind(value: Any) -> str | None:
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else None


Stop = Annotated[
    Annotated[str, Tag("string")] | Annotated[list[str], Tag("array")],
    Discriminator(
        _stop_kind,
        custom_error_type="stop_type",
        custom_error_message="must be a string or an array of strings",
    ),
]


def checked(read: Callable[[Any], object]) -> Callable[[Any], Any]:
    """A validator that keeps the value as it came once ``read`` accepts it."""

    def check(value: Any) -> Any:
        read(value)
        return value

    return check


class StreamOptions(Schema):
    """What a stream carries besides text."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


@dataclass(frozen=True, slots=True)
class Unread:
    """A field that another server has and this one does not: why, and the values that ask for
    what is done anyway."""

    reason: str
    is_met: Callable[[Any], bool]


class CommonBody(Schema):
    """Sampling fields outside their range are ignored and recorded, so they have no bounds here."""

    unread: ClassVar[Mapping[str, Unread]] = {}
    aliases: ClassVar[Mapping[str, str]] = {}
    length_fields: ClassVar[tuple[str, ...]] = ("max_tokens", "max_completion_tokens")

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
    n: Annotated[int, Field(strict=True, ge=1, le=MAX_CHOICES)] | None = Field(
        None,
        description="Choices, all counted in usage; choice i of a seeded request uses seed + i.",
    )
    max_tokens: Int64 | None = Field(
        None, description="At most this many new tokens; absent or <= 0: until the context is full."
    )
    max_completion_tokens: Int64 | None = Field(None, description="Another name of max_tokens.")
    min_tokens: NotNegative | None = Field(
        None, description="End-of-sequence and stop tokens cannot come before so many tokens."
    )
    stop: Stop | None = Field(
        None, description="Up to 16 strings; the text ends before the match that is complete first."
    )
    stop_token_ids: list[TokenId] | None = Field(
        None, description="Tokens that end the reply as an end-of-sequence token does."
    )
    ignore_eos: bool | None = Field(None, description="Go on past end-of-sequence tokens.")
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = Field(
        None, description="Token id (as a string) to a number from -100 to 100."
    )
    stream: bool | None = Field(None, description="Send the reply as server-sent events.")
    stream_options: StreamOptions | None = Field(
        None, description="include_usage: end the stream with a chunk of counts."
    )
    return_token_ids: bool | None = Field(
        None, description="Give prompt_token_ids and choices[].token_ids back."
    )
    return_timings: bool | None = Field(
        None, description="Tell how long it took, as timings; in a stream on the last chunk."
    )
    timings_per_token: bool | None = Field(
        None, description="As return_timings; in a stream the timings so far on every chunk."
    )
    return_progress: bool | None = Field(
        None,
        description="In a stream: a chunk with prompt_progress for every part of the prompt read.",
    )
    cache_prompt: bool | None = Field(
        None, description="false: neither use nor fill the prefix cache."
    )
    adaptations: Mode | None = Field(
        None, description="note: tell what was changed; silent: do not; refuse: answer 400 instead."
    )
    user: str | None = Field(None, description="No effect, no record.")
    metadata: dict[str, Any] | None = Field(None, description="No effect, no record.")
    store: bool | None = Field(None, description="true is recorded as dropped.")
    service_tier: str | None = Field(
        None, description="Others than auto and default are recorded as dropped."
    )
    safety_identifier: str | None = Field(None, description="No effect, no record.")
    prompt_cache_key: str | None = Field(None, description="No effect, no record.")
    response_format: Annotated[
        Any, BeforeValidator(checked(format_constraint)), WithJsonSchema(FORMAT_SCHEMA)
    ] = Field(None, description="text, json_object, or json_schema with a schema.")
    structured_outputs: Annotated[
        Any, BeforeValidator(checked(structured_constraint)), WithJsonSchema(CONSTRAINT_SCHEMA)
    ] = Field(None, description="Exactly one of json, regex, choice and grammar.")

    @field_validator("stop")
    @classmethod
    def _few_stops(cls, stop: Stop | None) -> Stop | None:
        if isinstance(stop, list) and len(stop) > MAX_STOPS:
            raise InvalidRequestError(f"stop takes at most {MAX_STOPS} strings.", param="stop")
        return stop

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

    @model_validator(mode="after")
    def _one_constraint(self) -> "CommonBody":
        if len(self._constraints()) > 1:
            first, second, *_ = self._constraints()
            raise InvalidRequestError(
                f"{second.param} cannot be combined with {first.param}; send one of them.",
                param=second.param,
            )
        return self

    @property
    def constraint(self) -> OutputConstraint | None:
        """What the answer must be; None: any text."""
        return next(iter(self._constraints()), None)

    def _constraints(self) -> list[OutputConstraint]:
        extra = self.model_extra if self.model_extra is not None else {}
        declared = [
            format_constraint(self.response_format),
            structured_constraint(self.structured_outputs),
        ]
        return [*(item for item in declared if item is not None), *guided_constraints(extra)]

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings; empty ones stand for none."""
        listed = [self.stop] if isinstance(self.stop, str) else self.stop
        return tuple(item for item in listed if item) if listed is not None else ()

    @property
    def prompts(self) -> tuple[Prompt, ...] | None:
        """What is continued as it is; None for a chat."""
        return None

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
    def seed_in_force(self) -> int | None:
        """The seed; None: the reply is drawn from the model's own stream."""
        return self.seed

    @property
    def biases(self) -> tuple[Bias, ...]:
        """What is added to the logits of which tokens."""
        bias = self.logit_bias if self.logit_bias is not None else {}
        return tuple((int(key), value) for key, value in bias.items())

    def sampling_value(self, name: str, vocab_size: int) -> Any:  # noqa: ARG002
        """The value that the body carries for a sampling field; None: none."""
        return getattr(self, name)

    @property
    def num_choices(self) -> int:
        """Replies to each prompt."""
        return self.n if self.n is not None else 1

    def own_name(self, name: str) -> str:
        """What this body calls a field: its alias, unless the field alone was sent."""
        alias = self.aliases.get(name)
        if alias is None or (getattr(self, alias) is None and getattr(self, name) is not None):
            return name
        return alias

    @property
    def with_timings(self) -> bool:
        """True when the reply tells how long it took."""
        return self.return_timings is True or self.timings_per_token is True

    @property
    def include_usage(self) -> bool:
        """True when a stream ends with a chunk of counts."""
        return self.stream_options is not None and self.stream_options.include_usage is True


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
