"""More tokens at least than there may be: an error or a record, in every dialect."""

from typing import Any

import httpx
import pytest

HI: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}
OPTIONS = {"options": {"num_predict": 4}}
BODIES: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("/v1/chat/completions", HI, "max_tokens", {}),
    ("/v1/chat/completions", HI, "max_completion_tokens", {}),
    ("/v1/completions", {"prompt": "hi"}, "max_tokens", {}),
    ("/completion", {"prompt": "hi"}, "n_predict", {}),
    ("/v1/messages", HI, "max_tokens", {}),
    ("/v1/responses", {"input": "hi"}, "max_output_tokens", {}),
    ("/api/chat", HI, "options.num_predict", OPTIONS),
    ("/api/generate", {"prompt": "hi"}, "options.num_predict", OPTIONS),
]


@pytest.mark.parametrize(("path", "body", "limit", "fields"), BODIES)
def test_more_than_there_may_be(
    client: httpx.Client, path: str, body: dict[str, Any], limit: str, fields: dict[str, Any]
) -> None:
    body = {**body, "stream": False, **(fields or {limit: 4})}
    error = client.post(path, json={**body, "min_tokens": 5})
    assert error.status_code == 400
    assert f"min_tokens (5) is more than {limit} (4)." in error.text
    far = {"options": {"num_predict": 90_000}} if fields else {limit: 90_000}
    body = {**body, **far, "min_tokens": 5000}
    refused = client.post(path, json={**body, "adaptations": "refuse"})
    assert refused.status_code == 400
    assert "would be clamped" in refused.text
    if path == "/completion":
        return
    told = client.post(f"{path}/plan", json=body).json()["adaptations"]
    clamped = {entry["field"]: entry["applied"] for entry in told}
    assert clamped.keys() == {"min_tokens", limit}
    assert len({*clamped.values()}) == 1
