import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from benchlib import cli, options
from benchlib.bandwidth import read_bandwidth
from benchlib.corpus import paragraphs, passage
from benchlib.measure import Outcome, Result, import_time, run
from benchlib.memory import MIB, PeakMemory, listener_pid, tree_rss
from benchlib.plan import Plan
from benchlib.report import table
from benchlib.scenarios import longest_gap, metrics
from benchlib.stats import Metric, Summary, advantage, summarise
from benchlib.targets import Recipe, Target, WorkerTarget, http_recipe, speculating, url_recipe
from rich.console import Console

from flm.bench.errors import BenchError
from flm.bench.process import started
from flm.bench.prompts import Prompts
from tests.support.fake_openai import OVERHEAD, Behaviour, fake_openai

ROOT = Path(__file__).parents[2]
SMALL = Plan(
    prompt_lens=(40, 512),
    decode_len=10,
    num_clients=3,
    client_prompt_len=20,
    client_tokens=6,
    shared_len=60,
    turn_len=70,
    arrival_len=90,
    repeat=2,
)
CHILD_SERVER = textwrap.dedent("""
    import sys, time
    from http.server import HTTPServer
    from tests.support.fake_openai import Behaviour, _Handler
    _Handler.behaviour = Behaviour()
    print("system_info: one core", flush=True)
    HTTPServer(("127.0.0.1", int(sys.argv[-1])), _Handler).serve_forever()
""")
SHORT = ["--shared-len", "40", "--turn-len", "50", "--arrival-len", "60", "--threads", "1"]
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
    # At this pace a prompt that arrives finds the other reply unfinished.
    with fake_openai(Behaviour(pace_s=0.02)) as fake:
        recipes = [
            url_recipe(fake.base_url, None),
            Recipe("echo", echo_worker, has_startup=True, weight_bytes=1000),
        ]
        result = run(recipes, SMALL, Prompts(0), notes.append, threads=1)
    ours, echo = result.outcomes
    every = {metric.name for metric in metrics(SMALL)}
    # A server that runs already has no start-up, and nobody knows the size of its weights.
    assert set(ours.summaries) == every - {"startup", "import", "roofline", "memory_ratio"}
    # A worker takes one request at a time.
    many = {"clients", "clients_ttft", "clients_spread", "shared", "shared_again", "pause"}
    assert set(echo.summaries) == every - many - {"pause_512", "import"}
    assert echo.summaries["startup"].values == (0.25, 0.25)
    assert echo.summaries["decode"].median == pytest.approx(10.0)
    assert echo.summaries["ttft_40"].values == (0.5, 0.5)
    assert len(ours.summaries["prefill_512"].values) == 2
    shares = [100 * 10.0 * 1000 / bandwidth for bandwidth in result.bandwidths]
    assert echo.summaries["roofline"].values == pytest.approx(tuple(shares))
    memory = echo.summaries["memory"].median * MIB / 1000
    assert echo.summaries["memory_ratio"].median == pytest.approx(memory)


def test_targets_take_turns_at_every_scenario_and_go_first_in_turn() -> None:
    notes: list[str] = []
    with fake_openai() as fake:
        recipes = [
            url_recipe(fake.base_url, None),
            Recipe("echo", echo_worker, has_startup=False),
            Recipe("some", echo_worker, has_startup=False, only=frozenset({"turn"})),
        ]
        plan = replace(SMALL, only=frozenset({"decode", "turn"}))
        result = run(recipes, plan, Prompts(0), notes.append, threads=1)
        name = fake.base_url.removeprefix("http://")
    there, back = (name, "echo"), ("echo", name)
    assert [tuple(note.split(": ")[1:]) for note in notes] == [
        *(("decode", who) for who in there),
        *(("turn", who) for who in (*there, "echo")),
        *(("decode", who) for who in back),
        *(("turn", who) for who in ("echo", *back)),
    ]
    assert "decode" not in result.outcomes[2].summaries


def test_no_round_is_started_that_cannot_end_in_time() -> None:
    notes: list[str] = []
    recipe = Recipe("echo", echo_worker, has_startup=False)
    plan = replace(SMALL, repeat=50, minutes=0.0)
    result = run([recipe], plan, Prompts(0), notes.append, threads=1)
    assert len(result.bandwidths) == 1
    assert notes[-1] == "no time for more than 1 of 50 rounds"


def test_prompts_have_the_asked_length_and_are_never_seen_twice() -> None:
    with fake_openai() as fake:
        run([url_recipe(fake.base_url, None)], SMALL, Prompts(0), lambda _: None, threads=1)
    asked = [body["messages"] for body in fake.behaviour.bodies]
    users = [messages[-1]["content"] for messages in asked if len(messages) < 3]
    assert len(set(users)) == len(users)
    firsts = [messages[0]["content"] for messages in asked if len(messages) == 1]
    random = [text for text in firsts[3:] if not text.startswith("Repeat")]
    assert {len(text.split()) + OVERHEAD for text in random} == {40, 512, 64, 20, 70, 90}
    continued = [messages for messages in asked if len(messages) == 3]
    assert len(continued) == SMALL.repeat
    assert all(messages[0]["content"] in firsts for messages in continued)
    systems = [messages[0]["content"] for messages in asked if messages[0]["role"] == "system"]
    assert len(systems) == SMALL.repeat * 2 * SMALL.num_clients
    assert len(set(systems)) == SMALL.repeat
    assert {len(text.split()) + OVERHEAD for text in systems} == {SMALL.shared_len}


def test_every_server_gets_a_cache_for_all_that_is_read_at_once() -> None:
    assert SMALL.kv_tokens == 16384
    plan = replace(SMALL, num_clients=16, shared_len=2000)
    assert 16 * 2026 < plan.kv_tokens < 1.2 * 16 * 2026
    assert replace(SMALL, prompt_lens=(30000,)).kv_tokens > 30000


def test_pauses_count_while_the_other_prompt_is_read() -> None:
    times = [0.0, 5.0, 5.1, 5.2, 7.2, 7.3, 20.0]
    assert longest_gap(times, 5.15, 7.25) == pytest.approx(2.0)
    assert longest_gap(times, 5.3, 5.4) == pytest.approx(2.0)
    assert longest_gap(times, 30.0, 40.0) is None


def test_speculation_has_a_column_where_the_server_can_and_nobody_chose() -> None:
    can = http_recipe("flm", ["flm", "serve", "a b", "--speculate", "off"])
    twin = speculating(can)
    assert twin is not None
    assert twin.command == "flm serve 'a b' --speculate ngram"
    assert (twin.only, twin.has_startup) == (frozenset({"repeat"}), False)
    assert speculating(http_recipe("flm", ["flm", "serve", "--speculate", "ngram"])) is None
    assert speculating(url_recipe("http://127.0.0.1:1", None)) is None


def test_passages_are_prose_and_differ() -> None:
    texts = [passage(number, 100) for number in range(20)]
    assert len(set(texts)) == 20
    assert all(len(text.split()) >= 100 for text in texts)
    assert texts[0] == passage(0, 100)
    assert not [text for text in paragraphs() if "```" in text or text.startswith(("|", "#"))]


def test_reading_memory_has_a_speed() -> None:
    assert read_bandwidth(2, 1 << 20) > 0


def test_the_program_prints_a_table_and_writes_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    path = tmp_path / "out.json"
    with fake_openai() as fake, fake_openai() as peer:
        servers = ["--url", fake.base_url, "--peer", peer.base_url]
        lengths = [
            "--prompt-len",
            "30",
            "--decode-len",
            "8",
            "--clients",
            "2",
            "--repeat",
            "2",
            *SHORT,
        ]
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
    assert options.split(["--repeat", "1", "--", "--dtype", "float32"]) == (
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


@pytest.fixture(autouse=True)
def path_of_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def child_recipe(source: str) -> Recipe:
    return http_recipe("child", [sys.executable, "-c", source])


def test_a_server_of_ours_is_started_timed_and_ended() -> None:
    with child_recipe(CHILD_SERVER).start() as target:
        assert target.model == "fake-1"
        assert target.startup_s is not None
        assert target.startup_s > 0
        assert target.facts == ["system_info: one core"]
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
    outcomes = (Outcome("a", "m", {}), Outcome("b", "m", {}))
    with console.capture() as captured:
        console.print(table(Result(outcomes, (1e9,)), SMALL))
    for metric in metrics(SMALL):
        assert f"{metric.title} ({metric.unit})" in captured.get()


def test_the_time_of_an_import() -> None:
    assert 0 < import_time("flm.adaptation") < 60
    with pytest.raises(subprocess.CalledProcessError):
        import_time("flm.nothing_like_it")
