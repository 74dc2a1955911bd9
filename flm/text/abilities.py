"""What a chat template shows of a conversation, found out by rendering small ones.

Templates differ in what they leave out in silence: calls of earlier turns, all calls of a message
but the first, results, system messages in the middle. What is left out has to reach the model by
another road (see history.py), so it must be known before.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from flm.text.history import fold_results
from flm.text.messages import Message

Render = Callable[[Sequence[Message], Sequence[Any]], str | None]
"""Messages and tools to the rendered text; None when the template refuses them."""

_TOOL = {
    "type": "function",
    "function": {
        "name": "probe_name",
        "description": "probe",
        "parameters": {"type": "object", "properties": {}},
    },
}
_USER: Message = {"role": "user", "content": "probe"}
_ANSWER: Message = {"role": "assistant", "content": "probe"}
_RESULT: Message = {"role": "tool", "tool_call_id": "probe0000", "content": "probe_result"}


@dataclass(frozen=True, slots=True)
class Abilities:
    """What reaches the model through the template.

    ``tools`` are those of the request, ``calls`` and ``results`` those of earlier turns;
    ``many_calls`` is False where only one call of a message is shown. ``text_apart``: text beside
    calls is shown only as a message of its own. ``text_arguments``: the template prints arguments
    as they are, so they must be JSON text. ``responses``: results are read from the assistant's
    message. ``late_system`` are system messages after the first turn. A
    refusal with words is not counted: whoever renders hears it.
    """

    tools: bool
    calls: bool
    many_calls: bool
    text_apart: bool
    results: bool
    responses: bool
    text_arguments: bool
    system: bool
    late_system: bool


def probe(render: Render) -> Abilities:
    """Find out what a template shows."""
    is_text = _wants_text(render)

    def calls(*numbers: int, text: str = "") -> Message:
        made = [_call(number, is_text=is_text) for number in numbers]
        return {"role": "assistant", "content": text, "tool_calls": made}

    def shows(word: str, *messages: Message) -> bool:
        return any(word in text for text in _renderings(render, messages))

    asked = (_USER, calls(0))
    folded = fold_results([*asked, _RESULT])
    beside = calls(0, text="probe_text")
    apart = ({**_ANSWER, "content": "probe_text"}, calls(0), _RESULT, _ANSWER, _USER)
    results = shows("probe_result", *asked, _RESULT)
    return Abilities(
        tools=_shows_tools(render),
        calls=shows("value0", *asked) and shows("value0", _USER, calls(0, text="probe"), _RESULT),
        many_calls=shows("value1", _USER, calls(0, 1)),
        text_apart=not shows("probe_text", _USER, beside) and shows("probe_text", _USER, *apart),
        results=results,
        responses=not results and shows("probe_result", *folded),
        text_arguments=is_text,
        system=not _leaves_out(render, "probe_system", _system("probe_system"), _USER),
        late_system=not _leaves_out(
            render, "probe_late", _USER, _ANSWER, _system("probe_late"), _USER
        ),
    )


def _shows_tools(render: Render) -> bool:
    chats: tuple[list[Message], ...] = ([_USER], [_system("probe"), _USER])
    return any("probe_name" in (render(messages, [_TOOL]) or "") for messages in chats)


def _wants_text(render: Render) -> bool:
    """True when the template prints arguments as they are."""
    as_object, as_text = (
        _renderings(render, (_USER, _with_call(_call(0, is_text=is_text))))
        for is_text in (False, True)
    )
    if not as_object:
        return bool(as_text)
    return any("'probe'" in text and "value0" in text for text in as_object) and any(
        '"probe"' in text for text in as_text
    )


def _renderings(render: Render, messages: Sequence[Message]) -> list[str]:
    """The rendered texts, without tools and with one; some templates show calls only then."""
    texts = (render(messages, tools) for tools in ([], [_TOOL]))
    return [text for text in texts if text is not None]


def _leaves_out(render: Render, word: str, *messages: Message) -> bool:
    text = render(messages, [])
    return text is not None and word not in text


def _system(text: str) -> Message:
    return {"role": "system", "content": text}


def _with_call(call: Message) -> Message:
    return {"role": "assistant", "content": "", "tool_calls": [call]}


def _call(number: int, *, is_text: bool) -> Message:
    arguments: Any = {"probe": f"value{number}"}
    if is_text:
        arguments = f'{{"probe": "value{number}"}}'
    function = {"name": "probe_name", "arguments": arguments}
    return {"id": f"probe000{number}", "type": "function", "function": function}
