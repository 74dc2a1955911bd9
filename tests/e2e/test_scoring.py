"""Prompts scored the way evaluators do it: echo, log probabilities, nothing generated."""

from typing import Any

import httpx
import pytest

TEXTS = ("The quick brown fox", "naïve 👋 café\n\n  end", "x")
SCORE: dict[str, Any] = {"echo": True, "logprobs": 2, "max_tokens": 0}


def choices(client: httpx.Client, prompt: Any, **fields: Any) -> list[dict[str, Any]]:
    reply = client.post("/v1/completions", json={"prompt": prompt, **SCORE, **fields})
    assert reply.status_code == 200, reply.text
    found: list[dict[str, Any]] = reply.json()["choices"]
    return found


@pytest.mark.parametrize("text", TEXTS)
def test_the_legacy_shape(client: httpx.Client, text: str) -> None:
    (choice,) = choices(client, text)
    assert (choice["text"], choice["finish_reason"]) == (text, "length")
    logprobs = choice["logprobs"]
    assert set(logprobs) == {"tokens", "token_logprobs", "top_logprobs", "text_offset"}
    assert len({len(column) for column in logprobs.values()}) == 1
    assert logprobs["token_logprobs"][0] is None
    assert logprobs["top_logprobs"][0] is None
    assert logprobs["text_offset"][0] == 0
    rest = zip(
        logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True
    )
    for token, own, top in list(rest)[1:]:
        assert own <= 0
        # The two best, and the token itself where it is not among them.
        assert 2 <= len(top) <= 3
        assert top[token] == own
    for token, offset in zip(logprobs["tokens"], logprobs["text_offset"], strict=True):
        if not token.startswith("bytes:"):
            assert text[offset : offset + len(token)] == token


def test_texts_ids_and_lists_of_either_score_alike(client: httpx.Client) -> None:
    ids = [
        client.post("/tokenize", json={"content": text, "add_special": True}).json()["tokens"]
        for text in TEXTS
    ]
    alone = [choices(client, text)[0] for text in TEXTS]
    by_ids = [choices(client, item)[0] for item in ids]
    assert by_ids == alone
    for prompts in (list(TEXTS), ids):
        together = choices(client, prompts)
        assert [choice.pop("index") for choice in together] == [0, 1, 2]
        assert together == [{k: v for k, v in item.items() if k != "index"} for item in alone]


def test_a_score_does_not_depend_on_the_cache_or_on_a_token_more(client: httpx.Client) -> None:
    text = TEXTS[0] * 20
    first = choices(client, text)[0]["logprobs"]
    assert choices(client, text)[0]["logprobs"] == first
    longer = choices(client, text, max_tokens=1, temperature=0)[0]["logprobs"]
    assert {name: column[:-1] for name, column in longer.items()} == first
    assert len(longer["tokens"]) == len(first["tokens"]) + 1


def test_a_streamed_score_is_the_whole_one(client: httpx.Client) -> None:
    (whole,) = choices(client, TEXTS[1])
    fields = {"prompt": TEXTS[1], **SCORE, "stream": True}
    with client.stream("POST", "/v1/completions", json=fields) as reply:
        lines = [line for line in reply.iter_lines() if line.startswith("data: {")]
    chunks = [httpx.Response(200, content=line[6:]).json()["choices"][0] for line in lines]
    assert "".join(chunk["text"] for chunk in chunks) == whole["text"]
    assert chunks[0]["logprobs"] == whole["logprobs"]
