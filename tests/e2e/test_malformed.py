"""Whatever arrives: an OpenAI error with a 4xx, never a 500, never a hang, and no harm done."""

import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from flm.server.schemas.chat import ChatBody
from flm.server.schemas.completions import CompletionBody
from tests.e2e.conftest import DEFAULTS
from tests.e2e.wrong_values import CHAT_WRONG, COMPLETION_WRONG, HELLO, OUT_OF_RANGE
from tests.support.app import RunningApp
from tests.support.replies import CHAT, COMPLETIONS, whole

MIB = 1024 * 1024
PATHS = (CHAT, COMPLETIONS)
ALL_PATHS = (*PATHS, f"{CHAT}/plan", f"{COMPLETIONS}/plan")
NORMAL: dict[str, Any] = {"messages": HELLO, "seed": 4, "max_tokens": 8}
# Sent along with what is wrong: a refused request must not leave it behind.
MARK = {"temperature": 0.125, "repeat_last_n": 7}


@pytest.fixture(autouse=True)
def unharmed(app: RunningApp, client: httpx.Client) -> Iterator[None]:
    """Afterwards the server answers as before and no setting has been touched."""
    told = whole(client, **NORMAL, cache_prompt=False)
    yield
    assert untouched(client)
    assert whole(client, **NORMAL, cache_prompt=False) == told


def untouched(client: httpx.Client) -> bool:
    entries = client.get("/v1/settings").json()["settings"]
    return all(entry["set_by"] is None for entry in entries)


def body_for(path: str, **fields: Any) -> dict[str, Any]:
    base: dict[str, Any] = {"messages": HELLO} if path.startswith(CHAT) else {"prompt": "hi"}
    return {**base, "max_tokens": 2, **MARK, **fields}


def error_of(reply: httpx.Response, status: int = 400) -> dict[str, Any]:
    """The error of a reply, which must be the envelope and nothing else."""
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["x-request-id"]
    data = reply.json()
    assert list(data) == ["error"]
    error: dict[str, Any] = data["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert error["message"]
    return error


# --- what is no JSON object --------------------------------------------------------------------

DEEP = b"[" * 100_000
NO_OBJECTS: dict[str, bytes] = {
    "empty": b"",
    "white space": b" \n\t ",
    "broken": b'{"messages": [',
    "trailing comma": b'{"messages": [],}',
    "single quotes": b"{'messages': []}",
    "trailing garbage": b'{"messages": []} x',
    "two objects": b"{}{}",
    "array": b"[]",
    "string": b'"messages"',
    "number": b"1",
    "null": b"null",
    "true": b"true",
    "binary": bytes(range(256)) * 16,
    "zeros": b"\0" * 1000,
    "utf-16": json.dumps({"messages": []}).encode("utf-16"),
    "latin-1": '{"messages": [{"role": "user", "content": "ü"}]}'.encode("latin-1"),
    "overlong utf-8": b'{"prompt": "\xc0\xaf"}',
    "byte order mark": b"\xef\xbb\xbf{}",
    "lone surrogate bytes": b'{"prompt": "\xed\xa0\x80"}',
    "deep arrays": DEEP,
    "deep arrays in a field": b'{"prompt": ' + DEEP + b"]" * 100_000 + b"}",
    "deep objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "NaN": b'{"prompt": "hi", "temperature": NaN}',
    "Infinity": b'{"prompt": "hi", "temperature": Infinity}',
    "-Infinity": b'{"prompt": "hi", "temperature": -Infinity}',
    "1e999": b'{"prompt": "hi", "temperature": 1e999}',
    "-1e999 deep": b'{"prompt": "hi", "metadata": {"a": [-1e999]}}',
    "a key twice": b'{"prompt": "hi", "prompt": "ho"}',
    "lone surrogate": rb'{"prompt": "\ud800"}',
    "lone surrogate key": rb'{"prompt": "hi", "\udc00": 1}',
    "swapped surrogates": rb'{"prompt": "\udc00\ud800"}',
    "control character": b'{"prompt": "a\x01b"}',
    "leading zero": b'{"prompt": "hi", "seed": 01}',
    "hexadecimal": b'{"prompt": "hi", "seed": 0x10}',
    "comment": b'{"prompt": "hi" /* */}',
    "form": b"prompt=hi&max_tokens=2",
    "multipart": b'--x\r\nContent-Disposition: form-data; name="prompt"\r\n\r\nhi\r\n--x--',
    "gzip": b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xabV*(\xca\xcf-(Q\xb2RP\xca\xc8T",
}


@pytest.mark.parametrize("name", NO_OBJECTS)
def test_what_is_no_json_object(client: httpx.Client, name: str) -> None:
    for path in ALL_PATHS:
        error = error_of(client.post(path, content=NO_OBJECTS[name]))
        assert error["type"] == "invalid_request_error"
        assert (error["code"], error["param"]) == ("invalid_json", None)


@pytest.mark.parametrize("content_type", ["text/plain", "", "application/xml", "multipart/x; y"])
def test_any_content_type_is_read_as_json(client: httpx.Client, content_type: str) -> None:
    headers = {"content-type": content_type}
    reply = client.post(COMPLETIONS, content=b'{"prompt":"hi","max_tokens":1}', headers=headers)
    assert reply.status_code == 200, reply.text
    error_of(client.post(COMPLETIONS, content=b"<xml/>", headers=headers))


# --- fields of a wrong type --------------------------------------------------------------------

WRONG = {CHAT: CHAT_WRONG, COMPLETIONS: COMPLETION_WRONG}
FIELDS = [(path, name) for path, table in WRONG.items() for name in table]


def test_the_tables_know_every_field() -> None:
    assert set(CHAT_WRONG) == set(ChatBody.model_fields)
    assert set(COMPLETION_WRONG) == set(CompletionBody.model_fields)


@pytest.mark.parametrize(("path", "name"), FIELDS)
def test_a_field_that_cannot_be_read_is_named(client: httpx.Client, path: str, name: str) -> None:
    for value in WRONG[path][name]:
        for suffix, stream in (("", False), ("", True), ("/plan", False)):
            fields = {"stream": stream, name: value}
            reply = client.post(f"{path}{suffix}", content=json.dumps(body_for(path, **fields)))
            assert reply.status_code == 400, (value, reply.text)
            error = error_of(reply)
            assert error["type"] == "invalid_request_error", value
            assert error["code"] == "invalid_value", (value, error)
            assert str(error["param"]).startswith(name), (value, error)


@pytest.mark.parametrize(("path", "name"), FIELDS)
def test_null_is_absent(client: httpx.Client, path: str, name: str) -> None:
    reply = client.post(f"{path}/plan", json=body_for(path, **{name: None}))
    if name in ("messages", "prompt"):
        assert error_of(reply)["param"] == name
    else:
        assert reply.status_code == 200, reply.text


def test_a_required_field_that_is_absent_is_named(client: httpx.Client) -> None:
    for path, name in ((CHAT, "messages"), (COMPLETIONS, "prompt")):
        error = error_of(client.post(path, json=MARK))
        assert (error["code"], error["param"]) == ("invalid_value", name)


def test_an_unknown_model_is_named_and_nothing_else_is_taken(client: httpx.Client) -> None:
    for name in ("gpt-4o", "", "../../etc/passwd", "/etc/passwd", "tiny ", "x" * 100_000, "\u0000"):
        for path in ALL_PATHS:
            error = error_of(client.post(path, json=body_for(path, model=name)), 404)
            assert error["type"] == "invalid_request_error"
            assert (error["code"], error["param"]) == ("model_not_found", "model")
            assert "tiny" in error["message"]
            assert len(error["message"]) < 1000


# --- values that are ignored -------------------------------------------------------------------


@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_a_finite_value_out_of_range_is_ignored_and_recorded(
    client: httpx.Client, name: str
) -> None:
    told = whole(client, **NORMAL, cache_prompt=False)
    for value in OUT_OF_RANGE[name]:
        reply = whole(client, **NORMAL, cache_prompt=False, **{name: value})
        assert reply.choices == told.choices
        (entry,) = reply.adaptations
        assert (entry["field"], entry["action"], entry["asked"]) == (name, "dropped", value)
        assert "applied" not in entry
        assert str(DEFAULTS[name]) in entry["reason"]
        assert whole(client, **NORMAL, adaptations="silent", **{name: value}).adaptations == []
        refused = {**NORMAL, "adaptations": "refuse", name: value}
        assert error_of(client.post(CHAT, json=refused))["param"] == name


def test_extreme_but_legal_values_give_a_reply(client: httpx.Client) -> None:
    extremes: list[dict[str, Any]] = [
        {"temperature": 1e308},
        {"temperature": 5e-324},
        {"temperature": 1e-30, "top_k": 2**63 - 1},
        {"top_p": 0},
        {"min_p": 1},
        {"repetition_penalty": 1e308},
        {"repetition_penalty": 5e-324},
        {"frequency_penalty": 1e308, "presence_penalty": 1e308},
        {"repeat_last_n": 2**63 - 1, "repetition_penalty": 1e-300},
        {"logit_bias": {str(index): -100 for index in range(512)}},
        {"seed": 2**63 - 1},
        {"seed": -(2**63)},
        {"max_tokens": 2**63 - 1, "stop_token_ids": list(range(512))},
        {"min_tokens": 3, "max_tokens": 3, "stop_token_ids": list(range(3, 512))},
        {"n": 80, "max_tokens": 1},
        {"stop": ["x" * 100_000] * 16},
        {"user": "u" * 100_000, "metadata": {str(index): [{}] for index in range(10_000)}},
        {f"unknown_{index}": index for index in range(3000)},
        {"chat_template_kwargs": {"x": [[[[{}]]]]}},
    ]
    for fields in extremes:
        reply = whole(client, **{**NORMAL, **fields})
        assert all(choice.finish_reason in ("stop", "length") for choice in reply.choices), fields
        client.delete("/v1/settings")


def test_more_choices_than_the_server_takes_are_refused(client: httpx.Client) -> None:
    for fields in ({"n": 81}, {"n": 128}):
        assert error_of(client.post(CHAT, json=body_for(CHAT, **fields)))["param"] == "n"
    prompts = {"prompt": ["hi"] * 200}
    error_of(client.post(COMPLETIONS, json=body_for(COMPLETIONS, **prompts)))


# --- the outside of a request ------------------------------------------------------------------


def test_unknown_paths(client: httpx.Client) -> None:
    paths = ("/v1", "/v1/", "/v1/chat", "/v1/chat/completions/", "/v2/models", "/%00", "/v1/%ff")
    for path in (*paths, "/v1/embeddings", "/..%2f..%2fetc/passwd", "/" + "x" * 5000):
        for method in ("GET", "POST"):
            error = error_of(client.request(method, path), 404)
            assert error["type"] == "invalid_request_error"
            assert (error["code"], error["param"]) == ("not_found", None)


@pytest.mark.parametrize(
    ("path", "allowed"),
    [(path, {"POST"}) for path in ALL_PATHS]
    + [("/v1/settings", {"GET", "DELETE"}), ("/v1/models", {"GET"}), ("/health", {"GET", "HEAD"})],
)
def test_wrong_methods(client: httpx.Client, path: str, allowed: set[str]) -> None:
    for method in ("GET", "PUT", "PATCH", "DELETE", "POST", "TRACE", "OPTIONS", "BREW"):
        if method in allowed:
            continue
        reply = client.request(method, path)
        error = error_of(reply, 405)
        assert error["type"] == "invalid_request_error"
        assert (error["code"], error["param"]) == ("method_not_allowed", None)
        assert set(reply.headers["allow"].split(", ")) == allowed


def test_an_unknown_model_page(client: httpx.Client) -> None:
    for name in ("nope", "a/b:c", "%00", "x" * 4000):
        assert error_of(client.get(f"/v1/models/{name}"), 404)["code"] == "model_not_found"
        reply = client.get("/v1/settings", params={"model": name})
        assert error_of(reply, 404)["code"] == "model_not_found"
        reply = client.delete("/v1/settings", params={"model": name})
        assert error_of(reply, 404)["code"] == "model_not_found"


def lazy_body(num_bytes: int) -> Iterator[bytes]:
    yield b'{"prompt": "'
    for _ in range(num_bytes // MIB):
        yield b"x" * MIB


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/completions/plan"])
def test_a_body_of_257_mib(client: httpx.Client, declared: bool, path: str) -> None:
    length = 257 * MIB + len(b'{"prompt": "')
    headers = {"content-length": str(length)} if declared else {}
    error = error_of(client.post(path, content=lazy_body(257 * MIB), headers=headers), 413)
    assert error["type"] == "invalid_request_error"
    assert (error["code"], error["param"]) == ("too_large", None)


def test_a_large_body_within_the_limit_is_judged_by_its_content(client: httpx.Client) -> None:
    body = b'{"prompt": "' + b"word " * (4 * MIB // 5) + b'"}'
    error = error_of(client.post(COMPLETIONS, content=body))
    assert error["code"] == "context_length_exceeded"


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"GET\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\xaa" * 200,
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: abc\r\n\r\n{}",
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n{}",
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_no_http_ends_the_connection(app: RunningApp, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", int(app.url.rpartition(":")[2])), 30) as peer:
        peer.sendall(sent)
        peer.shutdown(socket.SHUT_WR)
        received = b""
        while part := peer.recv(65536):
            received += part
    assert received == b"" or received.startswith(b"HTTP/1.1 4")


def test_a_body_that_never_ends_holds_nobody_up(app: RunningApp, client: httpx.Client) -> None:
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n" + b'{"pro'
    with socket.create_connection(("127.0.0.1", int(app.url.rpartition(":")[2])), 30) as peer:
        peer.sendall(head)
        assert whole(client, **NORMAL).text
