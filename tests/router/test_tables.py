"""The tables themselves: complete, consistent, documented, and one truth with the server."""

import providers_doc
import pytest

from flm.router import Config, Message, Request
from flm.router.adapt import setting
from flm.router.capabilities import CONDITIONS, Rule, amended
from flm.router.compatible import FLM, PROVIDERS
from flm.router.dialects import DIALECTS
from flm.router.spelling import SPELLERS
from flm.server.schemas.chat import MAX_TOP_LOGPROBS, ChatBody
from flm.server.schemas.common import MAX_STOPS
from flm.server.schemas.messages import AssistantMessage
from flm.server.settings import RANGES
from tests.support.providers import router_of

SETTINGS = {name for name in Config.__dataclass_fields__ if name != "extensions"}
RULES = [(provider, rule) for provider in PROVIDERS.values() for rule in provider.rules]


@pytest.mark.parametrize("provider", PROVIDERS.values(), ids=PROVIDERS)
def test_every_setting_has_a_rule_everywhere(provider: object) -> None:
    rules = PROVIDERS[provider.name].rules  # type: ignore[attr-defined]
    assert {rule.field.partition(".")[0] for rule in rules} == SETTINGS


def test_every_rule_can_be_followed() -> None:
    for provider, rule in RULES:
        assert not rule.when or rule.when in CONDITIONS, rule
        assert not rule.spell or rule.spell in SPELLERS, rule
        assert rule.wire or rule.action, rule
        assert rule.action != "client_side" or rule.field in ("stop", "tool_choice.allowed"), rule
        assert not rule.words or rule.action in ("clamped", "substituted"), rule
        assert rule.most is None or rule.action, rule
        assert provider.dialect in DIALECTS
        assert setting(Config(), rule.field) is None
        assert rule.reason == "" or rule.reason.endswith("."), rule


def test_every_spelling_and_condition_is_used() -> None:
    assert {rule.spell for _, rule in RULES if rule.spell} == set(SPELLERS)
    assert {rule.when for _, rule in RULES if rule.when} == set(CONDITIONS)


def test_the_last_rule_of_a_setting_is_for_every_model() -> None:
    for provider in PROVIDERS.values():
        last = {rule.field: rule for rule in provider.rules}
        wide = {name: rule for name, rule in last.items() if not rule.models and not rule.but}
        # Anthropic's temperature is clamped late and dropped early; both are there.
        assert set(last) == set(wide), provider.name


def test_a_rule_of_the_whole_takes_the_place_of_its_parts() -> None:
    rules = (Rule("a"), Rule("b.x"), Rule("c"), Rule("b.y"))
    assert [r.field for r in amended(rules, Rule("b", "w"), Rule("d"))] == ["a", "b", "c", "d"]
    assert [r.wire for r in amended(rules, Rule("a", "1"), Rule("a", "2"))][:2] == ["1", "2"]


def test_the_page_of_providers_is_what_the_tables_say() -> None:
    found = providers_doc.TARGET.read_text(encoding="utf-8")
    assert found == providers_doc.page(), "run: .venv/bin/python scripts/providers_doc.py"


# --- one truth with the server -----------------------------------------------------------------


def test_what_the_router_sends_the_server_reads() -> None:
    known = set(ChatBody.model_fields)
    wires = {rule.wire.partition(".")[0] for rule in FLM.rules if rule.wire}
    assert wires <= known
    assert {"adaptations", "logprobs", "stream", "stream_options", "tools", "messages"} <= known
    assert FLM.thinking_field in AssistantMessage.model_fields
    assert not FLM.media


def test_what_the_server_reads_the_router_can_ask() -> None:
    """Each field of the server belongs to a setting, or is named here with a reason."""
    sent = {rule.wire.partition(".")[0] for rule in FLM.rules if rule.wire}
    other = {
        # written by the router itself
        "model", "messages", "tools", "stream", "stream_options", "adaptations", "logprobs",
        # another name of a field above
        "max_completion_tokens", "enable_thinking", "chat_template_kwargs",
        # no effect, or only false has one
        "metadata", "safety_identifier", "add_generation_prompt", "store", "service_tier",
        # through Config(extensions=...), for evaluators and load generators
        "n", "min_tokens", "stop_token_ids", "ignore_eos", "logit_bias", "return_token_ids",
        "request_id", "return_timings", "timings_per_token", "return_progress",
        "structured_outputs",
    }  # fmt: skip
    assert not sent & other
    assert sent | other == set(ChatBody.model_fields)


def test_limits_are_the_servers() -> None:
    rules = {rule.field: rule for rule in FLM.rules}
    assert rules["stop"].most == MAX_STOPS
    assert rules["logprobs"].high == MAX_TOP_LOGPROBS


@pytest.mark.parametrize("name", sorted(RANGES))
def test_what_the_router_lets_through_the_server_takes(name: str) -> None:
    """What ``Config`` takes is within the server's range by the time it goes out."""
    for value in (0, 1, 2, -2, 0.5, 1e-9, 1000):
        try:
            config = Config(**{name: value})
        except (TypeError, ValueError):
            continue
        plan = router_of(None).plan(
            Request(model="flm:m", messages=[Message.user("x")], config=config)
        )
        sent = plan[0].applied if plan else getattr(config, name)
        assert RANGES[name].holds(sent), (name, value, sent)
