from typing import Any

import pytest

from flm.text.template import ChatTemplate
from flm.text.unshown import Unshown
from tests.text.chats import CHATML_TOKENIZER, CHATS

TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f", "strict": True}}
NAMES_OF_USERS = (
    "{% for message in messages %}"
    "{% set name = message.name if message.role == 'user' else none %}"
    "{{ '<|im_start|>' + (name or message.role) + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{% endfor %}"
)
SOME_KEYS = (
    "{% for tool in tools or [] %}{{ tool.function.name ~ (tool.function.returns or '') }}"
    "{% endfor %}{% for message in messages %}{{ message.role + message.content }}{% endfor %}"
)


def said(role: str, content: str, name: str | None = None, **keys: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **({} if name is None else {"name": name}), **keys}


def tool(**keys: Any) -> dict[str, Any]:
    return {**TOOL, "function": {**TOOL["function"], **keys}}


@pytest.mark.parametrize("shape", ["chatml", "qwen"])
def test_names_that_a_template_leaves_out(shape: str) -> None:
    messages = [
        said("developer", "Be kind.", "Root"),
        said("user", "one", "Ann"),
        said("user", "two", "Bo"),
        said("user", "three"),
        said("user", "four", ""),
        said("assistant", "five", "Cy"),
    ]
    assert CHATS[shape].unshown(messages) == Unshown(names=(0, 1, 2, 5))


def test_where_some_names_are_shown_the_others_are_told() -> None:
    chat = ChatTemplate(NAMES_OF_USERS, CHATML_TOKENIZER)
    messages = [said("system", "a", "Root"), said("user", "b", "Ann"), said("assistant", "c", "Cy")]
    assert "<|im_start|>Ann\n" in chat.render(messages).text
    assert chat.unshown(messages) == Unshown(names=(0, 2))
    assert chat.unshown(messages[1:2]) == Unshown()


def test_the_name_of_a_call_is_shown_in_front_of_its_result() -> None:
    def call(name: str) -> dict[str, Any]:
        return {"type": "function", "function": {"name": name, "arguments": "{}"}}

    asked = said("assistant", "", tool_calls=[call("f"), call("g")])
    results = [said("tool", "1", "f"), said("tool", "2", "g")]
    messages = [said("user", "x"), asked, *results]
    assert CHATS["qwen"].unshown(messages) == Unshown()
    messages = [said("user", "x"), asked, *results[::-1], said("tool", "3", "g")]
    assert CHATS["qwen"].unshown(messages) == Unshown(names=(2, 3, 4))


def test_keys_of_tools() -> None:
    messages = [said("user", "x")]
    tools = [tool(), {**tool(returns="int", x=1, y=None, z=[]), "cache_control": {"type": "e"}}]
    chat = ChatTemplate(SOME_KEYS, CHATML_TOKENIZER)
    assert "fint" in chat.render(messages, tools=tools).text
    unshown = ((1, ("cache_control",)), (1, ("function", "x")))
    assert chat.unshown(messages, tools=tools) == Unshown(keys=unshown)
    # A tool that is shown as it is, by the template or in the system message, hides nothing.
    for shape in ("qwen", "chatml"):
        assert CHATS[shape].unshown(messages, tools=tools) == Unshown()


def test_very_many_keys_cost_few_renderings(monkeypatch: pytest.MonkeyPatch) -> None:
    chat = ChatTemplate(SOME_KEYS, CHATML_TOKENIZER)
    seen: list[int] = []
    render = ChatTemplate._render

    def counted(self: ChatTemplate, inputs: Any) -> str:
        seen.append(1)
        return render(self, inputs)

    monkeypatch.setattr(ChatTemplate, "_render", counted)
    tools = [tool(**{f"k{number:03}": 1 for number in range(200)}, returns="int")]
    found = chat.unshown([said("user", "x")], tools=tools)
    assert len(found.keys) in range(32, 200)
    assert (0, ("function", "returns")) not in found.keys
    assert len(seen) < 40
    seen.clear()
    assert chat.unshown([said("user", "x")], tools=[tool()]) == Unshown()
    assert not seen


def test_a_name_that_the_template_needs_is_one_that_it_reads() -> None:
    source = (
        "{% for message in messages %}{% if not message.name %}{{ raise_exception('who?') }}"
        "{% endif %}{{ message.content }}{% endfor %}"
    )
    assert ChatTemplate(source, CHATML_TOKENIZER).unshown([said("user", "x", "Ann")]) == Unshown()
