"""What every body that asks for a reply to messages has."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import Field, field_validator, model_validator

from flm.errors import InvalidRequestError
from flm.server.schemas.generation import NOT_READ, GenerationBody, Unmet
from flm.server.schemas.tool_choice import AUTO, ToolChoice, callable_tools, check_names
from flm.types import CallRules

# Names a template's variables cannot take: the server fills them itself.
_RESERVED = frozenset(
    {"messages", "tools", "add_generation_prompt", "chat_template", "tokenize", "conversation"}
)


MESSAGE_PATH = re.compile(r"messages\[(\d+)\](.*)")
"""A path of ``plain_messages``: the index, and what follows it."""
_SHOWN_TOOL = re.compile(r"shown_tools\[(\d+)\]\.(.*)")


class ConversationBody(GenerationBody):
    """A chat, in any dialect. A dialect tells its messages and tools in OpenAI's form."""

    enable_thinking: bool | None = Field(None, description="As think, for this request only.")
    chat_template_kwargs: dict[str, Any] | None = Field(
        None, description="Variables of the chat template, for this request only."
    )

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

    @model_validator(mode="after")
    def _calls_are_possible(self) -> "ConversationBody":
        check_names(self.choice, self.functions)
        return self

    @property
    def history_ids(self) -> tuple[int, ...]:
        """Tokens that stand before the prompt, as they are."""
        return ()

    @property
    def plain_messages(self) -> tuple[Mapping[str, Any], ...]:
        """The messages as chat templates read them (see ``GenerationRequest``)."""
        raise NotImplementedError

    @property
    def functions(self) -> Sequence[Mapping[str, Any]]:
        """The functions that came with the request, in OpenAI's form."""
        return ()

    @property
    def choice(self) -> ToolChoice:
        """Which of them may be called."""
        return AUTO

    @property
    def shown_tools(self) -> tuple[Mapping[str, Any], ...]:
        """Those that the model may call, and sees."""
        return callable_tools(self.choice, self.functions)

    @property
    def calls(self) -> CallRules | None:
        """What is enforced of calls; None: nothing."""
        return None

    @property
    def format_field(self) -> str:
        """The field that asks for ``constraint``; empty: none does."""
        return "" if self.constraint is None else self.constraint.param.partition(".")[0]

    def own_path(self, path: str) -> str:
        """What this body calls a path of ``plain_messages``, such as ``messages[0].content``, or of
        ``shown_tools``."""
        found = _SHOWN_TOOL.fullmatch(path)
        if found is None:
            return self.own_message_path(path)
        shown = self.shown_tools[int(found[1])]
        place = next(i for i, function in enumerate(self.functions) if function is shown)
        return self.own_tool_path(place, found[2])

    def own_message_path(self, path: str) -> str:
        """What this body calls a path of ``plain_messages``."""
        return path

    def own_tool_path(self, index: int, key: str) -> str:
        """What this body calls a key, such as ``function.name``, of one of ``functions``."""
        return f"tools[{index}].{key}"

    @property
    def continues(self) -> bool:
        """True when the reply goes on where the last message ends."""
        return False

    def unmet(self) -> Iterator[Unmet]:
        """The declared fields that ask for what is not done."""
        yield from super().unmet()
        yield from (Unmet(path, NOT_READ, own) for path, own in self.choice.unread)


def conversation_of(body: GenerationBody) -> ConversationBody | None:
    """``body`` if its prompt is made by the chat template; None if it is read as it is."""
    return body if isinstance(body, ConversationBody) and body.prompts is None else None
