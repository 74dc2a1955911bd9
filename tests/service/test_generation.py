"""From engine events to reply events: order, stops, ends, failures and cancellation."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import pytest

from flm.engine.protocol import (
    EngineEvent,
    Failed,
    Finished,
    Logprobs,
    PromptProgress,
    PromptRead,
    TokenOut,
)
from flm.errors import EngineDeadError
from flm.service import Generation, Prepared
from flm.service.requests import engine_requests
from flm.sticky import Snapshot
from flm.text.parsers import PlainParser, ReplyShape
from flm.text.parsers.hermes import HermesParser
from flm.text.tokenizer import Tokenizer
from flm.types import (
    ChoiceDone,
    Drafts,
    Event,
    GenerationRequest,
    PromptEcho,
    ReadProgress,
    RequestDone,
    Settings,
    TextDelta,
    Timings,
)
from tests.support.vocabularies import byte_level_json, data_of

pytestmark = pytest.mark.anyio
T = TypeVar("T")
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


def make(
    *,
    prompt: str = "ab",
    aside: Any = asyncio.to_thread,
    on_end: Callable[[], None] = lambda: None,
    speculates: bool = False,
    **fields: Any,
) -> tuple[Model, Generation]:
    model: Any = Model()
    model.speculates = speculates
    request = GenerationRequest(
        id="r", model="m", settings=Settings(), sent={}, prompts=(prompt,), **fields
    )
    ids = tuple(TOKENIZER.encode(prompt))
    prepared = Prepared(request, (ids,), None, (8,), (), fits=True)
    requests = engine_requests(model, prepared)
    snapshot = Snapshot(Settings(), ())
    generation = Generation(model, prepared, requests, snapshot, aside=aside, on_end=on_end)
    return model, generation


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
    ends = [event for event in events if isinstance(event, ChoiceDone)]
    assert ends == [ChoiceDone(0, "stop", "lo")]
    num_kept = len(first) + len(rest)
    assert model.engine.aborted == [("r-0", num_kept)]
    done = events[-1]
    assert isinstance(done, RequestDone)
    assert done.usage.completion_tokens == num_kept


async def test_progress_and_timings_are_told_to_those_who_ask() -> None:
    out = tokens("r-0", "Hello there")
    script = [
        PromptProgress("r-0", 1, 1, 0.5),
        PromptProgress("r-0", 2, 1, 1.0),
        PromptRead("r-0", 1, duration=1.0),
        *out,
        Finished("r-0", "stop", 2, len(out), 1, 1.5, 0.5, waiting_duration=0.25),
    ]
    _, generation = make(time_tokens=True, report_progress=True)
    events = await play(generation, script)
    assert events[:2] == [ReadProgress(0, 2, 1, 1, 0.5), ReadProgress(0, 2, 1, 2, 1.0)]
    timed = [event.timings for event in events if isinstance(event, TextDelta) and event.timings]
    assert [item.completion_tokens for item in timed] == list(range(1, len(out) + 1))
    assert {(item.prefill_duration, item.cached_tokens) for item in timed} == {(1.0, 1)}
    assert timed[0].decoding_duration == 0.0
    done = events[-1]
    assert isinstance(done, RequestDone)
    assert done.choices == (done.usage.timings,) == (Timings(2, 1, 1.25, len(out), 0.5),)
    _, generation = make()
    events = await play(generation, script[2:])
    assert not any(event.timings for event in events if isinstance(event, TextDelta))


def guessed(name: str, text: str, *steps: tuple[int, int]) -> list[EngineEvent]:
    """Tokens of ``text``, in steps of so many guesses and so many of them right; a step says one
    token more than was right."""
    outs = [TokenOut(name, token_id) for token_id in TOKENIZER.encode(text)]
    place = 0
    for num_drafted, num_right in steps:
        outs[place] = replace(outs[place], num_drafted=num_drafted)
        for right in range(place, place + num_right):
            outs[right] = replace(outs[right], was_drafted=True)
        place += num_right + 1
    return list(outs)


async def test_guesses_are_counted_as_far_as_they_are_in_the_reply() -> None:
    out = guessed("r-0", "QZXJKVWY", (0, 0), (4, 3), (2, 0))
    assert len(out) == 8
    script = [PromptRead("r-0", 0), *out, Finished("r-0", "stop", 2, len(out), 0, 1.5, 0.5)]
    _, generation = make(time_tokens=True, speculates=True)
    events = await play(generation, script)
    timed = [event.timings for event in events if isinstance(event, TextDelta) and event.timings]
    assert [item.drafts for item in timed] == [
        Drafts(0, 0),
        Drafts(4, 1),
        Drafts(4, 2),
        Drafts(4, 3),
        Drafts(4, 3),
        *[Drafts(6, 3)] * 3,
    ]
    done = events[-1]
    assert isinstance(done, RequestDone)
    assert done.usage.drafts == done.choices[0].drafts == Drafts(6, 3)
    _, generation = make(speculates=True, stop=("XJ",))
    events = await play(generation, script)
    done = events[-1]
    assert isinstance(done, RequestDone)
    assert (done.usage.completion_tokens, done.usage.drafts) == (4, Drafts(4, 3))


async def test_without_guessing_nothing_is_said_of_it() -> None:
    _, generation = make()
    out = tokens("r-0", "Hello")
    events = await play(generation, [PromptRead("r-0", 0), *out, finished("r-0")])
    done = events[-1]
    assert isinstance(done, RequestDone)
    assert done.usage.drafts is done.choices[0].drafts is None


async def test_the_echo_of_a_long_prompt_is_made_aside() -> None:
    places: list[str] = []

    async def aside(work: Callable[[], T]) -> T:
        places.append("aside")
        return await asyncio.to_thread(work)

    for length, expected in ((10, []), (3000, ["aside"])):
        places.clear()
        _, generation = make(prompt="a" * length, aside=aside, echo=True)
        ids = generation.prompt_ids[0]
        read = PromptRead("r-0", 0, (None, *[Logprobs(1, -1.0)] * (len(ids) - 1)))
        events = await play(generation, [read, finished("r-0")])
        echo = events[0]
        assert isinstance(echo, PromptEcho)
        assert (echo.text, len(echo.logprobs)) == ("a" * length, len(ids))
        assert places == expected


async def test_the_end_is_told_once() -> None:
    ends: list[int] = []
    _, generation = make(on_end=lambda: ends.append(1))
    await play(generation, [PromptRead("r-0", 0), *tokens("r-0", "x"), finished("r-0")])
    generation.cancel()
    assert ends == [1]


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


@pytest.mark.parametrize(
    ("said", "stops", "reason"),
    [
        ('<tool_call>\n{"name": "f", "arguments": {"a": 1', "1", "length"),
        # The model itself ended these two.
        ('<tool_call>\n{"name": "f", "arguments": {"a": 1', "", "stop"),
        ('<tool_call>\n{"name": "f", "arguments": {"a": 1<|im_end|>', "<|im_end|>", "stop"),
        ('<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>!', "!", "tool_calls"),
        ("No calls!", "!", "stop"),
    ],
)
async def test_a_call_that_a_stop_token_cuts_is_cut(
    said: str, stops: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Model, "make_parser", lambda *_: HermesParser(lambda _name: True))
    stop_ids = frozenset(TOKENIZER.encode(stops, control=True))
    _, generation = make(stop_token_ids=stop_ids)
    sampled = [TokenOut("r-0", token_id) for token_id in TOKENIZER.encode(said, control=True)]
    events = await play(generation, [*sampled, finished("r-0")])
    (done,) = [event for event in events if isinstance(event, ChoiceDone)]
    assert done.finish_reason == reason
