"""Where the thoughts of a model go, for every kind of tags."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import hot_folder, tiny_config
from tests.support.app import RunningApp, running_app
from tests.support.replies import CHAT, COMPLETIONS, events_of
from tests.support.scripted import saying
from tests.support.tiny import IM_END, tiny_tokenizer

FRAME = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content"
    " + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}OPENING{% endif %}"
)
SWITCH = "{{ '<think>\n\n</think>\n\n' if enable_thinking is false else '' }}"


@dataclass(frozen=True)
class Kind:
    """A family: its template, and what it writes: thoughts and answer, and an answer alone."""

    template: str
    thinks: str
    answers: str


KINDS = {
    "tags": Kind(
        FRAME.replace("OPENING", SWITCH), "<think>\nHm, so.\n</think>\n\nIt is.", "It is."
    ),
    "opened": Kind(
        FRAME.replace("OPENING", "{{ '<think>\n' }}"),
        "Hm, so.\n</think>\n\nIt is.",
        "</think>\n\nIt is.",
    ),
    "thought channel": Kind(
        FRAME.replace(
            "OPENING", "{% if not enable_thinking %}<|channel>thought\n<channel|>{% endif %}"
        ),
        "<|channel>thought\nHm, so.<channel|>It is.",
        "It is.",
    ),
    "analysis channel": Kind(
        FRAME.replace("OPENING", "{# <|channel|>analysis to=functions. #}"),
        "<|channel|>analysis<|message|>Hm, so.<|end|><|start|>assistant"
        "<|channel|>final<|message|>It is.",
        "<|channel|>final<|message|>It is.",
    ),
}


def ids(text: str) -> list[int]:
    found: list[int] = tiny_tokenizer().encode(text, add_special_tokens=False).ids
    return found


@dataclass(frozen=True)
class Running:
    """A model of one kind, served."""

    app: RunningApp
    kind: Kind

    def ask(self, says: str, *, path: str = CHAT, **fields: Any) -> Any:
        """The reply to a request whose model says this."""
        script = [*ids(says), IM_END]
        prompt: dict[str, Any] = {"messages": [{"role": "user", "content": "Is it?"}]}
        body = {**(prompt if path == CHAT else {"prompt": "Is it?"}), "think": True, **fields}
        with self.app.client() as client, saying(script):
            reply = client.post(path, json=body)
        assert reply.status_code == 200, reply.text
        return reply.text.splitlines() if fields.get("stream") else reply.json()


@pytest.fixture(scope="module", params=KINDS)
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, store: Path
) -> Iterator[Running]:
    kind = KINDS[request.param]
    model = hot_folder(tmp_path_factory.mktemp("kinds") / "model")
    path = model / "tokenizer_config.json"
    config = {**json.loads(path.read_text("utf-8")), "chat_template": kind.template}
    path.write_text(json.dumps(config), "utf-8")
    with running_app(tiny_config(model), store) as app:
        yield Running(app, kind)


def test_thoughts_are_apart_from_the_answer(running: Running) -> None:
    data = running.ask(running.kind.thinks)
    (choice,) = data["choices"]
    assert choice["message"]["reasoning_content"].strip() == "Hm, so."
    assert choice["message"]["content"] == "It is."
    assert choice["finish_reason"] == "stop"
    usage = data["usage"]
    assert usage["completion_tokens"] == len(ids(running.kind.thinks)) + 1
    assert 0 < usage["completion_tokens_details"]["reasoning_tokens"] < usage["completion_tokens"]


def test_in_a_stream_they_come_first(running: Running) -> None:
    lines = running.ask(running.kind.thinks, stream=True)
    deltas = [chunk["choices"][0]["delta"] for chunk in events_of(lines)]
    names = ("reasoning_content", "content")
    sent = [(name, delta[name]) for delta in deltas for name in names if delta.get(name)]
    assert [name for name, _ in sent] == sorted((name for name, _ in sent), reverse=True)
    texts = {name: "".join(text for key, text in sent if key == name) for name in names}
    assert {name: text.strip() for name, text in texts.items()} == {
        "reasoning_content": "Hm, so.",
        "content": "It is.",
    }


def test_without_thoughts_the_field_is_left_out(running: Running) -> None:
    message = running.ask(running.kind.answers)["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "It is.", "refusal": None, "annotations": []}
    lines = running.ask(running.kind.answers, stream=True)
    deltas = [chunk["choices"][0]["delta"] for chunk in events_of(lines)]
    assert not any("reasoning_content" in delta for delta in deltas)


def test_thoughts_count_in_max_tokens(running: Running) -> None:
    limit = len(ids(running.kind.thinks.partition("so.")[0]))
    data = running.ask(running.kind.thinks, max_tokens=limit)
    (choice,) = data["choices"]
    thought = choice["message"]["reasoning_content"].strip()
    assert thought
    assert "Hm, so.".startswith(thought)
    assert (choice["message"]["content"], choice["finish_reason"]) == ("", "length")
    assert data["usage"]["completion_tokens"] == limit


@pytest.mark.parametrize("stream", [False, True])
def test_completions_give_the_raw_text(running: Running, stream: bool) -> None:
    reply = running.ask(running.kind.thinks, path=COMPLETIONS, stream=stream)
    if stream:
        text = "".join(chunk["choices"][0]["text"] for chunk in events_of(reply))
    else:
        text = reply["choices"][0]["text"]
    assert text == running.kind.thinks
