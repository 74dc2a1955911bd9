"""From engine events to reply events: order, stops, ends, failures and cancellation."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from flm.engine.protocol import EngineEvent, Failed, Finished, Logprobs, PromptRead, TokenOut
from flm.errors import EngineDeadError
from flm.service import Generation, Prepared
from flm.service.requests import engine_requests
from flm.sticky import Snapshot
from flm.text.parsers import PlainParser, ReplyShape
from flm.text.tokenizer import Tokenizer
from flm.types import (
    ChoiceDone,
    Event,
    GenerationRequest,
    PromptEcho,
    RequestDone,
    Settings,
    TextDelta,
)
from tests.support.vocabularies import byte_level_json, data_of

pytestmark = pytest.mark.anyio
TOKENIZER = Tokenizer.from_data(data_of(byte_level_json(), eos="<|im_end|>"))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Stats:
    active_kv_tokens: int = 4
    cached_kv_tokens: int = 3
    max_kv_tokens: int = 64


@dataclass
class ScriptedEngine:
    """Notes what is aborted; the tests play the events."""

    aborted: list[tuple[str, int | None]] = field(default_factory=list)

    def abort(self, request_id: str, *, keep_tokens: int | None = None) -> None:
        self.aborted.append((request_id, keep_tokens))

    def stats(self) -> Stats:
        return Stats()


class Info:
    context_len = 64


class Model:
    """As much of a loaded model as a generation uses."""

    tokenizer = TOKENIZER
    info = Info()
    load_duration = 0.5

    def __init__(self) -> None:
        self.engine = ScriptedEngine()

    think = "none"

    def make_parser(self, _reply: ReplyShape) -> PlainParser:
        return PlainParser()


def make(**fields: Any) -> tuple[Model, Generation]:
    model: Any = Model()
    request = GenerationRequest(
        id="r", model="m", settings=Settings(), sent={}, prompts=("ab",), **fields
    )
    ids = tuple(TOKENIZER.encode("ab"))
    prepared = Prepared(request, (ids,), None, (8,), (), fits=True)
    requests = engine_requests(model, prepared)
    snapshot = Snapshot(Settings(), ())
    return model, Generation(model, prepared, requests, snapshot)


def tokens(name: str, text: str) -> list[EngineEvent]:
    return [TokenOut(name, token_id) for token_id in TOKENIZER.encode(text)]


def finished(name: str, reason: Any = "stop", num_tokens: int = 1) -> Finished:
    return Finished(name, reason, 2, num_tokens, 0, 0.25, 0.5)


async def play(generation: Generation, events: Sequence[EngineEvent]) -> list[Event]:
    for event in events:
        generation.sink(event)
    return [event async for event in generation.events()]


def text_of(events: Sequence[Event], index: int = 0) -> str:
    return "".join(
        event.text for event in events if isinstance(event, TextDelta) and event.index == index
    )


async def test_a_reply_is_deltas_an_end_and_the_counts() -> None:
    _, generation = make()
    out = tokens("r-0", "Hello there")
    events = await play(generation, [PromptRead("r-0", 0), *out, finished("r-0", "length")])
    assert text_of(events) == "Hello there"
    assert events[-2] == ChoiceDone(0, "length")
    done = events[-1]
    assert isinstance(done, RequestDone)
    assert done.usage.completion_tokens == len(out)
    assert done.usage.prompt_tokens == len(generation.prompt_ids[0])
    assert done.usage.prefill_duration == 0.25
    assert done.usage.active_kv_tokens == 7


async def test_a_stop_string_ends_the_choice_and_discards_later_tokens() -> None:
    model, generation = make(stop=("lo",))
    first, rest = tokens("r-0", "Hel"), tokens("r-0", "lo")
    late = tokens("r-0", " never seen")
    events = await play(generation, [*first, *rest, *late, finished("r-0", "abort")])
    assert text_of(events) == "Hel"
    assert [event for event in events if isinstance(event, ChoiceDone)] == [ChoiceDone(0, "stop")]
    num_kept = len(first) + len(rest)
    assert model.engine.aborted == [("r-0", num_kept)]
    done = events[-1]
    assert isinstance(done, RequestDone)
    assert done.usage.completion_tokens == num_kept


async def test_choices_end_each_for_itself_and_the_request_ends_last() -> None:
    _, generation = make(n=2)
    script = [
        *tokens("r-1", "b"),
        finished("r-1"),
        *tokens("r-0", "a"),
        finished("r-0", "length"),
    ]
    events = await play(generation, script)
    assert (text_of(events, 0), text_of(events, 1)) == ("a", "b")
    ends = [event for event in events if isinstance(event, ChoiceDone)]
    assert ends == [ChoiceDone(1, "stop"), ChoiceDone(0, "length")]
    assert isinstance(events[-1], RequestDone)


async def test_echo_comes_first_with_prompt_logprobs() -> None:
    _, generation = make(echo=True, top_logprobs=1)
    ids = generation.prompt_ids[0]
    logprobs = (None, *(Logprobs(token_id, -1.0, ((5, -0.5),)) for token_id in ids[1:]))
    events = await play(generation, [PromptRead("r-0", 0, logprobs), finished("r-0", "length", 0)])
    echo = events[0]
    assert isinstance(echo, PromptEcho)
    assert echo.text == "ab"
    assert [entry.logprob for entry in echo.logprobs] == [None] + [-1.0] * (len(ids) - 1)


async def test_every_token_carries_its_logprob_exactly_once() -> None:
    _, generation = make(top_logprobs=1)
    ids = TOKENIZER.encode("né 🐉 x")
    out = [TokenOut("r-0", i, Logprobs(i, -float(i), ((i, -float(i)),))) for i in ids]
    events = await play(generation, [*out, finished("r-0")])
    deltas = [event for event in events if isinstance(event, TextDelta)]
    assert [i for delta in deltas for i in delta.token_ids] == ids
    assert [entry.logprob for delta in deltas for entry in delta.logprobs] == [
        -float(i) for i in ids
    ]


async def test_a_failure_is_raised_and_the_siblings_are_ended() -> None:
    model, generation = make(n=2)
    generation.sink(Failed("r-0", EngineDeadError("gone")))
    with pytest.raises(EngineDeadError):
        async for _ in generation.events():
            pass
    assert model.engine.aborted == [("r-1", None)]


async def test_leaving_early_ends_every_sequence_once() -> None:
    model, generation = make(n=2)
    generation.sink(tokens("r-0", "a")[0])
    events = generation.events()
    await anext(events)
    await events.aclose()
    generation.cancel()
    assert sorted(model.engine.aborted) == [("r-0", None), ("r-1", None)]


async def test_events_arrive_from_another_thread() -> None:
    _, generation = make()
    script = [*tokens("r-0", "thread"), finished("r-0")]

    async def read() -> str:
        return text_of([event async for event in generation.events()])

    reader = asyncio.create_task(read())
    await asyncio.to_thread(lambda: [generation.sink(event) for event in script])
    assert await asyncio.wait_for(reader, 10) == "thread"
