"""How models write tool calls, as data: one syntax for every dialect and version of one."""

from dataclasses import dataclass
from typing import Literal

from flm.text.parsers.dialects import ToolDialect


@dataclass(frozen=True, slots=True)
class ToolSyntax:
    """A dialect of tool calls. Every text may hold control tokens.

    A reply is ``section_begin call (separator call)* section_end``; a call is ``call_begin name
    after_name arguments call_end``. ``layout`` says how arguments are written:

    - ``json``: one object;
    - ``tagged``: ``parameter_begin key after_key value parameter_end`` for each, where a string
      stands as it is and anything else as JSON; no string holds ``parameter_guard``;
    - ``keywords``: ``key=value`` in parentheses, values as JSON, or ``**`` and an object;
    - ``bare_keys``: ``key:value`` in braces, strings between ``quote`` and anything else as JSON.

    ``trigger`` is how the first call is told from free text: a beginning of the reply's markup
    that is one control token or plain text. ``stands_alone``: a call counts only where the reply
    begins, and free text must not begin as the regular expression ``call_like`` says. ``max_calls``
    is what one reply can hold. ``has_channels``: the reply is messages in Harmony's channels.
    """

    call_begin: str
    after_name: str
    call_end: str
    trigger: str
    section_begin: str = ""
    separator: str = ""
    section_end: str = ""
    layout: Literal["json", "tagged", "keywords", "bare_keys"] = "json"
    parameter_begin: str = ""
    after_key: str = ""
    parameter_end: str = ""
    parameter_guard: str = ""
    quote: str = ""
    stands_alone: bool = False
    call_like: str = ""
    max_calls: int | None = None
    has_channels: bool = False


_PYTHON_TAG = r"(?s:.*)<\|python_tag\|>"  # where readers of these two expect a call too
HERMES = ToolSyntax(
    call_begin='<tool_call>\n{"name": "',
    after_name='", "arguments": ',
    call_end="}\n</tool_call>",
    trigger="<tool_call>",
    separator="\n",
)
QWEN3_5 = ToolSyntax(
    call_begin="<tool_call>\n<function=",
    after_name=">\n",
    call_end="</function>\n</tool_call>",
    trigger="<tool_call>",
    separator="\n",
    layout="tagged",
    parameter_begin="<parameter=",
    after_key=">\n",
    parameter_end="\n</parameter>\n",
    parameter_guard="</parameter>",
)
LLAMA3_JSON = ToolSyntax(
    call_begin='{"name": "',
    after_name='", "parameters": ',
    call_end="}",
    trigger='{"name": "',
    separator="; ",
    stands_alone=True,
    call_like=r'\s*\{\s*"(?:(?:name|function|parameters|arguments|id|type)"|[^"]*\\)'
    f"|{_PYTHON_TAG}",
)
PYTHONIC = ToolSyntax(
    section_begin="[",
    call_begin="",
    after_name="",
    call_end="",
    trigger="[",
    separator=", ",
    section_end="]",
    layout="keywords",
    stands_alone=True,
    call_like=r"\s*\[[^()\[\]{}\"']*\(" f"|{_PYTHON_TAG}",
)
LFM2 = ToolSyntax(
    section_begin="<|tool_call_start|>[",
    call_begin="",
    after_name="",
    call_end="",
    trigger="<|tool_call_start|>",
    separator=", ",
    section_end="]<|tool_call_end|>",
    layout="keywords",
)
MISTRAL = ToolSyntax(
    trigger="[TOOL_CALLS]",
    section_begin="[TOOL_CALLS][",
    call_begin='{"name": "',
    after_name='", "arguments": ',
    call_end="}",
    separator=", ",
    section_end="]",
)
MISTRAL_NAMED = ToolSyntax(
    trigger="[TOOL_CALLS]", call_begin="[TOOL_CALLS]", after_name="[ARGS]", call_end=""
)
GEMMA4 = ToolSyntax(
    trigger="<|tool_call>",
    call_begin="<|tool_call>call:",
    after_name="",
    call_end="<tool_call|>",
    layout="bare_keys",
    quote='<|"|>',
)
DEEPSEEK = ToolSyntax(
    trigger="<｜tool▁calls▁begin｜>",
    section_begin="<｜tool▁calls▁begin｜>",
    call_begin="<｜tool▁call▁begin｜>",
    after_name="<｜tool▁sep｜>",
    call_end="<｜tool▁call▁end｜>",
    section_end="<｜tool▁calls▁end｜>",
)
DEEPSEEK_FENCED = ToolSyntax(
    trigger="<｜tool▁calls▁begin｜>",
    section_begin="<｜tool▁calls▁begin｜>",
    call_begin="<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
    after_name="\n```json\n",
    call_end="\n```<｜tool▁call▁end｜>",
    separator="\n",
    section_end="<｜tool▁calls▁end｜>",
)
HARMONY = ToolSyntax(
    trigger="<|channel|>",
    call_begin="<|channel|>commentary to=functions.",
    after_name=" <|constrain|>json<|message|>",
    call_end="",  # the token that ends a call ends the reply
    max_calls=1,
    has_channels=True,
)

_SYNTAXES: dict[ToolDialect, ToolSyntax] = {
    "hermes": HERMES,
    "qwen3.5": QWEN3_5,
    "llama3": LLAMA3_JSON,
    "pythonic": PYTHONIC,
    "mistral": MISTRAL,
    "gemma4": GEMMA4,
    "lfm2": LFM2,
    "deepseek": DEEPSEEK,
    "harmony": HARMONY,
}
# Versions of a dialect, by a text that stands in the templates of that version only.
_VERSIONS: dict[ToolDialect, tuple[str, ToolSyntax]] = {
    "mistral": ("[ARGS]", MISTRAL_NAMED),
    "deepseek": ("```json", DEEPSEEK_FENCED),
}


def tool_syntax(dialect: ToolDialect, template_source: str) -> ToolSyntax:
    """How a model with this chat template writes calls."""
    sign, version = _VERSIONS.get(dialect, ("", None))
    return version if version is not None and sign in template_source else _SYNTAXES[dialect]
