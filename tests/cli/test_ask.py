"""flm ask and flm plan: one question to any provider, and what would be changed."""

from dataclasses import replace

import pytest

import flm.router
from flm.router import LMRouter, RouterConfig
from tests.cli.conftest import invoke
from tests.support.providers import KEYS, Scripted, anthropic_events, streamed


@pytest.fixture
def anthropic(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    """Every router of a command talks to this."""
    transport = Scripted(streamed(*anthropic_events("The lamp ", "was lit.")))

    def scripted(config: RouterConfig) -> LMRouter:
        return LMRouter(replace(config, transport=transport, env=KEYS))

    monkeypatch.setattr(flm.router, "LMRouter", scripted)
    return transport


def test_ask_prints_the_answer_and_what_was_changed(anthropic: Scripted) -> None:
    outcome = invoke("ask", "claude-haiku-4-5", "What?", "--seed", "42", "--system", "Be brief.")
    assert (outcome.code, outcome.out) == (0, "The lamp was lit.\n")
    assert outcome.err.splitlines() == [
        "config.max_tokens was defaulted: The provider requires a length limit; this is the "
        "model's own ceiling.",
        "config.seed was dropped: anthropic has no setting for it.",
    ]
    assert anthropic.body["system"] == "Be brief."
    assert anthropic.body["messages"][0]["content"][0]["text"] == "What?"


def test_ask_can_refuse(anthropic: Scripted) -> None:
    args = ("ask", "claude-haiku-4-5", "What?", "--seed", "42", "--adaptations", "refuse")
    outcome = invoke(*args)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith("Error: config.seed would be dropped")
    assert anthropic.num_sent == 0


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("smollm2:135m", "hi"), "flm:smollm2:135m"),
        (("flm:m", "hi", "--temperature", "3"), "temperature must be from 0 to 2"),
        (("flm:m", "hi", "--effort", "huge"), "effort must be one of"),
        (("flm:m", "hi", "--adaptations", "adapt"), "note, silent, refuse"),
        (("flm:m", "hi", "--port", "1"), "http://127.0.0.1:1/v1/chat/completions cannot be"),
    ],
)
def test_what_goes_wrong_is_one_line(args: tuple[str, ...], message: str) -> None:
    outcome = invoke("ask", *args)
    assert outcome.code == 1
    assert outcome.err.startswith("Error: ")
    assert outcome.err.count("\n") == 1
    assert message in outcome.err


def test_plan_compares_providers() -> None:
    models = ("claude-haiku-4-5", "gemini-2.5-flash", "openai-codex:gpt-5")
    args = ("--temperature", "1.5", "--seed", "42", "--max-tokens", "9")
    rows = [line.split()[:5] for line in invoke("plan", *models, *args).out.splitlines()]
    assert rows[0] == ["model", "setting", "action", "asked", "applied"]
    assert rows[1] == ["claude-haiku-4-5", "config.seed", "dropped", "42", "anthropic"]
    assert rows[2] == ["claude-haiku-4-5", "config.temperature", "clamped", "1.5", "1.0"]
    assert rows[3][:3] == ["openai-codex:gpt-5", "config.max_tokens", "refused"]
    assert len(rows) == 4


def test_plan_in_json_and_when_there_is_nothing() -> None:
    rows = invoke("plan", "claude-haiku-4-5", "--json").json
    assert [(row["model"], row["field"], row["applied"]) for row in rows] == [
        ("claude-haiku-4-5", "config.max_tokens", 16384)
    ]
    assert invoke("plan", "flm:m", "--top-k", "5").out == "Nothing would be changed.\n"
