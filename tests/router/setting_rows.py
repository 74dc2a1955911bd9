"""What becomes of each setting alone at eight providers: the expectation, written out by hand."""

from dataclasses import dataclass, field
from typing import Any

from flm.router import CacheConfig, Config, Reasoning, ToolChoice

MODELS = {
    "anthropic": "claude-haiku-4-5",
    "openai": "gpt-4.1",
    "openai-chat": "gpt-4.1",
    "gemini": "gemini-2.5-flash",
    "openai-codex": "gpt-4.1",
    "vllm": "m",
    "ollama": "m",
    "flm": "m",
}
G = "generationConfig."
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
CLOSED = {**SCHEMA, "additionalProperties": False}


@dataclass(frozen=True)
class Cell:
    """``sent``: dotted paths of the body. ``action``: of the one record; None, there is none."""

    sent: dict[str, Any] = field(default_factory=dict)
    action: str | None = None
    applied: Any = None


def at(path: str, value: Any = ..., **more: Any) -> Cell:
    """The value goes to a path, as it was asked or as ``value``, and nothing is recorded."""
    return Cell({path: value, **more})


D = Cell(action="dropped")
OK = Cell(action="satisfied")
R = Cell(action="refused")
NOTHING = Cell()


def clamped(to: Any, **sent: Any) -> Cell:
    return Cell(sent, "clamped", to)


def substituted(to: Any, **sent: Any) -> Cell:
    return Cell(sent, "substituted", to)


@dataclass(frozen=True)
class Row:
    """``setting``: the path that a record names. Cells are in the order of ``MODELS``."""

    name: str
    config: Config
    setting: str
    asked: Any
    cells: tuple[Cell, ...]
    needs_tools: bool = False
    ends_open: bool = False


def row(name: str, value: Any, *cells: Cell, setting: str | None = None) -> Row:
    asked = list(value) if isinstance(value, tuple) else value
    return Row(name, Config(**{name: value}), setting or name, asked, cells)


def choice(name: str, value: ToolChoice, setting: str, asked: Any, *cells: Cell) -> Row:
    return Row(name, Config(tool_choice=value), setting, asked, cells, needs_tools=True)


def thought(name: str, value: Reasoning, setting: str, asked: Any, *cells: Cell) -> Row:
    return Row(name, Config(reasoning=value), f"reasoning.{setting}", asked, cells)


def cached(name: str, value: CacheConfig, setting: str, asked: Any, *cells: Cell) -> Row:
    return Row(name, Config(cache=value), f"cache.{setting}", asked, cells)


def _format(name: str, schema: Any, gemini: str) -> Row:
    details = {"name": "answer", "schema": schema, "strict": True}
    config = Config(response_format={"type": "json_schema", **details})
    chat = at("response_format", {"type": "json_schema", "json_schema": details})
    responses = at("text.format", {"type": "json_schema", **details})
    return Row(
        name,
        config,
        "response_format",
        config.response_format,
        (
            at("output_config.format", {"type": "json_schema", "schema": schema}),
            responses,
            chat,
            Cell({G + "responseMimeType": "application/json", G + gemini: schema}),
            responses,
            chat,
            chat,
            chat,
        ),
    )


JSON = {"type": "json_object"}
NAMED = {"type": "function", "function": {"name": "look"}}
BOTH = [{"type": "function", "function": {"name": name}} for name in ("look", "feel")]
ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": BOTH}}
FLAT = [{"type": "function", "name": name} for name in ("look", "feel")]
FLAT_ALLOWED = {"type": "allowed_tools", "mode": "auto", "tools": FLAT}
CHOICE = "toolConfig.functionCallingConfig"
ONLY_US = Cell({"tool_choice": "auto"}, "client_side", ["look", "feel"])
SCORES = {"logprobs": True, "top_logprobs": 2}
RESPONSES_SCORES = {"top_logprobs": 2, "include": ["message.output_text.logprobs"]}
PENALTY = "frequency_penalty"
PRESENCE = "presence_penalty"
REPETITION = "repetition_penalty"
CHAT_STOP = at("stop", ["END"])
HERE = Cell(action="client_side", applied=["END"])
TEMPERATURE = at("temperature")

# anthropic, openai, openai-chat, gemini, openai-codex, vllm, ollama, flm
SAMPLING: list[Row] = [
    row(
        "max_tokens",
        100,
        at("max_tokens"),
        at("max_output_tokens"),
        at("max_completion_tokens"),
        at(G + "maxOutputTokens"),
        R,
        at("max_tokens"),
        at("max_tokens"),
        at("max_tokens"),
    ),
    row(
        "temperature",
        1.5,
        clamped(1.0, temperature=1.0),
        *(TEMPERATURE,) * 2,
        at(G + "temperature"),
        *(TEMPERATURE,) * 4,
    ),
    row("top_p", 0.5, *(at("top_p"),) * 3, at(G + "topP"), *(at("top_p"),) * 4),
    row("top_k", 40, at("top_k"), D, D, at(G + "topK"), D, at("top_k"), D, at("top_k")),
    row("min_p", 0.1, D, D, D, D, D, at("min_p"), D, at("min_p")),
    row(REPETITION, 1.1, D, D, D, D, D, at(REPETITION), D, at(REPETITION)),
    row("repeat_last_n", 32, D, D, D, D, D, D, D, at("repeat_last_n")),
    row(
        "stop",
        ("END",),
        at("stop_sequences", ["END"]),
        HERE,
        CHAT_STOP,
        at(G + "stopSequences", ["END"]),
        HERE,
        *(CHAT_STOP,) * 3,
    ),
    row("seed", 42, D, D, at("seed"), at(G + "seed"), D, *(at("seed"),) * 3),
    row(PENALTY, 0.5, D, D, at(PENALTY), at(G + "frequencyPenalty"), D, *(at(PENALTY),) * 3),
    row(
        PRESENCE,
        -0.5,
        D,
        D,
        at(PRESENCE),
        at(G + "presencePenalty"),
        D,
        at(PRESENCE),
        at(PRESENCE),
        clamped(0.0, presence_penalty=0.0),
    ),
    row(
        "logprobs",
        2,
        D,
        Cell(RESPONSES_SCORES),
        Cell(SCORES),
        Cell({G + "responseLogprobs": True, G + "logprobs": 2}),
        Cell(RESPONSES_SCORES),
        *(Cell(SCORES),) * 3,
    ),
]

FORMATS: list[Row] = [
    _format("open_schema", SCHEMA, "responseSchema"),
    _format("closed_schema", CLOSED, "responseJsonSchema"),
    row(
        "response_format",
        JSON,
        R,
        at("text.format"),
        at("response_format"),
        at(G + "responseMimeType", "application/json"),
        at("text.format"),
        *(at("response_format"),) * 3,
    ),
]

TOOLS: list[Row] = [
    choice(
        "no_call",
        ToolChoice("none"),
        "tool_choice.mode",
        "none",
        at("tool_choice", {"type": "none"}),
        *(at("tool_choice", "none"),) * 2,
        at(f"{CHOICE}.mode", "NONE"),
        *(at("tool_choice", "none"),) * 4,
    ),
    choice(
        "some_call",
        ToolChoice("required"),
        "tool_choice.mode",
        "required",
        at("tool_choice", {"type": "any"}),
        *(at("tool_choice", "required"),) * 2,
        at(f"{CHOICE}.mode", "ANY"),
        *(at("tool_choice", "required"),) * 4,
    ),
    choice(
        "one_call",
        ToolChoice("required", allowed=("look",)),
        "tool_choice.allowed",
        ["look"],
        at("tool_choice", {"type": "tool", "name": "look"}),
        at("tool_choice", {"type": "function", "name": "look"}),
        at("tool_choice", NAMED),
        at(CHOICE, {"mode": "ANY", "allowedFunctionNames": ["look"]}),
        at("tool_choice", {"type": "function", "name": "look"}),
        *(at("tool_choice", NAMED),) * 3,
    ),
    choice(
        "few_tools",
        ToolChoice(allowed=("look", "feel")),
        "tool_choice.allowed",
        ["look", "feel"],
        Cell({"tool_choice": {"type": "auto"}}, "client_side", ["look", "feel"]),
        at("tool_choice", FLAT_ALLOWED),
        at("tool_choice", ALLOWED),
        at(CHOICE, {"mode": "VALIDATED", "allowedFunctionNames": ["look", "feel"]}),
        at("tool_choice", FLAT_ALLOWED),
        ONLY_US,
        ONLY_US,
        at("tool_choice", ALLOWED),
    ),
    choice(
        "one_at_a_time",
        ToolChoice(parallel=False),
        "tool_choice.parallel",
        False,
        at("tool_choice", {"type": "auto", "disable_parallel_tool_use": True}),
        *(Cell({"tool_choice": "auto", "parallel_tool_calls": False}),) * 2,
        Cell({f"{CHOICE}.mode": "AUTO"}, "dropped"),
        *(Cell({"tool_choice": "auto", "parallel_tool_calls": False}),) * 4,
    ),
]

EFFORT = "reasoning_effort"
BUDGET = G + "thinkingConfig.thinkingBudget"


def manual(budget: int) -> Cell:
    """Anthropic's older models: the budget is on top of the length limit."""
    sent = {"thinking": {"type": "enabled", "budget_tokens": budget}}
    return Cell({**sent, "max_tokens": 16384 + budget})


def less(word: str) -> Cell:
    return clamped(word, reasoning_effort=word)


REASONING: list[Row] = [
    thought(
        "off",
        Reasoning(effort="off"),
        "effort",
        "off",
        NOTHING,
        at("reasoning.effort", "none"),
        at(EFFORT, "none"),
        at(BUDGET, 0),
        at("reasoning.effort", "none"),
        *(at(EFFORT, "none"),) * 3,
    ),
    thought(
        "minimal",
        Reasoning(effort="minimal"),
        "effort",
        "minimal",
        manual(1024),
        at("reasoning.effort"),
        at(EFFORT),
        at(BUDGET, 1024),
        at("reasoning.effort"),
        less("low"),
        less("low"),
        substituted("low", reasoning_effort="low"),
    ),
    thought(
        "medium",
        Reasoning(effort="medium"),
        "effort",
        "medium",
        manual(8192),
        at("reasoning.effort"),
        at(EFFORT),
        at(BUDGET, 8192),
        at("reasoning.effort"),
        *(at(EFFORT),) * 3,
    ),
    thought(
        "max",
        Reasoning(effort="max"),
        "effort",
        "max",
        manual(32768),
        at("reasoning.effort"),
        at(EFFORT),
        at(BUDGET, 32768),
        at("reasoning.effort"),
        less("high"),
        less("high"),
        substituted("high", reasoning_effort="high"),
    ),
    thought(
        "budget",
        Reasoning(thinking_budget=3000),
        "thinking_budget",
        3000,
        manual(3000),
        D,
        D,
        at(BUDGET),
        D,
        D,
        D,
        D,
    ),
]
