"""tests/support/server.py can fail, and says why; it ends the server that it started."""

import os
import signal
import sys

import httpx
import psutil
import pytest

from tests.support.server import running_server

HEALTHY = """
import http.server, signal, sys, os
print("arguments", sys.argv[1:], os.environ.get("FLM_TEST_WORD"))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(STATUS)
        self.end_headers()
    def log_message(self, *_):
        pass
server = http.server.HTTPServer((sys.argv[-3], int(sys.argv[-1])), Handler)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
server.serve_forever()
"""


def command(source: str) -> list[str]:
    return [sys.executable, "-c", source]


def test_it_waits_for_health_and_ends_the_process() -> None:
    with running_server(
        ["a model"], {"FLM_TEST_WORD": "word"}, command=command(HEALTHY.replace("STATUS", "200"))
    ) as server:
        assert httpx.get(f"{server.base_url}/health", trust_env=False).status_code == 200
        assert psutil.pid_exists(server.pid)
        assert server.base_url == f"http://127.0.0.1:{server.port}"
        arguments = ["a model", "--host", "127.0.0.1", "--port", str(server.port)]
        assert server.log() == f"arguments {arguments} word\n"
    assert server.process.returncode == 7
    assert "FLM_TEST_WORD" not in os.environ


def test_a_test_may_end_the_server_itself() -> None:
    source = HEALTHY.replace("STATUS", "200")
    with running_server([], command=command(source)) as server:
        assert server.stop(signal.SIGTERM) == 7
        assert server.stop() == 7


def test_an_early_end_shows_the_log() -> None:
    source = "import sys; print('no such model'); sys.exit(3)"
    with (
        pytest.raises(AssertionError, match=r"status 3:\nno such model"),
        running_server([], command=command(source)),
    ):
        pytest.fail("it cannot be ready")


def test_a_server_that_is_never_ready_is_given_up_and_ended() -> None:
    source = "import os; print(os.getpid(), flush=True)\n" + HEALTHY.replace("STATUS", "503")
    with (
        pytest.raises(AssertionError, match=r"not ready within 1\.5 s") as caught,
        running_server([], command=command(source), timeout_s=1.5),
    ):
        pytest.fail("it cannot be ready")
    pid = int(str(caught.value).splitlines()[1])
    assert not psutil.pid_exists(pid)


def test_one_that_ignores_the_signal_is_killed_and_reported() -> None:
    source = HEALTHY.replace("STATUS", "200").replace("lambda *_: sys.exit(7)", "signal.SIG_IGN")
    with running_server([], command=command(source)) as server:
        with pytest.raises(AssertionError, match=r"did not end within 0\.2 s"):
            server.stop(timeout_s=0.2)
        assert server.process.poll() == -signal.SIGKILL
