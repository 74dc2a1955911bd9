"""The rules of chat completions, as most servers keep them, and rules that several share."""

from dataclasses import replace
from typing import Any

from flm.router.capabilities import Provider, Rule, amended

LOCAL_ONLY = "It is a setting of local servers; this provider has none like it."
NO_PROBABILITIES = "The provider gives no distribution over declared keys."
NO_CONTINUING = (
    "The provider would begin a new message instead of going on with the last one; ask it to "
    "go on in a message of the user."
)
OWN_SAMPLING = "Models that reason sample in their own way and reject this setting."

ALL = ("*",)
NEAREST_OF_THREE = {"minimal": "low", "xhigh": "high", "max": "high"}


def dropped(field: str, reason: str = "", **details: Any) -> Rule:
    """The provider has nowhere to put the setting."""
    return Rule(field, action="dropped", reason=reason, **details)


CACHE_TAIL: tuple[Rule, ...] = (
    Rule(
        "cache.resource",
        action="refused",
        reason="The provider has no stored prompts, and without this one the prompt is incomplete.",
    ),
    dropped("cache.mode", "A request cannot switch the provider's cache off.", idle=("auto",)),
)
NO_CACHE_HINTS: tuple[Rule, ...] = (
    dropped("cache.key"),
    dropped("cache.retention", idle=("short",)),
)
PROBABILITIES: tuple[Rule, ...] = (
    Rule("probabilities", action="refused", reason=NO_PROBABILITIES, when="it is required"),
    dropped("probabilities", NO_PROBABILITIES, idle=("off",)),
)
SUMMARY_AS_AUTO = Rule(
    "reasoning.summary",
    action="substituted",
    words={"concise": "auto", "detailed": "auto"},
    idle=("auto",),
)
LOCAL_SETTINGS: tuple[Rule, ...] = (
    dropped("min_p", LOCAL_ONLY),
    dropped("repetition_penalty", LOCAL_ONLY),
    dropped("repeat_last_n", LOCAL_ONLY),
)
LOCAL_SWITCHES: tuple[Rule, ...] = (
    dropped("think", "Ask for it with reasoning=Reasoning(effort=...)."),
    Rule(
        "continue_final_message",
        action="refused",
        reason=NO_CONTINUING,
        idle=(False,),
    ),
)
ALLOWED_BY_US = Rule(
    "tool_choice.allowed",
    action="client_side",
    reason="Only the allowed tools are sent.",
    when="not exactly one tool is required",
)

CHAT_RULES: tuple[Rule, ...] = (
    *PROBABILITIES,
    dropped("cache.prefix_until_index", "The provider finds the prefix to cache itself."),
    Rule("max_tokens", "max_tokens"),
    Rule("temperature", "temperature"),
    Rule("top_p", "top_p"),
    dropped("top_k"),
    *LOCAL_SETTINGS,
    Rule("stop", "stop"),
    Rule("seed", "seed"),
    Rule("frequency_penalty", "frequency_penalty"),
    Rule("presence_penalty", "presence_penalty"),
    Rule("logprobs", "top_logprobs", spell="chat logprobs"),
    Rule("store", "store"),
    Rule("user_id", "user"),
    Rule("service_tier", "service_tier"),
    ALLOWED_BY_US,
    Rule("tool_choice.parallel", "parallel_tool_calls"),
    Rule("tool_choice.mode", "tool_choice", spell="chat tool_choice"),
    Rule("response_format", "response_format", spell="chat format"),
    *LOCAL_SWITCHES,
    dropped("reasoning.thinking_budget"),
    SUMMARY_AS_AUTO,
    Rule("reasoning.effort", "reasoning_effort", spell="off is none"),
    *NO_CACHE_HINTS,
    *CACHE_TAIL,
)


def chat_provider(name: str, base_url: str, *changed: Rule, **details: Any) -> Provider:
    """A provider that speaks OpenAI's chat completions: the few things that are its own.

    ``changed`` are its rules where they differ from the usual ones; ``details`` are fields of
    ``Provider``.
    """
    usual = Provider(
        name=name,
        dialect="chat",
        base_url=base_url,
        path="/chat/completions",
        rules=amended(CHAT_RULES, *changed),
        media={"image": ("data", "url")},
    )
    return replace(usual, **details)
