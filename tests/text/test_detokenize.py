import pytest
from hypothesis import given
from hypothesis import strategies as st

from flm.text.detokenize import Detokenizer
from flm.text.tokenizer import Tokenizer
from tests.support.vocabularies import byte_level_json, data_of, sentencepiece_json
from tests.text.samples import TEXTS, plain_text

BYTES = Tokenizer.from_data(data_of(byte_level_json(), eos="<|im_end|>"))
PIECES = Tokenizer.from_data(data_of(sentencepiece_json(), eos="</s>"))
tokenizers = pytest.mark.parametrize("tokenizer", [BYTES, PIECES], ids=["bytes", "pieces"])


def _steps(machine: Detokenizer, ids: list[int]) -> list[str]:
    return [*(machine.feed(i) for i in ids), machine.flush()]


@tokenizers
@pytest.mark.parametrize("text", TEXTS)
def test_the_steps_add_up_to_the_text(tokenizer: Tokenizer, text: str) -> None:
    steps = _steps(Detokenizer(tokenizer, continues=False), tokenizer.encode(text))
    assert "".join(steps) == (text.replace("▁", " ") if tokenizer is PIECES else text)


@tokenizers
@given(text=plain_text.map(lambda text: text.replace("\ufffd", "?")))
def test_no_step_shows_a_part_of_a_character(tokenizer: Tokenizer, text: str) -> None:
    steps = _steps(Detokenizer(tokenizer), tokenizer.encode(text))
    assert "\ufffd" not in "".join(steps)


@tokenizers
@given(data=st.data())
def test_any_tokens_give_what_decode_gives(tokenizer: Tokenizer, data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size + 5), max_size=30))
    machine = Detokenizer(tokenizer, continues=False)
    assert "".join(_steps(machine, ids)) == tokenizer.decode(ids)


@tokenizers
def test_a_character_that_is_never_completed_shows_at_the_end(tokenizer: Tokenizer) -> None:
    machine = Detokenizer(tokenizer)
    ids = [i for i in tokenizer.encode("🦆") if tokenizer.token_bytes(i) != b" "]
    assert [machine.feed(i) for i in ids[:-1]] == [""] * (len(ids) - 1)
    assert machine.is_inside_character
    assert machine.flush() == "\ufffd"
    assert not machine.is_inside_character


def test_a_control_token_inside_a_character_does_not_break_it() -> None:
    machine = Detokenizer(BYTES)
    ids = BYTES.encode("🦆")
    (end,) = BYTES.encode("<|im_end|>", control=True)
    text = "".join(machine.feed(i) for i in [*ids[:2], end, *ids[2:]])
    assert text + machine.flush() == "🦆"


def test_the_space_before_a_text_is_dropped_only_at_its_beginning() -> None:
    ids = PIECES.encode("The fox")
    assert "".join(_steps(Detokenizer(PIECES, continues=True), ids)) == " The fox"
    assert "".join(_steps(Detokenizer(PIECES, continues=False), ids)) == "The fox"
    assert "".join(_steps(Detokenizer(PIECES, continues=False), PIECES.encode("  a"))) == "  a"


def test_control_tokens_are_shown_when_asked() -> None:
    ids = BYTES.encode("a<|im_end|>", control=True)
    assert "".join(_steps(Detokenizer(BYTES), ids)) == "a"
    assert "".join(_steps(Detokenizer(BYTES, skip_control=False), ids)) == "a<|im_end|>"
