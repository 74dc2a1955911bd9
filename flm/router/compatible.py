"""The providers and local servers that speak chat completions, and the table of all of them."""

from collections.abc import Mapping

from flm.router.capabilities import Provider, Rule
from flm.router.chat_rules import NEAREST_OF_THREE, chat_provider, dropped
from flm.router.providers import ANTHROPIC, CODEX, GEMINI, OPENAI, OPENAI_CHAT

_ONE_EFFORT_LESS = Rule(
    "reasoning.effort",
    "reasoning_effort",
    "clamped",
    words=NEAREST_OF_THREE,
    spell="off is none",
)
_GOES_ON = Rule("continue_final_message", "continue_final_message", idle=(False,), spell="continue")
_SWITCH = Rule("think", "chat_template_kwargs.enable_thinking")

# --- local servers -----------------------------------------------------------------------------

FLM = chat_provider(
    "flm",
    "http://127.0.0.1:52625/v1",
    Rule("top_k", "top_k"),
    Rule("min_p", "min_p"),
    Rule("repetition_penalty", "repetition_penalty"),
    Rule("repeat_last_n", "repeat_last_n"),
    Rule(
        "stop",
        "stop",
        "client_side",
        reason="The server takes 16 at most; the answer is cut as it arrives.",
        most=16,
    ),
    Rule("frequency_penalty", "frequency_penalty", low=0.0),
    Rule("presence_penalty", "presence_penalty", low=0.0),
    Rule("logprobs", "top_logprobs", high=20, spell="chat logprobs"),
    dropped("store", "The server stores nothing.", idle=(False,)),
    dropped("service_tier", "The server has one tier.", idle=("auto", "default")),
    Rule("tool_choice.allowed", "tool_choice.allowed_tools", spell="with tools"),
    Rule("think", "think"),
    Rule("continue_final_message", "continue_final_message"),
    Rule(
        "reasoning.effort",
        "reasoning_effort",
        "substituted",
        words=NEAREST_OF_THREE,
        spell="off is none",
    ),
    Rule("cache.key", "prompt_cache_key"),
    Rule("cache.mode", "cache_prompt", idle=("auto",), spell="false"),
    keyless=True,
    media={},
    thinking_field="reasoning_content",
    strict_tools=True,
    keeps_records=True,
)
VLLM = chat_provider(
    "vllm",
    "http://localhost:8000/v1",
    Rule("top_k", "top_k"),
    Rule("min_p", "min_p"),
    Rule("repetition_penalty", "repetition_penalty"),
    _SWITCH,
    _GOES_ON,
    _ONE_EFFORT_LESS,
    keyless=True,
    thinking_field="reasoning_content",
)
SGLANG = chat_provider(
    "sglang",
    "http://localhost:30000/v1",
    Rule("top_k", "top_k"),
    Rule("min_p", "min_p"),
    Rule("repetition_penalty", "repetition_penalty"),
    _SWITCH,
    _GOES_ON,
    _ONE_EFFORT_LESS,
    keyless=True,
    thinking_field="reasoning_content",
)
OLLAMA = chat_provider(
    "ollama",
    "http://localhost:11434/v1",
    _ONE_EFFORT_LESS,
    keyless=True,
    media={"image": ("data",)},
    thinking_field="reasoning",
)
LMSTUDIO = chat_provider(
    "lmstudio",
    "http://localhost:1234/v1",
    Rule("top_k", "top_k"),
    Rule("repetition_penalty", "repeat_penalty"),
    dropped("reasoning", "The server has no switch for it; choose it in LM Studio."),
    keyless=True,
    media={"image": ("data",)},
)
LLAMA_SERVER = chat_provider(
    "llama-server",
    "http://localhost:8080/v1",
    Rule("top_k", "top_k"),
    Rule("min_p", "min_p"),
    Rule("repetition_penalty", "repeat_penalty"),
    Rule("repeat_last_n", "repeat_last_n"),
    _SWITCH,
    Rule(
        "continue_final_message",
        action="dropped",
        reason="The server goes on with a last message of the assistant anyway.",
        met=(True,),
        idle=(False,),
    ),
    Rule(
        "reasoning.effort",
        "chat_template_kwargs.enable_thinking",
        "substituted",
        reason="The server can switch reasoning on and off; it has no levels.",
        words=dict.fromkeys(("minimal", "low", "medium", "high", "xhigh", "max"), "on"),
        spell="on or off",
    ),
    Rule("cache.mode", "cache_prompt", idle=("auto",), spell="false"),
    keyless=True,
    thinking_field="reasoning_content",
)

# --- hosted ------------------------------------------------------------------------------------

_NO_PENALTIES = "The provider supports no penalties."

GROQ = chat_provider(
    "groq",
    "https://api.groq.com/openai/v1",
    Rule("max_tokens", "max_completion_tokens"),
    Rule("stop", "stop", "client_side", "The provider takes four at most; we cut.", most=4),
    dropped("frequency_penalty", _NO_PENALTIES, met=(0.0,)),
    dropped("presence_penalty", _NO_PENALTIES, met=(0.0,)),
    dropped("logprobs"),
    _ONE_EFFORT_LESS,
    key_env=("GROQ_API_KEY",),
    builtins={"web_search": "browser_search", "code_execution": "code_interpreter"},
)
OPENROUTER = chat_provider(
    "openrouter",
    "https://openrouter.ai/api/v1",
    Rule("top_k", "top_k"),
    Rule("min_p", "min_p"),
    Rule("repetition_penalty", "repetition_penalty"),
    Rule("reasoning.thinking_budget", "reasoning.max_tokens"),
    Rule("reasoning.effort", "reasoning.effort", spell="openrouter reasoning"),
    Rule("cache.key", "prompt_cache_key"),
    Rule("cache.retention", "prompt_cache_retention", idle=("short",), spell="24h"),
    key_env=("OPENROUTER_API_KEY",),
)
_R1 = ("deepseek-reasoner*",)
_R1_REASON = "The model that reasons does not apply it."
DEEPSEEK = chat_provider(
    "deepseek",
    "https://api.deepseek.com",
    dropped("temperature", _R1_REASON, models=_R1),
    Rule("temperature", "temperature"),
    dropped("top_p", _R1_REASON, models=_R1),
    Rule("top_p", "top_p"),
    Rule("stop", "stop", "client_side", "The provider takes 16 at most; we cut.", most=16),
    dropped("seed"),
    dropped("logprobs", _R1_REASON, models=_R1),
    Rule("logprobs", "top_logprobs", high=20, spell="chat logprobs"),
    Rule("user_id", "user_id"),
    Rule("reasoning.effort", "reasoning_effort", spell="deepseek thinking"),
    key_env=("DEEPSEEK_API_KEY",),
    media={},
)
_GROK = ("grok-4*", "grok-3-mini*")
_GROK_REASON = "Models that reason reject penalties."
XAI = chat_provider(
    "xai",
    "https://api.x.ai/v1",
    Rule(
        "stop",
        action="client_side",
        reason="Models that reason reject stop sequences; the answer is cut as it arrives.",
        models=_GROK,
    ),
    Rule("stop", "stop"),
    dropped("frequency_penalty", _GROK_REASON, met=(0.0,), models=_GROK),
    Rule("frequency_penalty", "frequency_penalty"),
    dropped("presence_penalty", _GROK_REASON, met=(0.0,), models=_GROK),
    Rule("presence_penalty", "presence_penalty"),
    dropped("logprobs"),
    Rule(
        "tool_choice.mode",
        action="refused",
        reason="The provider cannot require a tool and hold the answer to a format at once.",
        when="with a response_format",
    ),
    Rule("tool_choice.mode", "tool_choice", spell="chat tool_choice"),
    Rule(
        "reasoning.effort",
        "reasoning_effort",
        "substituted",
        reason="The model always thinks; low is the least.",
        words={"off": "low"},
    ),
    key_env=("XAI_API_KEY",),
)
MISTRAL = chat_provider(
    "mistral",
    "https://api.mistral.ai/v1",
    Rule("seed", "random_seed"),
    dropped("logprobs"),
    dropped("store", "Nothing can be stored there.", met=(False,)),
    dropped("user_id"),
    dropped("service_tier"),
    dropped("reasoning", "The provider has no levels; choose a model that reasons."),
    key_env=("MISTRAL_API_KEY",),
    stream_usage=False,
)

PROVIDERS: Mapping[str, Provider] = {
    provider.name: provider
    for provider in (
        ANTHROPIC,
        OPENAI,
        OPENAI_CHAT,
        GEMINI,
        CODEX,
        FLM,
        VLLM,
        SGLANG,
        OLLAMA,
        LMSTUDIO,
        LLAMA_SERVER,
        GROQ,
        OPENROUTER,
        DEEPSEEK,
        XAI,
        MISTRAL,
    )
}
"""Every provider that is known without being declared."""
