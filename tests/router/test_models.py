"""Models that take less than their provider does."""

import pytest

from flm.router import Config, Message, Reasoning, Request
from tests.router.test_messages import body_of
from tests.router.test_settings import call_of

HI = Message.user("hi")


@pytest.mark.parametrize(
    ("model", "config", "told"),
    [
        ("openai:gpt-5", Config(temperature=0.5), "dropped"),
        ("openai:gpt-5", Config(temperature=1.0), "satisfied"),
        ("openai:o3-mini", Config(top_p=0.5), "dropped"),
        ("openai:organisation/o3-mini", Config(top_p=0.5), "dropped"),
        ("openai-chat:o1", Config(logprobs=1), "dropped"),
        ("openai-chat:o3", Config(stop="x"), "client_side"),
        ("openai:gpt-5-chat-latest", Config(temperature=0.5), None),
        ("openai:gpt-5.1", Config(temperature=0.5), "dropped"),
        ("openai:gpt-5.1", Config(temperature=0.5, reasoning=Reasoning(effort="off")), None),
        ("openai:gpt-4.1", Config(temperature=0.5), None),
        ("anthropic:claude-opus-4-7", Config(temperature=0.5), "dropped"),
        ("anthropic:claude-opus-4-6", Config(temperature=0.5), None),
        ("anthropic:claude-opus-4-6", Config(reasoning=Reasoning(effort="minimal")), "clamped"),
        ("anthropic:claude-opus-4-6", Config(reasoning=Reasoning(thinking_budget=9)), "dropped"),
        ("gemini:gemini-3-pro", Config(reasoning=Reasoning(effort="off")), "substituted"),
        ("gemini:gemini-3-pro", Config(reasoning=Reasoning(effort="max")), "clamped"),
        ("gemini:gemini-3-pro", Config(reasoning=Reasoning(effort="low")), None),
        ("xai:grok-4", Config(reasoning=Reasoning(effort="off")), "substituted"),
        ("xai:grok-4", Config(stop="x"), "client_side"),
        ("lmstudio:m", Config(reasoning=Reasoning(effort="low")), "dropped"),
        ("llama-server:m", Config(continue_final_message=False), None),
        ("llama-server:m", Config(reasoning=Reasoning(effort="high")), "substituted"),
        ("mistral:m", Config(store=False), "satisfied"),
    ],
)
def test_what_a_model_rejects_is_adapted(model: str, config: Config, told: str | None) -> None:
    call = call_of(Request(model=model, messages=[HI], config=config))
    actions = [entry.action for entry in call.records if entry.field != "config.max_tokens"]
    assert actions == ([] if told is None else [told])


@pytest.mark.parametrize(
    ("model", "limit"),
    [
        ("claude-3-haiku-20240307", 4096),
        ("claude-3-5-sonnet-latest", 8192),
        ("claude-haiku-4-5", 16384),
    ],
)
def test_the_limit_that_anthropic_requires(model: str, limit: int) -> None:
    assert body_of(f"anthropic:{model}", HI)["max_tokens"] == limit


def test_a_whole_dropped_reasoning_names_what_was_asked() -> None:
    request = Request(
        model="lmstudio:m", messages=[HI], config=Config(reasoning=Reasoning(effort="low"))
    )
    record = call_of(request).records[0]
    assert (record.field, record.asked) == ("config.reasoning", {"effort": "low"})


def test_a_budget_beats_a_level() -> None:
    request = Request(
        model="gemini:gemini-3-pro",
        messages=[HI],
        config=Config(reasoning=Reasoning(effort="low", thinking_budget=500)),
    )
    thinking = call_of(request).body["generationConfig"]["thinkingConfig"]
    assert thinking == {"thinkingBudget": 500}
