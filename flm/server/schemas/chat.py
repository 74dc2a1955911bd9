"""The body of ``POST /v1/chat/completions``."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator, model_validator

from flm.errors import InvalidRequestError
from flm.server.schemas.common import CommonBody
from flm.server.schemas.continuation import check_continuable
from flm.server.schemas.messages import AssistantMessage, Message
from flm.server.schemas.tools import (
    TOOL_CHOICE_SCHEMA,
    TOOLS_SCHEMA,
    check_tool_choice,
    check_tools,
)

MAX_TOP_LOGPROBS = 20

# Names a template's variables cannot take: the server fills them itself.
_RESERVED = frozenset(
    {"messages", "tools", "add_generation_prompt", "chat_template", "tokenize", "conversation"}
)


class ChatBody(CommonBody):
    """A chat request."""

    messages: Annotated[list[Message], Field(min_length=1)] = Field(
        description="Roles system, developer, user, assistant, tool; content as text or text parts."
    )
    tools: Annotated[Any, BeforeValidator(check_tools), WithJsonSchema(TOOLS_SCHEMA)] = None
    tool_choice: Annotated[
        Any, BeforeValidator(check_tool_choice), WithJsonSchema(TOOL_CHOICE_SCHEMA)
    ] = None
    parallel_tool_calls: bool | None = Field(
        None, description="false is recorded as dropped where there are tools."
    )
    logprobs: bool | None = Field(None, description="Log probabilities of the new tokens.")
    top_logprobs: Annotated[int, Field(strict=True, ge=0, le=MAX_TOP_LOGPROBS)] | None = Field(
        None, description="Needs logprobs: true."
    )
    enable_thinking: bool | None = Field(None, description="As think, for this request only.")
    chat_template_kwargs: dict[str, Any] | None = Field(
        None, description="Variables of the chat template, for this request only."
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

    @field_validator("chat_template_kwargs")
    @classmethod
    def _free_names(cls, kwargs: dict[str, Any] | None) -> dict[str, Any] | None:
        for name, value in kwargs.items() if kwargs is not None else ():
            param = f"chat_template_kwargs.{name}"
            if name in _RESERVED:
                raise InvalidRequestError(f"{param} is filled by the server.", param=param)
            if name == "enable_thinking" and not isinstance(value, bool | None):
                raise InvalidRequestError(f"{param} must be a boolean.", param=param)
        return kwargs

    @model_validator(mode="before")
    @classmethod
    def _continuable(cls, body: dict[str, Any]) -> dict[str, Any]:
        if body.get("continue_final_message") is True:
            check_continuable(body)
        return body

    @model_validator(mode="after")
    def _continues_freely(self) -> "ChatBody":
        constraint = self.constraint
        if self.continue_final_message and constraint is not None:
            raise InvalidRequestError(
                f"continue_final_message cannot be combined with {constraint.param}.",
                param="continue_final_message",
            )
        return self

    @model_validator(mode="after")
    def _top_needs_logprobs(self) -> "ChatBody":
        if self.top_logprobs is not None and not self.logprobs:
            raise InvalidRequestError("top_logprobs needs logprobs: true.", param="top_logprobs")
        return self

    @property
    def num_logprobs(self) -> int | None:
        """Alternatives wanted at each position; None: no log probabilities."""
        if not self.logprobs:
            return None
        return self.top_logprobs if self.top_logprobs is not None else 0


def _says_nothing(message: AssistantMessage) -> bool:
    texts = (message.content, message.refusal, message.reasoning_content)
    return all(text is None for text in texts) and not message.tool_calls
