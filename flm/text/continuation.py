"""The prompt that goes on in the middle of the chat's last message.

The chat is rendered with that message finished and cut right behind its text. Where the text
stands is found with a second rendering, in which the text is put between two private characters:
what is outside of them is the template's own markup around the message, and can never be taken for
the text.

Some templates write a finished message otherwise than they open a reply (an empty reasoning block,
or the tag that opens one, is missing). Cut that way, the prompt would look like a finished turn; so
when the opened reply goes on where the finished message begins, the text is put behind the opening.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flm.errors import InvalidRequestError
from flm.text.messages import Message

Render = Callable[[Sequence[Message], bool], str]
"""Messages, and whether a reply is to be opened, to the rendered text."""
PARAM = "continue_final_message"


@dataclass(frozen=True, slots=True)
class _Frame:
    """What a template writes around the last message."""

    before: str
    after: str


def continued(render: Render, messages: Sequence[Message]) -> str:
    """The rendered chat up to the end of the last message's text.

    White space at the end of the text stays where the template keeps it, unless the text also
    begins with white space (as in Hugging Face's ``apply_chat_template``).

    Raises:
        InvalidRequestError: the text is not in the rendered chat.
    """
    text = messages[-1]["content"]
    finished = render(messages, False)
    frame = _frame(render, messages, finished)
    if not finished.startswith(frame.before) or not finished.endswith(frame.after):
        raise _not_found()
    said = finished[len(frame.before) : len(finished) - len(frame.after)]
    start = said.rfind(text.strip())
    if start < 0:
        raise _not_found()
    keeps_space = not text[:1].isspace() and said.startswith(text, start)
    end = start + len(text if keeps_space else text.strip())
    return _opening(render, messages, frame.before) + said[:end]


def _frame(render: Render, messages: Sequence[Message], finished: str) -> _Frame:
    mark = next(chr(code) for code in range(0xE000, 0xF900) if chr(code) not in finished)
    *earlier, last = messages
    marked = f"{mark}{last['content'].strip()}{mark}"
    rendered = render([*earlier, {**last, "content": marked}], False)
    end = rendered.rfind(mark)
    start = rendered.rfind(mark, 0, end)
    if start < 0:
        raise _not_found()
    return _Frame(rendered[:start], rendered[end + 1 :])


def _opening(render: Render, messages: Sequence[Message], before: str) -> str:
    """What comes before the text: ``before``, or more of the same where a reply is opened so."""
    try:
        opened = render(messages[:-1], True)
    except InvalidRequestError:
        return before
    is_longer = opened.startswith(before) and opened[len(before) :].strip()
    return opened if is_longer else before


def _not_found() -> InvalidRequestError:
    return InvalidRequestError(
        "The text of the last message cannot be found in the rendered chat: the model's chat "
        "template rewrites it, so it cannot be continued.",
        param=PARAM,
    )
