"""What a template shows of a model's thinking."""

import pytest

from flm.text.template import ChatTemplate
from flm.text.thinking import probe_thinking, reads_effort, thinking_switch
from flm.types import ThinkMode
from tests.text import templates
from tests.text import templates_history as shapes
from tests.text.chats import CHATML_TOKENIZER, turns

OPENS = templates.CHATML.replace("assistant\\n' }}", "assistant\\n<think>\\n' }}")
HARMONY = (
    "{{ '<|start|>system<|message|>Reasoning: ' + reasoning_effort | default('medium') + "
    "'<|end|>' }}{% for m in messages %}{{ '<|start|>' + m.role + '<|channel|>final<|message|>' + "
    "m.content + '<|end|>' }}{% endfor %}{# analysis #}"
    "{% if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}"
)
OFF_UNLESS_ASKED = templates.QWEN_LIKE.replace(
    "enable_thinking is defined and enable_thinking is false", "not enable_thinking"
)


@pytest.mark.parametrize(
    ("source", "mode", "switch"),
    [
        (templates.CHATML, "none", "enable_thinking"),
        (templates.QWEN_LIKE, "on", "enable_thinking"),
        (OFF_UNLESS_ASKED, "off", "enable_thinking"),
        (shapes.THINKING, "off", "thinking"),
        (OPENS, "always", "enable_thinking"),
        (HARMONY, "always", "enable_thinking"),
        ("{{ raise_exception('<think>') }}", "none", "enable_thinking"),
        ("{{ messages[0].content.split('</think>') }}", "none", "enable_thinking"),
    ],
)
def test_the_switch_is_found_by_trying(source: str, mode: ThinkMode, switch: str) -> None:
    assert probe_thinking(source) == mode
    assert thinking_switch(source) == switch


def test_who_reads_an_effort() -> None:
    assert reads_effort(HARMONY)
    assert not reads_effort(templates.QWEN_LIKE)


def test_harmony_shows_the_effort_and_is_read_as_such() -> None:
    chat = ChatTemplate(HARMONY, CHATML_TOKENIZER)
    assert "Reasoning: high" in chat.render(turns("a"), kwargs={"reasoning_effort": "high"}).text
    assert chat.tool_dialect == "harmony"
