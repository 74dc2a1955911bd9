from hypothesis import given
from hypothesis import strategies as st

from flm.text.stop import StopMatcher

letters = st.text("ab", max_size=12)
stop_lists = st.lists(st.text("ab", min_size=1, max_size=5), max_size=5)


def _whole(stops: list[str], text: str) -> tuple[str, str | None]:
    """The rule, written plainly: first to be complete, then first to begin."""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if stop and text[:end].endswith(stop)]
        if ending:
            longest = max(ending, key=len)
            return text[: end - len(longest)], longest
    return text, None


def _fed(stops: list[str], pieces: list[str]) -> tuple[str, str | None]:
    matcher = StopMatcher(stops)
    text = "".join(matcher.feed(piece).text for piece in pieces)
    return text + matcher.flush(), matcher.matched


@given(stops=stop_lists, pieces=st.lists(letters, max_size=8))
def test_any_cut_gives_what_the_whole_gives(stops: list[str], pieces: list[str]) -> None:
    assert _fed(stops, pieces) == _whole(stops, "".join(pieces))


@given(stops=stop_lists, pieces=st.lists(letters, max_size=8))
def test_no_stop_string_is_ever_given_out(stops: list[str], pieces: list[str]) -> None:
    text, _ = _fed(stops, pieces)
    assert not any(stop in text for stop in stops)


@given(stops=stop_lists, pieces=st.lists(letters, max_size=8))
def test_only_a_possible_beginning_is_held(stops: list[str], pieces: list[str]) -> None:
    matcher = StopMatcher(stops)
    for piece in pieces:
        matcher.feed(piece)
        held = matcher.held
        assert not held or any(stop.startswith(held) and stop != held for stop in stops)


def test_the_first_to_be_complete_wins() -> None:
    assert _fed(["abcd", "bc"], ["xabcd"]) == ("xa", "bc")
    assert _fed(["bc", "abc"], ["xabc"]) == ("x", "abc")


def test_a_match_across_pieces() -> None:
    matcher = StopMatcher(["STOP"])
    assert matcher.feed("a S").text == "a "
    assert matcher.feed("TO").text == ""
    assert matcher.held == "STO"
    step = matcher.feed("P b")
    assert (step.text, step.matched) == ("", "STOP")
    assert matcher.feed("more").text == ""
    assert matcher.flush() == ""


def test_a_false_start_is_given_out() -> None:
    matcher = StopMatcher(["aab"])
    assert matcher.feed("aa").text == ""
    assert matcher.feed("a").text == "a"
    assert matcher.feed("c").text == "aac"
    assert matcher.matched is None


def test_nothing_to_stop_at() -> None:
    for stops in ([], [""]):
        assert _fed(stops, ["a", "", "b"]) == ("ab", None)


class Counting(str):
    """A string that counts how often a character of it is looked at."""

    looks = 0

    def __getitem__(self, key: object) -> str:
        Counting.looks += 1
        return super().__getitem__(key)  # type: ignore[index]


def test_long_alike_stops_take_linear_work() -> None:
    stops = [Counting("a" * n + "b") for n in range(1, 2000, 130)]
    text = ("a" * 1999 + "c") * 10
    Counting.looks = 0
    assert StopMatcher(stops).feed(text).matched is None
    # One step on for every character, and no more steps back; the string itself is read likewise.
    assert Counting.looks <= 4 * len(stops) * len(text) + 4 * sum(map(len, stops))


def test_a_stop_string_is_read_as_far_as_the_text_follows_it() -> None:
    stop = Counting("ab" * 1_000_000)
    Counting.looks = 0
    matcher = StopMatcher([stop])
    assert matcher.feed("xabab").text == "x"
    assert matcher.held == "abab"
    assert Counting.looks < 50
