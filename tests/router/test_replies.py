"""How replies and their parts are read, in every dialect."""

# ruff: noqa: E501 - rows of a table

from typing import Any

import pytest

from flm.router import (
    CitationPart,
    Config,
    InvalidRequestError,
    Message,
    RefusalPart,
    Request,
    Response,
    ThinkingPart,
    TokenLogprob,
    ToolCallPart,
    Usage,
)
from tests.support.providers import Scripted, router_of, streamed, whole

CALL = ToolCallPart("c1", "look", {"at": "sea"})
HI = Message.user("hi")


def answer(model: str, data: Any, **settings: Any) -> Response:
    request = Request(model=model, messages=[HI], config=Config(**settings))
    return router_of(Scripted(whole(data))).complete(request)


def test_a_call_is_read_from_every_dialect() -> None:
    function = {"name": "look", "arguments": '{"at": "sea"}'}
    choice = {"message": {"content": None, "tool_calls": [{"id": "c1", "function": function}]}}
    replies: dict[str, Any] = {
        "flm:m": {"choices": [{**choice, "finish_reason": "tool_calls"}]},
        "anthropic:m": {
            "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {"at": "sea"}}],
            "stop_reason": "tool_use",
        },
        "openai:m": {
            "status": "completed",
            "output": [{"type": "function_call", "call_id": "c1", **function}],
        },
        "gemini:m": {
            "candidates": [
                {
                    "content": {
                        "parts": [
                            {"functionCall": {"id": "c1", "name": "look", "args": {"at": "sea"}}}
                        ]
                    },
                    "finishReason": "STOP",
                }
            ]
        },
    }
    for model, data in replies.items():
        response = answer(model, data)
        assert response.tool_calls == (CALL,), model
        assert (response.finish_reason, response.text) == ("tool_call", None)


def test_arguments_that_are_no_json_are_kept() -> None:
    function = {"name": "look", "arguments": '{"at": "se'}
    choice = {"message": {"tool_calls": [{"function": function}]}, "finish_reason": "length"}
    response = answer("flm:m", {"choices": [choice]})
    assert response.tool_calls[0].input == {"partial_json": '{"at": "se'}
    assert response.tool_calls[0].id == "tool_call_3"
    assert response.finish_reason == "length"


def test_reasoning_is_read_and_text_is_left_alone() -> None:
    message = {"content": "<think>no</think>yes", "reasoning_content": "hm"}
    response = answer("flm:m", {"choices": [{"message": message, "finish_reason": "stop"}]})
    assert (response.reasoning, response.text) == ("hm", "<think>no</think>yes")
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "a", "citations": [{"url": "http://x", "title": "t"}]},
        {"type": "text", "text": "b"},
    ]
    response = answer("anthropic:m", {"content": blocks, "stop_reason": "end_turn"})
    assert response.message.parts[0] == ThinkingPart("hm", "s")
    assert response.citations == (CitationPart("http://x", "t"),)
    assert response.text == "a\nb"


@pytest.mark.parametrize(
    ("model", "data", "reason"),
    [
        ("flm:m", {"choices": [{"message": {"content": "x"}, "finish_reason": "length"}]}, "length"),
        ("flm:m", {"choices": [{"message": {"content": "x"}, "finish_reason": None}]}, "stop"),
        ("flm:m", {"choices": [{"message": {"content": "x"}, "finish_reason": "new"}]}, "stop"),
        ("anthropic:m", {"content": [], "stop_reason": "max_tokens"}, "length"),
        ("anthropic:m", {"content": [], "stop_reason": "refusal"}, "content_filter"),
        ("openai:m", {"output": [], "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        ("gemini:m", {"candidates": [{"finishReason": "MAX_TOKENS"}]}, "length"),
    ],
)  # fmt: skip
def test_why_an_answer_ended(model: str, data: Any, reason: str) -> None:
    response = answer(model, data)
    assert response.finish_reason == reason
    assert response.message.parts


def test_a_refusal_of_the_model_is_no_text() -> None:
    message = {"content": None, "refusal": "I will not."}
    response = answer("openai-chat:m", {"choices": [{"message": message, "finish_reason": "stop"}]})
    assert response.message.parts == (RefusalPart("I will not."),)
    assert response.text is None


def test_an_answer_that_gemini_blocks_is_an_error() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        answer("gemini:m", {"candidates": [{"finishReason": "SAFETY"}]})
    assert (caught.value.code, caught.value.provider_code) == ("content_filter", "SAFETY")


def test_counts_that_are_not_told_are_none() -> None:
    reply = {"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]}
    assert answer("flm:m", reply).usage == Usage()
    details = {"prompt_tokens_details": {"cached_tokens": 2}}
    counted = {**reply, "usage": {"prompt_tokens": 3, "completion_tokens": 4, **details}}
    assert answer("flm:m", counted).usage == Usage(3, 4, 7, cache_read_tokens=2)
    assert answer("gemini:m", {"candidates": [{"finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 3}}).usage == Usage(3, 0, 3)  # fmt: skip


def test_log_probabilities() -> None:
    entry = {"token": "x", "logprob": -0.5, "top_logprobs": [{"token": "y", "logprob": -1.5}]}
    choice = {"message": {"content": "x"}, "logprobs": {"content": [entry]}}
    data = {"choices": [{**choice, "finish_reason": "stop"}]}
    expected = (TokenLogprob("x", -0.5, (TokenLogprob("y", -1.5),)),)
    response = answer("flm:m", data, logprobs=1)
    assert (response.logprobs, response.logprobs_complete) == (expected, True)
    assert answer("flm:m", data).logprobs is None
    scored = {
        "chosenCandidates": [{"token": "x", "logProbability": -0.5}],
        "topCandidates": [{"candidates": [{"token": "y", "logProbability": -1.5}]}],
    }
    candidate = {"content": {"parts": [{"text": "x"}]}, "finishReason": "STOP"}
    data = {"candidates": [{**candidate, "logprobsResult": scored}]}
    assert answer("gemini:m", data, logprobs=1).logprobs == expected


def test_calls_arrive_in_pieces() -> None:
    def chunk(**function: str) -> dict[str, Any]:
        call: dict[str, Any] = {"index": 0, "function": function}
        if "name" in function:
            call["id"] = "c1"
        return {"id": "1", "model": "m", "choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}

    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    events = [
        chunk(name="look", arguments=""),
        chunk(arguments='{"at": '),
        chunk(arguments='"sea"}'),
    ]
    transport = Scripted(streamed(*events, end, "[DONE]"))
    stream = router_of(transport).stream(Request(model="flm:m", messages=[HI]))
    assert stream.response.tool_calls == (CALL,)


def test_a_call_of_responses_is_read_once() -> None:
    item = {"type": "function_call", "call_id": "c1", "name": "look"}
    done = {**item, "arguments": '{"at": "sea"}'}
    start = {"type": "response.created", "response": {"id": "1", "model": "m"}}
    end = {"type": "response.completed", "response": {"status": "completed"}}
    added = {"type": "response.output_item.added", "output_index": 0, "item": item}
    delta = {"type": "response.function_call_arguments.delta", "output_index": 0}
    ended = {"type": "response.output_item.done", "output_index": 0, "item": done}
    for pieces in ([], [{**delta, "delta": '{"at": '}, {**delta, "delta": '"sea"}'}]):
        transport = Scripted(streamed(start, added, *pieces, ended, end))
        stream = router_of(transport).stream(Request(model="openai:m", messages=[HI]))
        assert stream.response.tool_calls == (CALL,)
