"""The table of the router's promises, held to by the same checks as the server's."""

import tomllib
from pathlib import Path

import pytest

from tests.spec import test_table as spec
from tests.test_docs import anchors, tokens_of

TABLE = Path(__file__).with_name("behaviours.toml")
ROWS = tomllib.loads(TABLE.read_text("utf-8"))["row"]
PARTS = {
    "length",
    "temperature",
    "stop",
    "adapting",
    "preview",
    "refusing",
    "exercises",
    "local",
    "streams",
    "network",
}


@pytest.fixture(autouse=True)
def router_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks of the server's table, over this one."""
    monkeypatch.setattr(spec, "ROWS", ROWS)
    monkeypatch.setattr(spec, "PARTS", PARTS)


def test_rows_have_the_same_shape() -> None:
    spec.test_rows_have_the_same_shape()


def test_every_part_is_covered() -> None:
    counts = {part: sum(row["part"] == part for row in ROWS) for part in PARTS}
    assert min(counts.values()) >= 3, counts


def test_every_row_is_held_by_a_test_of_the_normal_run() -> None:
    spec.test_every_row_is_held_by_a_test_of_the_normal_run()


@pytest.mark.parametrize("name", sorted({test for row in ROWS for test in row["tests"]}))
def test_every_named_test_is_there(name: str) -> None:
    spec.test_every_named_test_is_there(name)


def test_every_row_has_its_page() -> None:
    pages = Path(__file__).parents[2] / "docs"
    for place in {row["docs"] for row in ROWS}:
        page, _, anchor = place.partition("#")
        assert anchor in anchors(tokens_of(pages / page)), place


def test_every_section_of_the_page_is_in_the_table() -> None:
    page = Path(__file__).parents[2] / "docs" / "router.md"
    told = {row["docs"].partition("#")[2] for row in ROWS}
    assert anchors(tokens_of(page)) == told
