import csv
from pathlib import Path

import pytest

from flm.cli.bench import csv_path
from tests.cli.conftest import spawn
from tests.support.tiny_gguf import tiny_gguf


def test_a_model_is_measured_on_a_server_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tiny_gguf(tmp_path / "tiny.gguf", "llama")
    options = ["--bench-iterations", "2", "--threads", "1", "--kernels", "torch"]
    outcome = spawn("bench", str(path), *options, cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    written = tmp_path / csv_path(str(path))
    assert f"Written to {written.name}" in outcome.out
    with written.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["context"] for row in rows] == ["1024", "2048"]
    for row in rows:
        assert 0 < int(row["prompt_tokens"]) <= int(row["context"]) - 128
        assert float(row["ttft_mean_s"]) > 0
        assert float(row["prefill_mean_tps"]) > 0
        assert float(row["decode_mean_tps"]) > 0
        assert f"│ {int(row['context']):>7} │" in outcome.out


def test_a_context_that_is_too_short_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    path = tiny_gguf(tmp_path / "tiny.gguf", "llama")
    outcome = spawn("bench", str(path), "--ctx-len", "512", "--threads", "1", cwd=tmp_path)
    assert outcome.code == 1
    assert "larger --ctx-len" in outcome.err


def test_an_unknown_model_is_an_error(tiny: object) -> None:
    outcome = spawn("bench", "no-such-model")
    assert outcome.code == 1
    assert "no-such-model" in outcome.err


@pytest.mark.parametrize(
    ("model", "tag"),
    [
        ("smollm2:135m", "smollm2-135m"),
        ("./a b/m.gguf", "m.gguf"),
        ("owner/Name", "Name"),
    ],
)
def test_the_file_is_named_after_the_model(model: str, tag: str) -> None:
    name = csv_path(model).name
    assert name.startswith(f"bench_{tag}_20")
    assert name.endswith(".csv")
