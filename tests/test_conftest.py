"""The rules of the session can fail: nothing is skipped in silence, long tests wait for --full."""

from pathlib import Path

import hypothesis
import pytest

pytest_plugins = ["pytester"]

HERE = Path(__file__).parent
SKIPPING = {
    "skip": "@pytest.mark.skip(reason='why not')\ndef test_a(): pass",
    "skip inside": "def test_a(): pytest.skip('why not')",
    "skip in a fixture": "@pytest.fixture\ndef f(): pytest.skip('why not')\ndef test_a(f): pass",
    "missing module": "pytest.importorskip('no_such_module_at_all')\ndef test_a(): pass",
    "expected failure": "@pytest.mark.xfail(reason='why not')\ndef test_a(): assert False",
    "unexpected success": "@pytest.mark.xfail(reason='why not')\ndef test_a(): pass",
}


def run(pytester: pytest.Pytester, source: str, *arguments: str) -> pytest.RunResult:
    pytester.makeconftest((HERE / "conftest.py").read_text("utf-8"))
    pytester.makeini("[pytest]\nmarkers =\n  full: long\n  real: real\n")
    pytester.makepyfile(f"import os\nimport pytest\n\n{source}\n")
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", *arguments)


@pytest.mark.parametrize("kind", SKIPPING)
def test_a_skip_fails_the_session_where_skips_are_forbidden(
    pytester: pytest.Pytester, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    forbidden = run(pytester, SKIPPING[kind], "--forbid-skips")
    assert forbidden.ret == pytest.ExitCode.TESTS_FAILED
    forbidden.stdout.fnmatch_lines(["*skips are forbidden here*", "*test_*: *"])


def test_ci_forbids_skips_by_itself(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    assert run(pytester, SKIPPING["skip"]).ret == pytest.ExitCode.TESTS_FAILED
    monkeypatch.delenv("CI")
    assert run(pytester, SKIPPING["skip"]).ret == pytest.ExitCode.OK


def test_long_tests_run_with_full_only_and_are_no_skips(pytester: pytest.Pytester) -> None:
    source = "@pytest.mark.full\ndef test_long(): pass\ndef test_short(): pass"
    short = run(pytester, source, "--forbid-skips")
    short.assert_outcomes(passed=1, deselected=1)
    assert short.ret == pytest.ExitCode.OK
    run(pytester, source, "--forbid-skips", "--full").assert_outcomes(passed=2)


def test_the_default_model_must_be_there(
    pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLM_MODEL_PATH", str(tmp_path / "no-models"))
    result = run(pytester, "def test_a(smollm2_gguf): pass")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*run: flm pull smollm2:135m*"])


def test_the_environment_is_hermetic(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FLM_PORT", "https_proxy", "HTTP_PROXY", "OPENAI_API_KEY", "HF_TOKEN"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    source = """
def test_a():
    kept = [n for n in os.environ if n.startswith(("FLM_", "OPENAI_")) or "PROXY" in n.upper()]
    assert kept == []
    assert "HF_TOKEN" not in os.environ
    assert os.environ["HF_HUB_OFFLINE"] == "1"
    assert os.environ["OMP_NUM_THREADS"] in ("1", "2")
"""
    run(pytester, source).assert_outcomes(passed=1)


def test_hypothesis_repeats_itself() -> None:
    assert hypothesis.settings.default.deadline is None
    assert hypothesis.settings.default.database is None
