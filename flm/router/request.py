"""What a caller asks: frozen values, checked when they are made."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from flm.router import checks
from flm.router.parts import (
    CitationPart,
    Part,
    RefusalPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    parts_of,
)

Effort = Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]
EFFORTS: tuple[Effort, ...] = ("off", "minimal", "low", "medium", "high", "xhigh", "max")
ROLES = ("user", "assistant", "tool", "developer")
_ASSISTANT_ONLY = (ThinkingPart, RefusalPart, CitationPart, ToolCallPart)
_P = TypeVar("_P")


# --- messages ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Message:
    """One turn: at least one part, of the kinds that its role can say."""

    role: str
    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        if checks.word("Message.role", self.role, ROLES) is None:
            raise TypeError("Message.role must be a string.")
        object.__setattr__(self, "parts", parts_of("Message.parts", self.parts))
        for part in self.parts:
            is_result = isinstance(part, ToolResultPart)
            if is_result != (self.role == "tool") or (
                self.role != "assistant" and isinstance(part, _ASSISTANT_ONLY)
            ):
                raise ValueError(f"A message of the role {self.role} cannot hold a {part.type}.")

    @classmethod
    def user(cls, content: Any) -> "Message":
        """What the user says: text, a part, or several."""
        return cls("user", content)

    @classmethod
    def assistant(cls, content: Any) -> "Message":
        """What the model said."""
        return cls("assistant", content)

    @classmethod
    def developer(cls, content: Any) -> "Message":
        """An instruction in the middle of a conversation."""
        return cls("developer", content)

    @classmethod
    def tool(
        cls,
        call: Any,
        output: str | None = None,
        *,
        name: str | None = None,
        is_error: bool = False,
    ) -> "Message":
        """Answers of tools: a call's id with its output, ``{id: output}``, or result parts."""
        if isinstance(call, str):
            return cls("tool", (ToolResultPart(call, output or "", name, is_error),))
        if isinstance(call, Mapping):
            return cls("tool", tuple(ToolResultPart(key, text) for key, text in call.items()))
        return cls("tool", call)

    @property
    def text(self) -> str | None:
        """The text, when every part is text; None otherwise."""
        texts = [part.text for part in self.parts if isinstance(part, TextPart)]
        return "\n".join(texts) if len(texts) == len(self.parts) else None

    def parts_of(self, kind: type[_P]) -> tuple[_P, ...]:
        """The parts of one kind."""
        return tuple(part for part in self.parts if isinstance(part, kind))


# --- tools -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call; ``parameters`` is a JSON schema of its arguments."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    strict: bool | None = None

    def __post_init__(self) -> None:
        if checks.word("Tool.name", self.name) is None:
            raise TypeError("Tool.name must be a string.")
        checks.word("Tool.description", self.description)
        checks.flag("Tool.strict", self.strict)
        copy = checks.json_object("Tool.parameters", self.parameters)
        object.__setattr__(self, "parameters", copy if copy is not None else {})


@dataclass(frozen=True, slots=True)
class BuiltinTool:
    """A tool that the provider runs: ``web_search``, ``code_execution``, ..."""

    name: str
    config: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if checks.word("BuiltinTool.name", self.name) is None:
            raise TypeError("BuiltinTool.name must be a string.")
        object.__setattr__(self, "config", checks.json_object("BuiltinTool.config", self.config))


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Whether the model must call, which tools it may, and whether several at once."""

    mode: Literal["auto", "required", "none"] = "auto"
    allowed: tuple[str, ...] = ()
    parallel: bool | None = None

    def __post_init__(self) -> None:
        if checks.word("tool_choice.mode", self.mode, ("auto", "required", "none")) is None:
            raise TypeError("tool_choice.mode must be a string.")
        object.__setattr__(self, "allowed", checks.words("tool_choice.allowed", self.allowed))
        checks.flag("tool_choice.parallel", self.parallel)
        if self.mode == "none" and (self.allowed or self.parallel is not None):
            raise ValueError("tool_choice.mode none takes neither allowed nor parallel.")

    @property
    def named(self) -> str | None:
        """The one tool that must be called."""
        is_one = self.mode == "required" and len(self.allowed) == 1
        return self.allowed[0] if is_one else None


# --- settings ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reasoning:
    """How much the model thinks before it answers; ``thinking_budget`` in tokens."""

    effort: Effort | None = None
    thinking_budget: int | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None

    def __post_init__(self) -> None:
        checks.word("reasoning.effort", self.effort, EFFORTS)
        budget = checks.whole("reasoning.thinking_budget", self.thinking_budget, 1)
        object.__setattr__(self, "thinking_budget", budget)
        checks.word("reasoning.summary", self.summary, ("auto", "concise", "detailed"))
        if self.effort == "off" and (budget is not None or self.summary is not None):
            raise ValueError("reasoning.effort off takes neither thinking_budget nor summary.")
        if self.effort is None and budget is None:
            raise ValueError("Reasoning needs an effort or a thinking_budget.")


@dataclass(frozen=True, slots=True)
class CacheConfig:
    """Hints for the provider's prompt cache."""

    mode: Literal["auto", "off"] = "auto"
    retention: Literal["short", "long"] | None = None
    key: str | None = None
    prefix: Literal["stable", "history"] | None = None
    prefix_until_index: int | None = None
    resource: str | None = None

    def __post_init__(self) -> None:
        checks.word("cache.mode", self.mode, ("auto", "off"))
        checks.word("cache.retention", self.retention, ("short", "long"))
        checks.word("cache.key", self.key)
        checks.word("cache.prefix", self.prefix, ("stable", "history"))
        index = checks.whole("cache.prefix_until_index", self.prefix_until_index, 0)
        object.__setattr__(self, "prefix_until_index", index)
        checks.word("cache.resource", self.resource)
        if self.prefix is not None and index is not None:
            raise ValueError("cache takes one of prefix and prefix_until_index.")
        others = (self.retention, self.key, self.prefix, index, self.resource)
        if self.mode == "off" and any(item is not None for item in others):
            raise ValueError("cache.mode off takes nothing else.")


_FORMAT_KEYS = {"json_object": {"type"}, "json_schema": {"type", "schema", "name", "strict"}}


def _checked_format(value: Any) -> dict[str, Any] | None:
    copy = checks.json_object("response_format", value)
    if copy is None:
        return None
    kind = copy.get("type")
    if kind not in _FORMAT_KEYS:
        raise ValueError("response_format.type must be json_object or json_schema.")
    unknown = sorted(copy.keys() - _FORMAT_KEYS[kind])
    if unknown:
        raise ValueError(f"response_format of the type {kind} takes no {unknown[0]}.")
    if kind == "json_schema" and not isinstance(copy.get("schema"), dict):
        raise ValueError("response_format.schema must be a JSON schema (a dict).")
    checks.word("response_format.name", copy.get("name"))
    checks.flag("response_format.strict", copy.get("strict"))
    return copy


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The settings of a request; what is None is not sent. Ranges are in the documentation."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    repeat_last_n: int | None = None
    logprobs: int | None = None
    response_format: dict[str, Any] | None = None
    tool_choice: ToolChoice | None = None
    reasoning: Reasoning | None = None
    think: bool | None = None
    continue_final_message: bool | None = None
    cache: CacheConfig | None = None
    service_tier: str | None = None
    user_id: str | None = None
    store: bool | None = None
    probabilities: Literal["off", "if_available", "required"] | None = None
    extensions: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        for name, low in (("max_tokens", 1), ("top_k", 1), ("seed", None), ("logprobs", 0)):
            if name == "seed" and isinstance(self.seed, float):
                raise TypeError("seed must be an integer, not a float.")
            self._set(name, checks.whole(name, getattr(self, name), low))
        self._set("repeat_last_n", checks.whole("repeat_last_n", self.repeat_last_n, -1))
        for name, bottom, top in (
            ("temperature", 0, 2),
            ("top_p", 0, 1),
            ("min_p", 0, 1),
            ("frequency_penalty", -2, 2),
            ("presence_penalty", -2, 2),
        ):
            self._set(name, checks.number(name, getattr(self, name), bottom, top))
        self._set(
            "repetition_penalty", checks.number("repetition_penalty", self.repetition_penalty, 0)
        )
        if self.repetition_penalty == 0:
            raise ValueError("repetition_penalty must be above 0; 1 is off.")
        self._set("stop", checks.words("stop", self.stop))
        self._set("response_format", _checked_format(self.response_format))
        checks.instance("tool_choice", self.tool_choice, ToolChoice)
        checks.instance("reasoning", self.reasoning, Reasoning)
        checks.instance("cache", self.cache, CacheConfig)
        for name in ("think", "continue_final_message", "store"):
            checks.flag(name, getattr(self, name))
        for name in ("service_tier", "user_id"):
            checks.word(name, getattr(self, name))
        checks.word("probabilities", self.probabilities, ("off", "if_available", "required"))
        self._set("extensions", checks.json_object("extensions", self.extensions) or None)
        if self.extensions is not None and "stream" in self.extensions:
            raise ValueError("extensions cannot hold stream; call router.stream(request).")

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A question to ``model``: ``"provider:model"``, or a name that its maker gives away."""

    model: str
    messages: tuple[Message, ...]
    system: str | tuple[TextPart, ...] | None = None
    tools: tuple[Tool | BuiltinTool, ...] = ()
    config: Config = field(default_factory=Config)

    def __post_init__(self) -> None:
        if checks.word("Request.model", self.model) is None:
            raise TypeError("Request.model must be a string.")
        object.__setattr__(self, "messages", _several("Request.messages", self.messages, Message))
        if not self.messages:
            raise ValueError("Request.messages must hold at least one message.")
        if self.system is not None and not isinstance(self.system, str):
            object.__setattr__(self, "system", parts_of("Request.system", self.system))
            if not all(isinstance(part, TextPart) for part in self.system):
                raise TypeError("Request.system can only hold text.")
        elif self.system is not None:
            checks.word("Request.system", self.system)
        object.__setattr__(
            self, "tools", _several("Request.tools", self.tools, (Tool, BuiltinTool))
        )
        checks.instance("Request.config", self.config, Config)
        self._check_names()
        self._check_last()

    def _check_names(self) -> None:
        names = [tool.name for tool in self.tools]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"Request.tools: names must be unique, {twice!r} is there twice.")
        choice = self.config.tool_choice
        unknown = [name for name in (choice.allowed if choice else ()) if name not in names]
        if unknown:
            raise ValueError(f"tool_choice.allowed names {unknown[0]!r}, which is not in tools.")

    def _check_last(self) -> None:
        if self.config.continue_final_message:
            last = self.messages[-1]
            if last.role != "assistant" or not (last.text or "").strip():
                raise ValueError(
                    "continue_final_message needs a last message of the assistant that is text."
                )

    @property
    def system_text(self) -> str | None:
        """The instructions as one text."""
        if self.system is None or isinstance(self.system, str):
            return self.system
        return "\n\n".join(part.text for part in self.system)


def _several(path: str, value: Any, kinds: type[Any] | tuple[type[Any], ...]) -> tuple[Any, ...]:
    if isinstance(value, kinds):
        return (value,)
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise TypeError(f"{path} must be a list, not {type(value).__name__}.")
    found = tuple(value)
    for place, item in enumerate(found):
        if isinstance(item, kinds):
            continue
        hint = "wrap text in Message.user(...)" if "messages" in path else "use Tool(...)"
        raise TypeError(f"{path}[{place}] is a {type(item).__name__}; {hint}.")
    return found
