"""The providers: one table each. Another one is a few lines like these."""

from flm.router.capabilities import Provider, Rule
from flm.router.chat_rules import (
    CACHE_TAIL,
    LOCAL_SETTINGS,
    LOCAL_SWITCHES,
    NO_CONTINUING,
    OWN_SAMPLING,
    PROBABILITIES,
    SUMMARY_AS_AUTO,
    chat_provider,
    dropped,
)

# --- Anthropic ---------------------------------------------------------------------------------

ADAPTIVE = (
    "*sonnet-5*",
    "*opus-5*",
    "*haiku-5*",
    "*sonnet-4-6*",
    "*opus-4-6*",
    "*opus-4-7*",
    "*opus-4-8*",
    "*fable*",
    "*mythos*",
)
"""Models that decide for themselves how long they think."""
FIXED_SAMPLING = tuple(name for name in ADAPTIVE if "-4-6" not in name)
"""Models that reject temperature, top_p and top_k."""
_THINKS = "While the model thinks, it samples in its own way."

ANTHROPIC = Provider(
    name="anthropic",
    dialect="anthropic",
    base_url="https://api.anthropic.com/v1",
    path="/messages",
    key_env=("ANTHROPIC_API_KEY",),
    key_header="x-api-key",
    headers={"anthropic-version": "2023-06-01"},
    media={"image": ("data", "url", "file_id"), "document": ("data", "url", "file_id")},
    builtins={
        "web_search": "web_search_20250305",
        "code_execution": "code_execution_20250522",
    },
    strict_tools=True,
    rules=(
        dropped("cache.key"),
        Rule("cache.retention", "cache_control.ttl", spell="with cache"),
        SUMMARY_AS_AUTO,
        dropped(
            "reasoning.thinking_budget", "The model decides how long it thinks.", models=ADAPTIVE
        ),
        Rule("reasoning.thinking_budget", "thinking.budget_tokens", spell="thinking budget"),
        Rule(
            "reasoning.effort",
            "output_config.effort",
            "clamped",
            words={"minimal": "low"},
            idle=("off",),
            models=ADAPTIVE,
            spell="adaptive thinking",
        ),
        Rule(
            "reasoning.effort",
            "thinking.budget_tokens",
            idle=("off",),
            spell="thinking of effort",
        ),
        Rule(
            "max_tokens",
            "max_tokens",
            reason="The provider requires a length limit; this is the model's own ceiling.",
            defaults=(
                ("claude-3-haiku*", 4096),
                ("claude-3-opus*", 4096),
                ("claude-3-sonnet*", 4096),
                ("claude-3-5-*", 8192),
                ("claude-3.5-*", 8192),
                ("*", 16384),
            ),
            spell="max_tokens and thinking",
        ),
        dropped("temperature", OWN_SAMPLING, met=(1.0,), models=FIXED_SAMPLING),
        dropped("temperature", _THINKS, met=(1.0,), when="reasoning is on"),
        dropped("top_p", OWN_SAMPLING, met=(1.0,), models=FIXED_SAMPLING),
        Rule("top_p", "top_p", low=0.95, when="reasoning is on"),
        Rule("top_p", "top_p"),
        dropped("top_k", OWN_SAMPLING, models=FIXED_SAMPLING),
        dropped("top_k", _THINKS, when="reasoning is on"),
        Rule("top_k", "top_k"),
        *LOCAL_SETTINGS,
        Rule("stop", "stop_sequences"),
        dropped("seed"),
        dropped("frequency_penalty"),
        dropped("presence_penalty"),
        Rule("temperature", "temperature", high=1.0),
        Rule(
            "tool_choice.allowed",
            action="client_side",
            reason="Only the allowed tools are sent.",
            when="not exactly one tool is required",
        ),
        Rule("tool_choice.parallel", "tool_choice.disable_parallel_tool_use", spell="with tools"),
        Rule("tool_choice.mode", "tool_choice", spell="anthropic tool_choice"),
        Rule(
            "response_format",
            action="refused",
            reason="The provider can hold an answer to a schema only; send a json_schema.",
            when="it is json_object",
        ),
        Rule("response_format", "output_config.format", spell="anthropic format"),
        *PROBABILITIES,
        dropped("store", "Nothing can be stored there.", met=(False,)),
        dropped("logprobs"),
        Rule("user_id", "metadata.user_id"),
        Rule("service_tier", "service_tier"),
        LOCAL_SWITCHES[0],
        Rule(
            "continue_final_message",
            action="refused",
            reason=NO_CONTINUING,
            idle=(False,),
            models=ADAPTIVE,
        ),
        dropped(
            "continue_final_message",
            "The provider goes on with a last message of the assistant anyway.",
            met=(True,),
            idle=(False,),
        ),
        CACHE_TAIL[0],
        Rule("cache.prefix_until_index", "messages", spell="with cache"),
        Rule("cache", "cache_control", spell="anthropic cache"),
    ),
)

# --- OpenAI's Responses ------------------------------------------------------------------------

RIGID = ("o1*", "o3*", "o4*", "gpt-5*", "codex*")
"""Models that reject temperature, top_p and log probabilities..."""
FLEXIBLE = ("gpt-5-chat*", "gpt-5.*")
"""... but these do not, or not always."""
SOMETIMES_RIGID = ("gpt-5.*",)
_ONLY_OFF = (
    "The model takes it only while it does not reason: add reasoning=Reasoning(effort='off')."
)


def _rigid(field: str, taken: Rule) -> tuple[Rule, ...]:
    """A setting that models which reason reject."""
    met = (1.0,) if field in ("temperature", "top_p") else ()
    return (
        dropped(field, OWN_SAMPLING, met=met, models=RIGID, but=FLEXIBLE),
        dropped(
            field,
            _ONLY_OFF,
            met=met,
            models=SOMETIMES_RIGID,
            but=("gpt-5.*-chat*",),
            when="reasoning is not off",
        ),
        taken,
    )


_RESPONSES_RULES: tuple[Rule, ...] = (
    dropped("cache.prefix_until_index", "The provider finds the prefix to cache itself."),
    Rule(
        "stop",
        action="client_side",
        reason="The answer is cut at the sequence as it arrives; the token counts are lost.",
    ),
    *_rigid("temperature", Rule("temperature", "temperature")),
    *_rigid("top_p", Rule("top_p", "top_p")),
    dropped("top_k"),
    *LOCAL_SETTINGS,
    dropped("seed"),
    dropped("frequency_penalty"),
    dropped("presence_penalty"),
    *PROBABILITIES,
    *_rigid("logprobs", Rule("logprobs", "top_logprobs", high=20, spell="responses logprobs")),
    Rule("max_tokens", "max_output_tokens"),
    Rule("store", "store"),
    Rule("user_id", "safety_identifier"),
    Rule("service_tier", "service_tier"),
    Rule("tool_choice.allowed", "tool_choice.tools", spell="with tools"),
    Rule("tool_choice.parallel", "parallel_tool_calls"),
    Rule("tool_choice.mode", "tool_choice", spell="responses tool_choice"),
    Rule("response_format", "text.format", spell="responses format"),
    *LOCAL_SWITCHES,
    dropped("reasoning.thinking_budget"),
    Rule("reasoning.summary", "reasoning.summary"),
    Rule("reasoning.effort", "reasoning.effort", spell="off is none"),
    Rule("cache.key", "prompt_cache_key"),
    Rule("cache.retention", "prompt_cache_retention", idle=("short",), spell="24h"),
    *CACHE_TAIL,
)

OPENAI = Provider(
    name="openai",
    dialect="responses",
    base_url="https://api.openai.com/v1",
    path="/responses",
    key_env=("OPENAI_API_KEY",),
    media={
        "image": ("data", "url", "file_id"),
        "document": ("data", "url", "file_id"),
        "audio": ("data",),
    },
    builtins={
        "web_search": "web_search_preview",
        "code_execution": "code_interpreter",
        "file_search": "file_search",
        "computer_use": "computer_use_preview",
    },
    strict_tools=True,
    rules=_RESPONSES_RULES,
)

CODEX = Provider(
    name="openai-codex",
    dialect="responses",
    base_url="https://chatgpt.com/backend-api/codex",
    path="/responses",
    media=OPENAI.media,
    builtins=OPENAI.builtins,
    strict_tools=True,
    always_streams=True,
    fixed={"store": False},
    rules=(
        *(rule for rule in _RESPONSES_RULES if rule.field not in ("max_tokens", "store")),
        Rule(
            "max_tokens",
            action="refused",
            reason="The provider has no length limit, and an answer without one may cost money.",
        ),
        Rule("store", action="refused", reason="The provider stores nothing.", idle=(False,)),
    ),
)

# --- Gemini ------------------------------------------------------------------------------------

_G = "generationConfig."
_LEVELS = ("gemini-3*",)

GEMINI = Provider(
    name="gemini",
    dialect="gemini",
    base_url="https://generativelanguage.googleapis.com/v1beta",
    path="/models/{model}:generateContent",
    stream_path="/models/{model}:streamGenerateContent?alt=sse",
    key_env=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    key_header="x-goog-api-key",
    media=dict.fromkeys(
        ("image", "audio", "video", "document", "binary"), ("data", "url", "file_id")
    ),
    builtins={"web_search": "googleSearch", "code_execution": "codeExecution"},
    rules=(
        dropped("cache.key"),
        dropped("cache.retention", idle=("short",)),
        dropped("cache.prefix_until_index", "The provider finds the prefix to cache itself."),
        *PROBABILITIES,
        Rule(
            "reasoning.effort",
            _G + "thinkingConfig.thinkingLevel",
            "substituted",
            reason="The model always thinks; minimal is the least.",
            words={"off": "minimal"},
            models=_LEVELS,
            when="reasoning is off",
        ),
        Rule(
            "reasoning.summary",
            _G + "thinkingConfig.includeThoughts",
            "substituted",
            words=SUMMARY_AS_AUTO.words,
            spell="true",
        ),
        Rule(
            "reasoning.effort",
            _G + "thinkingConfig.thinkingLevel",
            "clamped",
            words={"xhigh": "high", "max": "high"},
            models=_LEVELS,
        ),
        Rule("reasoning.effort", _G + "thinkingConfig.thinkingBudget", spell="budget of effort"),
        Rule(
            "reasoning.thinking_budget", _G + "thinkingConfig.thinkingBudget", spell="budget alone"
        ),
        Rule("max_tokens", _G + "maxOutputTokens"),
        Rule("temperature", _G + "temperature", spell="short number"),
        Rule("top_p", _G + "topP", spell="short number"),
        Rule("top_k", _G + "topK"),
        *LOCAL_SETTINGS,
        Rule(
            "stop",
            _G + "stopSequences",
            "client_side",
            reason="The provider takes five at most; the answer is cut as it arrives.",
            most=5,
        ),
        Rule("seed", _G + "seed"),
        Rule("frequency_penalty", _G + "frequencyPenalty", spell="short number"),
        Rule("presence_penalty", _G + "presencePenalty", spell="short number"),
        Rule("logprobs", _G + "logprobs", high=20, spell="gemini logprobs"),
        Rule("tool_choice.allowed", "toolConfig.functionCallingConfig", spell="with tools"),
        dropped("tool_choice.parallel", idle=(True,)),
        Rule("tool_choice.mode", "toolConfig.functionCallingConfig", spell="gemini tool_choice"),
        Rule("response_format", _G + "responseJsonSchema", spell="gemini format"),
        Rule("store", "store"),
        dropped("user_id"),
        Rule("service_tier", "serviceTier"),
        *LOCAL_SWITCHES,
        Rule("cache.resource", "cachedContent"),
        CACHE_TAIL[1],
    ),
)

# --- OpenAI's chat completions -----------------------------------------------------------------


def _stops(most: int) -> Rule:
    reason = f"The provider takes {most} at most; the answer is cut as it arrives."
    return Rule("stop", "stop", "client_side", reason, most=most)


_NO_STOP = Rule(
    "stop",
    action="client_side",
    reason="Models that reason take no stop sequences; the answer is cut as it arrives.",
    models=RIGID,
    but=("gpt-5-chat*",),
)

OPENAI_CHAT = chat_provider(
    "openai-chat",
    "https://api.openai.com/v1",
    Rule("max_tokens", "max_completion_tokens"),
    *_rigid("temperature", Rule("temperature", "temperature")),
    *_rigid("top_p", Rule("top_p", "top_p")),
    *_rigid("frequency_penalty", Rule("frequency_penalty", "frequency_penalty")),
    *_rigid("presence_penalty", Rule("presence_penalty", "presence_penalty")),
    *_rigid("logprobs", Rule("logprobs", "top_logprobs", high=20, spell="chat logprobs")),
    _NO_STOP,
    _stops(4),
    Rule("tool_choice.allowed", "tool_choice.allowed_tools", spell="with tools"),
    Rule("cache.key", "prompt_cache_key"),
    Rule("cache.retention", "prompt_cache_retention", idle=("short",), spell="24h"),
    key_env=("OPENAI_API_KEY",),
    strict_tools=True,
    media={"image": ("data", "url"), "document": ("data", "file_id")},
)
