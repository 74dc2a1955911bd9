"""The prompt that goes on in the middle of the last message."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flm.errors import InvalidRequestError
from flm.text.template import ChatTemplate
from tests.text import templates
from tests.text import templates_history as shapes
from tests.text.chats import CASES, CHATML_TOKENIZER, CHATS, turns
from tests.text.samples import plain_text

ANSWER = "The answer is:"
# A finished message lacks what a reply is opened with, as in Qwen 3.5, Gemma 4 12B and LFM2.5.
EMPTY_BLOCK = templates.CHATML.replace(
    "assistant\\n' }}",
    "assistant\\n' + ('<think>\\n' if enable_thinking else '<think>\\n\\n</think>\\n\\n') }}",
)
EMPTY_CHANNEL = templates.CHATML.replace(
    "assistant\\n' }}",
    "assistant\\n' + ('' if enable_thinking else '<|channel>thought\\n<channel|>') }}",
)
ALWAYS_OPEN = templates.CHATML.replace("assistant\\n' }}", "assistant\\n<think>' }}")
TRIMMING = templates.CHATML.replace("message['content']", "message['content'] | trim")


def continued(source: str, *contents: str, **kwargs: bool) -> str:
    chat = ChatTemplate(source, CHATML_TOKENIZER)
    return chat.render_continued(turns(*contents), kwargs=kwargs).text


@pytest.mark.parametrize(
    ("source", "thinks", "opening"),
    [
        (templates.CHATML, None, ""),
        (templates.QWEN_LIKE, None, ""),
        (templates.QWEN_LIKE, False, "<think>\n\n</think>\n\n"),
        (EMPTY_BLOCK, False, "<think>\n\n</think>\n\n"),
        (EMPTY_BLOCK, True, "<think>\n"),
        (EMPTY_CHANNEL, False, "<|channel>thought\n<channel|>"),
        (EMPTY_CHANNEL, True, ""),
        (ALWAYS_OPEN, None, "<think>"),
        (shapes.THINKING, None, "</think>"),
    ],
)
def test_the_text_stands_where_a_reply_would(
    source: str, thinks: bool | None, opening: str
) -> None:
    kwargs = {} if thinks is None else {"enable_thinking": thinks}
    text = continued(source, "q", ANSWER, **kwargs)
    assert text.endswith(f"<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n{opening}{ANSWER}")


@pytest.mark.parametrize(
    ("source", "sent", "kept"),
    [
        (templates.CHATML, "a ", "a "),
        (templates.CHATML, "a\n\n", "a\n\n"),
        (templates.CHATML, " a", " a"),
        (templates.CHATML, " a ", " a"),
        (TRIMMING, "a ", "a"),
        (TRIMMING, " a ", "a"),
    ],
)
def test_white_space_at_the_end(source: str, sent: str, kept: str) -> None:
    assert continued(source, "q", sent).endswith(f"assistant\n{kept}")


@pytest.mark.parametrize("said", ["q", "assistant", "im_end", "<|im_end|>", "user q"])
def test_the_last_occurrence_is_meant_and_never_the_markup(said: str) -> None:
    text = continued(templates.CHATML, said, said, said, said)
    assert text.endswith(f"<|im_start|>assistant\n{said}")
    assert text.count("<|im_start|>") == 4


@pytest.mark.parametrize("shape", CASES)
@given(texts=st.tuples(plain_text, plain_text.filter(str.strip)))
def test_any_text_ends_the_prompt(shape: str, texts: tuple[str, str]) -> None:
    prompt = CHATS[shape].render_continued(turns(*texts))
    assert prompt.text.rstrip().endswith(texts[1].strip())
    tokenizer = CASES[shape][1]
    assert (
        tokenizer.decode(prompt.ids, skip_control=False)
        .removeprefix(" ")
        .rstrip()
        .endswith(texts[1].strip())
    )


@given(texts=st.tuples(plain_text, plain_text.filter(str.strip)))
def test_the_prompt_begins_the_finished_chat(texts: tuple[str, str]) -> None:
    chat = CHATS["chatml"]
    finished = chat.render(turns(*texts), add_generation_prompt=False)
    assert finished.text.startswith(chat.render_continued(turns(*texts)).text)


@pytest.mark.parametrize(
    "source",
    [
        "{% for m in messages %}{{ m.content | upper }}{% endfor %}",
        "{% for m in messages %}{{ m.content[1:] }}{% endfor %}",
        "{{ messages[0].content }}",
    ],
)
def test_a_text_that_is_not_there_cannot_be_continued(source: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        continued(source, "q", "answer")
    assert caught.value.param == "continue_final_message"


def test_an_earlier_call_does_not_matter() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "r"},
        {"role": "assistant", "content": ANSWER},
    ]
    for source in (templates.CHATML, templates.QWEN_LIKE, shapes.RESPONSES, shapes.LISTS_TOOLS):
        chat = ChatTemplate(source, CHATML_TOKENIZER)
        assert chat.render_continued(messages).text.endswith(ANSWER)
