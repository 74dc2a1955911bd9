"""Random bodies, made from the schemas and then spoilt, and a model of what they set."""

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from flm.server.schemas.chat import ChatBody
from flm.server.schemas.completions import CompletionBody
from tests.e2e.wrong_values import CHAT_WRONG, COMPLETION_WRONG, OUT_OF_RANGE
from tests.support.replies import CHAT, COMPLETIONS

WRONG: dict[str, dict[str, list[Any]]] = {CHAT: CHAT_WRONG, COMPLETIONS: COMPLETION_WRONG}
SCHEMAS: dict[str, dict[str, Any]] = {
    CHAT: ChatBody.model_json_schema(),
    COMPLETIONS: CompletionBody.model_json_schema(),
}
VOCAB_SIZE = 512
EFFORTS = {
    "none": "none",
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "max": "high",
}

# --- single values -----------------------------------------------------------------------------

_unit = st.floats(0, 1)
_not_negative = st.floats(0, 100) | st.sampled_from([0, 1, 2, 1e308, 5e-324])
IN_RANGE: dict[str, st.SearchStrategy[Any]] = {
    "temperature": _not_negative,
    "top_k": st.integers(1, 600) | st.just(2**63 - 1),
    "top_p": _unit | st.integers(0, 1),
    "min_p": _unit | st.integers(0, 1),
    "repetition_penalty": st.floats(0.1, 10) | st.sampled_from([1, 5e-324, 1e308]),
    "frequency_penalty": _not_negative,
    "presence_penalty": _not_negative,
    "repeat_last_n": st.integers(-1, 100) | st.just(2**63 - 1),
    "think": st.booleans(),
    "reasoning_effort": st.sampled_from([*EFFORTS, "", "huge", "HIGH"]),
    "adaptations": st.sampled_from(["note", "silent", "refuse", "refuse"]),
}
STICKY = tuple(IN_RANGE)[:-1]
_text = st.text(st.characters(codec="utf-8"), max_size=8)
_json = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**40) | st.floats(-10, 10) | _text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3),
    max_leaves=5,
)


def values_of(schema: Mapping[str, Any], root: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """Values that fit a JSON schema, as far as this project's schemas go."""
    if "$ref" in schema:
        return st.deferred(lambda: values_of(root["$defs"][schema["$ref"].split("/")[-1]], root))
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return st.one_of([values_of(item, root) for item in schema[key]])
    kind = schema.get("type")
    if kind == "array":
        inner = values_of(schema.get("items", {}), root)
        return st.lists(inner, min_size=schema.get("minItems", 0), max_size=3)
    if kind == "object" and "properties" in schema:
        parts = {name: values_of(item, root) for name, item in schema["properties"].items()}
        needed = set(schema.get("required", ()))
        return st.fixed_dictionaries(
            {name: part for name, part in parts.items() if name in needed},
            optional={name: part for name, part in parts.items() if name not in needed},
        )
    return _scalars(schema)


def _scalars(schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    low, high = schema.get("minimum"), schema.get("maximum")
    match schema.get("type"):
        case "null":
            return st.none()
        case "boolean":
            return st.booleans()
        case "integer":
            return st.integers(low if low is not None else -9, min(high or 9, 600))
        case "number":
            return st.floats(low if low is not None else -9, high if high is not None else 9)
        case "string":
            return _text.filter(lambda text: len(text) >= schema.get("minLength", 0))
        case "object":
            return st.dictionaries(_text, _json, max_size=2)
    return _json


# --- bodies ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sent:
    """A body and where it goes. ``is_wrong``: a field of it cannot be read."""

    path: str
    body: dict[str, Any]
    is_wrong: bool


@st.composite
def sent_bodies(draw: st.DrawFn) -> Sent:
    """A request: some fields, most of them right, and sometimes a mistake."""
    endpoint = draw(st.sampled_from([CHAT, COMPLETIONS]))
    names = list(WRONG[endpoint])
    body: dict[str, Any] = {}
    body |= {"messages": [{"role": "user", "content": "hi"}]} if endpoint == CHAT else {}
    body |= {"prompt": "hi"} if endpoint == COMPLETIONS else {}
    wrong: set[str] = set()
    for name in draw(st.lists(st.sampled_from([*STICKY, "adaptations"]), max_size=4, unique=True)):
        outside = OUT_OF_RANGE.get(name)
        if outside is not None and draw(st.integers(0, 3)) == 0:
            body[name] = draw(st.sampled_from(outside))
        else:
            body[name] = draw(IN_RANGE[name])
    for name in draw(st.lists(st.sampled_from(names), max_size=2, unique=True)):
        if draw(st.integers(0, 4)) == 0:
            body[name] = draw(st.sampled_from(WRONG[endpoint][name]))
            wrong.add(name)
        elif name not in STICKY and name not in ("model", "messages", "prompt"):
            body[name] = draw(values_of(SCHEMAS[endpoint]["properties"][name], SCHEMAS[endpoint]))
    body["stream"] = body.get("stream", draw(st.booleans()))
    _keep_short(body, wrong)
    spoilt = draw(_spoilt(body))
    suffix = "/plan" if draw(st.integers(0, 4)) == 0 else ""
    # A wrong field may have lost its name, and then it is only unknown.
    return Sent(endpoint + suffix, spoilt, any(name in spoilt for name in wrong))


def _keep_short(body: dict[str, Any], wrong: set[str]) -> None:
    """Absent, the number of tokens has no bound but the context."""
    for name, most in (("max_tokens", 4), ("n", 3)):
        value = body.get(name, 0 if name == "max_tokens" else 1)
        if name not in wrong and (value is None or not 0 < value <= most):
            body[name] = 2


@st.composite
def _spoilt(draw: st.DrawFn, body: dict[str, Any]) -> dict[str, Any]:
    body = copy.deepcopy(body)
    kind = draw(st.integers(0, 9))
    name = draw(st.sampled_from(sorted(body)))
    if kind == 0 and name != "max_tokens":
        body[f"{name}_x"] = body.pop(name)
    elif kind == 1 and name != "max_tokens":
        body["options"] = {name: body.pop(name)}
    elif kind == 2:
        body[draw(_text)] = draw(_json)
    elif kind == 3:
        body[draw(st.sampled_from(["temprature", "foo", "functions", "best_of"]))] = draw(_json)
    return body


# --- a model of the settings -------------------------------------------------------------------

_HOLDS = {
    "temperature": lambda value: value >= 0,
    "top_k": lambda value: value >= 1,
    "top_p": lambda value: 0 <= value <= 1,
    "min_p": lambda value: 0 <= value <= 1,
    "repetition_penalty": lambda value: value > 0,
    "frequency_penalty": lambda value: value >= 0,
    "presence_penalty": lambda value: value >= 0,
    "repeat_last_n": lambda value: True,
}


@dataclass
class SettingsModel:
    """What the settings must be, told in a few lines. ``switches``: the model reasons, and a
    request may say whether."""

    defaults: dict[str, Any]
    switches: bool
    values: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.values = dict(self.defaults)

    def is_changed(self, body: Mapping[str, Any]) -> bool:
        """True when a sampling field cannot be done as asked."""
        sent = {name: body[name] for name in _HOLDS if body.get(name) is not None}
        outside = [name for name, value in sent.items() if not _HOLDS[name](value)]
        return bool(outside) or sent.get("top_k", 0) > VOCAB_SIZE

    def take(self, body: Mapping[str, Any]) -> None:
        """A request with this body was admitted."""
        for name, holds in _HOLDS.items():
            value = body.get(name)
            if value is not None and holds(value):
                self.values[name] = min(value, VOCAB_SIZE) if name == "top_k" else value
        if self.switches:
            self._take_switches(body.get("think"), EFFORTS.get(body.get("reasoning_effort", "")))

    def _take_switches(self, think: bool | None, effort: str | None) -> None:
        if effort is not None:
            self.values |= {"think": effort != "none", "reasoning_effort": effort}
        elif think is not None:
            self.values["think"] = think
            if think and self.values["reasoning_effort"] == "none":
                self.values["reasoning_effort"] = self.defaults["reasoning_effort"]


def as_text(body: Mapping[str, Any]) -> bytes:
    """The body as sent; what JSON cannot hold never gets in here."""
    return json.dumps(body, allow_nan=False).encode()
