"""The dialects of tool calls: which one a template teaches, and a reader of it."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from flm.text.parsers.base import Parser
from flm.text.parsers.deepseek import DeepSeekParser
from flm.text.parsers.gemma import GemmaParser
from flm.text.parsers.harmony import HarmonyParser
from flm.text.parsers.hermes import HermesParser
from flm.text.parsers.llama import LlamaParser
from flm.text.parsers.mistral import MistralParser
from flm.text.parsers.pythonic import LFM2Parser, PythonicParser
from flm.text.parsers.qwen_xml import QwenXMLParser

ToolDialect = Literal[
    "hermes", "qwen3.5", "llama3", "pythonic", "mistral", "gemma4", "lfm2", "deepseek", "harmony"
]
TOOL_DIALECTS: tuple[ToolDialect, ...] = get_args(ToolDialect)

# Texts that stand in the templates of a dialect; the first match counts, so what is found in others
# too comes last.
_SIGNS: tuple[tuple[ToolDialect, tuple[str, ...]], ...] = (
    ("harmony", ("<|channel|>", "analysis")),
    ("qwen3.5", ("<function=", "<parameter=")),
    ("gemma4", ("<|tool_call>",)),
    ("lfm2", ("<|tool_call_start|>",)),
    ("lfm2", ("<|tool_list_start|>",)),
    ("lfm2", ("List of tools: [",)),
    ("deepseek", ("<｜tool▁calls▁begin｜>",)),
    ("mistral", ("[TOOL_CALLS]",)),
    ("hermes", ("<tool_call>",)),
    ("pythonic", ("[func_name1(",)),
    ("llama3", ("<|python_tag|>",)),
    ("llama3", ('"parameters": ', "<|eot_id|>")),
)


def detect_tool_dialect(template_source: str) -> ToolDialect:
    """How the model writes tool calls, by the marks its chat template leaves; Hermes by default."""
    for dialect, signs in _SIGNS:
        if all(sign in template_source for sign in signs):
            return dialect
    return "hermes"


def tool_parser(dialect: ToolDialect, tools: Sequence[Mapping[str, Any]]) -> Parser:
    """A reader of one reply in ``dialect`` to a request with ``tools`` (as OpenAI has them)."""
    functions = [tool["function"] for tool in tools]
    names = frozenset(function["name"] for function in functions)
    is_known = names.__contains__
    match dialect:
        case "hermes":
            return HermesParser(is_known)
        case "qwen3.5":
            return QwenXMLParser(is_known, {f["name"]: _schema(f) for f in functions})
        case "llama3":
            return LlamaParser(is_known)
        case "pythonic":
            return PythonicParser(is_known)
        case "mistral":
            return MistralParser(is_known)
        case "gemma4":
            return GemmaParser(is_known)
        case "lfm2":
            return LFM2Parser(is_known)
        case "deepseek":
            return DeepSeekParser(is_known)
        case "harmony":
            return HarmonyParser(is_known, has_tools=bool(tools))


def _schema(function: Mapping[str, Any]) -> Mapping[str, Any]:
    parameters = function.get("parameters")
    return parameters if isinstance(parameters, Mapping) else {}
