"""How a value is written to the wire where it is not put there as it is.

Each function gets the body so far, the rule, the value to send and the adapted request.
"""

from collections.abc import Callable, Mapping
from typing import Any

from flm.router.adapt import Adapted, Body, put
from flm.router.capabilities import Rule
from flm.router.request import BuiltinTool

BUDGETS: Mapping[str, int] = {
    "off": 0,
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 16384,
    "xhigh": 24576,
    "max": 32768,
}
"""Tokens to think with, for models that take a number."""

Speller = Callable[[Body, Rule, Any, Adapted], None]


def write_settings(body: Body, adapted: Adapted) -> None:
    """Put every setting that is sent into ``body``."""
    for rule, value in adapted.sent:
        if rule.spell:
            SPELLERS[rule.spell](body, rule, value, adapted)
        else:
            put(body, rule.wire, value)


def _with_another(_body: Body, _rule: Rule, _value: Any, _adapted: Adapted) -> None:
    """It is written together with another setting."""


def _off_is_none(body: Body, rule: Rule, value: Any, _: Adapted) -> None:
    put(body, rule.wire, "none" if value == "off" else value)


def _day(body: Body, rule: Rule, _value: Any, _: Adapted) -> None:
    put(body, rule.wire, "24h")


def _true(body: Body, rule: Rule, _value: Any, _: Adapted) -> None:
    put(body, rule.wire, True)


def _false(body: Body, rule: Rule, _value: Any, _: Adapted) -> None:
    put(body, rule.wire, False)


def _on_or_off(body: Body, rule: Rule, value: Any, _: Adapted) -> None:
    put(body, rule.wire, value == "on")


def _short_number(body: Body, rule: Rule, value: float, _: Adapted) -> None:
    put(body, rule.wire, int(value) if value == int(value) else value)


def _continue(body: Body, rule: Rule, value: Any, _: Adapted) -> None:
    put(body, rule.wire, value)
    put(body, "add_generation_prompt", False)


# --- reasoning ---------------------------------------------------------------------------------


def _thinking_budget(body: Body, _: Rule, value: int, _adapted: Adapted) -> None:
    body["thinking"] = {"type": "enabled", "budget_tokens": value}


def _thinking_of_effort(body: Body, _: Rule, value: str, _adapted: Adapted) -> None:
    body.setdefault("thinking", {"type": "enabled", "budget_tokens": BUDGETS[value]})


def _adaptive_thinking(body: Body, rule: Rule, value: str, _: Adapted) -> None:
    body["thinking"] = {"type": "adaptive"}
    put(body, rule.wire, value)


def _max_tokens_and_thinking(body: Body, rule: Rule, value: int, _: Adapted) -> None:
    # The limit is for what is seen; the provider counts thoughts in too.
    put(body, rule.wire, value + body.get("thinking", {}).get("budget_tokens", 0))


def _budget_of_effort(body: Body, rule: Rule, value: str, _: Adapted) -> None:
    put(body, rule.wire, BUDGETS[value])


def _budget_alone(body: Body, rule: Rule, value: int, _: Adapted) -> None:
    put(body, rule.wire, value)
    body["generationConfig"]["thinkingConfig"].pop("thinkingLevel", None)


def _openrouter_reasoning(body: Body, rule: Rule, value: str, _: Adapted) -> None:
    if value == "off":
        body["reasoning"] = {"enabled": False}
    else:
        put(body, rule.wire, value)


def _deepseek_thinking(body: Body, rule: Rule, value: str, _: Adapted) -> None:
    body["thinking"] = {"type": "disabled" if value == "off" else "enabled"}
    if value != "off":
        put(body, rule.wire, value)


# --- log probabilities -------------------------------------------------------------------------


def _chat_logprobs(body: Body, rule: Rule, value: int, _: Adapted) -> None:
    body["logprobs"] = True
    if value > 0:
        put(body, rule.wire, value)


def _responses_logprobs(body: Body, rule: Rule, value: int, _: Adapted) -> None:
    body["include"] = ["message.output_text.logprobs"]
    put(body, rule.wire, value)


def _gemini_logprobs(body: Body, rule: Rule, value: int, _: Adapted) -> None:
    put(body, "generationConfig.responseLogprobs", True)
    if value > 0:
        put(body, rule.wire, value)


# --- formats -----------------------------------------------------------------------------------


def _schema_parts(value: Mapping[str, Any]) -> dict[str, Any]:
    parts = {"name": value.get("name") or "response", "schema": value["schema"]}
    if value.get("strict") is not None:
        parts["strict"] = value["strict"]
    return parts


def _anthropic_format(body: Body, rule: Rule, value: Mapping[str, Any], _: Adapted) -> None:
    put(body, rule.wire, {"type": "json_schema", "schema": value["schema"]})


def _responses_format(body: Body, rule: Rule, value: Mapping[str, Any], _: Adapted) -> None:
    details = _schema_parts(value) if value["type"] == "json_schema" else {}
    put(body, rule.wire, {"type": value["type"], **details})


def _chat_format(body: Body, rule: Rule, value: Mapping[str, Any], _: Adapted) -> None:
    if value["type"] == "json_object":
        put(body, rule.wire, {"type": "json_object"})
    else:
        put(body, rule.wire, {"type": "json_schema", "json_schema": _schema_parts(value)})


def _gemini_format(body: Body, _: Rule, value: Mapping[str, Any], _adapted: Adapted) -> None:
    put(body, "generationConfig.responseMimeType", "application/json")
    if value["type"] == "json_schema":
        put(body, f"generationConfig.{schema_name(value['schema'])}", value["schema"])


def schema_name(schema: Any) -> str:
    """Gemini's field for a schema: the older one does not know additionalProperties."""
    return "responseJsonSchema" if mentions_additional(schema) else "responseSchema"


def mentions_additional(schema: Any) -> bool:
    """True when ``additionalProperties`` is anywhere in the schema."""
    if isinstance(schema, Mapping):
        inner = schema.values()
        return "additionalProperties" in schema or any(map(mentions_additional, inner))
    return isinstance(schema, list) and any(map(mentions_additional, schema))


# --- tool choice -------------------------------------------------------------------------------


def _still_allowed(adapted: Adapted) -> tuple[str, ...]:
    """The names of allowed tools that the wire has to say; none where only those are sent."""
    return tuple(adapted.value("tool_choice.allowed") or ())


def _anthropic_choice(body: Body, rule: Rule, value: str, adapted: Adapted) -> None:
    choice = adapted.request.config.tool_choice
    named = choice.named if choice is not None else None
    wire: dict[str, Any] = {"type": "any" if value == "required" else value}
    if named is not None:
        wire = {"type": "tool", "name": named}
    if adapted.value("tool_choice.parallel") is False:
        wire["disable_parallel_tool_use"] = True
    put(body, rule.wire, wire)


def _chat_choice(body: Body, rule: Rule, value: str, adapted: Adapted) -> None:
    choice = adapted.request.config.tool_choice
    named = choice.named if choice is not None else None
    if named is not None:
        put(body, rule.wire, {"type": "function", "function": {"name": named}})
    elif _still_allowed(adapted):
        names = _still_allowed(adapted)
        tools = [{"type": "function", "function": {"name": name}} for name in names]
        inner = {"mode": value, "tools": tools}
        put(body, rule.wire, {"type": "allowed_tools", "allowed_tools": inner})
    else:
        put(body, rule.wire, value)


def _responses_choice(body: Body, rule: Rule, value: str, adapted: Adapted) -> None:
    choice = adapted.request.config.tool_choice
    named = choice.named if choice is not None else None
    types = {
        tool.name: adapted.provider.builtins[tool.name]
        for tool in adapted.tools
        if isinstance(tool, BuiltinTool)
    }

    def spelled(name: str) -> dict[str, Any]:
        return {"type": types[name]} if name in types else {"type": "function", "name": name}

    if named is not None:
        put(body, rule.wire, spelled(named))
    elif _still_allowed(adapted):
        tools = [spelled(name) for name in _still_allowed(adapted)]
        put(body, rule.wire, {"type": "allowed_tools", "mode": value, "tools": tools})
    else:
        put(body, rule.wire, value)


def _gemini_choice(body: Body, rule: Rule, value: str, adapted: Adapted) -> None:
    allowed = _still_allowed(adapted)
    mode = {"none": "NONE", "required": "ANY", "auto": "VALIDATED" if allowed else "AUTO"}[value]
    put(body, f"{rule.wire}.mode", mode)
    if allowed:
        put(body, f"{rule.wire}.allowedFunctionNames", allowed)


# --- Anthropic's cache -------------------------------------------------------------------------


def _anthropic_cache(body: Body, _: Rule, value: Any, adapted: Adapted) -> None:
    if value.mode == "off":
        return
    mark: dict[str, Any] = {"type": "ephemeral"}
    if adapted.value("cache.retention") == "long":
        mark["ttl"] = "1h"
    if value.prefix_until_index is not None:
        last = min(value.prefix_until_index, len(body["messages"]) - 1)
        _mark_message(body, last, mark)
    elif value.prefix == "history" or not (body.get("system") or body.get("tools")):
        _mark_message(body, len(body["messages"]) - 1, mark)
    elif body.get("system"):
        body["system"] = [{"type": "text", "text": body["system"], "cache_control": mark}]
    else:
        body["tools"][-1] = {**body["tools"][-1], "cache_control": mark}


def _mark_message(body: Body, place: int, mark: dict[str, Any]) -> None:
    body["messages"][place]["content"][-1]["cache_control"] = mark


SPELLERS: Mapping[str, Speller] = {
    "with cache": _with_another,
    "with tools": _with_another,
    "off is none": _off_is_none,
    "24h": _day,
    "true": _true,
    "false": _false,
    "on or off": _on_or_off,
    "short number": _short_number,
    "continue": _continue,
    "thinking budget": _thinking_budget,
    "thinking of effort": _thinking_of_effort,
    "adaptive thinking": _adaptive_thinking,
    "max_tokens and thinking": _max_tokens_and_thinking,
    "budget of effort": _budget_of_effort,
    "budget alone": _budget_alone,
    "openrouter reasoning": _openrouter_reasoning,
    "deepseek thinking": _deepseek_thinking,
    "chat logprobs": _chat_logprobs,
    "responses logprobs": _responses_logprobs,
    "gemini logprobs": _gemini_logprobs,
    "anthropic format": _anthropic_format,
    "responses format": _responses_format,
    "chat format": _chat_format,
    "gemini format": _gemini_format,
    "anthropic tool_choice": _anthropic_choice,
    "chat tool_choice": _chat_choice,
    "responses tool_choice": _responses_choice,
    "gemini tool_choice": _gemini_choice,
    "anthropic cache": _anthropic_cache,
}
