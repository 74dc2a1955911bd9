"""Calls written in every dialect, as models write them."""

import json
from collections.abc import Callable
from typing import Any

from flm.text.parsers import ToolDialect

Calls = list[tuple[str, dict[str, Any]]]


def dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def hermes(items: Calls) -> str:
    return "\n".join(
        f'<tool_call>\n{{"name": "{name}", "arguments": {dumps(values)}}}\n</tool_call>'
        for name, values in items
    )


def llama3(items: Calls) -> str:
    return "; ".join(f'{{"name": "{name}", "parameters": {dumps(v)}}}' for name, v in items)


def mistral_list(items: Calls) -> str:
    return f"[TOOL_CALLS]{dumps([{'name': name, 'arguments': v} for name, v in items])}"


def mistral_named(items: Calls) -> str:
    return "".join(f"[TOOL_CALLS]{name}[ARGS]{dumps(values)}" for name, values in items)


def mistral_ids(items: Calls) -> str:
    return "".join(f"[TOOL_CALLS]{n}[CALL_ID]a1b2c3d4e[ARGS]{dumps(v)}" for n, v in items)


def python_list(items: Calls) -> str:
    shown = (f"{name}({', '.join(f'{k}={v!r}' for k, v in v.items())})" for name, v in items)
    return f"[{', '.join(shown)}]"


def lfm2(items: Calls) -> str:
    return f"<|tool_call_start|>{python_list(items)}<|tool_call_end|>"


def deepseek_r1(items: Calls) -> str:
    shown = "\n".join(
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>"
        f"{name}\n```json\n{dumps(values)}\n```<｜tool▁call▁end｜>"
        for name, values in items
    )
    return f"<｜tool▁calls▁begin｜>{shown}<｜tool▁calls▁end｜>"


def deepseek_v31(items: Calls) -> str:
    shown = "".join(
        f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{dumps(values)}<｜tool▁call▁end｜>"
        for name, values in items
    )
    return f"<｜tool▁calls▁begin｜>{shown}<｜tool▁calls▁end｜>"


def harmony(items: Calls) -> str:
    return "<|start|>assistant".join(
        f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{dumps(v)}<|call|>"
        for name, v in items
    )


def gemma_value(value: Any) -> str:
    if isinstance(value, str):
        return f'<|"|>{value}<|"|>'
    if isinstance(value, dict):
        return f"{{{','.join(f'{k}:{gemma_value(v)}' for k, v in value.items())}}}"
    if isinstance(value, list):
        return f"[{','.join(map(gemma_value, value))}]"
    return dumps(value)


def gemma4(items: Calls) -> str:
    return "".join(f"<|tool_call>call:{name}{gemma_value(v)}<tool_call|>" for name, v in items)


def qwen_xml(items: Calls) -> str:
    def one(key: str, value: Any) -> str:
        text = value if isinstance(value, str) else dumps(value)
        return f"<parameter={key}>\n{text}\n</parameter>\n"

    return "\n".join(
        f"<tool_call>\n<function={name}>\n{''.join(one(k, v) for k, v in values.items())}"
        "</function>\n</tool_call>"
        for name, values in items
    )


JSON_FORMS: dict[str, tuple[ToolDialect, Callable[[Calls], str]]] = {
    "hermes": ("hermes", hermes),
    "llama3": ("llama3", llama3),
    "llama3 with its tag": ("llama3", lambda items: f"<|python_tag|>{llama3(items)}"),
    "mistral, a list": ("mistral", mistral_list),
    "mistral, names": ("mistral", mistral_named),
    "mistral, ids": ("mistral", mistral_ids),
    "deepseek r1": ("deepseek", deepseek_r1),
    "deepseek v3.1": ("deepseek", deepseek_v31),
    "harmony": ("harmony", harmony),
}
OTHER_FORMS: dict[str, tuple[ToolDialect, Callable[[Calls], str]]] = {
    "pythonic": ("pythonic", python_list),
    "lfm2": ("lfm2", lfm2),
    "lfm2 in json": (
        "lfm2",
        lambda items: f"<|tool_call_start|>{mistral_list(items)[12:]}<|tool_call_end|>",
    ),
    "gemma4": ("gemma4", gemma4),
    "qwen3.5": ("qwen3.5", qwen_xml),
}
FORMS = JSON_FORMS | OTHER_FORMS
SAMPLE: Calls = [
    ("weather", {"city": 'Zürich "</tool_call>" \\ \n', "days": 3}),
    ("note", {"text": "[a] {b} ) ' ,", "tags": ["x", 1, None, True], "meta": {"k": [1.5e3, {}]}}),
    ("now", {}),
]
