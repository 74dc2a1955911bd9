"""Models that think: who switches it, where the thoughts go, and what they count as."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import hot_folder, tiny_config
from tests.support.app import RunningApp, running_app
from tests.support.replies import CHAT, COMPLETIONS, Reply, streamed, whole
from tests.support.tiny import CHATML, VOCAB_SIZE

HELLO: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
OPEN, CLOSE = VOCAB_SIZE - 2, VOCAB_SIZE - 1
EMPTY = "<think>\n\n</think>\n\n"
_OPENING = "{{ '<|im_start|>assistant\\n' }}"
_EFFORT = (
    "{% if reasoning_effort is defined %}"
    "{{ '<|im_start|>system\\nReasoning: ' ~ reasoning_effort ~ '<|im_end|>\\n' }}{% endif %}"
)
_CLOSED = r"{{ '<think>\n\n</think>\n\n' }}"
_OPENED = r"{{ '<think>\n' }}"


def template(opening: str, head: str = "") -> str:
    assert _OPENING in CHATML
    return head + CHATML.replace(_OPENING, _OPENING + opening)


TEMPLATES = {
    # Opens the block unless told not to (Qwen 3.5), or lets the model open it (Qwen 3).
    "opens": template(
        "{% if enable_thinking is defined and enable_thinking is false %}"
        + _CLOSED
        + "{% else %}"
        + _OPENED
        + "{% endif %}",
        _EFFORT,
    ),
    "leaves": template(
        "{% if enable_thinking is defined and enable_thinking is false %}" + _CLOSED + "{% endif %}"
    ),
    # Thinks only when asked, under another name (DeepSeek V3.1).
    "asked": template("{% if thinking %}" + _OPENED + "{% else %}" + _CLOSED + "{% endif %}"),
    # Always thinks, as much as it is told (R1, and harmony's levels).
    "always": template(_OPENED, _EFFORT),
}


def thinking_app(name: str) -> Callable[..., Iterator[RunningApp]]:
    @pytest.fixture(scope="module", name=name)
    def app(tmp_path_factory: pytest.TempPathFactory, store: Path) -> Iterator[RunningApp]:
        folder = hot_folder(tmp_path_factory.mktemp(name) / name)
        path = folder / "tokenizer_config.json"
        config = json.loads(path.read_text("utf-8"))
        path.write_text(json.dumps({**config, "chat_template": TEMPLATES[name]}), "utf-8")
        with running_app(tiny_config(folder), store) as running:
            yield running

    return app


opens, leaves = thinking_app("opens"), thinking_app("leaves")
asked, always = thinking_app("asked"), thinking_app("always")


@pytest.fixture
def shape(request: pytest.FixtureRequest) -> Iterator[RunningApp]:
    """The app that a test names; its settings are restored, and afterwards its books checked."""
    app: RunningApp = request.getfixturevalue(request.param)
    app.model.store.reset()
    yield app
    app.wait_until_idle()


on = pytest.mark.parametrize("shape", ["opens"], indirect=True)
every = pytest.mark.parametrize("shape", list(TEMPLATES), indirect=True)


def planned(client: httpx.Client, **body: Any) -> dict[str, Any]:
    reply = client.post(f"{CHAT}/plan", json={"messages": HELLO, **body})
    assert reply.status_code == 200, reply.text
    plan: dict[str, Any] = reply.json()
    return plan


def prompt(client: httpx.Client, **body: Any) -> str:
    text: str = planned(client, **body)["prompt"]
    return text


def actions(plan: dict[str, Any]) -> dict[str, str]:
    return {entry["field"]: entry["action"] for entry in plan.get("adaptations", [])}


def say(client: httpx.Client, **body: Any) -> dict[str, Any]:
    sent = {"messages": HELLO, "max_tokens": 1, **body}
    reply = client.post(CHAT, json=sent)
    assert reply.status_code == 200, reply.text
    answer: dict[str, Any] = reply.json()
    return answer


# --- the switches ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "default", "on", "off"),
    [
        ("opens", "<think>\n", "<think>\n", EMPTY),
        ("leaves", "assistant\n", "assistant\n", EMPTY),
        ("asked", EMPTY, "<think>\n", EMPTY),
        ("always", "<think>\n", "<think>\n", "<think>\n"),
    ],
    indirect=["shape"],
)
def test_every_switch_reaches_the_template(
    shape: RunningApp, default: str, on: str, off: str
) -> None:
    with shape.client() as client:
        assert prompt(client).endswith(default)
        for value, ending in ((True, on), (False, off)):
            kwargs: list[dict[str, Any]] = [{"enable_thinking": value}]
            if shape.model.thinking_switch == "thinking":
                kwargs.append({"thinking": value})
            assert prompt(client, think=value).endswith(ending)
            assert prompt(client, enable_thinking=value).endswith(ending)
            for given in kwargs:
                assert prompt(client, chat_template_kwargs=given).endswith(ending)
        assert prompt(client).endswith(default), "a plan sets nothing"


@on
def test_think_and_effort_stick_and_enable_thinking_does_not(shape: RunningApp) -> None:
    with shape.client() as client:
        say(client, enable_thinking=False)
        say(client, chat_template_kwargs={"enable_thinking": False})
        assert prompt(client).endswith("<think>\n")
        first = say(client, think=False)
        with shape.client() as other:
            plan = planned(other)
            assert plan["prompt"].endswith(EMPTY)
            assert actions(plan) == {"think": "defaulted"}
            assert first["id"] in plan["adaptations"][0]["reason"]
            assert prompt(other, enable_thinking=True).endswith("<think>\n")
            assert prompt(other).endswith(EMPTY)
            say(other, reasoning_effort="medium")
            assert "Reasoning: medium" in prompt(other)
            assert prompt(other).endswith("<think>\n")
        assert client.delete("/v1/settings").status_code == 200
        assert prompt(client).endswith("<think>\n")
        assert "Reasoning" not in prompt(client)


@pytest.mark.parametrize(
    ("asked", "shown", "recorded"),
    [
        ("none", EMPTY, {}),
        ("minimal", "Reasoning: low", {"reasoning_effort": "substituted"}),
        ("low", "Reasoning: low", {}),
        ("medium", "Reasoning: medium", {}),
        ("high", "Reasoning: high", {}),
        ("xhigh", "Reasoning: high", {"reasoning_effort": "substituted"}),
        ("max", "Reasoning: high", {"reasoning_effort": "substituted"}),
        ("enormous", "<think>\n", {"reasoning_effort": "dropped"}),
    ],
)
@on
def test_the_words_of_effort(
    shape: RunningApp, asked: str, shown: str, recorded: dict[str, str]
) -> None:
    with shape.client() as client:
        plan = planned(client, reasoning_effort=asked)
        assert shown in plan["prompt"]
        assert plan["prompt"].endswith(EMPTY) == (asked == "none")
        assert actions(plan) == recorded
        refused = client.post(
            CHAT, json={"messages": HELLO, "reasoning_effort": asked, "adaptations": "refuse",
                        "max_tokens": 1},
        )  # fmt: skip
        assert refused.status_code == (400 if recorded else 200)


@pytest.mark.parametrize("shape", ["always"], indirect=True)
def test_who_always_thinks_is_told_how_much_and_not_whether(shape: RunningApp) -> None:
    with shape.client() as client:
        plan = planned(client, think=False, reasoning_effort="high")
        assert "Reasoning: high" in plan["prompt"]
        assert actions(plan) == {"think": "dropped"}
        for field in ({"reasoning_effort": "none"}, {"enable_thinking": False}):
            plan = planned(client, **field)
            assert plan["prompt"].endswith("<think>\n")
            assert actions(plan) == dict.fromkeys(field, "dropped")


# --- the reply ---------------------------------------------------------------------------------


def expected(app: RunningApp, reply: Reply, *, is_open: bool) -> tuple[str, str, int]:
    """Reasoning, content, and reasoning tokens by the ids of the only choice."""
    (choice,) = reply.choices
    ids, decode = choice.token_ids, app.model.tokenizer.decode
    begins = ids[:1] == [OPEN]
    if not (is_open or begins):
        return "", decode(ids), 0
    if CLOSE not in ids:
        return decode(ids[begins:]).lstrip(), "", len(ids)
    end = ids.index(CLOSE)
    return decode(ids[begins:end]).strip(), decode(ids[end + 1 :]).lstrip(), end + 1


@every
@pytest.mark.parametrize("seed", range(6))
def test_a_stream_and_a_whole_reply_split_alike(shape: RunningApp, seed: int) -> None:
    body = {
        "messages": HELLO,
        "seed": seed,
        "max_tokens": 60,
        "return_token_ids": True,
        "ignore_eos": True,
        # What ends the block has to come up by chance within a few dozen tokens.
        "logit_bias": {str(CLOSE): 14, str(OPEN): 14},
        "enable_thinking": True,
    }
    with shape.client() as client:
        is_open = prompt(client, enable_thinking=True).endswith("<think>\n")
        reply, stream = whole(client, **body), streamed(client, **body)
    assert stream.choices == reply.choices
    assert stream.usage is not None
    assert reply.usage is not None
    reasoning, content, num_reasoning = expected(shape, reply, is_open=is_open)
    (choice,) = reply.choices
    assert (choice.reasoning, choice.text) == (reasoning, content)
    assert reply.usage["completion_tokens"] == 60
    for usage in (reply.usage, stream.usage):
        assert usage["reasoning_tokens"] == num_reasoning


@on
def test_the_seeds_show_blocks_that_close_and_answers(shape: RunningApp) -> None:
    """What the test above splits is really there."""
    body = {
        "messages": HELLO, "max_tokens": 60, "ignore_eos": True, "logit_bias": {str(CLOSE): 14},
    }  # fmt: skip
    with shape.client() as client:
        replies = [whole(client, **body, seed=seed).choices[0] for seed in range(6)]
    assert any(choice.reasoning and choice.text for choice in replies)


@pytest.mark.parametrize("shape", ["opens", "always"], indirect=True)
@pytest.mark.parametrize("send", [whole, streamed])
def test_a_limit_inside_the_block(shape: RunningApp, send: Callable[..., Reply]) -> None:
    body = {"messages": HELLO, "seed": 3, "max_tokens": 20, "logit_bias": {str(CLOSE): -100}}
    with shape.client() as client:
        reply = send(client, **body, ignore_eos=True)
        message = client.post(CHAT, json={**body, "ignore_eos": True}).json()["choices"][0]
    (choice,) = reply.choices
    assert choice.reasoning
    assert (choice.text, choice.finish_reason) == ("", "length")
    assert reply.usage is not None
    assert reply.usage["reasoning_tokens"] == reply.usage["completion_tokens"] == 20
    assert message["message"]["content"] == ""
    assert message["message"]["reasoning_content"] == choice.reasoning


@pytest.mark.parametrize("shape", ["opens", "leaves", "asked"], indirect=True)
def test_switched_off_everything_is_the_answer(shape: RunningApp) -> None:
    body = {"messages": HELLO, "seed": 3, "max_tokens": 20, "logit_bias": {str(OPEN): -100}}
    with shape.client() as client:
        reply = whole(client, **body, think=False)
        message = client.post(CHAT, json={**body, "think": False}).json()["choices"][0]["message"]
    assert reply.choices[0].text
    assert "reasoning_content" not in message
    assert reply.usage is not None
    assert reply.usage["reasoning_tokens"] == 0


@on
def test_completions_give_the_raw_text(shape: RunningApp) -> None:
    body = {"prompt": "a<think>\n", "seed": 2, "max_tokens": 30, "return_token_ids": True}
    with shape.client() as client:
        reply = client.post(
            COMPLETIONS, json={**body, "logit_bias": {str(CLOSE): 20}, "ignore_eos": True}
        ).json()
    (choice,) = reply["choices"]
    assert choice["text"] == shape.model.tokenizer.decode(choice["token_ids"])
    assert "</think>" in choice["text"]
    assert reply["usage"]["completion_tokens_details"]["reasoning_tokens"] == 0


@on
@pytest.mark.parametrize("thinks", [True, False])
def test_a_continued_message(shape: RunningApp, thinks: bool) -> None:
    messages = [*HELLO, {"role": "assistant", "content": "The answer"}]
    body = {
        "messages": messages, "continue_final_message": True, "seed": 5, "max_tokens": 40,
        "enable_thinking": thinks, "return_token_ids": True, "ignore_eos": True,
    }  # fmt: skip
    bias = {"logit_bias": {str(CLOSE): 20, str(OPEN): -100}}
    with shape.client() as client:
        assert prompt(
            client, messages=messages, continue_final_message=True, enable_thinking=thinks
        ).endswith("<think>\nThe answer" if thinks else f"{EMPTY}The answer")
        reply, stream = whole(client, **body, **bias), streamed(client, **body, **bias)
        kept = {"logit_bias": {str(CLOSE): -100, str(OPEN): -100}}
        plain = whole(client, **body, **kept)
    assert stream.choices == reply.choices
    (choice,), decode = reply.choices, shape.model.tokenizer.decode
    ids = choice.token_ids
    if thinks:
        end = ids.index(CLOSE)
        assert choice.reasoning == decode(ids[:end]).rstrip()
        assert choice.text == decode(ids[end + 1 :]).lstrip()
    else:
        assert (choice.reasoning, choice.text) == ("", decode(ids))
    assert plain.choices[0].reasoning == ""
    assert plain.choices[0].text == decode(plain.choices[0].token_ids)
