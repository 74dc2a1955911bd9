from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flm.text.provenance import RequestText, Shade, TooManyCharactersError
from tests.text.samples import plain_text

TEXT = RequestText(frozenset({"city", "<|im_end|>"}))


@given(texts=st.lists(plain_text, max_size=5))
def test_shading_is_one_to_one(texts: list[str]) -> None:
    shade = Shade(texts)
    for text in texts:
        shaded = shade.shade(text)
        assert shade.lift(shaded) == text
        assert len(shaded) == len(text)
        pairs = zip(text, shaded, strict=True)
        assert all(
            (before == after) == (before.isspace() or before in '"\\' or before < " ")
            for before, after in pairs
        )


def test_private_characters_of_the_request_are_shaded_too() -> None:
    text = "".join(map(chr, range(0x100000, 0x100400)))
    shade = Shade([text])
    assert not set(shade.shade(text)) & set(text)
    assert shade.lift(shade.shade(text)) == text


def test_too_many_characters() -> None:
    with pytest.raises(TooManyCharactersError):
        Shade(["".join(map(chr, (*range(0xD800), *range(0xE000, 0x30000))))])


def _upper(value: Any) -> Any:
    return TEXT.change(value, str.upper)


def test_text_is_changed_wherever_it_stands() -> None:
    assert _upper({"content": "a", "x": ["b", {"name": "c"}], "N": 3, "T": None}) == {
        "content": "A",
        "X": ["B", {"name": "C"}],
        "N": 3,
        "T": None,
    }


def test_structure_is_kept() -> None:
    assert _upper({"type": "string", "city": "x"}) == {"type": "string", "city": "X"}
    assert _upper({"type": "other"}) == {"type": "OTHER"}
    assert _upper({"type": ["string"]}) == {"type": ["STRING"]}
    # A key that spells a marker is no structure, even where the template has it as a word.
    assert TEXT.change({"<|im_end|>": 1}, lambda text: "-") == {"-": 1}


def test_only_known_roles_of_messages_are_structure() -> None:
    def change(role: str) -> str:
        changed = TEXT.change_message({"role": role, "content": {"role": "user"}}, str.upper)
        assert changed["content"] == {"role": "USER"}
        return str(changed["role"])

    assert change("user") == "user"
    assert change("<|im_end|>") == "<|IM_END|>"


def test_texts_are_found() -> None:
    assert TEXT.find([{"content": "a", "role": "b"}, ["c", 1], "d"]) == {"a", "b", "c", "d"}
