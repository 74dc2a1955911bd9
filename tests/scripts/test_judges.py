"""The runner of the judges, with judges of our own; the real ones need the network."""

import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import judge_main
import pytest
from judgelib import checks, environment
from judgelib.checks import JudgeError, Server, documented
from judgelib.environment import Judge, UnavailableError, ensure, judges_in
from judgelib.run import Verdict as Found
from judgelib.run import private_environment, summary

from tests.support.wheels import pip_environment, write_wheel

ROOT = Path(__file__).parents[2]
JUDGES = ROOT / "scripts" / "judges"

# It stands in the place of a client: what it finds is told by what it imports and is asked.
SCRIPT = """
import sys
sys.path.insert(0, {shared!r})
from judgelib.checks import Server, main

def first(server: Server) -> None:
    '''The first thing.'''
    import thing
    assert thing.VERSION == {version!r}, "another thing"

def second(server: Server) -> None:
    '''The second thing.'''
    assert server.url == {url!r}

sys.exit(main(first, second))
"""


class Handler(BaseHTTPRequestHandler):
    """Takes what a judge asks before each check."""

    def do_DELETE(self) -> None:
        self.server.seen.append(self.path)  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.seen = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def url(server: ThreadingHTTPServer) -> str:
    return f"http://127.0.0.1:{server.server_port}/v1"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout without judges, and a package index that has thing 1 and nothing else."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    write_wheel(wheels, "thing", "1", {"thing.py": b"VERSION = '1'\n"})
    for name, value in pip_environment(wheels).items():
        monkeypatch.setenv(name, value)
    root = tmp_path / "a check out"
    (root / "scripts" / "judges" / "requirements").mkdir(parents=True)
    return root


def add_judge(root: Path, name: str, url: str, *, needs: str, expects: str = "1") -> Judge:
    folder = root / "scripts" / "judges"
    script = SCRIPT.format(shared=str(JUDGES), version=expects, url=url)
    (folder / f"{name}.py").write_text(script)
    (folder / "requirements" / f"{name}.txt").write_text(f"{needs}\n")
    return next(judge for judge in judges_in(root) if judge.name == name)


def test_one_judge_cannot_stop_another(
    root: Path, url: str, server: ThreadingHTTPServer, capfd: pytest.CaptureFixture[str]
) -> None:
    add_judge(root, "a_good", url, needs="thing==1")
    add_judge(root, "b_absent", url, needs="thing==2")
    add_judge(root, "c_unhappy", url, needs="thing==1", expects="3")
    assert judge_main.main(["--url", url], root) == 1
    out = capfd.readouterr().out
    assert "ok      The first thing\nok      The second thing\n" in out
    assert "FAILED  The first thing: AssertionError: another thing" in out
    *_, good, absent, unhappy, last = out.splitlines()
    assert good.startswith("a_good     passed   2 passed, 0 failed")
    assert absent.startswith("b_absent   skipped  ERROR: ")
    assert "thing==2" in absent
    assert unhappy.startswith("c_unhappy  failed   1 passed, 1 failed")
    assert last == "judges: 1 passed, 1 failed, 1 skipped"
    # Settings stick, so each check begins by restoring them.
    assert server.seen == ["/v1/settings"] * 4  # type: ignore[attr-defined]


def test_a_judge_that_is_absent_fails_nothing(
    root: Path, url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    judge = add_judge(root, "absent", url, needs="thing==2")
    assert judge_main.main(["--url", url], root) == 0
    assert capfd.readouterr().out.endswith("judges: 0 passed, 0 failed, 1 skipped\n")
    assert not judge.venv.exists()


def test_a_judge_without_a_verdict_has_failed(root: Path, url: str) -> None:
    judge = add_judge(root, "silent", url, needs="thing==1")
    judge.script.write_text("")
    assert judge_main.main(["--url", url], root) == 1


def test_an_environment_is_kept_until_it_is_to_hold_something_else(root: Path, url: str) -> None:
    judge = add_judge(root, "good", url, needs="thing==1")
    ensure(judge)
    kept = judge.venv / "kept"
    kept.touch()
    ensure(judge)
    assert kept.exists()
    judge.requirements.write_text("thing<2\n")
    ensure(judge)
    assert not kept.exists()
    # Of this process's own packages it sees none.
    probe = [judge.python, "-c", "import thing, pytest"]
    result = subprocess.run(probe, capture_output=True, text=True, check=False)
    assert "No module named 'pytest'" in result.stderr


def test_an_environment_that_was_cut_short_is_made_again(root: Path, url: str) -> None:
    judge = add_judge(root, "good", url, needs="thing==1")
    judge.venv.mkdir(parents=True)
    (judge.venv / "leftover").touch()
    ensure(judge)
    assert not (judge.venv / "leftover").exists()
    assert judge.stamp.exists()


def test_an_install_that_hangs_is_given_up(
    root: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = add_judge(root, "good", url, needs="thing==1")
    monkeypatch.setattr(environment, "INSTALL_TIMEOUT_S", 0.0)
    with pytest.raises(UnavailableError, match="timed out"):
        ensure(judge)


def test_a_name_that_no_judge_has_is_an_error(
    root: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    add_judge(root, "good", url, needs="thing==1")
    with pytest.raises(SystemExit) as caught:
        judge_main.main(["godo", "--url", url], root)
    assert caught.value.code == 2
    assert "there is no judge godo; there are good" in capsys.readouterr().err


def test_every_example_of_the_page_is_run_by_a_judge() -> None:
    page = (ROOT / "docs" / "clients.md").read_text("utf-8")
    scripts = "".join(path.read_text("utf-8") for path in JUDGES.glob("*.py"))
    shown = re.findall(r"^## (.+)$", page, re.MULTILINE)
    assert sorted(shown) == sorted(re.findall(r'documented\("(.+?)"\)', scripts))
    for heading in shown:
        assert documented(heading).__doc__


def test_an_example_that_prints_something_else_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "_ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    page = "\n## {0}\n\n```python\nprint('http://127.0.0.1:52625/v1')\n```\n\n```text\n{1}\n```\n"
    text = page.format("Right", "http://x/v1") + page.format("Wrong", "http://y/v1")
    (tmp_path / "docs" / "clients.md").write_text(text)
    documented("Right")(Server("http://x/v1"))
    with pytest.raises(AssertionError, match="not 'http://y/v1"):
        documented("Wrong")(Server("http://x/v1"))
    with pytest.raises(JudgeError, match="no example under Absent"):
        documented("Absent")


def test_every_judge_pins_all_its_packages_and_no_torch() -> None:
    for judge in judges_in(ROOT):
        assert judge.script.exists()
        lines = judge.requirements.read_text("utf-8").splitlines()
        assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)
        # The plain torch of the index is the CUDA build, gigabytes of it.
        assert not [line for line in lines if line.startswith(("torch", "nvidia"))]


def test_a_client_is_led_nowhere_else() -> None:
    env = {
        "OPENAI_BASE_URL": "x",
        "https_proxy": "x",
        "NO_PROXY": "x",
        "FLM_PORT": "1",
        "PATH": "p",
    }
    assert private_environment(env) == {"PATH": "p"}


def test_the_summary_lines_up() -> None:
    verdicts = [Found("a", "passed", "1 passed"), Found("long", "skipped", "why")]
    assert summary(verdicts).splitlines() == [
        "a     passed   1 passed",
        "long  skipped  why",
        "judges: 1 passed, 0 failed, 1 skipped",
    ]


# A program that can be judged: it says where it listens, is healthy, and notes how it ends.
PROGRAM = """#!{python}
import http.server, pathlib, signal, sys, threading
here = pathlib.Path(__file__).parent
(here / "arguments").write_text(" ".join(sys.argv[1:]))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    do_DELETE = do_GET
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
def end(*_):
    (here / "ended").touch()
    threading.Thread(target=server.shutdown).start()
signal.signal(signal.SIGTERM, end)
print(f"OpenAI base URL: http://127.0.0.1:{{server.server_port}}/v1", flush=True)
server.serve_forever()
"""


WAITING = """
import sys, time
from judgelib.checks import Server, main

def check(server: Server) -> None:
    print("judging", flush=True)
    time.sleep(600)

sys.exit(main(check))
"""


def alone(root: Path, program: str, judge: str | None = None) -> Path:
    """A judge that gets no URL, in a checkout whose program is ``program``."""
    folder = root / "scripts" / "judges"
    shutil.copytree(JUDGES / "judgelib", folder / "judgelib")
    script = folder / "alone.py"
    plain = SCRIPT.format(shared=str(folder), version="1", url="unknown")
    script.write_text(plain if judge is None else judge)
    flm = root / ".venv" / "bin" / "flm"
    flm.parent.mkdir(parents=True)
    flm.write_text(program)
    flm.chmod(0o755)
    return script


def run_alone(root: Path, program: str) -> subprocess.CompletedProcess[str]:
    script = alone(root, program)
    return subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)


def test_a_judge_that_is_told_to_end_ends_its_server(tmp_path: Path) -> None:
    script = alone(tmp_path, PROGRAM.format(python=sys.executable), WAITING)
    with subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "judging\n"
        process.terminate()
        _, said = process.communicate()
    assert (process.returncode, said) == (130, "judge: interrupted\n")
    assert (tmp_path / ".venv" / "bin" / "ended").exists()


def test_a_judge_alone_starts_a_server_and_ends_it(tmp_path: Path) -> None:
    result = run_alone(tmp_path, PROGRAM.format(python=sys.executable))
    assert result.returncode == 1
    lines = [line.partition(":")[0] for line in result.stdout.splitlines()]
    assert lines == ["FAILED  The first thing", "FAILED  The second thing"]
    programs = tmp_path / ".venv" / "bin"
    assert (programs / "arguments").read_text().startswith("serve smollm2:135m --port 0 ")
    assert (programs / "ended").exists()


def test_a_server_that_does_not_come_up_tells_its_last_words(tmp_path: Path) -> None:
    result = run_alone(tmp_path, "#!/bin/sh\necho the disk is full\nexit 1\n")
    assert result.returncode == 2
    assert result.stderr.startswith("judge: the server did not come up:")
    assert "the disk is full" in result.stderr
