"""Which provider, which key, where; nothing of it needs a network."""

# ruff: noqa: E501 - rows of a table

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from flm.router import Config as Settings
from flm.router import (
    LMRouter,
    Message,
    MissingCredentialError,
    NotConfiguredError,
    Request,
    RouterConfig,
    Rule,
    UnknownModelError,
    UnsupportedFeatureError,
    chat_provider,
)
from tests.support.providers import (
    Scripted,
    anthropic_reply,
    chat_reply,
    gemini_reply,
    responses_events,
    responses_reply,
    router_of,
    streamed,
)


def asking(model: str, **settings: Any) -> Request:
    return Request(model=model, messages=[Message.user("hi")], config=Settings(**settings))


@pytest.mark.parametrize(
    ("name", "provider", "model", "rule"),
    [
        ("flm:smollm2:135m", "flm", "smollm2:135m", None),
        ("openai:ft:gpt-4.1:org", "openai", "ft:gpt-4.1:org", None),
        ("openai_chat:gpt-4.1", "openai-chat", "gpt-4.1", None),
        ("llama-server:x", "llama-server", "x", None),
        ("claude-haiku-4-5", "anthropic", "claude-haiku-4-5", "claude-"),
        ("gpt-4.1", "openai", "gpt-4.1", "gpt-"),
        ("o3-mini", "openai", "o3-mini", "o3"),
        ("gemini-2.5-pro", "gemini", "gemini-2.5-pro", "gemini-"),
        ("grok-4", "xai", "grok-4", "grok-"),
    ],
)
def test_where_a_model_goes(name: str, provider: str, model: str, rule: str | None) -> None:
    found = router_of(None).resolve(name)
    assert (found.provider, found.model, found.rule) == (provider, model, rule)
    assert found.source == ("prefix" if rule is None else "rule")
    assert found.describe()


@pytest.mark.parametrize(
    "name", ["", "smollm2:135m", "OpenAI:gpt-4", "anthropic/claude", "ollama:", ":x", "llama"]
)
def test_where_nothing_goes(name: str) -> None:
    with pytest.raises(UnknownModelError, match="provider:model") as caught:
        router_of(None).resolve(name)
    assert caught.value.model == name


def test_a_name_that_is_nearly_right_is_suggested() -> None:
    with pytest.raises(UnknownModelError, match="Did you mean anthropic"):
        router_of(None).resolve("antropic:claude")


@pytest.mark.parametrize(
    ("model", "reply", "url", "header", "value"),
    [
        ("anthropic:m", anthropic_reply("x"), "https://api.anthropic.com/v1/messages", "x-api-key", "k-anthropic"),
        ("openai:m", responses_reply("x"), "https://api.openai.com/v1/responses", "authorization", "Bearer k-openai"),
        ("openai-chat:m", chat_reply("x"), "https://api.openai.com/v1/chat/completions", "authorization", "Bearer k-openai"),
        ("gemini:m/a b", gemini_reply("x"), "https://generativelanguage.googleapis.com/v1beta/models/m/a%20b:generateContent", "x-goog-api-key", "k-gemini"),
        ("openai-codex:m", streamed(*responses_events("x")), "https://chatgpt.com/backend-api/codex/responses", "authorization", "Bearer k-codex"),
        ("flm:m", chat_reply("x"), "http://127.0.0.1:52625/v1/chat/completions", "authorization", None),
        ("vllm:m", chat_reply("x"), "http://localhost:8000/v1/chat/completions", "authorization", None),
        ("sglang:m", chat_reply("x"), "http://localhost:30000/v1/chat/completions", "authorization", None),
        ("ollama:m", chat_reply("x"), "http://localhost:11434/v1/chat/completions", "authorization", None),
        ("deepseek:m", chat_reply("x"), "https://api.deepseek.com/chat/completions", "authorization", "Bearer k-deepseek"),
    ],
)  # fmt: skip
def test_address_and_key(model: str, reply: Any, url: str, header: str, value: str | None) -> None:
    transport = Scripted(reply)
    assert router_of(transport).complete(asking(model)).text == "x"
    sent = transport.requests[0]
    assert str(sent.url) == url
    assert sent.headers.get(header) == value
    assert sent.headers["content-type"] == "application/json"


def test_a_stream_of_gemini_has_its_own_address() -> None:
    transport = Scripted(gemini_reply("x"))
    list(router_of(transport).stream(asking("gemini:m")))
    assert transport.requests[0].url.path.endswith("m:streamGenerateContent")
    assert transport.requests[0].url.query == b"alt=sse"


def test_base_urls_change_the_place_and_not_the_rules() -> None:
    transport = Scripted(chat_reply("x"))
    router = router_of(transport, base_urls={"vllm": "http://127.0.0.1:52625/v1/"})
    response = router.complete(asking("vllm:m", repeat_last_n=3))
    assert str(transport.requests[0].url) == "http://127.0.0.1:52625/v1/chat/completions"
    assert [entry.field for entry in response.adaptations] == ["config.repeat_last_n"]


# --- keys --------------------------------------------------------------------------------------


def test_a_key_given_beats_the_environment_and_is_shared_by_its_variable() -> None:
    transport = Scripted(chat_reply("x"))
    calls = iter(["one", "two"])
    router = router_of(transport, api_keys={"openai": lambda: next(calls)})
    for expected in ("Bearer one", "Bearer two"):
        router.complete(asking("openai-chat:m"))
        assert transport.requests[-1].headers["authorization"] == expected


def test_a_missing_key_is_told_before_a_refusal_and_planning_needs_none() -> None:
    transport = Scripted(chat_reply("x"))
    router = LMRouter(RouterConfig(env={}, adaptations="refuse", transport=transport))
    for act in (router.complete, router.stream):
        with pytest.raises(MissingCredentialError, match="ANTHROPIC_API_KEY") as caught:
            act(asking("claude-x", seed=1))
        assert caught.value.env_keys == ("ANTHROPIC_API_KEY",)
    with pytest.raises(UnsupportedFeatureError):
        router.plan(asking("claude-x", seed=1))
    assert "a key is missing" in router.resolve("claude-x").describe()
    assert transport.num_sent == 0


def test_the_second_variable_counts_too() -> None:
    transport = Scripted(gemini_reply("x"))
    router = LMRouter(RouterConfig(env={"GOOGLE_API_KEY": "g"}, transport=transport))
    router.complete(asking("gemini-2.5-pro"))
    assert transport.requests[0].headers["x-goog-api-key"] == "g"


@pytest.mark.parametrize("key", ["", "  ", "a b", "a\nb", "schlüssel"])
def test_a_key_that_cannot_be_one_is_not_shown(key: str) -> None:
    with pytest.raises(NotConfiguredError, match="api_keys") as caught:
        LMRouter(RouterConfig(api_keys={"openai": key}))
    assert key.strip() == "" or key.strip() not in str(caught.value)
    assert "secret" not in repr(RouterConfig(api_keys={"openai": "secret"}, env={"K": "secret"}))


@pytest.mark.parametrize("what", ["api_keys", "base_urls"])
def test_a_provider_that_does_not_exist(what: str) -> None:
    with pytest.raises(NotConfiguredError, match="openai"):
        LMRouter(RouterConfig(**{what: {"open-ai": "http://x"}}))  # type: ignore[arg-type]


def test_an_address_that_is_none() -> None:
    with pytest.raises(NotConfiguredError, match="http://"):
        RouterConfig(base_urls={"flm": "127.0.0.1:52625"})


def test_codex_reads_the_file_of_its_login(tmp_path: Path) -> None:
    transport = Scripted(streamed(*responses_events("x")))
    router = LMRouter(RouterConfig(env={"CODEX_HOME": str(tmp_path)}, transport=transport))
    with pytest.raises(MissingCredentialError, match="codex login"):
        router.complete(asking("openai-codex:m"))
    tokens = {"access_token": "t1", "account_id": "a1"}
    (tmp_path / "auth.json").write_text(json.dumps({"tokens": tokens}))
    router.complete(asking("openai-codex:m"))
    assert transport.requests[0].headers["authorization"] == "Bearer t1"
    assert transport.requests[0].headers["chatgpt-account-id"] == "a1"


def test_a_token_of_codex_names_its_account() -> None:
    claims = {"https://api.openai.com/auth": {"chatgpt_account_id": "a2"}}
    middle = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    transport = Scripted(streamed(*responses_events("x")))
    router_of(transport, api_keys={"openai-codex": f"h.{middle}.s"}).complete(
        asking("openai-codex:m")
    )
    assert transport.requests[0].headers["chatgpt-account-id"] == "a2"


# --- declared providers ------------------------------------------------------------------------


def test_another_provider_is_a_few_lines() -> None:
    lab = chat_provider(
        "lab", "http://lab/v1", Rule("top_k", "top_k", high=50), key_env=("LAB_KEY",)
    )
    transport = Scripted(chat_reply("x"))
    router = LMRouter(RouterConfig(providers=(lab,), env={"LAB_KEY": "k"}, transport=transport))
    response = router.complete(asking("lab:m", top_k=90, seed=3))
    assert response.adaptations[0].applied == 50
    assert transport.body["top_k"] == 50
    assert transport.body["seed"] == 3
    assert transport.requests[0].headers["authorization"] == "Bearer k"
    assert router.resolve("lab:m").declared
    assert not router.resolve("flm:m").declared


def test_a_declared_name_may_have_an_underscore() -> None:
    lab = chat_provider("my_lab", "http://lab/v1", keyless=True)
    router = LMRouter(RouterConfig(providers=(lab,), env={}))
    assert router.resolve("my_lab:m").provider == "my_lab"
