"""llm-comply: its rows for several APIs, replies held to the OpenAPI files that it brings along."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files

from judgelib.checks import REQUEST_TIMEOUT_S, Check, Server, main
from llm_comply.config import ComplianceConfig
from llm_comply.runner import TestRunner
from llm_comply.schema import SpecLoader
from llm_comply.test_case import TestCase
from llm_comply.tests import get_tests


@dataclass(frozen=True, slots=True)
class Otherwise:
    """The documentation promises something else than a row expects: what the row must find then,
    and why."""

    finding: str
    reason: str


@dataclass(frozen=True, slots=True)
class Form:
    """An API as the suite knows it: the file that describes it, and the rows that end otherwise."""

    spec: str
    otherwise: Mapping[str, Otherwise] = field(default_factory=dict)


_BLIND = "an image is a 400, because no model here can see"
FORMS = {
    "openai-chat": Form(
        "openai_chat.json",
        {
            "chat-image-input": Otherwise("HTTP 400 (expected [200])", _BLIND),
            "chat-reasoning-summary": Otherwise(
                "usage.completion_tokens_details.reasoning_tokens is 0",
                "reasoning is accepted and leaves a model that cannot reason as it is",
            ),
        },
    ),
    "anthropic": Form(
        "anthropic.json",
        {
            "anth-image-input": Otherwise("HTTP 400 (expected [200])", _BLIND),
            "anth-thinking-display": Otherwise(
                "no thinking content block found",
                "thinking is accepted and leaves a model that cannot reason as it is",
            ),
        },
    ),
    "open-responses": Form(
        "openresponses.json",
        {
            "compact-response": Otherwise(
                "response.output is missing or empty",
                "conversations are not compacted: 404, which the row allows and then warns of",
            ),
            "image-input": Otherwise("HTTP 400 (expected [200])", _BLIND),
            "reasoning-summary": Otherwise(
                "response.reasoning.summary is null",
                "reasoning is accepted and leaves a model that cannot reason as it is",
            ),
        },
    ),
}


def check_of(name: str, form: Form, test: TestCase) -> Check:
    """A row of the suite as a check of ours, run by the suite's own runner."""
    spec = str(files("llm_comply") / "specs" / form.spec)
    otherwise = form.otherwise.get(test.id)

    def check(server: Server) -> None:
        # Rows name no temperature and no limit; greedy, their replies end by themselves.
        server.be_greedy()
        config = ComplianceConfig(
            base_url=server.url,
            api_key=server.api_key,
            model=server.model,
            timeout=REQUEST_TIMEOUT_S,
        )
        # The suite skips a row by the name of the model; no row is skipped here.
        result = TestRunner(config, [], SpecLoader(spec)).run_one(replace(test, skip_reason=None))
        complaints = [*result.errors, *result.warnings]
        if otherwise is None:
            assert not complaints, complaints
        else:
            assert complaints, f"the suite found nothing; take {test.id} out of {name}"
            assert complaints[0].startswith(otherwise.finding), complaints

    line = test.description if otherwise is None else otherwise.reason
    check.__doc__ = f"{test.id}: {line}"
    return check


if __name__ == "__main__":
    sys.exit(
        main(
            *(
                check_of(name, form, test)
                for name, form in FORMS.items()
                for test in get_tests(name)
            )
        )
    )
