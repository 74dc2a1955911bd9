"""llm-comply: its rows for Open Responses, replies and events held to its OpenAPI file."""

import sys
from dataclasses import replace
from importlib.resources import files

from judgelib.checks import REQUEST_TIMEOUT_S, Check, Server, main
from llm_comply.config import ComplianceConfig
from llm_comply.runner import TestRunner
from llm_comply.schema import SpecLoader
from llm_comply.test_case import TestCase
from llm_comply.tests import get_tests

SPEC = str(files("llm_comply") / "specs" / "openresponses.json")
# Where the documentation promises something else than a row expects: what the row must find then.
OTHERWISE = {
    "compact-response": (
        "response.output is missing or empty",
        "conversations are not compacted: 404, which the row allows and then warns of",
    ),
    "image-input": (
        "HTTP 400 (expected [200])",
        "an image is a 400, because no model here can see",
    ),
    "error-handling": (
        "HTTP 200 (expected [400, 422])",
        "a request without model is answered by the loaded one",
    ),
    "reasoning-summary": (
        "response.reasoning.summary is null",
        "reasoning is accepted and leaves a model that cannot reason as it is",
    ),
}


def check_of(test: TestCase) -> Check:
    """A row of the suite as a check of ours, run by the suite's own runner."""
    finding, line = OTHERWISE.get(test.id, (None, test.description))

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
        result = TestRunner(config, [], SpecLoader(SPEC)).run_one(replace(test, skip_reason=None))
        complaints = [*result.errors, *result.warnings]
        if finding is None:
            assert not complaints, complaints
        else:
            assert complaints, f"the suite found nothing; take {test.id} out of OTHERWISE"
            assert complaints[0].startswith(finding), complaints

    check.__doc__ = f"{test.id}: {line}"
    return check


if __name__ == "__main__":
    sys.exit(main(*(check_of(test) for test in get_tests("open-responses"))))
