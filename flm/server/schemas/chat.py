"""The body of ``POST /v1/chat/completions``."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator, model_validator

from flm.errors import InvalidRequestError
from flm.server.schemas.common import CommonBody
from flm.server.schemas.continuation import check_continuable
from flm.server.schemas.conversation import ConversationBody
from flm.server.schemas.messages import AssistantMessage, Message, as_plain
from flm.server.schemas.tool_choice import (
    AUTO,
    TOOL_CHOICE_SCHEMA,
    ToolChoice,
    call_rules,
    read_tool_choice,
)
from flm.server.schemas.tools import TOOLS_SCHEMA, check_tools
from flm.types import CallRules

MAX_TOP_LOGPROBS = 20


class ChatBody(ConversationBody, CommonBody):
    """A chat request."""

    messages: Annotated[list[Message], Field(min_length=1)] = Field(
        description="Roles system, developer, user, assistant, tool; content as text or text "
        "parts. A name is recorded as dropped where the chat template does not show it."
    )
    tools: Annotated[Any, BeforeValidator(check_tools), WithJsonSchema(TOOLS_SCHEMA)] = None
    tool_choice: Annotated[
        Any, BeforeValidator(read_tool_choice), WithJsonSchema(TOOL_CHOICE_SCHEMA)
    ] = None
    parallel_tool_calls: bool | None = Field(
        None, description="false: at most one call in a reply, enforced."
    )
    logprobs: bool | None = Field(None, description="Log probabilities of the new tokens.")
    top_logprobs: Annotated[int, Field(strict=True, ge=0, le=MAX_TOP_LOGPROBS)] | None = Field(
        None, description="Needs logprobs: true."
    )
    add_generation_prompt: bool | None = Field(
        None, description="No effect, no record; true cannot go with continue_final_message."
    )
    continue_final_message: bool | None = Field(
        None, description="Go on where the last message, an assistant's, ends."
    )

    @field_validator("messages")
    @classmethod
    def _not_empty(cls, messages: list[Message]) -> list[Message]:
        for index, message in enumerate(messages):
            if isinstance(message, AssistantMessage) and _says_nothing(message):
                raise InvalidRequestError(
                    f"messages[{index}].content is required: the message has neither content nor "
                    "tool_calls.",
                    param=f"messages[{index}].content",
                )
        return messages

    @model_validator(mode="before")
    @classmethod
    def _continuable(cls, body: dict[str, Any]) -> dict[str, Any]:
        if body.get("continue_final_message") is True:
            check_continuable(body)
        return body

    @model_validator(mode="after")
    def _continues_freely(self) -> "ChatBody":
        limits = [item for item in (self.calls, self.constraint) if item is not None]
        if self.continue_final_message and limits:
            raise InvalidRequestError(
                f"continue_final_message cannot be combined with {limits[0].param}, which holds "
                "the reply to a grammar from its beginning.",
                param="continue_final_message",
            )
        return self

    @model_validator(mode="after")
    def _format_allows_calls(self) -> "ChatBody":
        constraint, calls = self.constraint, self.calls
        if constraint is None or calls is None or calls.is_forced:
            return self
        if constraint.kind == "grammar":
            raise InvalidRequestError(
                f"{constraint.param} cannot be combined with tools, whose calls it does not "
                "allow; leave it out, or send tool_choice: 'none'.",
                param=constraint.param,
            )
        return self

    @model_validator(mode="after")
    def _top_needs_logprobs(self) -> "ChatBody":
        if self.top_logprobs is not None and not self.logprobs:
            raise InvalidRequestError("top_logprobs needs logprobs: true.", param="top_logprobs")
        return self

    @property
    def plain_messages(self) -> tuple[Mapping[str, Any], ...]:
        """The messages as chat templates read them."""
        return tuple(as_plain(message) for message in self.messages)

    @property
    def continues(self) -> bool:
        """True when the reply goes on where the last message ends."""
        return self.continue_final_message is True

    @property
    def functions(self) -> Sequence[Mapping[str, Any]]:
        """The functions that came with the request."""
        return self.tools or ()

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
        )

    @property
    def num_logprobs(self) -> int | None:
        """Alternatives wanted at each position; None: no log probabilities."""
        if not self.logprobs:
            return None
        return self.top_logprobs if self.top_logprobs is not None else 0


def _says_nothing(message: AssistantMessage) -> bool:
    texts = (message.content, message.refusal, message.reasoning_content)
    return all(text is None for text in texts) and not message.tool_calls
