"""The official suite: nothing invalid is ever accepted, and what is refused is refused by name."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from flm.errors import InvalidRequestError
from flm.text.grammar import GrammarCompiler
from flm.text.grammar.schema import SchemaError, normalize
from flm.text.tokenizer import Tokenizer
from tests.text.grammar.follow import accepts
from tests.text.grammar.suite import Case, cases

PAGE = Path(__file__).parents[3] / "docs" / "structured-output.md"

pytestmark = pytest.mark.full


@dataclass
class Report:
    """What became of a set of cases."""

    num_schemas: int = 0
    num_instances: int = 0
    accepted: list[Case] = field(default_factory=list)
    unnamed: list[str] = field(default_factory=list)
    wrongly_accepted: list[str] = field(default_factory=list)
    wrongly_refused: list[str] = field(default_factory=list)


def in_declared_order(value: Any, order: dict[str, int]) -> Any:
    """Objects with their keys as the schema names them, other keys behind."""
    if isinstance(value, list):
        return [in_declared_order(item, order) for item in value]
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: order.get(key, len(order)))
        return {key: in_declared_order(value[key], order) for key in keys}
    return value


def property_names(schema: Any) -> Iterator[str]:
    """Names in the order in which ``properties``, ``required`` and constants give them."""
    if isinstance(schema, list):
        for item in schema:
            yield from property_names(item)
    elif isinstance(schema, dict):
        for keyword, value in schema.items():
            if keyword in ("properties", "const") and isinstance(value, dict):
                yield from value
            if keyword == "required" and isinstance(value, list):
                yield from (name for name in value if isinstance(name, str))
            yield from property_names(value)


def instance_text(schema: Any, data: Any) -> str:
    names = list(dict.fromkeys(property_names(schema)))
    order = {name: index for index, name in enumerate(names)}
    return json.dumps(in_declared_order(data, order), ensure_ascii=False)


def has_whole_float(data: Any) -> bool:
    if isinstance(data, dict | list):
        return any(map(has_whole_float, data.values() if isinstance(data, dict) else data))
    return isinstance(data, float) and data.is_integer()


def run(part: list[Case], compiler: GrammarCompiler, tokenizer: Tokenizer) -> Report:
    report = Report(num_schemas=len(part))
    for case in part:
        name = f"{case.file}: {case.description}"
        try:
            grammar = compiler.compile_json(case.schema, param="response_format")
        except InvalidRequestError as error:
            if not is_named(case.schema, str(error)):
                report.unnamed.append(f"{name}: {error}")
            continue
        report.accepted.append(case)
        for test in case.tests:
            report.num_instances += 1
            text = instance_text(case.schema, test["data"])
            is_accepted = accepts(grammar, tokenizer, text)
            if is_accepted and not test["valid"]:
                report.wrongly_accepted.append(f"{name}: {text}")
            if test["valid"] and not is_accepted and not has_whole_float(test["data"]):
                report.wrongly_refused.append(f"{name}: {text}")
    return report


def is_named(schema: Any, message: str) -> bool:
    """The message names a keyword of the schema, or says that the schema allows nothing."""
    if "nothing satisfies it" in message or "allows no value" in message:
        return True
    try:
        normalize(schema)
    except SchemaError as error:
        return error.keyword is not None and f'"{error.keyword}"' in json.dumps(schema)
    return any(f'"{word}"' in json.dumps(schema) for word in re.findall(r"\w+", message))


@pytest.fixture(scope="module")
def required(compiler: GrammarCompiler, tokenizer: Tokenizer) -> Report:
    part = [case for case in cases() if not case.file.startswith("optional/")]
    return run(part, compiler, tokenizer)


def test_no_invalid_instance_is_accepted(required: Report) -> None:
    assert required.wrongly_accepted == []


def test_refusals_name_the_keyword(required: Report) -> None:
    assert required.unnamed == []


def test_valid_instances_are_accepted(required: Report) -> None:
    """But for formats, which assert here and annotate in that part of the suite."""
    assert [line for line in required.wrongly_refused if not line.startswith("format.json")] == []


def test_the_counts_are_those_of_the_page(required: Report) -> None:
    counts = f"{len(required.accepted)} of the {required.num_schemas} schemas"
    assert len(required.accepted) >= 160
    text = " ".join(PAGE.read_text("utf-8").split())
    assert counts in text
    assert f"{required.num_instances} instances" in text


def test_no_invalid_text_passes_for_a_format(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    part = [case for case in cases() if case.file.startswith("optional/")]
    report = run(part, compiler, tokenizer)
    assert report.accepted
    assert report.wrongly_accepted == []
