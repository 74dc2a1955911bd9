"""The fields that OpenAI's chat and completions share."""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from flm.errors import InvalidRequestError
from flm.server.schemas.generation import NOT_READ, GenerationBody, Unmet, checked
from flm.server.schemas.output import (
    CONSTRAINT_SCHEMA,
    FORMAT_SCHEMA,
    GUIDED,
    format_constraint,
    guided_constraints,
    structured_constraint,
    unread_in_format,
)
from flm.server.schemas.types import Int64, Schema
from flm.types import OutputConstraint

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


class StreamOptions(Schema):
    """What a stream carries besides text."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class CommonBody(GenerationBody):
    """Of OpenAI's fields, those that both endpoints have, and our additions to their replies."""

    length_fields: ClassVar[tuple[str, ...]] = ("max_tokens", "max_completion_tokens")
    reads_unknown: ClassVar[frozenset[str]] = frozenset(GUIDED)

    n: Annotated[int, Field(strict=True, ge=1, le=MAX_CHOICES)] | None = Field(
        None,
        description="Choices, all counted in usage; choice i of a seeded request uses seed + i.",
    )
    max_tokens: Int64 | None = Field(
        None, description="At most this many new tokens; absent or <= 0: until the context is full."
    )
    max_completion_tokens: Int64 | None = Field(None, description="Another name of max_tokens.")
    stop: Stop | None = Field(
        None, description="Up to 16 strings; the text ends before the match that is complete first."
    )
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
    user: str | None = Field(None, description="No effect, no record.")
    metadata: dict[str, Any] | None = Field(None, description="No effect, no record.")
    store: bool | None = Field(
        None, description="true is recorded as dropped; only /v1/responses keeps replies."
    )
    service_tier: str | None = Field(
        None, description="Others than auto and default are recorded as dropped."
    )
    safety_identifier: str | None = Field(None, description="No effect, no record.")
    prompt_cache_key: str | None = Field(None, description="No effect, no record.")
    response_format: Annotated[
        Any, BeforeValidator(checked(format_constraint)), WithJsonSchema(FORMAT_SCHEMA)
    ] = Field(None, description="text, json_object (schema may stand beside), or json_schema.")
    structured_outputs: Annotated[
        Any, BeforeValidator(checked(structured_constraint)), WithJsonSchema(CONSTRAINT_SCHEMA)
    ] = Field(None, description="Exactly one of json, regex, choice and grammar.")

    @field_validator("stop")
    @classmethod
    def _few_stops(cls, stop: Stop | None) -> Stop | None:
        if isinstance(stop, list) and len(stop) > MAX_STOPS:
            raise InvalidRequestError(f"stop takes at most {MAX_STOPS} strings.", param="stop")
        return stop

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
    def num_choices(self) -> int:
        """Replies to each prompt."""
        return self.n if self.n is not None else 1

    @property
    def with_timings(self) -> bool:
        """True when the reply tells how long it took."""
        return self.return_timings is True or self.timings_per_token is True

    @property
    def with_token_timings(self) -> bool:
        """True when every part of a stream tells how long it took so far."""
        return self.timings_per_token is True and self.streams

    @property
    def with_progress(self) -> bool:
        """True when a stream tells of every part of the prompt that was read."""
        return self.return_progress is True and self.streams

    @property
    def with_token_ids(self) -> bool:
        """True when the reply tells the ids of its tokens."""
        return self.return_token_ids is True

    @property
    def include_usage(self) -> bool:
        """True when a stream ends with a chunk of counts."""
        return self.stream_options is not None and self.stream_options.include_usage is True

    def unmet(self) -> Iterator[Unmet]:
        """The declared fields that ask for what is not done."""
        yield from super().unmet()
        if self.store:
            yield Unmet("store", "Replies of this endpoint are not stored.", True)
        if self.service_tier not in (None, "auto", "default"):
            yield Unmet("service_tier", "There is one tier.", self.service_tier)
        if self.stream_options is not None and self.stream_options.include_obfuscation:
            yield Unmet("stream_options.include_obfuscation", "Streams are never padded.", True)
        if self.return_progress and not self.streams:
            yield Unmet("return_progress", "Progress is told in a stream.", True)
        yield from (
            Unmet(path, NOT_READ, own) for path, own in unread_in_format(self.response_format)
        )
