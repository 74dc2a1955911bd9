"""From a request to what its provider can take, by the provider's table, and the record of it."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flm.adaptation import REFUSABLE, Action, Adaptation, Mode
from flm.router.capabilities import Provider, Rule
from flm.router.errors import UnsupportedFeatureError
from flm.router.parts import MediaPart, ThinkingPart
from flm.router.request import BuiltinTool, CacheConfig, Config, Request, Tool


@dataclass(frozen=True, slots=True)
class Adapted:
    """A request as its provider takes it. ``sent``: rules with the values that go to the wire, in
    the table's order. ``stop``: the sequences that are applied on this side."""

    request: Request
    provider: Provider
    model: str
    records: tuple[Adaptation, ...]
    sent: tuple[tuple[Rule, Any], ...]
    tools: tuple[Tool | BuiltinTool, ...]
    stop: tuple[str, ...]

    def value(self, name: str) -> Any:
        """The value that is sent for the setting ``name``; None when none is."""
        return next((value for rule, value in self.sent if rule.field == name), None)


def adapt(request: Request, provider: Provider, model: str, policy: Mode) -> Adapted:
    """Go through the message parts, the tools and the settings, in this order.

    Raises:
        UnsupportedFeatureError: something is refused: always, or because ``policy`` is ``refuse``
            and something that was asked for would be changed.
    """
    work = _Work(request, provider, model, policy)
    work.read_parts()
    work.read_tools()
    seen: set[str] = set()
    for rule in provider.rules:
        # The first rule of a field that fits is the one that counts, at its own place.
        if rule.field not in seen and rule.is_for(model, request.config):
            seen.add(rule.field)
            work.apply(rule, setting(request.config, rule.field))
    return Adapted(
        request,
        provider,
        model,
        tuple(work.records),
        tuple(work.sent),
        tuple(work.tools),
        work.stop,
    )


def setting(config: Config, path: str) -> Any:
    """The value at a dotted path; None when it is unset."""
    value: Any = config
    for name in path.split("."):
        if value is None:
            return None
        value = getattr(value, name)
    return None if value == () else value


def shown(value: Any) -> Any:
    """A value as a record carries it: plain JSON."""
    if isinstance(value, tuple):
        return list(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = {item.name: shown(getattr(value, item.name)) for item in dataclasses.fields(value)}
        return {name: entry for name, entry in pairs.items() if entry not in (None, [])}
    return value


@dataclass
class _Work:
    request: Request
    provider: Provider
    model: str
    policy: Mode
    records: list[Adaptation] = field(default_factory=list)
    sent: list[tuple[Rule, Any]] = field(default_factory=list)
    tools: list[Tool | BuiltinTool] = field(default_factory=list)
    stop: tuple[str, ...] = ()

    def note(
        self, path: str, action: Action, reason: str, asked: Any = None, applied: Any = None
    ) -> None:
        record = Adaptation(path, action, reason, shown(asked), shown(applied))
        if self.policy == "refuse" and action in REFUSABLE:
            doing = action.replace("_", "-")
            raise UnsupportedFeatureError(
                f"{path} would be {doing} for {self.provider.name}, and adaptations are refused: "
                f"{reason} Leave it out, or use adaptations='note'.",
                feature=path,
                provider=self.provider.name,
            )
        self.records.append(record)

    def refuse(self, path: str, reason: str) -> None:
        raise UnsupportedFeatureError(
            f"{path} cannot be sent to {self.provider.name}: {reason} Leave it out, or choose "
            "another provider.",
            feature=path,
            provider=self.provider.name,
        )

    # --- messages and tools ---

    def read_parts(self) -> None:
        for place, message in enumerate(self.request.messages):
            for part in message.parts:
                path = f"messages[{place}].parts[{part.type}]"
                if isinstance(part, MediaPart):
                    self._media(path, part)
                elif isinstance(part, ThinkingPart):
                    self._thinking(path, part)

    def _media(self, path: str, part: MediaPart) -> None:
        forms = self.provider.media.get(part.type)
        if forms is None:
            self.refuse(path, f"it takes no {part.type}, and without it the message is another.")
        elif part.form not in forms:
            self.refuse(path, f"it takes {part.type} only as {' or '.join(forms)}.")

    def _thinking(self, path: str, part: ThinkingPart) -> None:
        # Anthropic takes back only what it signed itself; others have a field for it, or none.
        is_signed = self.provider.dialect in ("anthropic", "gemini") and part.signature is not None
        if not is_signed and not self.provider.thinking_field:
            self.note(path, "dropped", "It does not read the reasoning of earlier turns.")

    def read_tools(self) -> None:
        for tool in self.request.tools:
            if isinstance(tool, BuiltinTool) and tool.name not in self.provider.builtins:
                self.refuse(f"tools[{tool.name}]", "it does not run this tool itself.")
            if isinstance(tool, Tool) and tool.strict and not self.provider.strict_tools:
                path = f"tools[{tool.name}].strict"
                self.note(path, "dropped", "It does not hold arguments to their schema.", True)
            self.tools.append(tool)

    # --- settings ---

    def apply(self, rule: Rule, value: Any) -> None:
        path = f"config.{rule.field}"
        if value is None:
            self._default(rule, path)
        elif _is_in(value, rule.idle):
            return
        elif _is_in(value, rule.met):
            reason = rule.reason or "The provider does so anyway."
            self.note(path, "satisfied", reason, value)
        elif isinstance(value, str) and value in rule.words:
            applied = rule.words[value]
            reason = rule.reason or f"{self.provider.name} has no {value}; {applied} is nearest."
            self._act(rule, path, reason, value, applied)
            if rule.wire:
                self.sent.append((rule, applied))
        elif not rule.wire or (rule.most is not None and len(value) > rule.most):
            reason = rule.reason or f"{self.provider.name} has no setting for it."
            self._act(rule, path, reason, value)
        else:
            self.sent.append((rule, self._clamped(rule, path, value)))

    def _default(self, rule: Rule, path: str) -> None:
        if rule.defaults:
            value = _of_model(rule.defaults, self.model)
            self.note(path, "defaulted", rule.reason, applied=value)
            self.sent.append((rule, value))

    def _act(self, rule: Rule, path: str, reason: str, value: Any, applied: Any = None) -> None:
        match rule.action:
            case "refused":
                self.refuse(path, reason)
            case "client_side":
                self.note(path, "client_side", reason, value, value)
                self._do_here(rule.field, value)
            case "clamped" | "substituted":
                self.note(path, rule.action, reason, value, applied)
            case _:
                self.note(path, "dropped", reason, value)

    def _do_here(self, name: str, value: Any) -> None:
        if name == "stop":
            self.stop = value
        elif name == "tool_choice.allowed":
            self.tools = [tool for tool in self.tools if tool.name in value]
        else:
            raise AssertionError(f"nothing here can do {name}")

    def _clamped(self, rule: Rule, path: str, value: Any) -> Any:
        if rule.low is not None and value < rule.low:
            nearest, limit = rule.low, "least"
        elif rule.high is not None and value > rule.high:
            nearest, limit = rule.high, "most"
        else:
            return value
        reason = rule.reason or f"{self.provider.name} takes at {limit} {nearest:g}."
        applied = type(value)(nearest)
        self.note(path, "clamped", reason, value, applied)
        return applied


def _is_in(value: Any, values: tuple[Any, ...]) -> bool:
    # Without the type, False would be 0.0.
    return any(type(value) is type(item) and value == item for item in values)


def _of_model(defaults: tuple[tuple[str, Any], ...], model: str) -> Any:
    from fnmatch import fnmatchcase

    name = model.rpartition("/")[2]
    return next(value for pattern, value in defaults if fnmatchcase(name, pattern))


EMPTY_CACHE = CacheConfig()
Body = dict[str, Any]


def put(body: Body, path: str, value: Any) -> None:
    """Set a dotted path of a JSON body; objects on the way are made."""
    *parents, last = path.split(".")
    for name in parents:
        body = body.setdefault(name, {})
    body[last] = shown(value)


def merged(body: Body, extensions: Mapping[str, Any] | None) -> Body:
    """The body with the caller's extensions, which win."""
    return body if extensions is None else {**body, **extensions}
