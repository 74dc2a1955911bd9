"""flm run: the dialogue with a server that is already there."""

import io
import json
import sys

import httpx
import pytest

from flm.cli.chat import ChatClient, Repl, base_url
from flm.errors import ConfigError, FlmError, InvalidRequestError, UnavailableError
from tests.cli.conftest import invoke, spawn


def sse(*events):
    return ": waiting\n\n" + "".join(f"data: {json.dumps(event)}\n\n" for event in events)


def delta(**fields):
    return {"choices": [{"index": 0, "delta": fields}]}


class Server:
    """Answers like flm would; ``replies`` are the event streams of the next requests."""

    def __init__(self, *replies, health=200):
        self.replies = list(replies)
        self.health = health
        self.bodies = []

    def model(self, name):
        if name in ("tiny:1m", "org/tiny:a b.gguf"):
            return httpx.Response(200, json={"id": name})
        error = {"message": f"No model {name!r}. Available: tiny:1m."}
        return httpx.Response(404, json={"error": error})

    def __call__(self, request):
        if request.url.path == "/health":
            return httpx.Response(self.health, json={"status": "ok"})
        if request.url.path.startswith("/v1/models/"):
            return self.model(request.url.path.removeprefix("/v1/models/"))
        self.bodies.append(json.loads(request.content))
        reply = self.replies.pop(0)
        return reply if isinstance(reply, httpx.Response) else httpx.Response(200, text=reply)


HELLO = sse(
    delta(role="assistant"), delta(content="Hel"), delta(content="lo"), {"choices": []}
) + "data: [DONE]\n\n"  # fmt: skip


def client(server, model=None):
    return ChatClient("http://test", model, transport=httpx.MockTransport(server))


def talk(monkeypatch, server, *lines, model=None):
    """Run the dialogue over lines that come from a pipe."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(line + "\n" for line in lines)))
    repl = Repl(client(server, model))
    repl.loop()
    return repl


def test_a_reply_is_printed_and_remembered(monkeypatch, capsys):
    server = Server(HELLO, HELLO)
    talk(monkeypatch, server, "Hi", "", "And you?", "/bye", "never sent")
    assert capsys.readouterr().out == "Hello\nHello\n"
    assert server.bodies[1]["messages"] == [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "And you?"},
    ]
    assert server.bodies[0]["stream"] is True
    assert "model" not in server.bodies[0]


def test_the_end_of_the_input_ends_the_chat(monkeypatch, capsys):
    talk(monkeypatch, Server())
    assert capsys.readouterr().out == ""


def test_a_model_is_asked_for_by_name(monkeypatch):
    server = Server(HELLO)
    talk(monkeypatch, server, "Hi", model="tiny:1m")
    assert server.bodies[0]["model"] == "tiny:1m"


def test_settings_travel_with_the_request(monkeypatch):
    server = Server(HELLO)
    lines = ["/set temp 0", "/set topk 5", "/set sys-msg Be  brief.", "/set r-eff low", "Hi"]
    talk(monkeypatch, server, *lines)
    body = server.bodies[0]
    assert (body["temperature"], body["top_k"], body["reasoning_effort"]) == (0.0, 5, "low")
    assert body["messages"][0] == {"role": "system", "content": "Be  brief."}


def test_clear_forgets_all_but_the_system_message(monkeypatch):
    server = Server(HELLO, HELLO)
    talk(monkeypatch, server, "/set sys-msg S", "Hi", "/clear", "Hi again")
    roles = [message["role"] for message in server.bodies[1]["messages"]]
    assert roles == ["system", "user"]


@pytest.mark.parametrize("line", ["/set", "/set temp", "/set temp warm", "/set x 1", "/unknown"])
def test_a_wrong_command_is_an_error(monkeypatch, line):
    with pytest.raises(ConfigError):
        talk(monkeypatch, Server(), line)


def test_reasoning_goes_to_stderr(monkeypatch, capsys):
    server = Server(sse(delta(reasoning_content="hm"), delta(content="yes")))
    repl = talk(monkeypatch, server, "Hi")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("yes\n", "hm\n")
    assert repl.messages[-1]["content"] == "yes"


def test_the_servers_own_error_is_shown_and_the_message_not_kept(monkeypatch):
    error = {"error": {"message": "Max length reached!", "type": "model_error"}}
    repl = Repl(client(Server(httpx.Response(400, json=error))))
    with pytest.raises(InvalidRequestError, match="Max length reached!"):
        repl.ask("Hi")
    assert repl.messages == []


def test_an_error_in_the_stream_is_shown(monkeypatch):
    events = sse(delta(content="Hel"), {"error": {"message": "The server is closing."}})
    with pytest.raises(UnavailableError, match="closing"):
        Repl(client(Server(events))).ask("Hi")


@pytest.mark.parametrize(
    "reply",
    [
        httpx.Response(500, text="<html>"),
        httpx.Response(500, json=[]),
        "data: {broken\n\n",
        "data: 3\n\n",
        sse({"choices": [3]}),
        sse({"error": "text"}),
    ],
)
def test_a_server_that_talks_nonsense_is_no_crash(reply):
    with pytest.raises(FlmError):
        Repl(client(Server(reply))).ask("Hi")


def test_a_connection_that_breaks():
    def broken(request):
        raise httpx.ReadError("reset")

    with pytest.raises(UnavailableError, match="broke"):
        Repl(client(broken)).ask("Hi")


def test_ctrl_c_ends_the_reply_and_on_a_terminal_not_the_chat(monkeypatch, capsys):
    def interrupted(messages, settings):
        yield from ()
        raise KeyboardInterrupt

    chat = client(Server())
    monkeypatch.setattr(chat, "stream", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Repl(chat).ask("Hi")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    repl = Repl(chat)
    repl.ask("Hi")
    assert [message["role"] for message in repl.messages] == ["user", "assistant"]


def test_health_decides_who_is_there():
    client(Server()).require_server()
    with pytest.raises(UnavailableError, match="not ready"):
        client(Server(health=503)).require_server()
    with pytest.raises(ConfigError, match="not flm"):
        client(Server(health=404)).require_server()


def test_no_server_says_how_to_start_one():
    outcome = invoke("run", "smollm2:135m", "--port", "9")
    assert outcome.code == 1
    assert "http://127.0.0.1:9" in outcome.err
    assert "flm serve smollm2:135m" in outcome.err
    assert spawn("run", "--port", "9", stdin="Hi\n").code == 1


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:1"),
        ("0.0.0.0", "http://127.0.0.1:1"),
        ("::", "http://[::1]:1"),
        ("::1", "http://[::1]:1"),
        ("box", "http://box:1"),
    ],
)
def test_base_url(host, url):
    assert base_url(host, 1) == url


def test_line_breaks_that_only_unicode_knows_do_not_cut_an_event(capsys):
    text = "a\u2028b\x85c\u2029d\x0be"
    reply = f"data: {json.dumps(delta(content=text), ensure_ascii=False)}\r\n\r\n"
    repl = Repl(client(Server(reply)))
    repl.ask("Hi")
    assert repl.messages[-1]["content"] == text


def test_a_reply_in_many_small_chunks():
    def chunks():
        for byte in HELLO.encode():
            yield bytes([byte])

    repl = Repl(client(lambda request: httpx.Response(200, content=chunks())))
    repl.ask("Hi")
    assert repl.messages[-1]["content"] == "Hello"


@pytest.mark.parametrize("name", ["tiny:1m", "org/tiny:a b.gguf", None])
def test_the_model_is_looked_for_before_anything_is_said(name):
    client(Server(), name).require_model()


@pytest.mark.parametrize("name", ["tiny:2m", "", "?", "#x"])
def test_an_unknown_model_is_told_at_once(name):
    with pytest.raises(InvalidRequestError, match="Available: tiny:1m"):
        client(Server(), name).require_model()


def test_a_connection_that_breaks_at_the_model():
    def broken(request):
        raise httpx.ReadError("reset")

    with pytest.raises(UnavailableError, match="broke"):
        client(broken, "tiny:1m").require_model()


def test_help_speaks_of_the_server_and_not_of_listening():
    out = " ".join(invoke("run", "--help").out.split())
    assert "Address of the server." in out
    assert "Port of the server." in out
    assert "isten" not in out
