import pytest
from hypothesis import given
from hypothesis import strategies as st

from flm.text.parsers import Parser, PlainParser, ThinkParser
from flm.text.pipeline import OutputPipeline
from flm.text.tokenizer import Tokenizer
from flm.types import TextDelta, TokenLogprob
from tests.support.vocabularies import byte_level_json, data_of
from tests.text.samples import plain_text

TOKENIZER = Tokenizer.from_data(data_of(byte_level_json(), eos="<|im_end|>"))
(EOS,) = TOKENIZER.encode("<|im_end|>", control=True)
any_ids = st.lists(
    st.integers(0, TOKENIZER.vocab_size)
    | st.sampled_from(TOKENIZER.encode("<think></think>ab \n🦆")),
    max_size=40,
)
any_stops = st.lists(
    st.sampled_from(["a", "ab", "b a", "<", "\ufffd", "think", "\n\n"]), max_size=4
)


def _pipeline(
    stops: tuple[str, ...] | list[str] = (), parser: Parser | None = None
) -> OutputPipeline:
    chosen = PlainParser() if parser is None else parser
    return OutputPipeline(index=3, tokenizer=TOKENIZER, stops=stops, parser=chosen)


def _think(*, is_open: bool = False) -> ThinkParser:
    return ThinkParser(is_open=is_open, open_tag="<think>", close_tag="</think>")


def _run(pipeline: OutputPipeline, ids: list[int]) -> list[TextDelta]:
    deltas = [delta for i in ids for delta in pipeline.feed(i, _logprob(i))]
    return [*deltas, *pipeline.flush()]


def _logprob(token_id: int) -> TokenLogprob:
    return TokenLogprob(token_id, "", b"", -1.0)


def _text(deltas: list[TextDelta], channel: str = "content") -> str:
    return "".join(delta.text for delta in deltas if delta.channel == channel)


def _ids(deltas: list[TextDelta]) -> list[int]:
    return [i for delta in deltas for i in delta.token_ids]


def _single_bytes(text: str) -> list[int]:
    """The text in tokens of one byte each."""
    by_byte = {TOKENIZER.token_bytes(i): i for i in reversed(range(TOKENIZER.vocab_size))}
    return [by_byte[bytes([byte])] for byte in text.encode()]


# --- whole texts -------------------------------------------------------------------------------


@given(text=plain_text)
def test_without_stops_the_text_comes_through(text: str) -> None:
    for ids in (TOKENIZER.encode(text), _single_bytes(text)):
        deltas = _run(_pipeline(), ids)
        assert _text(deltas) == text
        assert _ids(deltas) == ids


@given(ids=any_ids, stops=any_stops, reasons=st.booleans())
def test_every_token_is_reported_once_and_in_order(
    ids: list[int], stops: list[str], reasons: bool
) -> None:
    pipeline = _pipeline(stops, _think() if reasons else None)
    deltas = _run(pipeline, ids)
    reported = _ids(deltas)
    assert reported == ids[: len(reported)]
    assert pipeline.is_stopped or reported == ids
    assert pipeline.num_tokens == len(reported)
    assert [entry.token_id for delta in deltas for entry in delta.logprobs] == reported
    assert all(delta.index == 3 for delta in deltas)
    in_reasoning = [d for d in deltas if d.channel == "reasoning"]
    assert pipeline.num_reasoning_tokens == len(_ids(in_reasoning))


@given(ids=any_ids, stops=any_stops)
def test_stop_strings_never_show(ids: list[int], stops: list[str]) -> None:
    pipeline = _pipeline(stops)
    text = _text(_run(pipeline, ids))
    whole = TOKENIZER.decode(ids)
    assert whole.startswith(text)
    assert not any(stop in text for stop in stops)
    assert pipeline.is_stopped == any(stop in whole for stop in stops)
    assert pipeline.is_stopped or text == whole


@given(text=plain_text.map(lambda text: text + "ab STOP tail"))
def test_a_stop_is_found_however_the_text_is_cut_into_tokens(text: str) -> None:
    for ids in (TOKENIZER.encode(text), _single_bytes(text)):
        pipeline = _pipeline(["STOP"])
        assert _text(_run(pipeline, ids)) == text.split("STOP")[0]
        assert pipeline.is_stopped


@given(ids=any_ids)
def test_no_delta_shows_a_part_of_a_character(ids: list[int]) -> None:
    pipeline = _pipeline()
    shown = ""
    for token_id in ids:
        shown += "".join(delta.text for delta in pipeline.feed(token_id))
        assert TOKENIZER.decode(ids).startswith(shown)


# --- which token goes with which text ----------------------------------------------------------


def test_a_token_waits_for_its_character() -> None:
    pipeline = _pipeline()
    ids = _single_bytes("a🦆")
    assert [len(pipeline.feed(i)) for i in ids] == [1, 0, 0, 0, 1]
    deltas = _run(_pipeline(), ids)
    assert [(delta.text, len(delta.token_ids)) for delta in deltas] == [("a", 1), ("🦆", 4)]


def test_a_token_waits_while_a_stop_string_may_begin() -> None:
    pipeline = _pipeline(["xyz"])
    deltas = [pipeline.feed(i) for i in _single_bytes("axya")]
    assert [[(d.text, len(d.token_ids)) for d in step] for step in deltas] == [
        [("a", 1)],
        [],
        [],
        [("xya", 3)],
    ]


def test_tokens_end_with_the_one_that_completes_the_match() -> None:
    pipeline = _pipeline(["xy"])
    ids = _single_bytes("axyb")
    assert _ids([d for i in ids[:3] for d in pipeline.feed(i)]) == ids[:3]
    assert pipeline.is_stopped
    assert pipeline.feed(ids[3]) == []
    assert pipeline.flush() == []
    assert pipeline.num_tokens == 3


def test_tokens_behind_a_match_found_late_are_not_reported() -> None:
    # "<th" is held as a possible tag; the match inside is seen when "a" shows that it is none.
    pipeline = _pipeline(["<t"], _think())
    ids = _single_bytes("<tha")
    deltas = _run(pipeline, ids)
    assert pipeline.is_stopped
    assert _text(deltas) == ""
    assert _ids(deltas) == ids[:2]


def test_a_match_can_come_with_the_flush() -> None:
    pipeline = _pipeline(["\ufffd"])
    ids = _single_bytes("a🦆")[:3]
    deltas = _run(pipeline, ids)
    assert pipeline.is_stopped
    assert (_text(deltas), _ids(deltas)) == ("a", ids[:2])


def test_an_end_token_is_carried_and_shows_nothing() -> None:
    deltas = _run(_pipeline(), [*_single_bytes("a"), EOS])
    assert [(delta.text, delta.token_ids) for delta in deltas][1] == ("", (EOS,))
    hidden = [entry.is_hidden for delta in deltas for entry in delta.logprobs]
    assert hidden == [False, True]
    shown = OutputPipeline(
        index=0, tokenizer=TOKENIZER, stops=(), parser=PlainParser(), skip_control=False
    )
    assert _text(_run(shown, [EOS])) == "<|im_end|>"


def test_an_end_token_inside_a_possible_stop_comes_after_its_text() -> None:
    pipeline = _pipeline(["ab"])
    ids = [*_single_bytes("a"), EOS]
    assert [pipeline.feed(i) for i in ids] == [[], []]
    (delta,) = pipeline.flush()
    assert (delta.text, list(delta.token_ids)) == ("a", ids)


# --- reasoning ---------------------------------------------------------------------------------


def test_reasoning_is_apart_and_counted() -> None:
    ids = TOKENIZER.encode("<think>\nhm</think>\n\nyes")
    pipeline = _pipeline(parser=_think())
    deltas = _run(pipeline, ids)
    assert _text(deltas, "reasoning") == "hm"
    assert _text(deltas) == "yes"
    close = ids.index(TOKENIZER.encode("</think>")[0])
    assert pipeline.num_reasoning_tokens == close + 1


def test_stop_strings_do_not_match_reasoning() -> None:
    ids = TOKENIZER.encode("<think>no yes</think>ok yes no")
    pipeline = _pipeline(["yes"], _think())
    deltas = _run(pipeline, ids)
    assert _text(deltas, "reasoning") == "no yes"
    assert _text(deltas) == "ok "


def test_a_block_that_is_cut_off_is_reasoning() -> None:
    pipeline = _pipeline(parser=_think(is_open=True))
    deltas = _run(pipeline, TOKENIZER.encode("let me think </th"))
    assert _text(deltas, "reasoning") == "let me think </th"
    assert _text(deltas) == ""
    assert pipeline.num_reasoning_tokens == pipeline.num_tokens


@pytest.mark.parametrize("is_open", [True, False])
def test_an_empty_reply(is_open: bool) -> None:
    pipeline = _pipeline(["x"], _think(is_open=is_open))
    (delta,) = _run(pipeline, [EOS])
    assert (delta.text, delta.token_ids) == ("", (EOS,))
    assert _run(_pipeline(), []) == []
