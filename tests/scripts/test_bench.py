import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from benchlib import cli
from benchlib.errors import BenchError
from benchlib.measure import Outcome, Plan, run
from benchlib.memory import MIB, PeakMemory, listener_pid, tree_rss
from benchlib.process import started
from benchlib.prompts import Prompts
from benchlib.report import table
from benchlib.stats import Metric, Summary, advantage, summarise
from benchlib.targets import Recipe, Target, WorkerTarget, _http_recipe, url_recipe
from rich.console import Console

from tests.support.fake_openai import OVERHEAD, fake_openai

SMALL = Plan(
    prompt_lens=(40, 80),
    decode_len=10,
    num_clients=3,
    client_prompt_len=20,
    client_tokens=6,
    repeat=2,
    cached_turn=True,
)
CHILD_SERVER = textwrap.dedent("""
    import sys, time
    from http.server import HTTPServer
    from tests.support.fake_openai import Behaviour, _Handler
    _Handler.behaviour = Behaviour()
    HTTPServer(("127.0.0.1", int(sys.argv[1])), _Handler).serve_forever()
""")
ECHO_WORKER = textwrap.dedent("""
    import json, sys
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        words = sum(len(message["content"].split()) for message in request["messages"])
        print(json.dumps({"text": "x", "prompt_tokens": words, "cached_tokens": 0,
            "completion_tokens": request["max_tokens"], "first_token_s": 0.5,
            "last_token_s": 0.5 + 0.1 * (request["max_tokens"] - 1)}), flush=True)
""")


@contextmanager
def echo_worker() -> Iterator[Target]:
    with started([sys.executable, "-c", ECHO_WORKER], {}, piped=True) as child:
        assert child.process.stdout is not None
        child.process.stdout.readline()
        yield WorkerTarget("echo", "echo-1", child, startup_s=0.25)


# --- the whole way -----------------------------------------------------------------------------


def test_two_targets_side_by_side() -> None:
    notes: list[str] = []
    with fake_openai() as fake:
        recipes = [
            url_recipe(fake.base_url, None),
            Recipe("echo", echo_worker, has_startup=True),
        ]
        ours, echo = run(recipes, SMALL, Prompts(0), notes.append)
    every = {metric.name for metric in SMALL.metrics()}
    # A server that runs already has no start-up; a worker takes one request at a time.
    assert set(ours.summaries) == every - {"startup"}
    assert set(echo.summaries) == every - {"clients", "clients_ttft"}
    assert echo.summaries["startup"].values == (0.25, 0.25)
    assert echo.summaries["decode"].median == pytest.approx(10.0)
    assert echo.summaries["ttft_40"].values == (0.5, 0.5)
    assert len(ours.summaries["prefill_80"].values) == 2
    rounds = [note for note in notes if note.startswith("round")]
    assert [note.rpartition(" ")[2] for note in rounds[1::2]] == ["echo", "echo"]


def test_prompts_have_the_asked_length_and_are_never_seen_twice() -> None:
    with fake_openai() as fake:
        run([url_recipe(fake.base_url, None)], SMALL, Prompts(0), lambda _: None)
    asked = [body["messages"] for body in fake.behaviour.bodies]
    firsts = [messages[0]["content"] for messages in asked if len(messages) == 1]
    assert len(set(firsts)) == len(firsts)
    assert {len(text.split()) + OVERHEAD for text in firsts[2:]} == {40, 80, 64, 20}
    continued = [messages for messages in asked if len(messages) == 3]
    assert len(continued) == SMALL.repeat
    assert all(messages[0]["content"] in firsts for messages in continued)


def test_the_program_prints_a_table_and_writes_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    path = tmp_path / "out.json"
    with fake_openai() as fake, fake_openai() as peer:
        servers = ["--url", fake.base_url, "--peer", peer.base_url]
        lengths = ["--prompt-len", "30", "--decode-len", "8", "--clients", "2", "--repeat", "2"]
        status = cli.main([*servers, *lengths, "--json", str(path), "--seed", "5"])
    assert status == 0
    printed = capsys.readouterr().out
    assert "decode, 8 tokens (tok/s)" in printed
    assert "peak memory (MiB)" in printed
    document = json.loads(path.read_text())
    assert [target["model"] for target in document["targets"]] == ["fake-1", "fake-1"]
    decode = document["targets"][0]["metrics"]["decode"]
    assert len(decode["values"]) == 2
    assert decode["min"] <= decode["median"] <= decode["max"]
    assert document["plan"]["prompt_lens"] == [30]
    assert document["seed"] == 5
    assert set(document["advantage"]) == {peer.base_url.removeprefix("http://")}


def test_arguments_behind_the_dashes_go_to_the_server() -> None:
    assert cli._split(["--repeat", "1", "--", "--dtype", "float32"]) == (
        ["--repeat", "1"],
        ["--dtype", "float32"],
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ftp://x"], "is no base URL"),
        (["no-such-target"], "is no base URL"),
        (["transformers", "--model", "/nowhere/at/all.gguf"], "nowhere"),
    ],
)
def test_a_wrong_target_ends_with_a_message(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["--repeat", "0"], ["--clients", "-1"], ["--decode-len", "x"], ["--what"]]
)
def test_a_wrong_option_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2


# --- processes ---------------------------------------------------------------------------------


def child_recipe(source: str) -> Recipe:
    env = {"PYTHONPATH": str(Path(__file__).parents[2])}
    return _http_recipe("child", lambda port: [sys.executable, "-c", source, str(port)], env)


def test_a_server_of_ours_is_started_timed_and_ended() -> None:
    with child_recipe(CHILD_SERVER).start() as target:
        assert target.model == "fake-1"
        assert target.startup_s is not None
        assert target.startup_s > 0
        assert target.pid is not None
        assert tree_rss(target.pid) > MIB
        assert target.generate([{"role": "user", "content": "a b"}], 3).completion_tokens == 3
    assert tree_rss(target.pid) == 0


def test_a_server_that_ends_early_shows_its_last_words() -> None:
    source = "import sys; sys.exit('no such model')"
    with pytest.raises(BenchError, match="status 1:\nno such model"), child_recipe(source).start():
        pytest.fail("it cannot be ready")


def test_a_worker_that_dies_shows_its_last_words() -> None:
    source = "import sys; print('{}', flush=True); sys.stdin.readline(); sys.exit('out of memory')"
    with started([sys.executable, "-c", source], {}, piped=True) as child:
        assert child.process.stdout is not None
        child.process.stdout.readline()
        worker = WorkerTarget("worker", "m", child, None)
        with pytest.raises(BenchError, match="out of memory"):
            worker.generate([{"role": "user", "content": "x"}], 1)


def test_peak_memory_sees_what_a_child_of_the_process_held() -> None:
    grandchild = "b = bytearray(80 << 20); b[::4096] = b'x' * len(b[::4096]); input()"
    source = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {grandchild!r}])"
    with (
        started([sys.executable, "-c", source], {}, piped=True) as child,
        PeakMemory(child.pid) as memory,
    ):
        deadline = time.monotonic() + 30
        while memory.peak_mib < 80 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert child.process.stdin is not None
        child.process.stdin.write("\n")
        child.process.stdin.flush()
        child.process.wait()
    assert memory.peak_mib > 80


def test_memory_of_a_process_that_is_gone_is_nothing() -> None:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    assert tree_rss(done.pid) == 0


def test_the_owner_of_a_port_is_found() -> None:
    with fake_openai() as fake:
        assert listener_pid(fake.port) == os.getpid()
    assert listener_pid(fake.port) is None


# --- numbers -----------------------------------------------------------------------------------


def test_summaries() -> None:
    summary = summarise([3.0, 1.0, 2.0])
    assert summary is not None
    assert (summary.low, summary.median, summary.high) == (1.0, 2.0, 3.0)
    assert summarise([]) is None


def test_an_advantage_above_one_is_always_good() -> None:
    speed = Metric("s", "speed", "tok/s", is_better_high=True)
    delay = Metric("d", "delay", "s", is_better_high=False)
    small, large = Summary((2.0,)), Summary((4.0,))
    assert advantage(speed, large, small) == 2.0
    assert advantage(delay, small, large) == 2.0
    assert advantage(delay, large, small) == 0.5
    assert advantage(speed, large, None) is None
    assert advantage(speed, large, Summary((0.0,))) is None


def test_every_metric_has_a_row() -> None:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(table([Outcome("a", "m", {}), Outcome("b", "m", {})], SMALL))
    for metric in SMALL.metrics():
        assert f"{metric.title} ({metric.unit})" in captured.get()
