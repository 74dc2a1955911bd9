"""continue_final_message over HTTP: what is sent back, and what is refused."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import hot_folder, tiny_config
from tests.support.app import RunningApp, running_app
from tests.support.replies import CHAT, COMPLETIONS, events_of, streamed, whole
from tests.support.scripted import saying
from tests.support.tiny import IM_END, tiny_tokenizer

USER = {"role": "user", "content": "Is it? Answer yes or no."}
SAID = {"role": "assistant", "content": "The answer is:"}
ASKED: dict[str, Any] = {"messages": [USER, SAID], "continue_final_message": True}
PROMPT = (
    "<|im_start|>user\nIs it? Answer yes or no.<|im_end|>\n<|im_start|>assistant\nThe answer is:"
)


def ids(text: str) -> list[int]:
    found: list[int] = tiny_tokenizer().encode(text, add_special_tokens=False).ids
    return found


# --- what comes back ---------------------------------------------------------------------------


@pytest.mark.parametrize("send", [whole, streamed])
def test_the_reply_is_the_continuation_alone(client: httpx.Client, send: Any) -> None:
    """It is what the model says to the same prompt sent raw: text, log probabilities, counts."""
    fields = {"seed": 5, "max_tokens": 20, "return_token_ids": True, "cache_prompt": False}
    told = send(client, **ASKED, **fields, logprobs=True, top_logprobs=2)
    raw = whole(client, prompt=PROMPT, **fields, logprobs=2)
    assert told.prompt_token_ids == raw.prompt_token_ids
    assert told.text == raw.text != ""
    assert told.choices[0].token_ids == raw.choices[0].token_ids
    assert len(told.choices[0].logprobs) == len(told.choices[0].token_ids)
    logprobs = [entry["logprob"] for entry in told.choices[0].logprobs]
    assert logprobs == [entry[1] for entry in raw.choices[0].logprobs]
    assert told.usage == raw.usage
    assert told.usage is not None
    assert told.usage["prompt_tokens"] == len(told.prompt_token_ids)


def test_the_first_logprobs_are_those_right_behind_the_text(client: httpx.Client) -> None:
    scored = whole(client, **ASKED, max_tokens=1, temperature=0, logprobs=True, top_logprobs=5)
    assert scored.usage is not None
    assert scored.usage["completion_tokens"] == 1
    (first,) = scored.choices[0].logprobs
    best = first["top_logprobs"][0]
    assert (first["token"], first["logprob"]) == (best["token"], best["logprob"])
    echoed = client.post(
        COMPLETIONS,
        json={"prompt": PROMPT + first["token"], "echo": True, "max_tokens": 0, "logprobs": 0},
    ).json()["choices"][0]["logprobs"]
    assert echoed["tokens"][-1] == first["token"]
    assert echoed["token_logprobs"][-1] == pytest.approx(first["logprob"], abs=1e-5)


@pytest.mark.parametrize("said", [" Yes", "  Yes", "\n\nYes", "Yes \n", " ", " \n \n", "\n"])
def test_white_space_is_kept_as_the_model_wrote_it(client: httpx.Client, said: str) -> None:
    for send in (whole, streamed):
        with saying([*ids(said), IM_END]):
            assert send(client, **ASKED).text == said


def test_in_a_stream_white_space_comes_with_the_text_behind_it(client: httpx.Client) -> None:
    script = [*ids("Yes"), *ids(" "), *ids(" "), *ids("\n"), *ids("No"), *ids(" "), IM_END]
    with saying(script):
        reply = client.post(CHAT, json={**ASKED, "stream": True})
    deltas = [chunk["choices"][0]["delta"] for chunk in events_of(reply.text.splitlines())]
    texts = [delta["content"] for delta in deltas if delta.get("content")]
    assert "".join(texts) == "Yes  \nNo "
    *others, end = texts
    assert all(text == text.rstrip() for text in others)
    assert end == " "


@pytest.mark.parametrize("value", [False, None])
def test_false_and_null_are_the_default(client: httpx.Client, value: bool | None) -> None:
    default = client.post(f"{CHAT}/plan", json={"messages": [USER, SAID]}).json()
    body = {"messages": [USER, SAID], "continue_final_message": value}
    assert client.post(f"{CHAT}/plan", json=body).json() == default
    assert default["prompt"] == f"{PROMPT}<|im_end|>\n<|im_start|>assistant\n"
    assert default["adaptations"] == []
    # What could not be continued is no reason to refuse it then.
    body = {"messages": [USER], "continue_final_message": value, "add_generation_prompt": True}
    assert client.post(f"{CHAT}/plan", json=body).status_code == 200


def test_several_choices_and_text_parts_can_be_continued(client: httpx.Client) -> None:
    parts = [{"type": "text", "text": "The answer"}, {"type": "text", "text": " is:"}]
    body = {"messages": [USER, {"role": "assistant", "content": parts}], "max_tokens": 4}
    plan = client.post(f"{CHAT}/plan", json={**body, "continue_final_message": True}).json()
    assert plan["prompt"] == PROMPT
    fine: dict[str, Any] = {
        "add_generation_prompt": False,
        "response_format": {"type": "text"},
        "tool_choice": None,
    }
    reply = whole(client, **body, **fine, continue_final_message=True, n=3, seed=1)
    assert len(set(reply.texts)) == 3
    assert reply.adaptations == []


def test_completions_do_not_read_it(client: httpx.Client) -> None:
    reply = whole(client, prompt="a", max_tokens=1, continue_final_message=True)
    assert [entry["field"] for entry in reply.adaptations] == ["continue_final_message"]


# --- what is refused ---------------------------------------------------------------------------

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
STRICT = {"type": "function", "function": {**TOOL["function"], "strict": True}}  # type: ignore[dict-item]
ALLOWED = {"mode": "required", "tools": [{"type": "function", "function": {"name": "f"}}]}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}}


def says(content: Any, **fields: Any) -> dict[str, Any]:
    return {"messages": [USER, {"role": "assistant", "content": content, **fields}]}


REFUSED: dict[str, dict[str, Any]] = {
    "a word": {"continue_final_message": "true"},
    "a number": {"continue_final_message": 1},
    "a list": {"continue_final_message": [True]},
    "no messages": {"messages": []},
    "a user last": {"messages": [USER]},
    "a tool last": {"messages": [USER, {"role": "tool", "tool_call_id": "c", "content": "4"}]},
    "a system last": {"messages": [{"role": "system", "content": "x"}]},
    "empty": says(""),
    "white space": says(" \n\t "),
    "no parts": says([]),
    "null": says(None),
    "an empty part": says([{"type": "text", "text": ""}]),
    "an image": says([{"type": "text", "text": "x"}, IMAGE]),
    "calls": says("Let me see.", tool_calls=[CALL]),
    "calls alone": says(None, tool_calls=[CALL]),
    "a generation prompt": {"add_generation_prompt": True},
    "a forced call": {"tools": [TOOL], "tool_choice": "required"},
    "a named call": {
        "tools": [TOOL],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
    },
    "an allowed call": {
        "tools": [TOOL],
        "tool_choice": {"type": "allowed_tools", "allowed_tools": ALLOWED},
    },
    "strict tools": {"tools": [STRICT]},
    "json": {"response_format": {"type": "json_object"}},
    "a schema": {"response_format": SCHEMA},
    "structured": {"structured_outputs": {"choice": ["yes", "no"]}},
    "guided": {"guided_regex": "a+"},
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize(("suffix", "stream"), [("", False), ("", True), ("/plan", False)])
def test_what_cannot_be_continued_is_refused(
    client: httpx.Client, name: str, suffix: str, stream: bool
) -> None:
    body = {**ASKED, **REFUSED[name], "stream": stream, "temperature": 0.125}
    refused(client.post(f"{CHAT}{suffix}", json=body))
    entries = client.get("/v1/settings").json()["settings"]
    assert all(entry["set_by"] is None for entry in entries)


def refused(reply: httpx.Response) -> None:
    assert reply.status_code == 400, reply.text
    assert reply.headers["content-type"] == "application/json"
    error = reply.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["param"] == "continue_final_message", error
    assert error["message"]


# --- models that reason, and one that writes in channels ---------------------------------------

FRAME = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content"
    " + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\n' }}OPENING{% endif %}"
)
TEMPLATES = {
    "always": FRAME.replace("OPENING", "{{ '<think>\n' }}"),
    "switched": FRAME.replace(
        "OPENING", "{{ '<think>\n\n</think>\n\n' if enable_thinking is false else '' }}"
    ),
    "harmony": FRAME.replace("<|im_end|>", "<|channel|>analysis"),
    "harmony with tools": FRAME.replace("<|im_end|>", "<|channel|>analysis to=functions."),
    "upper": FRAME.replace("message.content", "message.content | upper").replace("OPENING", ""),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("continued")
    found = {}
    for name, source in TEMPLATES.items():
        found[name] = hot_folder(root / name)
        path = found[name] / "tokenizer_config.json"
        config = json.loads(path.read_text("utf-8"))
        config["chat_template"] = source
        path.write_text(json.dumps(config), "utf-8")
    return found


@pytest.fixture(scope="module", params=["always", "switched"])
def thinking(
    request: pytest.FixtureRequest, models: dict[str, Path], store: Path
) -> Iterator[RunningApp]:
    with running_app(tiny_config(models[request.param]), store) as app:
        yield app


def parts_of(client: httpx.Client, script: Sequence[int], *, stream: bool) -> list[Any]:
    """Reasoning and content, and the non-empty deltas in which a stream sent them."""
    body = {**ASKED, "think": True, "max_tokens": len(script), "stream": stream}
    with saying(script):
        reply = client.post(CHAT, json=body)
    assert reply.status_code == 200, reply.text
    if not stream:
        message = reply.json()["choices"][0]["message"]
        return [message.get("reasoning_content", ""), message["content"], None]
    chunks = events_of(reply.text.splitlines())
    found = [chunk["choices"][0]["delta"] for chunk in chunks]
    names = ("reasoning_content", "content")
    sent = [(name, delta[name]) for delta in found for name in names if delta.get(name)]
    texts = ["".join(text for key, text in sent if key == name) for name in names]
    return [*texts, sent]


@pytest.mark.parametrize("stream", [False, True])
def test_what_came_before_the_tag_is_reasoning(thinking: RunningApp, stream: bool) -> None:
    script = [*ids(" so it goes on"), *ids("\n</think>\n\n"), *ids("yes"), IM_END]
    with thinking.client() as client:
        reasoning, content, sent = parts_of(client, script, stream=stream)
    assert (reasoning.strip(), content) == ("so it goes on", "yes")
    if stream:
        assert [name for name, _ in sent].count("reasoning_content") == 1
        assert sent[0][0] == "reasoning_content"


@pytest.mark.parametrize("stream", [False, True])
def test_without_the_tag_everything_is_content(thinking: RunningApp, stream: bool) -> None:
    script = [*ids(" Yes, and that is all"), IM_END]
    with thinking.client() as client:
        reasoning, content, sent = parts_of(client, script, stream=stream)
    assert (reasoning, content) == ("", " Yes, and that is all")
    if stream:
        # Nothing could be shown before the end told what it is.
        assert len(sent) == 1


def test_with_thinking_off_the_text_is_content_at_once(
    models: dict[str, Path], store: Path
) -> None:
    script = [*ids("Yes"), *ids(" it"), *ids(" is"), IM_END]
    with running_app(tiny_config(models["switched"]), store) as app, app.client() as client:
        body = {**ASKED, "think": False, "stream": True}
        with saying(script):
            reply = client.post(CHAT, json=body)
        deltas = [chunk["choices"][0]["delta"] for chunk in events_of(reply.text.splitlines())]
        texts = [delta["content"] for delta in deltas if delta.get("content")]
        assert "".join(texts) == "Yes it is"
        assert len(texts) > 1
        plan = client.post(f"{CHAT}/plan", json={**ASKED, "think": False}).json()
        assert plan["prompt"] == PROMPT.replace("The", "<think>\n\n</think>\n\nThe")


@pytest.mark.parametrize("name", ["harmony", "harmony with tools", "upper"])
def test_a_model_that_cannot_continue_says_so(
    models: dict[str, Path], store: Path, name: str
) -> None:
    with running_app(tiny_config(models[name]), store) as app, app.client() as client:
        for path, stream in ((CHAT, False), (CHAT, True), (f"{CHAT}/plan", False)):
            refused(client.post(path, json={**ASKED, "stream": stream}))
