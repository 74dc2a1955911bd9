"""Requests made up from the server's own OpenAPI document, against the whole server."""

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.support.app import RunningApp

# Whether a request can be honoured also depends on the model (its vocabulary, its context) and on
# fields together, which a schema cannot say: some bodies that fit it are a 400.
EXCLUDED = [positive_data_acceptance]
OPERATIONS = [
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("POST", "/v1/chat/completions/plan"),
    ("POST", "/v1/completions/plan"),
    ("POST", "/v1/responses"),
    ("POST", "/v1/responses/plan"),
    ("POST", "/v1/responses/input_tokens"),
    ("GET", "/v1/responses/{reply_id}"),
    ("DELETE", "/v1/responses/{reply_id}"),
    ("GET", "/v1/responses/{reply_id}/input_items"),
    ("POST", "/v1/messages"),
    ("POST", "/v1/messages/plan"),
    ("POST", "/v1/messages/count_tokens"),
    ("POST", "/completion"),
    ("POST", "/completions"),
    ("POST", "/tokenize"),
    ("POST", "/detokenize"),
    ("POST", "/apply-template"),
    ("GET", "/props"),
    ("GET", "/slots"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/{model_id}"),
    ("GET", "/v1/settings"),
    ("DELETE", "/v1/settings"),
    ("GET", "/"),
    ("GET", "/health"),
    ("GET", "/v1/version"),
    ("GET", "/api/version"),
    ("POST", "/api/cancel"),
    ("POST", "/api/chat"),
    ("POST", "/api/chat/plan"),
    ("POST", "/api/generate"),
    ("POST", "/api/generate/plan"),
    ("POST", "/api/show"),
    ("GET", "/api/tags"),
    ("GET", "/api/ps"),
]


def explore(app: RunningApp, method: str, path: str, max_examples: int) -> None:
    with app.client() as client:
        document = client.get("/openapi.json").json()
        schema = schemathesis.openapi.from_dict(document)
        schema.config.update(base_url=app.url)
        documented = {
            int(status) for status in document["paths"][path][method.lower()]["responses"]
        }

        @given(case=schema[path][method].as_strategy())
        @settings(
            max_examples=max_examples,
            deadline=None,
            suppress_health_check=[
                HealthCheck.too_slow,
                HealthCheck.filter_too_much,
                HealthCheck.data_too_large,
            ],
        )
        def run(case: Any) -> None:
            if isinstance(case.body, dict):
                bounded(case.body)
            reply = case.call(timeout=60)
            assert reply.status_code != 500, reply.text
            assert reply.status_code in documented, (reply.status_code, reply.text)
            if reply.status_code == 503:
                assert int(reply.headers["retry-after"][0]) > 0
            case.validate_response(reply, excluded_checks=EXCLUDED)

        run()


def bounded(body: dict[str, Any]) -> None:
    """Absent, the number of tokens has no bound but the context."""
    options = body.get("options")
    if isinstance(options, dict):
        options.pop("num_predict", None)
    for name in ("max_tokens", "max_output_tokens"):
        value = body.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= 4:
            body[name] = 2
    body.pop("max_completion_tokens", None)
    body.pop("n_predict", None)


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_no_request_finds_a_500(app: RunningApp, method: str, path: str) -> None:
    explore(app, method, path, max_examples=25)


@pytest.mark.full
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_no_request_of_many_finds_a_500(app: RunningApp, method: str, path: str) -> None:
    explore(app, method, path, max_examples=1000)


def test_every_operation_is_explored(app: RunningApp) -> None:
    with app.client() as client:
        paths = client.get("/openapi.json").json()["paths"]
    found = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    assert found == set(OPERATIONS)
