"""The table of behaviours: every promise has a page that makes it and a test that holds it."""

import ast
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.test_docs import anchors, tokens_of

ROOT = Path(__file__).parent.parent.parent
TABLE = Path(__file__).with_name("behaviours.toml")
PARTS = {
    "sampling",
    "defaults",
    "penalties",
    "window",
    "seed",
    "reasoning",
    "continuing",
    "unknown",
    "prompts",
}
ELSEWHERE = {
    "NPU core backend": "pages of an NPU's memory; this server's cache has none of them",
    "MTP draft head": "a model that drafts its own tokens; no model served here has one",
    "images": "an image encoder; messages with images are refused here",
}
"""What does not apply to this server, and why."""

_DATA: dict[str, Any] = tomllib.loads(TABLE.read_text("utf-8"))
ROWS: list[dict[str, Any]] = _DATA["row"]


@cache
def functions_of(path: str) -> dict[str, set[str]]:
    """The test functions of a file, each with the names of its marks."""
    tree = ast.parse((ROOT / "tests" / path).read_text("utf-8"))
    return {
        node.name: {
            mark.attr
            for decorator in node.decorator_list
            for mark in [decorator.func if isinstance(decorator, ast.Call) else decorator]
            if isinstance(mark, ast.Attribute)
        }
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_rows_have_the_same_shape() -> None:
    for row in ROWS:
        assert set(row) == {"part", "says", "docs", "tests"}, row
        assert row["part"] in PARTS, row
        assert len(row["says"]) > 10, row
        assert row["tests"], row
        assert len(set(row["tests"])) == len(row["tests"]), row
    said = [row["says"] for row in ROWS]
    assert len(set(said)) == len(said)


def test_every_part_is_covered() -> None:
    counts = {part: sum(row["part"] == part for row in ROWS) for part in PARTS}
    assert min(counts.values()) >= 4, counts
    assert sum(counts.values()) >= 100


@pytest.mark.parametrize("name", sorted({test for row in ROWS for test in row["tests"]}))
def test_every_named_test_is_there(name: str) -> None:
    path, _, function = name.partition("::")
    assert Path(path).name.startswith("test_"), name
    assert function.startswith("test_"), name
    assert function in functions_of(path), name


def test_every_row_is_held_by_a_test_of_the_normal_run() -> None:
    for row in ROWS:
        marks = [functions_of(path)[name] for path, name in (t.split("::") for t in row["tests"])]
        assert any("full" not in found for found in marks), row


@pytest.mark.parametrize("place", sorted({row["docs"] for row in ROWS}))
def test_every_row_has_its_page(place: str) -> None:
    page, _, anchor = place.partition("#")
    assert anchor in anchors(tokens_of(ROOT / "docs" / page)), place


def test_what_does_not_apply_has_one_of_three_reasons() -> None:
    rows = _DATA["elsewhere"]
    assert {row["about"] for row in rows} == set(ELSEWHERE)
    for row in rows:
        assert set(row) == {"about", "says"}, row
        assert row["about"] in ELSEWHERE
        assert row["says"] not in {other["says"] for other in ROWS}
