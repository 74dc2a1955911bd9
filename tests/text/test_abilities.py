from typing import Any

import pytest

from flm.errors import InvalidRequestError
from flm.text.abilities import Abilities, probe
from flm.text.jinja import TemplateRefusalError, compile_template, environment, run
from tests.text import templates
from tests.text import templates_history as shapes

WORDS = (
    *("tools", "calls", "many_calls", "text_apart", "results", "responses", "text_arguments"),
    *("system", "late_system"),
)


def _probed(source: str) -> Abilities:
    compiled = compile_template(environment(), source)

    def render(messages: Any, tools: Any) -> str | None:
        try:
            return run(compiled, {"messages": messages, "tools": tools or None})
        except (TemplateRefusalError, InvalidRequestError):
            return None

    return probe(render)


@pytest.mark.parametrize(
    ("source", "able"),
    [
        (shapes.LISTS_TOOLS, {"tools", "results", "system", "late_system"}),
        (shapes.FIRST_CALL_ONLY, {"tools", "calls", "results", "system"}),
        (
            shapes.ONE_CALL_WITHOUT_TEXT,
            {"tools", "calls", "text_apart", "results", "system"},
        ),
        (shapes.REFUSES_LATE_SYSTEM, {"tools", "calls", "results", "system", "late_system"}),
        (
            shapes.RESPONSES,
            {"calls", "many_calls", "responses", "system", "late_system"},
        ),
        (shapes.NO_SYSTEM, {"results"}),
        (
            templates.QWEN_LIKE,
            {"tools", "calls", "many_calls", "results", "system", "late_system"},
        ),
        (
            shapes.RESPONSES.replace("call.function.arguments | tojson", "call.function.arguments"),
            {"calls", "many_calls", "responses", "text_arguments", "system", "late_system"},
        ),
        ("{{ raise_exception('never') }}", {"system", "late_system"}),
    ],
)
def test_what_a_template_shows(source: str, able: set[str]) -> None:
    found = _probed(source)
    assert {word for word in WORDS if getattr(found, word)} == able
