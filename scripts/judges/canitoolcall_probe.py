"""canitoolcall probe: its scenarios, whole and streamed, where it does not depend on the model
whether and what is called."""

import sys
from dataclasses import replace
from typing import Any

from canitoolcall.probe import BUILTIN_SCENARIOS, Scenario, probe
from judgelib.checks import REQUEST_TIMEOUT_S, Check, Server, main

# Replies are long enough for any arguments here, and a loop of the model ends.
LIMIT = {"max_tokens": 300}
# Free to call again and again, a small model does so until it is cut off.
ONE_CALL = {"parallel_tool_calls": False}
# "auto" leaves the call to the model's wit; only the wish to call differs from the original.
FORCED: dict[str, Any] = {
    "single-call": "required",
    "no-call": "none",
    "nested-args": "required",
    "unicode-args": "required",
    "empty-args": "required",
    "tool-result-followup": "none",
    "reasoning-then-call": "required",
}
UNJUDGED = {"parallel-calls"}  # how many calls come is always the model's choice


def scenario_of(original: Scenario) -> Scenario:
    """The scenario with its call forced; one that forces it already stays as it is."""
    if original.id not in FORCED:
        return replace(original, extra_body={**original.extra_body, **LIMIT})
    tools = original.tools
    if original.id == "unicode-args":
        tools = tuple(_spelt_out(tool) for tool in tools)
    return replace(
        original,
        tool_choice=FORCED[original.id],
        tools=tools,
        extra_body={**original.extra_body, **LIMIT, **ONE_CALL},
    )


def _spelt_out(tool: Any) -> Any:
    """The same tool with the one note that it is asked to save as its only possible value."""
    function = tool["function"]
    values = {"title": "Grüße aus Zürich", "body": "Café ☕ in 東京 — naïve résumé 🚀"}
    properties = {name: {"type": "string", "enum": [text]} for name, text in values.items()}
    parameters = {**function["parameters"], "properties": properties}
    return {**tool, "function": {**function, "parameters": parameters}}


def check_of(original: Scenario) -> Check:
    """A scenario as a check: whole, streamed, and both alike."""

    def check(server: Server) -> None:
        report = probe(
            server.url,
            server.model,
            scenarios=[scenario_of(original)],
            timeout_s=REQUEST_TIMEOUT_S,
            concurrency=1,
        )
        assert len(report.outcomes) == 3
        wrong = [
            (outcome.check, outcome.stream, outcome.detail, outcome.warnings)
            for outcome in report.outcomes
            if outcome.status != "pass" or outcome.warnings
        ]
        assert not wrong, wrong

    check.__doc__ = f"{original.id}: {original.description}"
    return check


if __name__ == "__main__":
    judged = [item for item in BUILTIN_SCENARIOS if item.id not in UNJUDGED]
    sys.exit(main(*(check_of(item) for item in judged)))
