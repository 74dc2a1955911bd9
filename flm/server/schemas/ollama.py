"""The bodies of Ollama's ``POST /api/chat`` and ``/api/generate``."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from flm.errors import InvalidRequestError
from flm.server.schemas.chat import MAX_TOP_LOGPROBS
from flm.server.schemas.conversation import MESSAGE_PATH, ConversationBody
from flm.server.schemas.generation import Unmet, Unread
from flm.server.schemas.ollama_fields import (
    Format,
    Images,
    KeepAlive,
    Suffix,
    Think,
    is_zero,
    read_format,
)
from flm.server.schemas.ollama_messages import OLLAMA_TOOLS_SCHEMA, OllamaMessage, read_tools
from flm.server.schemas.ollama_options import OPTION_OF, RANDOM_SEED, UNREAD_OPTIONS, Options
from flm.server.schemas.tool_choice import (
    AUTO,
    TOOL_CHOICE_SCHEMA,
    ToolChoice,
    call_rules,
    read_tool_choice,
)
from flm.server.schemas.types import Int64, TokenId
from flm.types import CallRules, OutputConstraint, Prompt

_CUT = "A prompt longer than the context is an error and a reply ends where that is full."
_IMAGE = "The models here generate text."
_UNREAD_AT_TOP: Mapping[str, Unread] = {
    "truncate": Unread(_CUT, lambda value: value is False),
    "shift": Unread(_CUT, lambda value: value is False),
    **{name: Unread(_IMAGE, lambda _: False) for name in ("width", "height", "steps")},
}


def _unread(of_options: Mapping[str, Unread]) -> dict[str, Unread]:
    """What is read in ``options`` only, what is not read there, and the rest."""
    nested = {f"options.{name}": unread for name, unread in of_options.items()}
    known = {*Options.model_fields, *of_options} - ConversationBody.model_fields.keys()
    moved = {
        name: Unread(f"This is an option; send it as options.{name}.", lambda _: False)
        for name in sorted(known)
    }
    return {**nested, **moved, **_UNREAD_AT_TOP}


class OllamaBody(ConversationBody):
    """What both bodies share. Options come before fields of ours with the same meaning."""

    unread: ClassVar[Mapping[str, Unread]] = _unread(UNREAD_OPTIONS)
    length_fields: ClassVar[tuple[str, ...]] = ("options.num_predict", "max_tokens")

    stream: bool | None = Field(
        None, description="Absent or true: the reply is sent line by line; false: whole."
    )
    options: Options | None = Field(None, description="Sampling, lengths and stop strings.")
    format: Format = Field(None, description='"json" (any object) or a JSON Schema; enforced.')
    think: Think = Field(
        None, description="true, false, or how much: low, medium, high (as reasoning_effort)."
    )
    keep_alive: KeepAlive = Field(
        None, description="No effect: the model stays loaded. 0 is recorded as dropped."
    )
    logprobs: bool | None = Field(None, description="Log probabilities of the new tokens.")
    top_logprobs: Annotated[int, Field(strict=True, ge=0, le=MAX_TOP_LOGPROBS)] | None = Field(
        None, description="Alternatives at each position; needs logprobs: true."
    )
    max_tokens: Int64 | None = Field(None, description="Another name of options.num_predict.")

    @property
    def asks_nothing(self) -> bool:
        """True when no text is wanted: the model is to be loaded, or unloaded."""
        raise NotImplementedError

    @property
    def asks_unload(self) -> bool:
        """True when the model is to be unloaded."""
        return self.asks_nothing and is_zero(self.keep_alive)

    @property
    def streams(self) -> bool:
        """True when the reply is sent piece by piece."""
        return self.stream is not False

    @property
    def constraint(self) -> OutputConstraint | None:
        """What the answer must be; None: any text."""
        return read_format(self.format)

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings; empty ones stand for none."""
        stop = self._option("stop")
        listed = [stop] if isinstance(stop, str) else stop
        return tuple(item for item in listed if item) if listed is not None else ()

    @property
    def num_logprobs(self) -> int | None:
        """Alternatives wanted at each position; None: no log probabilities."""
        if not self.logprobs:
            return None
        return self.top_logprobs if self.top_logprobs is not None else 0

    @property
    def seed_in_force(self) -> int | None:
        """The seed; None: the reply is drawn from the model's own stream."""
        option = self._option("seed")
        if option is None:
            return self.seed
        return None if option == RANDOM_SEED else int(option)

    def _option(self, name: str) -> Any:
        return None if self.options is None else getattr(self.options, name)

    def sticky_value(self, name: str) -> Any:
        """The value of a field that sticks: an option, else a field of ours."""
        if name == "think":
            return self.think if isinstance(self.think, bool) else None
        if name == "reasoning_effort" and isinstance(self.think, str):
            return self.think
        option = self._option(OPTION_OF[name]) if name in OPTION_OF else None
        return getattr(self, name) if option is None else option

    def sampling_value(self, name: str, vocab_size: int) -> Any:
        """The value in our terms: an option top_k 0 or below is every token, a temperature below 0
        greedy."""
        option = self._option(OPTION_OF[name])
        if name == "top_k" and option is not None and option <= 0:
            return vocab_size
        if name == "temperature" and option is not None and option < 0:
            return 0.0
        return self.sticky_value(name)

    def length_value(self, name: str) -> int | None:
        """The limit that a field asks for. Beside the option ours says nothing."""
        option: int | None = self._option("num_predict")
        if name == "max_tokens":
            return self.max_tokens if option is None else None
        return option

    def own_name(self, name: str) -> str:
        """What this body calls a field: the option, unless ours alone was sent."""
        if name == "reasoning_effort" and isinstance(self.think, str):
            return "think"
        option = OPTION_OF.get(name)
        if option is None or (self._option(option) is None and getattr(self, name) is not None):
            return name
        return f"options.{option}"

    def unmet(self) -> Iterator[Unmet]:
        """The declared fields that ask for what is not done."""
        yield from super().unmet()
        for name, option in OPTION_OF.items():
            own, asked = self._option(option), getattr(self, name)
            if own is not None and asked is not None and own != asked:
                reason = f"options.{option} ({own}) was sent too and wins."
                yield Unmet(name, reason, asked)
        if isinstance(self.think, str) and self.reasoning_effort not in (None, self.think):
            reason = f"think ({self.think}) was sent too and wins."
            yield Unmet("reasoning_effort", reason, self.reasoning_effort)
        if is_zero(self.keep_alive):
            yield Unmet("keep_alive", "The model stays loaded.", self.keep_alive)
        if self.top_logprobs and not self.logprobs:
            yield Unmet("top_logprobs", "It needs logprobs: true.", self.top_logprobs)

    def unmet_by(self, context_len: int) -> Iterator[Unmet]:
        """A context that is not the server's."""
        asked = self._option("num_ctx")
        if asked is not None and asked != context_len:
            reason = f"The context has {context_len} tokens; flm serve --ctx-len sets it."
            yield Unmet("options.num_ctx", reason, asked)


class OllamaChatBody(OllamaBody):
    """A chat. Without messages it asks for the model to be loaded."""

    messages: list[OllamaMessage] | None = Field(
        None, description="Roles system, user, assistant, tool. Absent or empty: load the model."
    )
    tools: Annotated[Any, BeforeValidator(read_tools), WithJsonSchema(OLLAMA_TOOLS_SCHEMA)] = None
    tool_choice: Annotated[
        Any, BeforeValidator(read_tool_choice), WithJsonSchema(TOOL_CHOICE_SCHEMA)
    ] = None

    @property
    def asks_nothing(self) -> bool:
        """True when there are no messages."""
        return not self.messages

    @property
    def plain_messages(self) -> tuple[Mapping[str, Any], ...]:
        """The messages as chat templates read them.

        Raises:
            InvalidRequestError: there are none.
        """
        if not self.messages:
            raise InvalidRequestError("messages must not be empty.", param="messages")
        return tuple(message.plain for message in self.messages)

    def own_message_path(self, path: str) -> str:
        """What this body calls a path of ``plain_messages``."""
        found = MESSAGE_PATH.fullmatch(path)
        is_name = found is not None and found[2] == ".name"
        return f"{path.removesuffix('name')}tool_name" if is_name else path

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
            is_parallel=True,
            has_format=self.constraint is not None,
        )


class OllamaGenerateBody(OllamaBody):
    """A prompt, put into the chat template or read as it is. Without one it asks for the model to
    be loaded."""

    prompt: str | None = Field(None, description="Absent or empty: load the model.")
    system: str | None = Field(None, description="A system message before the prompt.")
    raw: bool | None = Field(None, description="true: no chat template; markers are tokens.")
    context: list[TokenId] | None = Field(
        None, description="The context of an earlier reply; its tokens come before the prompt."
    )
    template: str | None = Field(None, description="Recorded as dropped.")
    suffix: Suffix = Field(None, description="HTTP 400: the models here cannot fill a gap.")
    images: Images = None

    @model_validator(mode="after")
    def _raw_is_raw(self) -> "OllamaGenerateBody":
        for name in ("system", "template", "context") if self.raw else ():
            if getattr(self, name):
                raise InvalidRequestError(
                    f"{name} cannot be combined with raw: true, which sends the prompt as it is.",
                    param=name,
                )
        return self

    @property
    def asks_nothing(self) -> bool:
        """True when there is no prompt."""
        return not self.prompt

    @property
    def prompts(self) -> tuple[Prompt, ...] | None:
        """The prompt where it is read as it is; None where it is put into the chat template."""
        return (self._prompt,) if self.raw else None

    @property
    def _prompt(self) -> str:
        if not self.prompt:
            raise InvalidRequestError("prompt must not be empty.", param="prompt")
        return self.prompt

    def own_message_path(self, path: str) -> str:
        """The field that a message came in."""
        found = MESSAGE_PATH.fullmatch(path)
        if found is None:
            return "prompt" if path == "messages" else path
        return "system" if self.system and found[1] == "0" else "prompt"

    @property
    def history_ids(self) -> tuple[int, ...]:
        """Tokens that stand before the prompt, as they are."""
        return tuple(self.context or ())

    @property
    def plain_messages(self) -> tuple[Mapping[str, Any], ...]:
        """The system message, if there is one, and the prompt as the user's."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        return (*system, {"role": "user", "content": self._prompt})

    def unmet(self) -> Iterator[Unmet]:
        """The declared fields that ask for what is not done."""
        yield from super().unmet()
        if self.template:
            yield Unmet("template", "The model's own chat template is used.", self.template)
        for name in ("enable_thinking", "chat_template_kwargs") if self.raw else ():
            if getattr(self, name) is not None:
                yield Unmet(name, "raw: true leaves the chat template out.")
