"""Events become a message of blocks, and a stream adds up to the same."""

import itertools
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import from_json

from flm.adaptation import Adaptation
from flm.errors import EngineDeadError
from flm.server.anthropic_reply import Blocks, MessageStream, WholeMessage
from flm.server.responses import ReplyHead
from flm.server.schemas.anthropic_replies import MessageErrorReply, MessageEvent, MessageReply
from flm.types import (
    ChoiceDone,
    Event,
    FinishReason,
    ReadProgress,
    RequestDone,
    TextDelta,
    ToolCallDelta,
    Usage,
)

CALL = {"name": "f", "arguments": {"city": "Paris", "days": [1, 2]}}
ARGUMENTS = json.dumps(CALL["arguments"])


def text(*parts: str) -> list[Event]:
    return [TextDelta(0, part, "content") for part in parts]


def thoughts(*parts: str) -> list[Event]:
    return [TextDelta(0, part, "reasoning") for part in parts]


def call(*parts: str, index: int = 0, name: str = "f") -> list[Event]:
    first, *rest = parts
    begin = ToolCallDelta(0, index, f"call_{index}", name, first)
    return [begin, *(ToolCallDelta(0, index, None, None, part) for part in rest)]


def usage(**fields: Any) -> Usage:
    counts: dict[str, Any] = {
        "prompt_tokens": 10,
        "completion_tokens": 7,
        "cached_tokens": 4,
        "reasoning_tokens": 2,
        "context_len": 512,
        "active_kv_tokens": 0,
        "max_kv_tokens": 0,
        "load_duration": 0.0,
        "prefill_duration": 0.0,
        "decoding_duration": 0.0,
    }
    return Usage(**{**counts, **fields})


def ended(
    events: list[Event], reason: FinishReason = "stop", stop_string: str | None = None
) -> list[Event]:
    return [*events, ChoiceDone(0, reason, stop_string), RequestDone(usage())]


def stream_of(
    *,
    shows_thinking: bool = True,
    eager: bool = False,
    is_clamped: bool = False,
    adaptations: tuple[Adaptation, ...] = (),
) -> MessageStream:
    head = ReplyHead("msg_1", "fake:1b", 0, (tuple(range(10)),), 1, adaptations)
    blocks = Blocks(shows_thinking=shows_thinking, streams_input=lambda _: eager)
    return MessageStream(head, blocks, is_clamped=is_clamped)


def chunks_of(events: list[Event], **options: Any) -> list[dict[str, Any]]:
    stream = stream_of(**options)
    chunks = [chunk for event in events for chunk in stream.feed(event)]
    for chunk in chunks:
        MessageEvent.model_validate(chunk)
    return json.loads(json.dumps(chunks))  # type: ignore[no-any-return]


def whole(events: list[Event], **options: Any) -> dict[str, Any]:
    reply = WholeMessage(stream_of(**options))
    for event in events:
        reply.feed(event)
    message = reply.flush()
    MessageReply.model_validate(message)
    return message


def summed(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """What a client makes of a stream, written as Anthropic's documentation tells it."""
    message: dict[str, Any] = {}
    inputs: dict[int, str] = {}
    open_index = None
    for chunk in chunks:
        match chunk["type"]:
            case "message_start":
                message = chunk["message"]
            case "content_block_start":
                assert open_index is None
                open_index = chunk["index"]
                assert open_index == len(message["content"])
                message["content"].append(chunk["content_block"])
            case "content_block_delta":
                assert chunk["index"] == open_index
                block, delta = message["content"][-1], chunk["delta"]
                match delta["type"]:
                    case "text_delta":
                        block["text"] += delta["text"]
                    case "thinking_delta":
                        block["thinking"] += delta["thinking"]
                    case "signature_delta":
                        block["signature"] = delta["signature"]
                    case "input_json_delta":
                        inputs[open_index] = inputs.get(open_index, "") + delta["partial_json"]
                        block["input"] = from_json(inputs[open_index], allow_partial=True)
            case "content_block_stop":
                assert chunk["index"] == open_index
                open_index = None
            case "message_delta":
                message.update(chunk["delta"])
                message["usage"].update(chunk["usage"])
    assert open_index is None
    assert [chunk["type"] for chunk in chunks][-2:] == ["message_delta", "message_stop"]
    return message


def blocks_of(events: list[Event], **options: Any) -> list[tuple[str, Any]]:
    keys = {"text": "text", "thinking": "thinking", "tool_use": "input"}
    content = whole(events, **options)["content"]
    return [(block["type"], block[keys[block["type"]]]) for block in content]


# --- blocks ------------------------------------------------------------------------------------


def test_each_kind_of_text_is_a_block() -> None:
    events = ended([*thoughts("Hm", "m."), *text("Yes", "", "!"), *call(ARGUMENTS), *text("And")])
    assert blocks_of(events) == [
        ("thinking", "Hmm."),
        ("text", "Yes!"),
        ("tool_use", CALL["arguments"]),
        ("text", "And"),
    ]
    assert summed(chunks_of(events)) == whole(events)


def test_calls_have_ids_of_their_own() -> None:
    events = ended([*call("{}"), *call('{"a":', "1}", index=1, name="g")], "tool_calls")
    message = whole(events)
    one, other = message["content"]
    direct = {"type": "direct"}
    assert one == {"type": "tool_use", "id": "toolu_0", "name": "f", "input": {}, "caller": direct}
    assert (other["id"], other["name"], other["input"]) == ("toolu_1", "g", {"a": 1})
    assert message["stop_reason"] == "tool_use"
    assert summed(chunks_of(events)) == message


def test_a_call_is_told_when_it_is_whole_or_as_it_comes() -> None:
    events = ended(call('{"a"', ": 1", "}"), "tool_calls")

    def inputs(**options: Any) -> list[str]:
        chunks = chunks_of(events, **options)
        deltas = [chunk["delta"] for chunk in chunks if chunk["type"] == "content_block_delta"]
        return [delta["partial_json"] for delta in deltas]

    assert inputs() == ['{"a": 1}']
    assert inputs(eager=True) == ['{"a"', ": 1", "}"]
    assert summed(chunks_of(events)) == summed(chunks_of(events, eager=True)) == whole(events)


def test_a_call_that_is_no_object_is_text() -> None:
    for arguments in ('{"a": tomorrow}}', "[1]", '{"a": NaN}', '{"a": 1', ""):
        events = ended([*text("See: "), *call(arguments)])
        written = f'{{"name": "f", "arguments": {arguments}'
        assert blocks_of(events) == [("text", "See: "), ("text", written)]
        assert whole(events)["stop_reason"] == "end_turn"
        assert summed(chunks_of(events)) == whole(events)


def test_a_call_that_is_cut_has_the_part_that_is_certain() -> None:
    for arguments, found in (
        ('{"a": 1, "path": "/tm', {"a": 1}),
        ('{"a": [1, 2], "b": [3], ', {"a": [1, 2], "b": [3]}),
        ("{", {}),
    ):
        events = ended(call(arguments), "length")
        assert blocks_of(events) == [("tool_use", found)]
        assert whole(events)["stop_reason"] == "max_tokens"
        assert summed(chunks_of(events)) == whole(events)
    assert blocks_of(ended(call('{"path": no'), "length"))[0][0] == "text"


def test_thoughts_end_with_a_signature() -> None:
    events = ended([*thoughts("a", "b"), *text("c")])
    kinds = [
        chunk["delta"]["type"]
        for chunk in chunks_of(events)
        if "index" in chunk and "delta" in chunk
    ]
    assert kinds == ["thinking_delta", "thinking_delta", "signature_delta", "text_delta"]


def test_omitted_thoughts_leave_an_empty_block() -> None:
    events = ended([*thoughts("a", "b"), *text("c")])
    assert blocks_of(events, shows_thinking=False) == [("thinking", ""), ("text", "c")]
    assert summed(chunks_of(events, shows_thinking=False)) == whole(events, shows_thinking=False)


def test_a_reply_without_text_has_no_blocks() -> None:
    events = ended([*text("")])
    assert whole(events)["content"] == []
    assert [chunk["type"] for chunk in chunks_of(events)] == [
        "message_start",
        "message_delta",
        "message_stop",
    ]


# --- the message -------------------------------------------------------------------------------


def test_why_a_message_ended() -> None:
    def reason(*end: Any, **options: Any) -> tuple[str, str | None]:
        message = whole(ended(text("a"), *end), **options)
        return message["stop_reason"], message["stop_sequence"]

    assert reason("stop") == ("end_turn", None)
    assert reason("stop", "END") == ("stop_sequence", "END")
    assert reason("length") == ("max_tokens", None)
    assert reason("length", is_clamped=True) == ("model_context_window_exceeded", None)
    assert reason("tool_calls") == ("end_turn", None)
    called = ended(call("{}"), "tool_calls")
    assert whole(called)["stop_reason"] == "tool_use"


def test_the_counts() -> None:
    progress = ReadProgress(0, 10, 3, 8, 0.1)
    events = [progress, *ended(text("a"))]
    start, *_, last, _ = chunks_of(events)
    assert start["message"]["usage"]["input_tokens"] == 7
    assert start["message"]["usage"]["cache_read_input_tokens"] == 3
    assert start["message"]["usage"]["output_tokens"] == 0
    assert last["usage"] == {
        "input_tokens": 6,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 4,
        "output_tokens": 7,
        "output_tokens_details": {"thinking_tokens": 2},
        "server_tool_use": None,
    }
    assert summed(chunks_of(events)) == whole(events)
    assert chunks_of(ended(text("a")))[0]["message"]["usage"]["input_tokens"] == 10


def test_a_message_begins_once_with_its_record() -> None:
    entry = Adaptation("foo", "dropped", "Why.")
    progress: list[Event] = [ReadProgress(0, 10, 3, end, 0.1) for end in (8, 10)]
    chunks = chunks_of([*progress, *ended(text("a"))], adaptations=(entry,))
    assert [chunk["type"] for chunk in chunks].count("message_start") == 1
    assert chunks[0]["message"]["adaptations"] == [entry.to_dict()]
    assert "adaptations" not in whole(ended(text("a")))


def test_a_failure_is_an_error_event() -> None:
    stream = stream_of()
    stream.feed(text("a")[0])
    (error,) = stream.fail(EngineDeadError("It died."))
    MessageErrorReply.model_validate(error)
    assert (error["type"], error["error"]["message"]) == ("error", "It died.")
    assert (error["error"]["type"], error["error"]["code"]) == ("overloaded_error", "engine_dead")


# --- all of them -------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)
RAW = st.one_of(
    st.dictionaries(st.text(max_size=3), JSON, max_size=3).map(json.dumps),
    st.text('{}[]":,a1 \\u', max_size=8),
)


@st.composite
def replies(draw: st.DrawFn) -> list[Event]:
    events: list[Event] = []
    num_calls = 0
    for kind in draw(st.lists(st.sampled_from(("text", "thoughts", "call")), max_size=6)):
        if kind != "call":
            parts = draw(st.lists(st.text(max_size=3), max_size=3))
            events += text(*parts) if kind == "text" else thoughts(*parts)
            continue
        raw = draw(RAW)
        cuts = sorted(draw(st.lists(st.integers(0, len(raw)), max_size=3)))
        edges = [0, *cuts, draw(st.sampled_from((len(raw), len(raw) // 2)))]
        parts = [raw[a:b] for a, b in itertools.pairwise(edges)]
        events += call(*parts, index=num_calls)
        num_calls += 1
    reason = draw(st.sampled_from(("stop", "length", "tool_calls")))
    return ended(events, reason)  # type: ignore[arg-type]


@given(replies(), st.booleans(), st.booleans())
def test_a_stream_adds_up_to_the_whole_message(
    events: list[Event], shows_thinking: bool, has_progress: bool
) -> None:
    events = [ReadProgress(0, 10, 3, 8, 0.1), *events] if has_progress else events
    message = whole(events, shows_thinking=shows_thinking)
    assert summed(chunks_of(events, shows_thinking=shows_thinking)) == message
    assert all(block["input"] is not None for block in message["content"] if "input" in block)
