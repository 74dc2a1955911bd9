"""The body of ``POST /v1/responses``."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    PrivateAttr,
    Tag,
    WithJsonSchema,
    model_validator,
)

from flm.errors import InvalidRequestError
from flm.server.schemas.common import StreamOptions
from flm.server.schemas.conversation import MESSAGE_PATH, ConversationBody
from flm.server.schemas.generation import NOT_READ, Unmet, Unread, checked
from flm.server.schemas.open_responses_items import AnyItem, Item, ReasoningItem
from flm.server.schemas.open_responses_messages import Said, messages_of
from flm.server.schemas.open_responses_tools import (
    FLAT_CHOICE_SCHEMA,
    FLAT_TOOLS_SCHEMA,
    FlatTools,
    read_flat_choice,
    read_flat_tools,
)
from flm.server.schemas.output import schema_constraint
from flm.server.schemas.tool_choice import AUTO, ToolChoice, call_rules
from flm.server.schemas.types import Int64, Schema, unread_keys
from flm.types import CallRules, OutputConstraint

MAX_TOP_LOGPROBS = 20
MAX_TOOL_CALLS = 128
LOGPROBS = "message.output_text.logprobs"
_FORMAT = "text.format"
_FORMAT_KEYS = ("type", "name", "description", "strict", "schema")
_REFUSED = {
    "conversation": "Conversations are not kept here; send previous_response_id, or all of input.",
    "prompt": "No prompts are kept here; send instructions and input.",
}


def _never(_: Any) -> bool:
    return False


def text_constraint(value: Any) -> OutputConstraint | None:
    """What ``text.format`` asks for; None for text.

    Raises:
        InvalidRequestError: it has another shape; ``param`` is the dotted path.
    """
    match value:
        case None | {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return OutputConstraint("json", None, _FORMAT)
        case {"type": "json_schema"}:
            return schema_constraint(value, _FORMAT)
    raise InvalidRequestError(
        f"{_FORMAT} must be an object of type 'text', 'json_object' or 'json_schema'.",
        param=f"{_FORMAT}.type" if isinstance(value, dict) else _FORMAT,
    )


_FORMAT_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {
            "type": "object",
            "required": ["type"],
            "properties": {"type": {"enum": ["text", "json_object"]}},
        },
        {
            "type": "object",
            "required": ["type", "schema"],
            "properties": {
                "type": {"const": "json_schema"},
                "name": {"type": ["string", "null"]},
                "description": {"type": ["string", "null"]},
                "strict": {"type": ["boolean", "null"]},
                "schema": {"type": "object"},
            },
        },
        {"type": "null"},
    ]
}


class TextOptions(Schema):
    """How the answer is written."""

    format: Annotated[
        Any, BeforeValidator(checked(text_constraint)), WithJsonSchema(_FORMAT_SCHEMA)
    ] = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ReasoningOptions(Schema):
    """How the model reasons."""

    effort: str | None = None
    summary: str | None = None


def _input_kind(value: Any) -> str | None:
    if isinstance(value, str):
        return "string"
    return "items" if isinstance(value, list) else None


Input = Annotated[
    Annotated[str, Tag("string")] | Annotated[list[AnyItem], Field(min_length=1), Tag("items")],
    Discriminator(
        _input_kind,
        custom_error_type="input_type",
        custom_error_message="must be a string or an array of items",
    ),
]


@dataclass(frozen=True, slots=True)
class Given:
    """What the model is given: every item, of which the first ``num_past`` come from the reply
    that the request goes on from. ``is_kept``: the reply will be kept."""

    items: tuple[Item, ...] = ()
    num_past: int = 0
    is_kept: bool = False


class ResponsesBody(ConversationBody):
    """A request for a response. ``complete`` says what it is given before anything asks."""

    length_fields: ClassVar[tuple[str, ...]] = ("max_output_tokens",)
    unread: ClassVar[Mapping[str, Unread]] = {
        "max_tokens": Unread("It is called max_output_tokens here.", _never),
        "max_completion_tokens": Unread("It is called max_output_tokens here.", _never),
        "messages": Unread("They are called input here.", _never),
        "response_format": Unread("It is called text.format here.", _never),
        "stop": Unread("This API has no stop strings.", _never),
        "logprobs": Unread(f"Send top_logprobs, or include {LOGPROBS}.", _never),
    }

    input: Input | None = Field(
        None, description="Text, or items: messages, calls, their outputs, reasoning, references."
    )
    previous_response_id: str | None = Field(
        None, description="A kept reply whose conversation goes on."
    )
    instructions: str | None = Field(
        None, description="A system message in front of everything, for this request only."
    )
    max_output_tokens: Int64 | None = Field(
        None, description="At most this many new tokens; absent or <= 0: until the context is full."
    )
    tools: Annotated[Any, BeforeValidator(read_flat_tools), WithJsonSchema(FLAT_TOOLS_SCHEMA)] = (
        None
    )
    tool_choice: Annotated[
        Any, BeforeValidator(read_flat_choice), WithJsonSchema(FLAT_CHOICE_SCHEMA)
    ] = None
    parallel_tool_calls: bool | None = Field(
        None, description="false: at most one call in a reply, enforced."
    )
    max_tool_calls: Annotated[int, Field(strict=True, ge=1, le=MAX_TOOL_CALLS)] | None = Field(
        None, description="At most so many calls in a reply, enforced."
    )
    text: TextOptions | None = Field(
        None, description="format: text, json_object, or json_schema. verbosity: medium."
    )
    reasoning: ReasoningOptions | None = Field(
        None, description="effort: as reasoning_effort, sticks. summary: recorded as dropped."
    )
    include: list[str] | None = Field(
        None, description=f"{LOGPROBS}; others are recorded as dropped."
    )
    top_logprobs: Annotated[int, Field(strict=True, ge=0, le=MAX_TOP_LOGPROBS)] | None = Field(
        None, description="Alternatives at each position; more than 0 asks for log probabilities."
    )
    store: bool | None = Field(None, description="Keep the reply; true by default.")
    background: bool | None = Field(None, description="true is recorded as dropped.")
    truncation: Literal["auto", "disabled"] | None = Field(
        None, description="auto is recorded as dropped: an input that does not fit is a 400."
    )
    stream_options: StreamOptions | None = Field(None, description="Streams are never padded.")
    service_tier: str | None = Field(
        None, description="Others than auto and default are recorded as dropped."
    )
    metadata: dict[str, Any] | None = Field(None, description="Given back.")
    user: str | None = Field(None, description="Given back.")
    safety_identifier: str | None = Field(None, description="Given back.")
    prompt_cache_key: str | None = Field(None, description="Given back.")

    _given: Given = PrivateAttr(Given())

    @model_validator(mode="before")
    @classmethod
    def _possible(cls, body: dict[str, Any]) -> dict[str, Any]:
        for name, reason in _REFUSED.items():
            if body.get(name) is not None:
                raise InvalidRequestError(reason, param=name)
        if body.get("input") is None and body.get("previous_response_id") is None:
            raise InvalidRequestError("input is required.", param="input")
        return body

    def complete(self, given: Given) -> "ResponsesBody":
        """The same body that knows what the model is given."""
        body = self.model_copy()
        body._given = given
        return body

    @property
    def given(self) -> Given:
        """What the model is given."""
        return self._given

    # --- the conversation ------------------------------------------------------------------

    @property
    def plain_messages(self) -> tuple[Mapping[str, Any], ...]:
        """The messages as chat templates read them."""
        return (*self._instructions, *(said.message for said in self._said))

    @property
    def _instructions(self) -> tuple[Mapping[str, Any], ...]:
        if not self.instructions:
            return ()
        return ({"role": "system", "content": self.instructions},)

    @property
    def _said(self) -> list[Said]:
        return messages_of(self._given.items)

    def own_message_path(self, path: str) -> str:
        """The field that a message came in."""
        found = MESSAGE_PATH.fullmatch(path)
        if found is None:
            return "input" if path == "messages" else path
        index = int(found[1]) - len(self._instructions)
        if index < 0:
            return "instructions"
        place = self._said[index].place - self._given.num_past
        if place < 0:
            return "previous_response_id"
        return "input" if isinstance(self.input, str) else f"input[{place}]{found[2]}"

    def own_tool_path(self, index: int, key: str) -> str:
        """What this body calls a key of one of ``functions``."""
        return f"tools[{self.flat_tools.places[index]}].{key.removeprefix('function.')}"

    # --- calls and the form of the answer --------------------------------------------------

    @property
    def flat_tools(self) -> FlatTools:
        """The tools that came."""
        return FlatTools() if self.tools is None else self.tools

    @property
    def functions(self) -> Sequence[Mapping[str, Any]]:
        """The functions among them, in the form of chat completions."""
        return self.flat_tools.functions

    @property
    def choice(self) -> ToolChoice:
        """Which of them may be called."""
        return self.tool_choice or AUTO

    @property
    def calls(self) -> CallRules | None:
        """What is enforced of calls; None: nothing."""
        return call_rules(
            self.choice,
            self.functions,
            is_parallel=self.parallel_tool_calls is not False,
            has_format=self.constraint is not None,
            schema_field="parameters",
            places=self.flat_tools.places,
            max_calls=self.max_tool_calls,
        )

    @property
    def constraint(self) -> OutputConstraint | None:
        """What the answer must be; None: any text."""
        return None if self.text is None else text_constraint(self.text.format)

    @property
    def format_field(self) -> str:
        """The field that asks for ``constraint``."""
        return _FORMAT

    @property
    def num_logprobs(self) -> int | None:
        """Alternatives wanted at each position; None: no log probabilities."""
        wanted = self.top_logprobs if self.top_logprobs is not None else 0
        is_included = self.include is not None and LOGPROBS in self.include
        return wanted if wanted or is_included else None

    # --- names -----------------------------------------------------------------------------

    @property
    def _effort(self) -> str | None:
        return None if self.reasoning is None else self.reasoning.effort

    def sticky_value(self, name: str) -> Any:
        """The value that the body carries for a field that sticks; None: none."""
        if name == "reasoning_effort" and self._effort is not None:
            return self._effort
        return super().sticky_value(name)

    def own_name(self, name: str) -> str:
        """What this body calls a field."""
        if name == "reasoning_effort" and (
            self._effort is not None or self.reasoning_effort is None
        ):
            return "reasoning.effort"
        return name

    # --- what is not done ------------------------------------------------------------------

    def unmet(self) -> Iterator[Unmet]:
        """The declared fields that ask for what is not done."""
        yield from super().unmet()
        if self.text is not None and isinstance(self.text.format, dict):
            is_schema = self.text.format["type"] == "json_schema"
            known = _FORMAT_KEYS if is_schema else ("type",)
            found = unread_keys(self.text.format, known, _FORMAT)
            yield from (Unmet(path, NOT_READ, own) for path, own in found)
        effort, other = self._effort, self.reasoning_effort
        if effort is not None and other is not None and other != effort:
            reason = f"reasoning.effort ({effort[:40]}) was sent too and wins."
            yield Unmet("reasoning_effort", reason, other)
        if not isinstance(self.input, str):
            yield from self._unread_reasoning()
        for place, kind in (self.flat_tools.hosted or {}).items():
            yield Unmet(f"tools[{place}]", "Only function tools can be called here.", kind)
        if self.text is not None and self.text.verbosity not in (None, "medium"):
            yield Unmet("text.verbosity", "It changes nothing here.", self.text.verbosity)
        if self.reasoning is not None and self.reasoning.summary is not None:
            reason = "Reasoning is given as it is, in content."
            yield Unmet("reasoning.summary", reason, self.reasoning.summary)
        for index, name in enumerate(self.include or ()):
            if name != LOGPROBS:
                yield Unmet(f"include[{index}]", "There is no such thing to include here.", name)
        yield from self._unmet_circumstances()

    def _unread_reasoning(self) -> Iterator[Unmet]:
        for index, item in enumerate(self.input or ()):
            if isinstance(item, ReasoningItem) and item.encrypted_content and not item.content:
                reason = "Only the server that encrypted it can read it."
                yield Unmet(f"input[{index}].encrypted_content", reason)

    def _unmet_circumstances(self) -> Iterator[Unmet]:
        if self.store and not self._given.is_kept:
            yield Unmet("store", "This server keeps no replies (--response-store 0).", True)
        if self.background:
            yield Unmet("background", "A reply is made while its client waits.", True)
        if self.truncation == "auto":
            yield Unmet("truncation", "Nothing is left out; an input must fit.", "auto")
        if self.stream_options is not None and self.stream_options.include_obfuscation:
            yield Unmet("stream_options.include_obfuscation", "Streams are never padded.", True)
        if self.service_tier not in (None, "auto", "default"):
            yield Unmet("service_tier", "There is one tier.", self.service_tier)


class InputTokensBody(ResponsesBody):
    """A request for the number of the input's tokens."""

    @property
    def is_counted(self) -> bool:
        """Only the number of the prompt's tokens is wanted."""
        return True
