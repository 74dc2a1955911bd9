"""Where the prompt of a continued message ends, for templates of every shape."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flm.errors import InvalidRequestError
from flm.text.template import ChatTemplate
from tests.text import templates
from tests.text import templates_history as shapes
from tests.text.chats import CHATML_TOKENIZER, CHATS, turns
from tests.text.samples import plain_text

KEEPING = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content"
    " + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}OPENING{% endif %}"
)
TRIMMING = KEEPING.replace("message.content", "message.content | trim")
EMPTY_BLOCK = "{{ '<think>\n\n</think>\n\n' if enable_thinking is false else '<think>\n' }}"
EMPTY_CHANNEL = "{% if not enable_thinking %}{{ '<|channel>thought\n<channel|>' }}{% endif %}"
OPEN_TAG = "{{ '<think>' }}"

HEAD = "<|im_start|>user\nIs it?<|im_end|>\n<|im_start|>assistant\n"


def template(source: str, opening: str = "") -> ChatTemplate:
    return ChatTemplate(source.replace("OPENING", opening), CHATML_TOKENIZER)


def cut(chat: ChatTemplate, text: str, **kwargs: Any) -> str:
    return chat.render_continued(turns("Is it?", text), kwargs=kwargs).text


# --- the cut -----------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [KEEPING, TRIMMING])
def test_the_prompt_ends_right_behind_the_text(source: str) -> None:
    assert cut(template(source), "The answer is:") == f"{HEAD}The answer is:"


def test_its_tokens_are_those_of_the_markup_and_of_the_text() -> None:
    prompt = template(KEEPING).render_continued(turns("Is it?", "No<|im_end|>"))
    encode = CHATML_TOKENIZER.encode
    expected = [*encode(HEAD, control=True), *encode("No<|im_end|>", control=False)]
    assert list(prompt.ids) == expected


@pytest.mark.parametrize("text", ["yes", "a yes and a yes", "user", "assistant", "e", "<|im_end|>"])
def test_the_last_occurrence_counts_and_markup_does_not(text: str) -> None:
    messages = turns(f"{text} {text}", text, f"{text}?", text)
    finished = template(KEEPING).render(messages, add_generation_prompt=False).text
    prompt = template(KEEPING).render_continued(messages).text
    assert finished == f"{prompt}<|im_end|>\n"


def test_without_it_the_message_is_closed_and_a_turn_opened() -> None:
    prompt = template(KEEPING).render(turns("Is it?", "No"))
    assert prompt.text == f"{HEAD}No<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize("shape", ["chatml", "llama3", "qwen", "gemma", "llama2"])
def test_published_shapes_can_be_continued(shape: str) -> None:
    messages = turns("Is it?", "The answer is:")
    prompt = CHATS[shape].render_continued(messages)
    finished = CHATS[shape].render(messages, add_generation_prompt=False)
    assert prompt.text.endswith("The answer is:")
    assert finished.text.startswith(prompt.text)


# --- white space -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "text", "end"),
    [
        (TRIMMING, "The answer is: ", "The answer is:"),
        (TRIMMING, "  The answer is:\n\n", "The answer is:"),
        (KEEPING, "The answer is: ", "The answer is: "),
        (KEEPING, "The answer is:\n \n", "The answer is:\n \n"),
        # Only where the text does not begin with white space too.
        (KEEPING, " The answer is: ", " The answer is:"),
        (KEEPING, "\n\nThe answer is:\t", "\n\nThe answer is:"),
        (KEEPING, "  The answer is:", "  The answer is:"),
    ],
)
def test_white_space_at_the_end(source: str, text: str, end: str) -> None:
    assert cut(template(source), text) == f"{HEAD}{end}"


# --- templates that open a reply otherwise than they write a finished one ----------------------


def test_an_empty_reasoning_block_is_put_before_the_text() -> None:
    chat = template(KEEPING, EMPTY_BLOCK)
    assert cut(chat, "No", enable_thinking=False) == f"{HEAD}<think>\n\n</think>\n\nNo"
    assert cut(chat, "No", enable_thinking=True) == f"{HEAD}<think>\nNo"


def test_an_empty_channel_is_put_before_the_text() -> None:
    chat = template(TRIMMING, EMPTY_CHANNEL)
    assert cut(chat, "No ", enable_thinking=False) == f"{HEAD}<|channel>thought\n<channel|>No"
    assert cut(chat, "No", enable_thinking=True) == f"{HEAD}No"


def test_an_opening_tag_is_put_before_the_text() -> None:
    assert cut(template(KEEPING, OPEN_TAG), "No ") == f"{HEAD}<think>No "


def test_a_block_that_the_finished_turn_has_too_is_not_doubled() -> None:
    source = KEEPING.replace(
        "message.content",
        "('<think>\n\n</think>\n\n' if loop.last and message.role == 'assistant' else '')"
        " + message.content",
    )
    chat = template(source, "{{ '<think>\n\n</think>\n\n' }}")
    assert cut(chat, "No") == f"{HEAD}<think>\n\n</think>\n\nNo"


# --- what cannot be found ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed",
    [
        "message.content | upper",
        "message.content | replace('a', '4')",
        "message.content | length | string",
        "''",
    ],
)
def test_a_template_that_rewrites_the_text_is_refused(changed: str) -> None:
    with pytest.raises(InvalidRequestError, match="cannot be found") as caught:
        cut(template(KEEPING.replace("message.content", changed)), "a new answer")
    assert caught.value.param == "continue_final_message"
    assert caught.value.status == 400


# --- any text, any history ---------------------------------------------------------------------


@pytest.mark.parametrize("shape", CHATS)
@given(texts=st.tuples(plain_text, plain_text.filter(str.strip)))
def test_any_text_ends_the_prompt(shape: str, texts: tuple[str, str]) -> None:
    prompt = CHATS[shape].render_continued(turns(*texts))
    assert prompt.text.rstrip().endswith(texts[1].strip())


@given(texts=st.tuples(plain_text, plain_text.filter(str.strip)))
def test_the_prompt_begins_the_finished_chat(texts: tuple[str, str]) -> None:
    finished = CHATS["chatml"].render(turns(*texts), add_generation_prompt=False)
    assert finished.text.startswith(CHATS["chatml"].render_continued(turns(*texts)).text)


def test_a_closing_tag_that_opens_a_reply_is_put_before_the_text() -> None:
    chat = ChatTemplate(shapes.THINKING, CHATML_TOKENIZER)
    assert cut(chat, "No") == f"{HEAD}</think>No"
    assert cut(chat, "No", thinking=True) == f"{HEAD}<think>No"


@pytest.mark.parametrize(
    "source", [templates.CHATML, templates.QWEN_LIKE, shapes.RESPONSES, shapes.LISTS_TOOLS]
)
def test_earlier_calls_do_not_matter(source: str) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "r"},
        {"role": "assistant", "content": "The answer is:"},
    ]
    text = ChatTemplate(source, CHATML_TOKENIZER).render_continued(messages).text
    assert text.endswith("The answer is:")
