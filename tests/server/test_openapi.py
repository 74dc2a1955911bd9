"""The document tells the truth: schemathesis calls what it describes."""

from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import CHECKS

from flm.server.app import build_app
from flm.server.context import ServerContext
from tests.support.fake_service import FakeService

APP = build_app(ServerContext(FakeService()))  # type: ignore[arg-type]
schema = schemathesis.openapi.from_asgi("/openapi.json", APP)
# Their bodies are those of the paths that they preview, and of /completion.
brief = schema.exclude(path_regex="/plan$").exclude(path="/completions")
QUIET = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


# Whether a request can be honoured also depends on the model (its vocabulary, its context) and on
# fields together, which a schema cannot say: some bodies that fit it are a 400.
EXCLUDED = [CHECKS.get_one("positive_data_acceptance")]


@brief.parametrize()
@settings(max_examples=15, deadline=None, suppress_health_check=QUIET)
def test_every_path(case: Any) -> None:
    case.call_and_validate(excluded_checks=EXCLUDED)


@pytest.mark.full
@schema.parametrize()
@settings(max_examples=300, deadline=None, suppress_health_check=QUIET)
def test_every_path_at_length(case: Any) -> None:
    case.call_and_validate(excluded_checks=EXCLUDED)


@pytest.mark.anyio
async def test_the_document(client: httpx.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    assert set(document["paths"]) == {
        "/",
        "/health",
        "/v1/version",
        "/api/version",
        "/v1/models",
        "/v1/models/{model_id}",
        "/v1/settings",
        "/v1/chat/completions",
        "/v1/chat/completions/plan",
        "/v1/completions",
        "/v1/completions/plan",
        "/v1/messages",
        "/v1/messages/plan",
        "/v1/messages/count_tokens",
        "/v1/responses",
        "/v1/responses/plan",
        "/v1/responses/input_tokens",
        "/v1/responses/{reply_id}",
        "/v1/responses/{reply_id}/input_items",
        "/completion",
        "/completions",
        "/tokenize",
        "/detokenize",
        "/apply-template",
        "/props",
        "/slots",
        "/api/cancel",
        "/api/chat",
        "/api/chat/plan",
        "/api/generate",
        "/api/generate/plan",
        "/api/tags",
        "/api/ps",
        "/api/show",
    }
    for path, operations in document["paths"].items():
        for operation in operations.values():
            assert "422" not in operation["responses"], path
            if "503" in operation["responses"]:
                assert "Retry-After" in operation["responses"]["503"]["headers"]
    post = document["paths"]["/v1/chat/completions"]["post"]
    assert set(post["responses"]) == {"200", "400", "404", "413", "499", "500", "503"}
    assert set(post["responses"]["200"]["content"]) == {"application/json", "text/event-stream"}
    assert "messages" in document["components"]["schemas"]["ChatBody"]["properties"]
    assert (await client.get("/docs")).status_code == 200
