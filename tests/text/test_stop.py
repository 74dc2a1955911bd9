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


def test_many_long_alike_stops_take_linear_work() -> None:
    class Counting(dict[str, object]):
        lookups = 0

        def __contains__(self, key: object) -> bool:
            Counting.lookups += 1
            return super().__contains__(key)

    matcher = StopMatcher(["a" * n + "b" for n in range(1, 2000, 130)])
    nodes, queue = 0, [matcher._root]
    for node in queue:
        queue.extend(node.next.values())
        node.next = Counting(node.next)  # type: ignore[assignment]
        nodes += 1
    text = ("a" * 1999 + "c") * 10
    assert matcher.feed(text).matched is None
    # At most one step down and one step back for every character.
    assert Counting.lookups <= 2 * len(text) + nodes
