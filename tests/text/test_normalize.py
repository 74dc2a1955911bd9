import logging

import pytest

from flm.text import normalize
from flm.text.normalize import MAX_LINE, Normalizer, Removal

DATE = r"Today's date: .*"


def system(content: str, role: str = "system") -> dict[str, str]:
    return {"role": role, "content": content}


@pytest.mark.parametrize(
    ("content", "left", "removed"),
    [
        ("Today's date: Monday\nBe brief.", "Be brief.", "Today's date: Monday"),
        ("Be brief.\nToday's date: Monday", "Be brief.", "Today's date: Monday"),
        ("Be brief. Today's date: Monday\nGo.", "Be brief. \nGo.", "Today's date: Monday"),
        ("Today's date: Monday", "", "Today's date: Monday"),
        ("Today's date: Monday\r\nBe brief.", "Be brief.", "Today's date: Monday\r"),
        ("a: 1\n\na: 2\nx a: 3 b", "\nx ", "a: 1\na: 2\na: 3 b"),
    ],
)
def test_what_matches_is_taken_out_with_the_lines_it_filled(
    content: str, left: str, removed: str
) -> None:
    messages, removals = Normalizer([DATE, "a: .*"]).apply([system("Stay."), system(content)])
    assert messages == (system("Stay."), system(left))
    assert removals == (Removal(1, removed),)


@pytest.mark.parametrize("role", ["user", "assistant", "tool"])
def test_other_roles_stay(role: str) -> None:
    messages = (system("Today's date: Monday", role),)
    assert Normalizer([DATE]).apply(messages) == (messages, ())


def test_a_developer_speaks_as_the_system() -> None:
    messages, removals = Normalizer([DATE]).apply([system("Today's date: Monday", "developer")])
    assert messages == (system("", "developer"),)
    assert len(removals) == 1


@pytest.mark.parametrize("pattern", ["x*", "^", "never", r"\bdate\b(?=:: )"])
def test_nothing_is_told_where_nothing_went(pattern: str) -> None:
    messages = (system("Today's date: Monday\n\nBe brief."),)
    assert Normalizer([pattern]).apply(messages) == (messages, ())
    assert Normalizer().apply(messages) == (messages, ())


def test_long_lines_stay() -> None:
    longest = "a" * MAX_LINE
    messages = (system(f"{longest}a\n{longest}\nb"),)
    assert Normalizer(["a+"]).apply(messages)[0] == (system(f"{longest}a\nb"),)


def test_a_pattern_that_never_ends_leaves_the_request_as_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(normalize, "TIME_LIMIT_S", 0.2)
    messages = (system("Today's date: Monday"), system("a" * 900 + "b"))
    patterns = [DATE, r"(?:a|aa|a\w)+(?:a|aa|\wa)+(?<!b)$"]
    with caplog.at_level(logging.WARNING):
        assert Normalizer(patterns).apply(messages) == (messages, ())
    assert "--normalize took more than" in caplog.text
