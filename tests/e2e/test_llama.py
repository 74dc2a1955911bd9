"""llama-server's endpoints and OpenAI's say the same, from one engine with one memory."""

import json
import threading
from typing import Any

import httpx
import pytest

from tests.server.conftest import events_of
from tests.support.app import RunningApp, wait_until

SAMPLED: dict[str, Any] = {"seed": 7, "temperature": 2.0, "top_k": 50, "top_p": 0.9, "min_p": 0.0}
PROMPT = "Once upon a time"


def post(client: httpx.Client, path: str, **body: Any) -> Any:
    reply = client.post(path, json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_a_completion_is_the_one_of_v1(client: httpx.Client) -> None:
    fields = {"prompt": PROMPT, **SAMPLED}
    theirs = post(client, "/v1/completions", **fields, max_tokens=12, logprobs=3)
    ours = post(client, "/completion", **fields, n_predict=12, n_probs=3, return_tokens=True)
    assert ours["content"] == theirs["choices"][0]["text"]
    expected = theirs["choices"][0]["logprobs"]["token_logprobs"]
    assert [entry["logprob"] for entry in ours["completion_probabilities"]] == expected
    assert len(ours["tokens"]) == ours["tokens_predicted"] == theirs["usage"]["completion_tokens"]
    assert ours["timings"]["prompt_n"] + ours["timings"]["cache_n"] == ours["tokens_evaluated"]
    with client.stream(
        "POST", "/completion", json={**fields, "n_predict": 12, "stream": True}
    ) as s:
        chunks = [json.loads(event) for event in events_of(s.read().decode())]
    assert "".join(chunk["content"] for chunk in chunks) == ours["content"]
    assert [token for chunk in chunks for token in chunk["tokens"]] == ours["tokens"]


def test_tokens_text_and_back(client: httpx.Client) -> None:
    text = "Hello <|im_end|> wörld 👩‍👩‍👧"
    for parse in (True, False):
        tokens = post(client, "/tokenize", content=text, parse_special=parse)["tokens"]
        assert post(client, "/detokenize", tokens=tokens)["content"] == text
        pieces = post(client, "/tokenize", content=text, parse_special=parse, with_pieces=True)[
            "tokens"
        ]
        assert [piece["id"] for piece in pieces] == tokens
        raw = b"".join(
            piece["piece"].encode() if isinstance(piece["piece"], str) else bytes(piece["piece"])
            for piece in pieces
        )
        assert raw.decode() == text
    one = post(client, "/completion", prompt=text, n_predict=0)
    tokens = post(client, "/tokenize", content=text, add_special=True)["tokens"]
    assert one["tokens_evaluated"] == len(tokens)
    mixed = post(client, "/completion", prompt=[*tokens[:3], "tail"], n_predict=0)
    tail = post(client, "/tokenize", content="tail")["tokens"]
    assert mixed["tokens_evaluated"] == 3 + len(tail)


def test_a_chat_through_its_template_is_the_chat(client: httpx.Client) -> None:
    chat = {"messages": [{"role": "user", "content": "hi"}]}
    prompt = post(client, "/apply-template", **chat)["prompt"]
    fields = {**SAMPLED, "ignore_eos": True}
    theirs = post(client, "/v1/chat/completions", **chat, **fields, max_tokens=8)
    ours = post(client, "/completion", prompt=prompt, **fields, n_predict=8)
    assert ours["content"] == theirs["choices"][0]["message"]["content"]
    assert ours["tokens_evaluated"] == theirs["usage"]["prompt_tokens"]
    assert ours["prompt"] == prompt


def test_a_prompt_read_without_a_reply_is_in_the_cache(client: httpx.Client) -> None:
    prompt = "This is read once and then found again. " * 8
    first = post(client, "/completion", prompt=prompt, n_predict=0)
    assert (first["content"], first["tokens_predicted"], first["stop_type"]) == ("", 0, "limit")
    again = post(client, "/completion", prompt=prompt, n_predict=1)
    assert 0 < again["tokens_cached"] == again["timings"]["cache_n"]
    never = post(client, "/completion", prompt=prompt, n_predict=1, cache_prompt=False)
    assert never["tokens_cached"] == 0


def test_a_bias_of_false_keeps_a_token_out(client: httpx.Client) -> None:
    fields = {"prompt": PROMPT, "temperature": 0, "n_predict": 1, "return_tokens": True}
    (best,) = post(client, "/completion", **fields)["tokens"]
    (other,) = post(client, "/completion", **fields, logit_bias=[[best, False]])["tokens"]
    assert other != best
    (forced,) = post(client, "/completion", **fields, logit_bias=[[best, False], [9, 1e6]])[
        "tokens"
    ]
    assert forced == 9


def test_nothing_brings_a_banned_token_back(client: httpx.Client) -> None:
    bans = [[token, False] for token in range(512)]
    flat = {"temperature": 1e300, "top_k": 0, "top_p": 1, "min_p": 0, "return_tokens": True}
    spared = [ban for ban in bans if ban[0] not in (9, 10)]
    fields = {"prompt": PROMPT, **SAMPLED, **flat, "n_predict": 8}
    assert set(post(client, "/completion", **fields, logit_bias=spared)["tokens"]) <= {9, 10}
    fields = {"prompt": PROMPT, **SAMPLED, "grammar": 'root ::= "yes"'}
    reply = client.post("/completion", json={**fields, "logit_bias": bans})
    assert reply.status_code == 400
    assert "No token can follow" in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    "constraint",
    [
        {"grammar": 'root ::= ("yes" | "no") "!"'},
        {"json_schema": {"enum": ["yes!", "no!"]}},
    ],
)
def test_grammars_are_enforced(client: httpx.Client, constraint: dict[str, Any]) -> None:
    reply = post(client, "/completion", prompt=PROMPT, **SAMPLED, **constraint, n_predict=30)
    assert reply["content"].strip('"') in ("yes!", "no!")
    assert reply["stop_type"] == "eos"
    wrong = client.post("/completion", json={"prompt": PROMPT, "grammar": "root ::= ("})
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "grammar")


def test_progress_adds_up_to_the_prompt(client: httpx.Client) -> None:
    body = {"prompt": "many words " * 130, "max_tokens": 1, "stream": True, "return_progress": True}
    reply = client.post("/v1/completions", json={**body, "cache_prompt": False})
    chunks = [json.loads(event) for event in events_of(reply.text)[:-1]]
    told = [chunk["prompt_progress"] for chunk in chunks if "prompt_progress" in chunk]
    assert len(told) > 1
    assert [item["processed"] for item in told] == sorted({item["processed"] for item in told})
    assert told[-1]["processed"] == told[-1]["total"]


def test_slots_show_what_runs(app: RunningApp, client: httpx.Client) -> None:
    total = client.get("/props").json()["total_slots"]
    assert [slot["is_processing"] for slot in client.get("/slots").json()] == [False] * total
    stop = threading.Event()

    def run() -> None:
        body = {"prompt": "x", "n_predict": 1500, "ignore_eos": True, "stream": True, "top_k": 3}
        with app.client() as own, own.stream("POST", "/completion", json=body) as reply:
            for _ in reply.iter_lines():
                if stop.is_set():
                    return

    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_until(lambda: client.get("/slots").json()[0]["next_token"]["n_decoded"] > 3)
        slots = client.get("/slots").json()
        assert [slot["is_processing"] for slot in slots] == [True, *[False] * (total - 1)]
        assert slots[0]["params"]["n_predict"] == 1500
        assert slots[0]["params"]["top_k"] == 3
    finally:
        stop.set()
        thread.join()
    wait_until(lambda: not any(slot["is_processing"] for slot in client.get("/slots").json()))


def test_a_huge_prompt_is_refused_with_a_count(client: httpx.Client) -> None:
    reply = client.post("/completion", json={"prompt": "word " * 400_000})
    error = reply.json()["error"]
    assert (reply.status_code, error["code"]) == (400, "context_length_exceeded")
    assert "at least" in error["message"]
