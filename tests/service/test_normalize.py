"""The record of what was taken out of system messages."""

from typing import Any

from flm.service.normalize import normalised
from flm.text.normalize import Normalizer
from flm.types import GenerationRequest, Settings

DATE = r"Today is \d{4}-\d\d-\d\d\."
MESSAGES: tuple[dict[str, Any], ...] = (
    {"role": "system", "content": "Today is 2026-01-02.\nBe kind."},
    {"role": "user", "content": "Today is 2026-01-02."},
)


def request() -> GenerationRequest:
    return GenerationRequest(id="r", model="m", settings=Settings(), sent={}, messages=MESSAGES)


def test_a_record_names_the_message() -> None:
    normalizer = Normalizer([DATE])
    changed, (record,) = normalised(normalizer, request())
    assert changed.messages is not None
    assert changed.messages[0]["content"] == "Be kind."
    assert (record.field, record.asked) == ("messages[0].content", "Today is 2026-01-02.")


def test_nothing_to_take_out() -> None:
    wanted = request()
    assert normalised(Normalizer(), wanted) == (wanted, ())
    assert normalised(Normalizer(["x{9}"]), wanted) == (wanted, ())
