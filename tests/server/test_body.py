"""Strict JSON in, or an error that names what is wrong."""

import json
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flm.errors import InvalidJSONError, InvalidRequestError
from flm.server.body import parse_body, parse_object
from flm.server.schemas.chat import ChatBody
from flm.server.schemas.completions import CompletionBody
from tests.server.conftest import HELLO

NOT_JSON = {
    "empty": b"",
    "blank": b" \n",
    "half": b'{"a": 1',
    "trailing": b"{} x",
    "two": b"{}{}",
    "bom": b"\xef\xbb\xbf{}",
    "utf-16": '{"a": 1}'.encode("utf-16"),
    "bad utf-8": b'{"a": "\xff"}',
    "raw surrogate": b'{"a": "\xed\xa0\x80"}',
    "lone high surrogate": b'{"a": "\\ud800"}',
    "lone low surrogate": b'{"a": "\\udc00"}',
    "surrogate key": b'{"\\ud800": 1}',
    "control character": b'{"a": "\x01"}',
    "nan": b'{"temperature": NaN}',
    "infinity": b'{"temperature": Infinity}',
    "minus infinity": b'{"temperature": -Infinity}',
    "overflow": b'{"temperature": 1e999}',
    "unknown overflow": b'{"x": [-1e999]}',
    "endless integer": b'{"seed": 1' + b"0" * 5000 + b"}",
    "key twice": b'{"seed": 1, "seed": 2}',
    "nested key twice": b'{"a": [{"b": 1, "b": 1}]}',
    "deep arrays": b"[" * 100_000,
    "deep objects": b'{"a":' * 100_000,
    "closed deep arrays": b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}",
    "single quotes": b"{'a': 1}",
    "comment": b"{} // x",
    "array": b"[]",
    "string": b'"x"',
    "number": b"5",
    "null": b"null",
    "form": b"a=1&b=2",
}


@pytest.mark.parametrize("raw", NOT_JSON.values(), ids=NOT_JSON.keys())
def test_not_a_json_object(raw: bytes) -> None:
    with pytest.raises(InvalidJSONError) as caught:
        parse_object(raw)
    assert caught.value.param is None
    assert len(caught.value.message) < 300


@pytest.mark.anyio
@pytest.mark.parametrize("raw", NOT_JSON.values(), ids=NOT_JSON.keys())
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions/plan"])
async def test_not_json_over_http(client: httpx.AsyncClient, raw: bytes, path: str) -> None:
    reply = await client.post(path, content=raw)
    assert reply.status_code == 400
    assert reply.json()["error"]["type"] == "invalid_request_error"
    assert reply.json()["error"]["code"] == "invalid_json"


@given(st.binary(max_size=64) | st.text(max_size=32).map(lambda text: text.encode()))
def test_any_bytes_parse_or_fail_as_invalid_json(raw: bytes) -> None:
    try:
        value = parse_object(raw)
    except InvalidJSONError:
        return
    assert value == json.loads(raw)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
CHAT_FIELDS = sorted(ChatBody.model_fields)


@given(st.dictionaries(st.sampled_from(CHAT_FIELDS), JSON, max_size=4))
def test_any_values_are_read_or_named(body: dict[str, Any]) -> None:
    try:
        parse_body(json.dumps({"messages": HELLO, **body}).encode(), ChatBody)
    except InvalidJSONError:
        assert "Infinity" in json.dumps(body)
    except InvalidRequestError as error:
        root = str(error.param).partition(".")[0].partition("[")[0]
        assert root in {*body, "messages"}


PATHS: list[tuple[dict[str, Any], str]] = [
    ({}, "messages"),
    ({"messages": None}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": {}}, "messages"),
    ({"messages": ["hi"]}, "messages[0]"),
    ({"messages": [*HELLO, None]}, "messages[1]"),
    ({"messages": [{"content": "hi"}]}, "messages[0].role"),
    ({"messages": [{"role": "wizard", "content": "hi"}]}, "messages[0].role"),
    ({"messages": [{"role": 5, "content": "hi"}]}, "messages[0].role"),
    ({"messages": [{"role": ["user"], "content": "hi"}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": {}}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content[0]"),
    (
        {"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]},
        "messages[0].content[0].text",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
        "messages[0].content[0].type",
    ),
    ({"messages": [{"role": "assistant"}]}, "messages[0].content"),
    ({"messages": [{"role": "assistant", "tool_calls": []}]}, "messages[0].content"),
    (
        {"messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": ""}}]}]},
        "messages[0].tool_calls[0].function.name",
    ),
    ({"messages": HELLO, "stop": ["a", 5]}, "stop[1]"),
    ({"messages": HELLO, "stop": 5}, "stop"),
    ({"messages": HELLO, "stop": ["x"] * 17}, "stop"),
    ({"messages": HELLO, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    ({"messages": HELLO, "logit_bias": {"x": 1}}, "logit_bias"),
    ({"messages": HELLO, "logit_bias": {"007": 1}}, "logit_bias"),
    ({"messages": HELLO, "logit_bias": {"-1": 1}}, "logit_bias"),
    ({"messages": HELLO, "logit_bias": {"٣": 1}}, "logit_bias"),
    ({"messages": HELLO, "logit_bias": {"5": 101}}, "logit_bias.5"),
    ({"messages": HELLO, "n": 0}, "n"),
    ({"messages": HELLO, "n": 129}, "n"),
    ({"messages": HELLO, "top_logprobs": 2}, "top_logprobs"),
    ({"messages": HELLO, "logprobs": False, "top_logprobs": 2}, "top_logprobs"),
    ({"messages": HELLO, "logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"messages": HELLO, "min_tokens": -1}, "min_tokens"),
    ({"messages": HELLO, "stop_token_ids": [True]}, "stop_token_ids[0]"),
    ({"messages": HELLO, "adaptations": "loud"}, "adaptations"),
    ({"messages": HELLO, "adaptations": 1}, "adaptations"),
    ({"messages": HELLO, "metadata": "x"}, "metadata"),
    ({"messages": HELLO, "max_tokens": 10**30}, "max_tokens"),
    ({"messages": HELLO, "response_format": {"type": "json"}}, "response_format.type"),
    ({"messages": HELLO, "response_format": "json_object"}, "response_format"),
    (
        {"messages": HELLO, "response_format": {"type": "json_object", "schema": "{}"}},
        "response_format.schema",
    ),
    (
        {"messages": HELLO, "response_format": {"type": "json_schema"}},
        "response_format.json_schema",
    ),
    (
        {"messages": HELLO, "response_format": {"type": "json_schema", "json_schema": {}}},
        "response_format.json_schema.schema",
    ),
    ({"messages": HELLO, "guided_json": "{}"}, "guided_json"),
    ({"messages": HELLO, "guided_regex": "a", "guided_choice": ["a"]}, "guided_choice"),
    ({"messages": HELLO, "structured_outputs": {}}, "structured_outputs"),
    ({"messages": HELLO, "structured_outputs": {"regex": 5}}, "structured_outputs.regex"),
    ({"messages": HELLO, "structured_outputs": {"choice": []}}, "structured_outputs.choice"),
    ({"messages": HELLO, "structured_outputs": {"xml": "a"}}, "structured_outputs.xml"),
    (
        {
            "messages": HELLO,
            "response_format": {"type": "json_object"},
            "structured_outputs": {"regex": "a"},
        },
        "structured_outputs.regex",
    ),
    ({"messages": HELLO, "continue_final_message": True}, "continue_final_message"),
    ({"messages": HELLO, "continue_final_message": "yes"}, "continue_final_message"),
    ({"messages": HELLO, "chat_template_kwargs": {"tools": 1}}, "chat_template_kwargs.tools"),
    (
        {"messages": HELLO, "chat_template_kwargs": {"enable_thinking": 1}},
        "chat_template_kwargs.enable_thinking",
    ),
]


@pytest.mark.parametrize(("body", "param"), PATHS, ids=[str(item)[:60] for item, _ in PATHS])
def test_errors_name_the_field(body: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parse_body(json.dumps(body).encode(), ChatBody)
    assert caught.value.param == param
    assert caught.value.code == "invalid_value"


PROMPTS: list[tuple[Any, str | None]] = [
    ("text", None),
    ("", None),
    (["one", "two"], None),
    ([1, 2], None),
    ([[1], [2, 3]], None),
    (None, "prompt"),
    ([], "prompt"),
    ({}, "prompt"),
    (5, "prompt"),
    ([None], "prompt[0]"),
    ([[]], "prompt[0]"),
    ([[1], "a"], "prompt[1]"),
    (["a", 1], "prompt[1]"),
    ([1, "a"], "prompt[1]"),
    ([True], "prompt[0]"),
    ([1.0], "prompt[0]"),
    ([-1], "prompt[0]"),
    ([[1], [-1]], "prompt[1][0]"),
]


@pytest.mark.parametrize(("prompt", "param"), PROMPTS, ids=[str(item) for item, _ in PROMPTS])
def test_prompts(prompt: Any, param: str | None) -> None:
    raw = json.dumps({"prompt": prompt}).encode()
    if param is None:
        given_prompts = parse_body(raw, CompletionBody).prompts
        expected = prompt if isinstance(prompt, list) else [prompt]
        expected = [expected] if isinstance(expected[0], int) else expected
        assert [list(p) if isinstance(p, tuple) else p for p in given_prompts] == expected
        return
    with pytest.raises(InvalidRequestError) as caught:
        parse_body(raw, CompletionBody)
    assert caught.value.param == param


@pytest.mark.parametrize("name", [name for name in CHAT_FIELDS if name != "messages"])
def test_null_is_absent(name: str) -> None:
    absent = parse_body(json.dumps({"messages": HELLO}).encode(), ChatBody)
    assert parse_body(json.dumps({"messages": HELLO, name: None}).encode(), ChatBody) == absent


@pytest.mark.anyio
@pytest.mark.parametrize("content_type", [None, "text/plain", "application/xml", "multipart/x"])
async def test_the_content_type_does_not_matter(
    client: httpx.AsyncClient, content_type: str | None
) -> None:
    headers = {} if content_type is None else {"content-type": content_type}
    raw = json.dumps({"messages": HELLO}).encode()
    reply = await client.post("/v1/chat/completions", content=raw, headers=headers)
    assert reply.status_code == 200


@pytest.mark.anyio
async def test_a_large_body_is_read_off_the_loop(client: httpx.AsyncClient) -> None:
    body = {"messages": HELLO, "metadata": {"x": "y" * 200_000}}
    reply = await client.post("/v1/chat/completions", json=body)
    assert reply.status_code == 200
    reply = await client.post("/v1/chat/completions", json={**body, "seed": True})
    assert reply.json()["error"]["param"] == "seed"
