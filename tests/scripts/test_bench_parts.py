"""The commands of scripts/bench that look into a model: quality, profile, sampler, sweep."""

import json
import math
from pathlib import Path

import pytest
import torch
from benchlib import cli, options, profile, quality, sampler, sweep
from benchlib.harness import load
from benchlib.plan import Plan

from flm.bench.errors import BenchError
from flm.bench.prompts import Fit, Prompts
from flm.config import ServeConfig
from tests.scripts.test_bench import echo_worker
from tests.support.fake_openai import OVERHEAD, fake_openai
from tests.support.tiny import tiny_folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("bench") / "model", "llama")


# --- quality -----------------------------------------------------------------------------------


def test_a_model_is_no_different_from_itself() -> None:
    logits = torch.randn(300, 50)
    targets = [number % 50 for number in range(300)]
    found = quality.summary(quality.compare(logits, logits, targets))
    assert found["tokens"] == 300
    assert found["top-1 agreement, %"] == 100
    assert found["mean divergence, nats"] == 0
    assert found["perplexity, exact"] == found["perplexity, fast"]
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor(targets))
    assert math.log(found["perplexity, exact"]) == pytest.approx(float(loss), abs=1e-5)


def test_a_known_difference() -> None:
    exact = torch.tensor([[0.5, 0.5], [0.9, 0.1]]).log()
    fast = torch.tensor([[0.25, 0.75], [0.9, 0.1]]).log()
    found = quality.compare(exact, fast, [0, 1])
    wanted = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    assert found.divergence == pytest.approx([wanted, 0.0], abs=1e-6)
    assert found.agrees == [False, True]
    assert found.exact_loss == pytest.approx([-math.log(0.5), -math.log(0.1)], abs=1e-6)
    assert found.fast_loss == pytest.approx([-math.log(0.25), -math.log(0.1)], abs=1e-6)


def test_windows_cover_the_text_and_each_stands_alone() -> None:
    assert [list(part) for part in quality.windows(range(7), 3)] == [[0, 1, 2], [3, 4, 5]]
    assert [len(part) for part in quality.windows(range(8), 3)] == [3, 3, 2]


def test_the_fast_mode_of_a_model_is_near_its_exact_mode(model: Path) -> None:
    fast = load(model, ServeConfig(threads=1), 64)
    exact = load(model, ServeConfig(threads=1, dtype="float32"), 64)
    assert (fast.mode, exact.mode) == ("int8, fast", "float32, exact")
    ids = [(7 * i * i + 3) % 500 for i in range(200)]
    small = load(model, ServeConfig(threads=1, kv_dtype="int8"), 64)
    figures = [quality.summary(one) for one in quality.measure(exact, [fast, small], ids, 64)]
    for one in figures:
        assert one["tokens"] == 200 - 4
        assert 0 < one["mean divergence, nats"] < 0.05
        assert one["top-1 agreement, %"] > 80
    assert figures[0] != figures[1]


def test_formats_of_the_cache_are_those_that_serve_or_those_asked_for(model: Path) -> None:
    parser = options.make_parser("", "")
    options.add_kv_dtypes(parser)
    assert options.kv_dtypes_of(parser.parse_args([]), model) == ["bfloat16", "int8"]
    asked = parser.parse_args(["--kv-dtype", "int8"])
    assert options.kv_dtypes_of(asked, model) == ["int8"]


def test_formats_of_the_cache_take_turns(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "out.json"
    arguments = ["cache", "--model", str(model), "--context", "50", "--context", "90"]
    assert cli.main([*arguments, "--steps", "3", "--json", str(path)]) == 0
    assert "bytes a token" in capsys.readouterr().out
    found = json.loads(path.read_text())
    assert list(found) == ["bfloat16", "int8"]
    assert found["bfloat16"]["bytes a token"] > found["int8"]["bytes a token"] > 0
    assert all(len(one["decode step, s"]["90"]) == 3 for one in found.values())


def test_more_text_than_there_is_is_an_error(model: Path) -> None:
    ids = quality.text_ids(model, 500)
    assert len(ids) == 500
    with pytest.raises(BenchError, match="--tokens"):
        quality.text_ids(model, 10**8)


# --- profile -----------------------------------------------------------------------------------


def test_clocks_cover_the_forward_and_change_no_bit(model: Path) -> None:
    inside = profile.clocks()
    timed = load(model, ServeConfig(threads=2), 128, inside.kernels)
    plain = load(model, ServeConfig(threads=2), 128)
    ids = range(1, 60)
    assert torch.equal(timed.read(ids, 0, 5), plain.read(ids, 0, 5))
    found = profile.shares(inside, lambda: profile.decode_steps(timed, 59, 10), 10)
    assert set(found.phases) == {*profile.PHASES, "around the forward"}
    assert all(spent >= 0 for spent in found.phases.values())
    assert found.phases["products"] > 0
    assert found.phases["attention"] > 0
    assert found.phases["waiting"] > 0
    assert sum(found.phases.values()) == pytest.approx(found.wall, rel=0.2)
    assert inside.take()[1] == 0


def test_a_step_of_the_engine_has_a_time(model: Path) -> None:
    plain = load(model, ServeConfig(threads=1), 128)
    assert profile.engine_step_s(plain, 20, 10) > 0
    assert profile.forward_step_s(plain, 20, 10) > 0
    assert profile.median_wait([1.0, 2.0, 9.0, 10.0]) == 1.0


# --- sampler and sweep -------------------------------------------------------------------------


def test_the_sampler_has_a_row_for_every_setting(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sampler, "NUM_REPEATS", 1)
    path = tmp_path / "out.json"
    assert cli.main(["sampler", "--json", str(path)]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in sampler.SETTINGS)
    assert len(json.loads(path.read_text())) == 3 * len(sampler.SETTINGS)


def test_a_sweep_goes_through_clients_and_lengths(tmp_path: Path) -> None:
    plan = Plan(client_prompt_len=20, client_tokens=6, repeat=2)
    with fake_openai() as fake, echo_worker() as alone:
        recipe = cli.url_recipe(fake.base_url, None)
        with recipe.start() as target:
            seats = [(target, Fit(OVERHEAD, 1.0)), (alone, Fit(0.0, 1.0))]
            found = sweep.sweep(seats, plan, Prompts(0), (1, 3), (40, 80))
    many, one = found
    assert sorted(many["clients"]) == [1, 3]
    assert sorted(one["clients"]) == [1]
    assert one["prompt"] == {40: [0.5, 0.5], 80: [0.5, 0.5]}
    assert len(fake.behaviour.bodies) == 2 * (1 + 3 + 2)
