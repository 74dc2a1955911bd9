"""What a provider can do, as data: one ordered table of rules each.

Adapting, planning, refusing and the documentation all read the same rows. The order of the rows
is the order of the records.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from dataclasses import field as made
from fnmatch import fnmatchcase
from typing import Any, Literal

from flm.adaptation import Action
from flm.router.request import Config

Dialect = Literal["anthropic", "responses", "chat", "gemini"]
Outcome = Action | Literal["refused"]


@dataclass(frozen=True, slots=True)
class Rule:
    """What becomes of one setting.

    ``field``: its path below ``config``. ``wire``: where it goes in the body; "" is nowhere, and
    then ``action`` is what happens to it. ``low``, ``high``: the numbers that are taken; others
    are moved to the nearest. ``most``: how many entries are taken; more get ``action``. ``words``:
    asked words that are exchanged for others, by ``action``. ``met``: values that ask for what the
    provider does anyway. ``idle``: values that ask for nothing. ``defaults``: what is sent when
    the setting is unset, by patterns of the model's name (``claude-3*``). ``models``, ``but``:
    patterns of names that the rule is for, and not for. ``when``: a condition on the rest of the
    settings. ``spell``: how the value is written, where it is not put at ``wire`` as it is. The
    first rule of a field that goes with the model and the settings is the one that counts.
    """

    field: str
    wire: str = ""
    action: Outcome | None = None
    reason: str = ""
    low: float | None = None
    high: float | None = None
    most: int | None = None
    words: Mapping[str, str] = made(default_factory=dict)
    met: tuple[Any, ...] = ()
    idle: tuple[Any, ...] = ()
    defaults: tuple[tuple[str, Any], ...] = ()
    models: tuple[str, ...] = ()
    but: tuple[str, ...] = ()
    when: str = ""
    spell: str = ""

    def is_for(self, model: str, config: Config) -> bool:
        """True when this rule is for the model and the settings."""
        name = model.rpartition("/")[2]
        if self.models and not any(fnmatchcase(name, pattern) for pattern in self.models):
            return False
        if any(fnmatchcase(name, pattern) for pattern in self.but):
            return False
        return not self.when or CONDITIONS[self.when](config)


def _thinks(config: Config) -> bool:
    return config.reasoning is not None and config.reasoning.effort != "off"


def _is_off(config: Config) -> bool:
    return config.reasoning is not None and config.reasoning.effort == "off"


def _has_several(config: Config) -> bool:
    choice = config.tool_choice
    return choice is not None and choice.named is None


def _must_fit(config: Config) -> bool:
    choice = config.tool_choice
    is_forced = choice is not None and choice.mode == "required"
    return is_forced and config.response_format is not None


CONDITIONS: Mapping[str, Callable[[Config], bool]] = {
    "reasoning is on": _thinks,
    "reasoning is not off": lambda config: not _is_off(config),
    "not exactly one tool is required": _has_several,
    "with a response_format": _must_fit,
    "reasoning is off": _is_off,
    "it is required": lambda config: config.probabilities == "required",
    "it is json_object": lambda config: (config.response_format or {}).get("type") == "json_object",
}


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider: where it is, how it is spoken to, and its rules.

    ``path`` may hold ``{model}``. ``key_env``: variables with its key, the first that is set wins.
    ``key_header``: where the key goes. ``media``: the forms (data, url, file_id) of each kind of
    part that it takes; other kinds are refused. ``builtins``: tools it runs itself, with their wire
    types. ``thinking_field``: where an earlier turn's reasoning goes back; "" drops it.
    ``keeps_records``: it adapts too, and tells. ``fixed``: what every body carries.
    """

    name: str
    dialect: Dialect
    base_url: str
    rules: tuple[Rule, ...]
    path: str = ""
    stream_path: str = ""
    key_env: tuple[str, ...] = ()
    key_header: str = "authorization"
    keyless: bool = False
    headers: Mapping[str, str] = made(default_factory=dict)
    media: Mapping[str, tuple[str, ...]] = made(default_factory=dict)
    builtins: Mapping[str, str] = made(default_factory=dict)
    thinking_field: str = ""
    strict_tools: bool = False
    stream_usage: bool = True
    keeps_records: bool = False
    always_streams: bool = False
    fixed: Mapping[str, Any] = made(default_factory=dict)

    def rule(self, name: str, model: str, config: Config) -> Rule | None:
        """The rule of the field ``name``."""
        fitting = (rule for rule in self.rules if rule.field == name)
        return next((rule for rule in fitting if rule.is_for(model, config)), None)

    def setting_of(self, wire: str) -> str:
        """The setting that goes to the wire path ``wire``; ``wire.`` in front where none does."""
        found = next((rule.field for rule in self.rules if rule.wire == wire), None)
        return f"wire.{wire}" if found is None else f"config.{found}"


def amended(rules: tuple[Rule, ...], *changed: Rule) -> tuple[Rule, ...]:
    """``rules`` with those of the changed fields exchanged in place, new ones at the end.

    A rule of a whole (``reasoning``) takes the place of the rules of its parts.
    """
    waiting: dict[str, list[Rule]] = {}
    for rule in changed:
        waiting.setdefault(rule.field, []).append(rule)
    names = tuple(waiting)
    result: list[Rule] = []
    for rule in rules:
        whole = next((name for name in names if f"{rule.field}.".startswith(f"{name}.")), None)
        if whole is None:
            result.append(rule)
        else:
            result += waiting.pop(whole, [])
    return (*result, *(rule for group in waiting.values() for rule in group))
