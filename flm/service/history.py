"""A prompt behind the tokens of an earlier conversation, which are kept as they are."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flm.errors import InvalidRequestError
from flm.service.models import LoadedModel
from flm.text.template import RenderedPrompt

Messages = Sequence[Mapping[str, Any]]
Render = Callable[[Messages], RenderedPrompt]

# Stands for the conversation so far, so that the template shows how the next turn begins.
_EARLIER: Messages = (
    {"role": "user", "content": "x"},
    {"role": "assistant", "content": "y"},
)


def behind(
    model: LoadedModel,
    history: Sequence[int],
    messages: Messages,
    *,
    render: Render,
    begin: Render,
) -> RenderedPrompt:
    """``history`` and behind it ``messages``, as the template writes later turns.

    ``begin`` renders a chat up to where the text of its last message ends. Where the template does
    not show where a turn ends, ``messages`` stand there as a chat of their own.
    """
    turn = _next_turn(render, begin, messages)
    if turn is None:
        whole = render(messages)
        turn = RenderedPrompt(whole.text, tuple(model.tokenizer.without_bos(whole.ids)))
    marker = model.tokenizer.marker(history[-1])
    if turn.ids[:1] == (history[-1],) and marker is not None:
        # The reply ended its turn itself.
        turn = RenderedPrompt(turn.text.removeprefix(marker), turn.ids[1:])
    text = model.tokenizer.decode(history, skip_control=False)
    return RenderedPrompt(text + turn.text, (*history, *turn.ids))


def _next_turn(render: Render, begin: Render, messages: Messages) -> RenderedPrompt | None:
    """What the template writes behind a reply; None where that cannot be told."""
    try:
        begun, whole = begin(_EARLIER), render((*_EARLIER, *messages))
    except InvalidRequestError:
        return None
    length = len(begun.ids)
    if whole.ids[:length] != begun.ids or not whole.text.startswith(begun.text):
        return None
    return RenderedPrompt(whole.text[len(begun.text) :], whole.ids[length:])
