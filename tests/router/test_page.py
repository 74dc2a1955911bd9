"""docs/router.md is run: its examples print what stands below them."""

import contextlib
import io
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import flm.router
from flm.router import LMRouter, RouterConfig
from tests.support.museum import Museum
from tests.support.providers import KEYS

PAGE = (Path(__file__).parent.parent.parent / "docs" / "router.md").read_text(encoding="utf-8")
EXAMPLE = re.compile(r"```python\n(?P<code>.*?)```(\n+```text\n(?P<output>.*?)```)?", re.DOTALL)
EXAMPLES = list(EXAMPLE.finditer(PAGE))


@pytest.fixture
def museum(monkeypatch: pytest.MonkeyPatch) -> Iterator[Museum]:
    """Every router of an example talks to scripted providers."""
    transport = Museum()

    def scripted(config: RouterConfig | None = None) -> LMRouter:
        config = config if config is not None else RouterConfig()
        return LMRouter(replace(config, transport=transport, env=KEYS))

    monkeypatch.setattr(flm.router, "LMRouter", scripted)
    return transport


def run(names: dict[str, object], code: str) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "router.md", "exec"), names)
    return printed.getvalue()


def test_every_example_has_its_output() -> None:
    assert len(EXAMPLES) >= 12
    assert all(example["output"] is not None for example in EXAMPLES)


def test_the_examples_print_what_the_page_says(museum: Museum) -> None:
    names: dict[str, object] = {}
    for example in EXAMPLES:
        assert run(names, example["code"]) == example["output"], example["code"]


def test_only_what_asks_is_sent(museum: Museum) -> None:
    """Planning, refusing and resolving send nothing: each example is one request for each
    ``complete`` that returns, and one for a stream."""
    names: dict[str, object] = {}
    sent = []
    for example in EXAMPLES:
        before = museum.num_sent
        run(names, example["code"])
        sent.append(museum.num_sent - before)
    assert sent == [1, 4, 1, 1, 1, 0, 0, 0, 1, 1, 1, 0, 0]


def test_examples_print_through_their_own_prints_only(
    museum: Museum, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, object] = {"print": lambda *_: None}
    for example in EXAMPLES:
        exec(example["code"], names)
    assert capsys.readouterr() == ("", "")
