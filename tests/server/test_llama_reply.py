"""``/completion``: llama-server's shapes, its names, and the record of what is not there."""

import json
from typing import Any

import httpx
import pytest

from flm.server.context import ServerContext
from flm.server.schemas.llama import UNREAD, LlamaBody
from flm.server.schemas.llama_replies import (
    LlamaChunk,
    LlamaReply,
)
from flm.types import NEVER
from tests.server.conftest import HELLO, events_of, in_process, records
from tests.support.fake_service import VOCAB_SIZE, FakeService, Script

pytestmark = pytest.mark.anyio
PATH = "/completion"


async def complete(client: httpx.AsyncClient, **fields: Any) -> httpx.Response:
    return await client.post(PATH, json={"prompt": "hi", **fields})


async def stream(client: httpx.AsyncClient, **fields: Any) -> list[dict[str, Any]]:
    reply = await complete(client, stream=True, **fields)
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"].startswith("text/event-stream")
    return [json.loads(event) for event in events_of(reply.text)]


def joined(chunks: list[dict[str, Any]], key: str) -> Any:
    parts = [chunk.get(key, []) for chunk in chunks]
    return "".join(parts) if key == "content" else [item for part in parts for item in part]


# --- replies -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/completion", "/completions"])
async def test_a_whole_reply(client: httpx.AsyncClient, path: str) -> None:
    reply = (await client.post(path, json={"prompt": "hi", "n_predict": 3, "seed": 4})).json()
    LlamaReply.model_validate(reply)
    assert (reply["content"], reply["tokens"], reply["prompt"]) == ("Hello, wor", [], "hi")
    assert (reply["stop"], reply["stop_type"], reply["stopping_word"]) == (True, "limit", "")
    assert (reply["tokens_predicted"], reply["tokens_evaluated"], reply["tokens_cached"]) == (
        3,
        2,
        2,
    )
    assert (reply["model"], reply["truncated"], reply["index"]) == ("fake:1b", False, 0)
    settings = reply["generation_settings"]
    assert (settings["n_predict"], settings["seed"], settings["n_ctx"]) == (3, 4, 512)
    assert (settings["typical_p"], settings["mirostat"]) == (1.0, 0)
    assert reply["timings"] == {
        "cache_n": 2,
        "prompt_n": 0,
        "prompt_ms": 250.0,
        "prompt_per_token_ms": 0.0,
        "prompt_per_second": 0.0,
        "predicted_n": 3,
        "predicted_ms": 500.0,
        "predicted_per_token_ms": pytest.approx(500 / 3),
        "predicted_per_second": 6.0,
    }
    assert "adaptations" not in reply


async def test_why_a_reply_stopped(client: httpx.AsyncClient, service: FakeService) -> None:
    assert (await complete(client)).json()["stop_type"] == "eos"
    word = (await complete(client, stop=["wor"])).json()
    assert (word["stop_type"], word["stopping_word"], word["content"]) == ("word", "wor", "Hello, ")
    full = (await complete(client, prompt="x" * 510)).json()
    assert (full["stop_type"], full["truncated"]) == ("limit", True)
    nothing = (await complete(client, n_predict=0)).json()
    assert (nothing["content"], nothing["stop_type"], nothing["tokens_predicted"]) == (
        "",
        "limit",
        0,
    )
    for value in (-1, -2):
        assert (await complete(client, n_predict=value)).json()["tokens_predicted"] == 5
    assert [request.max_tokens for request in service.requests[-2:]] == [None, None]


async def test_a_stream_adds_up_to_the_whole_reply(client: httpx.AsyncClient) -> None:
    fields: dict[str, Any] = {"n_probs": 2, "return_tokens": True, "temperature": 0, "bogus": 1}
    whole = (await complete(client, **fields)).json()
    chunks = await stream(client, **fields)
    for chunk in chunks[:-1]:
        LlamaChunk.model_validate(chunk)
    last = LlamaReply.model_validate(chunks[-1])
    for key in ("content", "tokens", "completion_probabilities"):
        assert joined(chunks, key) == whole[key]
    assert len(whole["completion_probabilities"]) == len(whole["tokens"]) == 5
    assert [chunk["tokens_predicted"] for chunk in chunks] == [1, 2, 3, 4, 5, 5]
    assert chunks[0]["adaptations"] == whole["adaptations"]
    assert all("adaptations" not in chunk for chunk in chunks[1:])
    for key in ("prompt", "stop_type", "timings", "tokens_evaluated", "has_new_line"):
        assert chunks[-1][key] == whole[key]
    assert last.generation_settings.stream


async def test_tokens_without_text_come_with_the_next_text_or_at_the_end() -> None:
    service = FakeService(Script(pieces=("", "a\n", "", "")))
    async with in_process(ServerContext(service)) as client:  # type: ignore[arg-type]
        chunks = await stream(client, n_probs=1)
        whole = (await complete(client)).json()
    assert [(chunk["content"], len(chunk["tokens"])) for chunk in chunks] == [("a\n", 2), ("", 2)]
    assert len(chunks[-1]["completion_probabilities"]) == 2
    assert chunks[-1]["has_new_line"]
    assert whole["has_new_line"]


async def test_several_prompts_and_choices(client: httpx.AsyncClient) -> None:
    prompts = ["ab", [99, "d"], {"prompt_string": "e"}]
    whole = (await complete(client, prompt=prompts, n_cmpl=2, n_predict=2)).json()
    assert [item["index"] for item in whole] == list(range(6))
    assert [item["prompt"] for item in whole] == ["ab", "ab", "cd", "cd", "e", "e"]
    chunks = await stream(client, prompt=prompts, n_cmpl=2, n_predict=2)
    for index, item in enumerate(whole):
        own = [chunk for chunk in chunks if chunk["index"] == index]
        assert joined(own, "content") == item["content"]
        assert [chunk["stop"] for chunk in own] == [False, False, True]


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("ab", ("ab",)),
        ([1, 2], ((1, 2),)),
        ([1, "b", 2], ((1, "b", 2),)),
        (["a", "b"], ("a", "b")),
        (["a"], ("a",)),
        ([[1], ["a", 2], "b"], ((1,), ("a", 2), "b")),
        ({"prompt_string": "x", "multimodal_data": []}, ("x",)),
    ],
)
async def test_forms_of_a_prompt(prompt: Any, expected: Any) -> None:
    assert LlamaBody.model_validate({"prompt": prompt}).prompts == expected


@pytest.mark.parametrize(
    ("prompt", "param"),
    [
        ([], "prompt"),
        (None, "prompt"),
        (5, "prompt"),
        ([True], "prompt[0]"),
        ([1, True], "prompt[1]"),
        ([1, -1], "prompt[1]"),
        ([[1], []], "prompt[1]"),
        ([[1, 2.5]], "prompt[0][1]"),
        ({"text": "x"}, "prompt"),
        ({"prompt_string": "x", "multimodal_data": ["AA=="]}, "prompt.multimodal_data"),
    ],
)
async def test_wrong_prompts(client: httpx.AsyncClient, prompt: Any, param: str) -> None:
    reply = await client.post(PATH, json={"prompt": prompt})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


async def test_only_some_fields_of_the_reply(client: httpx.AsyncClient) -> None:
    fields = ["content", "generation_settings/top_k", "nothing", "content/x"]
    expected = {"content": "Hello, world!", "generation_settings/top_k": 7}
    assert (await complete(client, response_fields=fields, top_k=7)).json() == expected
    chunks = await stream(client, response_fields=fields, top_k=7)
    assert chunks[-1] == expected | {"content": ""}


async def test_timings_and_progress_in_a_stream(client: httpx.AsyncClient) -> None:
    chunks = await stream(
        client, prompt="x" * 40, timings_per_token=True, return_progress=True, n_predict=2
    )
    progress = [chunk["prompt_progress"] for chunk in chunks if "prompt_progress" in chunk]
    assert [item["processed"] for item in progress] == [16, 32, 40]
    assert progress[0] == {"total": 40, "cache": 2, "processed": 16, "time_ms": 16}
    assert all("prompt_progress" in chunk for chunk in chunks[:3])
    assert all("timings" in chunk for chunk in chunks[3:])
    plain = await stream(client, prompt="x" * 40)
    assert not any("timings" in chunk or "prompt_progress" in chunk for chunk in plain[:-1])


# --- fields ------------------------------------------------------------------------------------


async def test_sampling_fields_stick_under_both_names(
    client: httpx.AsyncClient, service: FakeService
) -> None:
    first = await complete(client, repeat_penalty=1.3, temperature=-1, top_k=0)
    assert records(first) == {}
    sampling = service.current.store.peek({}).settings.sampling
    assert (sampling.repetition_penalty, sampling.temperature) == (1.3, 0.0)
    assert sampling.top_k == VOCAB_SIZE
    later = records(await complete(client))
    assert {entry["action"] for entry in later.values()} == {"defaulted"}
    assert set(later) == {"repeat_penalty", "temperature", "top_k"}
    chat = await client.post("/v1/chat/completions", json={"messages": HELLO})
    assert "repetition_penalty" in records(chat)


async def test_wrong_values_are_ignored_under_the_name_they_came_in(
    client: httpx.AsyncClient, service: FakeService
) -> None:
    told = records(await complete(client, repeat_penalty=0, presence_penalty=-1, n_predict=10**6))
    assert {name: entry["action"] for name, entry in told.items()} == {
        "repeat_penalty": "dropped",
        "presence_penalty": "dropped",
        "n_predict": "clamped",
    }
    assert "repeat_penalty must be" in told["repeat_penalty"]["reason"]
    assert "repetition_penalty" in records(await complete(client, repetition_penalty=-1))
    assert service.current.store.peek({}).inherited == ()


async def test_two_names_of_one_field(client: httpx.AsyncClient, service: FakeService) -> None:
    told = records(
        await complete(
            client,
            repeat_penalty=1.1,
            repetition_penalty=1.2,
            n_predict=2,
            max_tokens=3,
            n_cmpl=1,
            n=1,
        )
    )
    assert set(told) == {"repetition_penalty", "max_tokens"}
    request = service.requests[-1]
    assert (request.settings.sampling.repetition_penalty, request.max_tokens) == (1.1, 2)


@pytest.mark.parametrize(
    ("seed", "expected"), [(-1, None), (2**32 - 1, None), (0, 0), (-2, -2), (7, 7)]
)
async def test_seeds(
    client: httpx.AsyncClient, service: FakeService, seed: int, expected: int | None
) -> None:
    await complete(client, seed=seed)
    assert service.requests[-1].seed == expected
    await client.post("/v1/completions", json={"prompt": "x", "seed": seed})
    assert service.requests[-1].seed == seed


@pytest.mark.parametrize(
    ("bias", "expected"),
    [
        ([[65, 1], [66, False]], ((65, 1.0), (66, NEVER))),
        ([["ab", -2.5]], ((97, -2.5), (98, -2.5))),
        ({"65": 1, "a": False}, ((65, 1.0), (97, NEVER))),
        ([], ()),
        ({}, ()),
    ],
)
async def test_biases(
    client: httpx.AsyncClient, service: FakeService, bias: Any, expected: Any
) -> None:
    assert (await complete(client, logit_bias=bias)).status_code == 200
    assert service.requests[-1].logit_bias == expected


async def test_a_ban_is_shown_as_it_was_asked(client: httpx.AsyncClient) -> None:
    reply = await complete(client, logit_bias=[[65, 1.5], [66, False]])
    shown = [{"bias": 1.5, "token": 65}, {"bias": False, "token": 66}]
    assert reply.json()["generation_settings"]["logit_bias"] == shown


@pytest.mark.parametrize(
    "bias", [5, [5], [[1]], [[1, True]], [[True, 1]], {"a": "b"}, [[1, 1e10]], [[VOCAB_SIZE, 1]]]
)
async def test_wrong_biases(client: httpx.AsyncClient, bias: Any) -> None:
    reply = await complete(client, logit_bias=bias)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "logit_bias")


async def test_constraints(client: httpx.AsyncClient, service: FakeService) -> None:
    await complete(client, json_schema={})
    constraint = service.requests[-1].constraint
    assert constraint is not None
    assert (constraint.kind, constraint.value, constraint.param) == ("json", {}, "json_schema")
    reply = (await complete(client, grammar='root ::= "a"')).json()
    assert reply["generation_settings"]["grammar"] == 'root ::= "a"'
    await complete(client, grammar="")
    assert service.requests[-1].constraint is None
    both = await complete(client, json_schema={}, grammar='root ::= "a"')
    assert (both.status_code, both.json()["error"]["param"]) == (400, "grammar")
    wrong = await complete(client, json_schema=5)
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "json_schema")


NEUTRAL: dict[str, Any] = {
    "dynatemp_range": 0,
    "typical_p": 1.0,
    "top_n_sigma": -1,
    "xtc_probability": 0.0,
    "dry_multiplier": 0,
    "mirostat": 0,
    "adaptive_target": -1,
    "min_keep": 0,
    "samplers": ["penalties", "dry", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"],
    "post_sampling_probs": False,
    "n_indent": 0,
    "n_discard": 0,
    "n_cache_reuse": 0,
    "t_max_prompt_ms": -1,
    "t_max_predict_ms": 0,
    "id_slot": -1,
    "lora": [{"id": 0, "scale": 0}],
    "grammar_lazy": False,
    "grammar_triggers": [],
    "echo": False,
}
ASKING: dict[str, Any] = {
    "dynatemp_range": 0.5,
    "typical_p": 0.5,
    "top_n_sigma": 1,
    "xtc_probability": 0.1,
    "dry_multiplier": 0.8,
    "mirostat": 2,
    "adaptive_target": 0.5,
    "min_keep": 3,
    "samplers": ["temperature", "top_k"],
    "post_sampling_probs": True,
    "n_indent": 4,
    "n_discard": 10,
    "n_cache_reuse": 256,
    "t_max_prompt_ms": 5,
    "t_max_predict_ms": 100,
    "id_slot": 0,
    "sse_ping_interval": 5,
    "lora": [{"id": 0, "scale": 1.0}],
    "grammar_lazy": True,
    "grammar_triggers": [{"type": 0}],
    "echo": True,
}


async def test_what_is_not_there_is_recorded_where_it_would_matter(
    client: httpx.AsyncClient,
) -> None:
    always = {name for name, unread in UNREAD.items() if unread.is_met(object())}
    assert ASKING.keys() | always == UNREAD.keys()
    neutral = await complete(client, **NEUTRAL, **dict.fromkeys(always, 3))
    assert records(neutral) == {}
    told = records(await complete(client, **ASKING, typo=1))
    assert {entry["action"] for entry in told.values()} == {"dropped"}
    assert told.keys() == ASKING.keys() | {"typo"}
    assert all(entry["reason"] for entry in told.values())
    refused = await complete(client, mirostat=2, adaptations="refuse")
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "mirostat")
