"""The bodies of Anthropic's ``POST /v1/messages`` and ``/v1/messages/count_tokens``."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator, model_validator

from flm.errors import InvalidRequestError, NoThreadsError
from flm.server.schemas.anthropic_blocks import (
    AssistantMessage,
    CacheControl,
    Message,
    RedactedThinkingBlock,
    Text,
    as_text,
    plain_messages,
)
from flm.server.schemas.anthropic_reasoning import ReasoningFields
from flm.server.schemas.anthropic_tools import (
    AnyTool,
    ToolChoiceField,
    as_function,
    check_tools,
    own_tools,
    read_choice,
    unmet_of_tools,
)
from flm.server.schemas.common import MAX_STOPS
from flm.server.schemas.conversation import MESSAGE_PATH
from flm.server.schemas.generation import Unmet, Unread
from flm.server.schemas.tool_choice import ToolChoice, call_rules
from flm.server.schemas.types import NotNegative
from flm.types import CallRules

_CONTINUE = "continue_final_message"


def _always(_value: Any) -> bool:
    return True


def _is(*values: Any) -> Callable[[Any], bool]:
    return lambda value: value in values


def _clears_nothing(value: Any) -> bool:
    edits = value.get("edits", []) if isinstance(value, dict) else None
    return isinstance(edits, list) and all(map(_keeps_all, edits))


def _keeps_all(edit: Any) -> bool:
    is_about_thoughts = isinstance(edit, dict) and "clear_thinking" in str(edit.get("type"))
    return is_about_thoughts and edit.get("keep") == "all"


UNREAD: Mapping[str, Unread] = {
    "anthropic_version": Unread("", _always),
    "anthropic_beta": Unread("", _always),
    "betas": Unread("", _always),
    "container": Unread("No code is run here.", _is("", {})),
    "context_management": Unread("Messages are read as they are sent.", _clears_nothing),
    "fallbacks": Unread("The model that was asked for answers.", _is([])),
    "inference_geo": Unread("The model runs on this machine.", _is("", "global")),
    "mcp_servers": Unread("No MCP server is called from here; send its tools as tools.", _is([])),
    "speed": Unread("There is one speed.", _is("standard")),
    "user_profile_id": Unread("", _always),
    "workspace_id": Unread("", _always),
}
"""Fields of Anthropic's that have no effect, each with the values that are met anyway. Those that
are always met say who asks, or switch on other fields, which are read or recorded by themselves."""


def _refuse_thread(value: Any) -> Any:
    if value is not None and value is not False:
        raise NoThreadsError(
            "Messages are not kept here; send all of them each time, and no thread.", param="thread"
        )
    return value


class MessagesFields(ReasoningFields):
    """What a request for a message and one for its tokens have in common."""

    unread: ClassVar[Mapping[str, Unread]] = UNREAD

    messages: Annotated[list[Message], Field(min_length=1)] = Field(
        description="Roles user, assistant, system; content as text or blocks: text, tool_use, "
        "tool_result, thinking."
    )
    system: Text | None = Field(None, description="Instructions, as text or text blocks.")
    stop_sequences: list[str] | None = Field(
        None, description="Up to 16 strings; the text ends before the match that is complete first."
    )
    tools: list[AnyTool] | None = Field(
        None,
        description="Shown to the model. strict: true holds the input to its schema. Tools that "
        "Anthropic runs are recorded as dropped.",
    )
    tool_choice: ToolChoiceField | None = Field(
        None, description="auto, any, tool or none; enforced, and so is disable_parallel_tool_use."
    )
    continue_final_message: bool | None = Field(
        None,
        description="false: a new turn after a last message of the assistant's, which is continued "
        "otherwise.",
    )
    cache_control: CacheControl = Field(
        None, description="No effect, no record: every prompt is cached. So in every block."
    )
    metadata: dict[str, Any] | None = Field(None, description="No effect, no record.")
    service_tier: str | None = Field(
        None, description="Others than auto and standard_only are recorded as dropped."
    )
    thread: Annotated[
        Any, BeforeValidator(_refuse_thread), WithJsonSchema({"enum": [False, None]})
    ] = Field(None, description="400: messages are not kept. The SDK then sends them all.")

    # --- checks ------------------------------------------------------------------------------

    @field_validator("stop_sequences")
    @classmethod
    def _few_stops(cls, stops: list[str] | None) -> list[str] | None:
        if stops is not None and len(stops) > MAX_STOPS:
            raise InvalidRequestError(
                f"stop_sequences takes at most {MAX_STOPS} strings.", param="stop_sequences"
            )
        return stops

    @field_validator("tools")
    @classmethod
    def _unique_tools(cls, tools: list[AnyTool] | None) -> list[AnyTool] | None:
        check_tools(tools)
        return tools

    @model_validator(mode="after")
    def _continuable(self) -> "MessagesFields":
        last = self.messages[-1]
        if self.continue_final_message and not isinstance(last, AssistantMessage):
            raise InvalidRequestError(
                f"{_CONTINUE} needs a last message with the role assistant.", param=_CONTINUE
            )
        if self.continues:
            self._check_continuable(plain_messages(last)[0])
        return self

    def _check_continuable(self, message: Mapping[str, Any]) -> None:
        limits = [item for item in (self.calls, self.constraint) if item is not None]
        if message.get("tool_calls"):
            problem = "it has tool_use blocks"
        elif not message["content"].strip():
            problem = "it has no text"
        elif limits:
            problem = f"{limits[0].param} holds the reply to a grammar from its beginning"
        else:
            return
        path = f"messages[{len(self.messages) - 1}]"
        raise InvalidRequestError(
            f"{path}, the last one and the assistant's, cannot be continued: {problem}. Send a "
            f"message of the user's behind it, or {_CONTINUE}: false for a new turn.",
            param=path,
        )

    # --- what every dialect tells --------------------------------------------------------------

    @property
    def plain_messages(self) -> tuple[Mapping[str, Any], ...]:
        """The messages as chat templates read them; ``system`` is the first."""
        listed = [plain for message in self.messages for plain in plain_messages(message)]
        return (*self._system, *listed)

    def own_message_path(self, path: str) -> str:
        """The field that a message comes from."""
        found = MESSAGE_PATH.fullmatch(path)
        if found is None:
            return path
        index = int(found[1]) - len(self._system)
        if index < 0:
            return "system"
        places = [
            place for place, message in enumerate(self.messages) for _ in plain_messages(message)
        ]
        return f"messages[{places[index]}]{found[2]}"

    @property
    def _system(self) -> tuple[Mapping[str, Any], ...]:
        # Blocks are instructions of their own; run together, a last word would meet a first one.
        text = as_text(self.system, between="\n")
        return ({"role": "system", "content": text},) if text else ()

    @property
    def continues(self) -> bool:
        """True when the reply goes on where the last message ends."""
        is_open = isinstance(self.messages[-1], AssistantMessage)
        return is_open and self.continue_final_message is not False

    @cached_property
    def functions(self) -> Sequence[Mapping[str, Any]]:
        """The tools that can be called, in OpenAI's form."""
        return tuple(as_function(tool) for tool in own_tools(self.tools).values())

    @property
    def choice(self) -> ToolChoice:
        """Which of them may be called."""
        return read_choice(self.tool_choice)

    @property
    def calls(self) -> CallRules | None:
        """What is enforced of calls; None: nothing."""
        choice = self.tool_choice
        is_parallel = choice is None or not choice.disable_parallel_tool_use
        rules = call_rules(
            self.choice,
            self.functions,
            is_parallel=is_parallel,
            has_format=self.constraint is not None,
            schema_field="input_schema",
            places=tuple(own_tools(self.tools)),
        )
        if rules is None or rules.param != "parallel_tool_calls":
            return rules
        return replace(rules, param="tool_choice.disable_parallel_tool_use")

    @property
    def eager_tools(self) -> frozenset[str]:
        """The tools whose input may be streamed before it is known to be JSON."""
        tools = own_tools(self.tools).values()
        return frozenset(tool.name for tool in tools if tool.eager_input_streaming)

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings; empty ones stand for none."""
        return tuple(filter(None, self.stop_sequences if self.stop_sequences is not None else ()))

    @property
    def may_say_nothing(self) -> bool:
        """A limit of 0 asks for the prompt to be read into the cache."""
        return True

    @property
    def with_progress(self) -> bool:
        """A stream begins with how much of the prompt was cached, which the first part tells."""
        return self.streams

    # --- the record ----------------------------------------------------------------------------

    def unmet(self) -> Iterator[Unmet]:
        """The declared fields that ask for what is not done."""
        yield from super().unmet()
        yield from unmet_of_tools(self.tools)
        if self.tool_choice is not None and self.tool_choice.type != "tool":
            name = self.tool_choice.name
            if name is not None:
                yield Unmet("tool_choice.name", "Only the type tool names one.", name)
        for path in self._redacted():
            yield Unmet(path, "Only Anthropic can read these thoughts.")
        if self.service_tier not in (None, "auto", "standard_only"):
            yield Unmet("service_tier", "There is one tier.", self.service_tier)

    def _redacted(self) -> Iterator[str]:
        for index, message in enumerate(self.messages):
            if isinstance(message, AssistantMessage) and not isinstance(message.content, str):
                for place, block in enumerate(message.content):
                    if isinstance(block, RedactedThinkingBlock):
                        yield f"messages[{index}].content[{place}]"


class MessagesBody(MessagesFields):
    """A request for a message."""

    max_tokens: NotNegative = Field(
        description="Required. At most this many new tokens; 0: read the prompt into the cache and "
        "say nothing."
    )


class CountBody(MessagesFields):
    """A request for the number of its tokens."""

    max_tokens: NotNegative | None = Field(None, description="No effect on the count.")

    @property
    def is_counted(self) -> bool:
        """Only the number of the prompt's tokens is wanted."""
        return True
