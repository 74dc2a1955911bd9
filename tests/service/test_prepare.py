"""What is decided about a prompt before it is tokenised, and in which order its parts come."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from flm.errors import ContextLengthError
from flm.service.prepare import prepare
from flm.text.parsers import OutputStyle
from flm.text.template import ChatTemplate
from flm.text.tokenizer import Tokenizer
from flm.types import GenerationRequest, Settings
from tests.support.vocabularies import byte_level_json, data_of

TOKENIZER = Tokenizer.from_data(data_of(byte_level_json(), eos="<|im_end|>"))
LONG = "word and word " * 20_000


@dataclass
class Info:
    context_len: int = 512


@dataclass
class Model:
    """As much of a loaded model as preparing uses."""

    tokenizer: Tokenizer = TOKENIZER
    info: Info = field(default_factory=Info)
    vocab_size: int = TOKENIZER.vocab_size
    template: ChatTemplate = field(default_factory=lambda: ChatTemplate(None, TOKENIZER))
    think: str = "none"


def request(**fields: Any) -> GenerationRequest:
    return GenerationRequest(id="r", model="m", settings=Settings(), sent={}, **fields)


@pytest.fixture
def untokenised(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_self: Tokenizer, text: str) -> list[int]:
        raise AssertionError(f"{len(text)} characters were tokenised")

    monkeypatch.setattr(Tokenizer, "encode_private", refuse)


@pytest.mark.usefixtures("untokenised")
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompts": (LONG,)}, "prompt"),
        ({"prompts": ((1, LONG),)}, "prompt"),
        ({"messages": ({"role": "user", "content": LONG},)}, "messages"),
        (
            {
                "messages": (
                    {"role": "user", "content": "x"},
                    {"role": "assistant", "content": LONG},
                ),
                "continue_final_message": True,
            },
            "messages",
        ),
    ],
)
def test_a_prompt_that_cannot_fit_is_not_tokenised(fields: dict[str, Any], param: str) -> None:
    model: Any = Model()
    model.output = OutputStyle(None)
    with pytest.raises(
        ContextLengthError, match=r"Max length reached! .* at least \d+ tokens .* 512"
    ) as e:
        prepare(model, request(**fields))
    assert e.value.param == param


def test_a_prompt_that_may_fit_is_counted() -> None:
    model: Any = Model()
    with pytest.raises(ContextLengthError, match="has 600 tokens"):
        prepare(model, request(prompts=((5,) * 600,)))
    text = "Q" * 600
    num_tokens = len(TOKENIZER.encode(text))
    assert TOKENIZER.min_tokens(text) < 512 <= num_tokens
    with pytest.raises(ContextLengthError, match=f"has {num_tokens} tokens"):
        prepare(model, request(prompts=(text,)))


def test_texts_among_token_ids_are_tokenised_in_their_place() -> None:
    model: Any = Model()
    prepared = prepare(model, request(prompts=((7, "Hello", 8, "<|im_end|>"), (9,))))
    end = TOKENIZER.encode("<|im_end|>", control=True)
    assert prepared.prompt_ids == ((7, *TOKENIZER.encode("Hello"), 8, *end), (9,))


def test_a_chat_may_end_behind_its_last_message() -> None:
    model: Any = Model()
    messages = ({"role": "user", "content": "hi"},)
    opened = prepare(model, request(messages=messages)).rendered
    closed = prepare(model, request(messages=messages, opens_reply=False)).rendered
    assert opened is not None
    assert closed is not None
    assert opened == f"{closed}<|im_start|>assistant\n"


def test_what_the_template_leaves_out_is_on_the_record() -> None:
    model: Any = Model(
        template=ChatTemplate(
            "{% for tool in tools or [] %}{{ tool.function.name }}{% endfor %}"
            "{% for message in messages %}{{ message.role + message.content }}{% endfor %}",
            TOKENIZER,
        )
    )
    model.grammars = None
    messages = ({"role": "user", "content": "hi", "name": "Ann"},)
    function = {"name": "f", "returns": "int", "examples": [{"a": 1}]}
    tools = ({"type": "function", "function": function, "x": "y" * 300},)
    told = [item.to_dict() for item in prepare(model, request(messages=messages)).adaptations]
    reason = "The chat template of this model does not show the name."
    own = {"field": "messages[0].name", "action": "dropped", "reason": reason, "asked": "Ann"}
    assert told == [own]
    told = [
        item.to_dict()
        for item in prepare(model, request(messages=messages, tools=tools)).adaptations
    ]
    reason = "The chat template of this model does not show it."
    dropped = {"action": "dropped", "reason": reason}
    assert told == [
        own,
        {"field": "shown_tools[0].x", **dropped},
        {"field": "shown_tools[0].function.returns", **dropped, "asked": "int"},
        {"field": "shown_tools[0].function.examples", **dropped},
    ]


def test_what_is_counted_need_not_fit() -> None:
    model: Any = Model()
    fields = {"messages": ({"role": "user", "content": LONG[:40_000]},), "max_tokens": 600}
    found = prepare(model, request(**fields, min_tokens=600, is_counted=True))
    assert len(found.prompt_ids[0]) > 512
    assert (found.max_new_tokens, found.adaptations) == ((0,), ())
    with pytest.raises(ContextLengthError, match="at least"):
        prepare(model, request(**fields))
    far = ({"role": "user", "content": LONG * 8},)
    assert TOKENIZER.min_tokens(LONG * 8) > 64 * 1024
    with pytest.raises(ContextLengthError, match="at least"):
        prepare(model, request(messages=far, is_counted=True))
