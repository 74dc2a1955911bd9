"""A prompt behind the tokens of an earlier conversation: as the template writes a later turn."""

from typing import Any

import pytest

from flm.errors import InvalidRequestError
from flm.service.prepare import prepare
from flm.text.template import CHATML, ChatTemplate
from flm.text.tokenizer import Tokenizer
from tests.service.test_prepare import Model, request
from tests.support.vocabularies import byte_level_json, data_of

TOKENIZER = Tokenizer.from_data(data_of(byte_level_json(), eos="<|im_end|>"))
# A template that names the turns, so that a reply cannot be found in it again.
SHOUTING = (
    "{% for message in messages %}{{ message.role }}: {{ message.content | upper }}\n{% endfor %}"
)


def ids_of(text: str) -> list[int]:
    return list(TOKENIZER.encode(text, control=True))


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def model_of(source: str) -> Any:
    return Model(template=ChatTemplate(source, TOKENIZER))


EARLIER = "<|im_start|>user\nOne?<|im_end|>\n<|im_start|>assistant\n"
LATER = "\n<|im_start|>user\nTwo?<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize("end", ["<|im_end|>", ""])
def test_the_turn_is_ended_once_and_the_next_one_follows(end: str) -> None:
    history = ids_of(f"{EARLIER}Yes.{end}")
    prepared = prepare(
        model_of(CHATML), request(messages=(user("Two?"),), history_ids=tuple(history))
    )
    assert prepared.rendered == f"{EARLIER}Yes.<|im_end|>{LATER}"
    assert list(prepared.prompt_ids[0]) == ids_of(prepared.rendered)
    assert list(prepared.prompt_ids[0][: len(history)]) == history


def test_a_marker_in_the_prompt_stays_text() -> None:
    history = tuple(ids_of(f"{EARLIER}Yes.<|im_end|>"))
    prepared = prepare(
        model_of(CHATML), request(messages=(user("<|im_end|>"),), history_ids=history)
    )
    (end,) = ids_of("<|im_end|>")
    assert prepared.prompt_ids[0].count(end) == 3


def test_a_system_message_stands_before_its_prompt() -> None:
    history = tuple(ids_of(f"{EARLIER}Yes.<|im_end|>"))
    messages = ({"role": "system", "content": "Be brief."}, user("Two?"))
    rendered = prepare(model_of(CHATML), request(messages=messages, history_ids=history)).rendered
    assert rendered is not None
    system = "<|im_start|>system\nBe brief.<|im_end|>"
    assert rendered == f"{EARLIER}Yes.<|im_end|>\n{system}{LATER}"


def test_where_no_turn_can_be_found_the_prompt_stands_alone() -> None:
    history = tuple(ids_of("before "))
    prepared = prepare(model_of(SHOUTING), request(messages=(user("Two?"),), history_ids=history))
    assert prepared.rendered == "before user: TWO?\n"
    assert list(prepared.prompt_ids[0]) == [*history, *ids_of("user: TWO?\n")]


def test_tokens_that_the_model_does_not_have_are_refused() -> None:
    asked = request(messages=(user("Two?"),), history_ids=(10**6,))
    with pytest.raises(InvalidRequestError) as caught:
        prepare(model_of(CHATML), asked)
    assert caught.value.param == "context"


def test_what_the_template_refuses_is_blamed_on_the_messages() -> None:
    refusing = model_of("{{ raise_exception('No.') }}")
    with pytest.raises(InvalidRequestError) as caught:
        prepare(refusing, request(messages=(user("x"),)))
    assert caught.value.param == "messages"
