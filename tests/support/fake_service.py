"""A service without an engine: it says what its script says, one byte of prompt is one token."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from flm.adaptation import Adaptation
from flm.errors import ContextLengthError, FlmError, InvalidRequestError, ModelNotFoundError
from flm.service import CachePlan, Place, TokenText
from flm.sticky import Snapshot, StickyStore
from flm.types import (
    ChoiceDone,
    Event,
    GenerationRequest,
    Prompt,
    PromptEcho,
    ReadProgress,
    RequestDone,
    Settings,
    TextDelta,
    ThinkMode,
    Timings,
    TokenLogprob,
    ToolCallDelta,
    TopLogprob,
    Usage,
)

VOCAB_SIZE = 300
EOS_ID = 299


@dataclass(frozen=True, slots=True)
class FakeInfo:
    id: str
    created: int = 1_700_000_000
    owned_by: str = "flm"
    context_len: int = 512
    family: str = "fake"
    size_bytes: int = 1000
    quantization: str = "none"
    loaded: bool = True
    dtype: str | None = "float32"
    kv_dtype: str | None = "bfloat16"
    device: str | None = "cpu"
    exact: bool | None = True
    vocab_size: int | None = VOCAB_SIZE
    reasons: bool = False
    think: ThinkMode = "on"
    reads_effort: bool = False
    thinking_switch: str = "enable_thinking"
    defaults: Settings = field(default_factory=Settings)
    architecture: str = "llama"
    file_format: str = "gguf"
    parameter_size: str = "1B"
    num_parameters: int = 1_000_000_000
    path: str | None = "/models/fake"
    digest: str | None = "ab" * 32


@dataclass(frozen=True, slots=True)
class Script:
    """What every choice says, texts and parts of calls. ``num_reasoning`` pieces are reasoning.
    Before piece ``hold_at`` the generation waits for ``hold``; at piece ``fail_at`` it raises
    ``error``. With ``events`` the one choice consists of these."""

    pieces: tuple[Any, ...] = ("Hello", ",", " wor", "ld", "!")
    num_reasoning: int = 0
    hold_at: int | None = None
    fail_at: int | None = None
    error: Exception = field(default_factory=lambda: FlmError("broken"))
    prepare_error: Exception | None = None
    start_error: Exception | None = None
    events: tuple[Event, ...] = ()


class FakeTokenizer:
    """A byte is a token; the end of a turn is one more."""

    bos_id = None
    eos_id = EOS_ID

    def encode(self, text: str, **_: Any) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int], *, skip_control: bool = True) -> str:
        return bytes(item for item in ids if item < 256).decode(errors="replace")

    def marker(self, token_id: int | None) -> str | None:
        return None if token_id is None else "<end>"


class FakeTemplate:
    source = "{{ messages }}"


class FakeModel:
    tokenizer = FakeTokenizer()
    template = FakeTemplate()

    def __init__(self, info: FakeInfo) -> None:
        self.info = info
        self.store = StickyStore(info.defaults)
        self.vocab_size = VOCAB_SIZE
        self.reasons = info.reasons
        self.thinking_switch = info.thinking_switch
        names = {"messages", "tools", "x", info.thinking_switch}
        self.template_variables = frozenset(names)
        self.think: ThinkMode = info.think if info.reasons else "none"
        self.reads_effort = info.reads_effort
        self.speculates = False

    @property
    def model_id(self) -> str:
        return self.info.id

    def chunk_lengths(self, num_tokens: int) -> tuple[int, ...]:
        whole, rest = divmod(num_tokens, 16)
        return (16,) * whole + ((rest,) if rest else ())


@dataclass(frozen=True, slots=True)
class FakePrepared:
    request: GenerationRequest
    prompt_ids: tuple[tuple[int, ...], ...]
    rendered: str | None
    max_new_tokens: tuple[int, ...]
    adaptations: tuple[Adaptation, ...]
    fits: bool


class FakeGeneration:
    def __init__(self, service: "FakeService", prepared: FakePrepared, snapshot: Snapshot) -> None:
        self.service = service
        self.prepared = prepared
        self.snapshot = snapshot
        self.prompt_ids = prepared.prompt_ids
        self.is_finished = False
        self.stopped = asyncio.Event()

    def cancel(self) -> None:
        if not self.is_finished:
            self.is_finished = True
            self.service.aborted.append(self.prepared.request.id)
            self.service.abort_event.set()

    def stop(self) -> bool:
        self.stopped.set()
        return not self.is_finished

    async def events(self) -> AsyncIterator[Event]:
        try:
            async for event in self._events():
                yield event
            self.is_finished = True
        finally:
            self.cancel()

    async def _events(self) -> AsyncIterator[Event]:
        request, script = self.prepared.request, self.service.script
        num_tokens = 0
        done: list[Timings] = []
        for event in script.events:
            yield event
        num_choices = 0 if script.events else len(self.prompt_ids) * request.n
        for index in range(num_choices):
            ids = self.prompt_ids[index // request.n]
            room = self.prepared.max_new_tokens[index // request.n]
            if request.report_progress:
                for end in range(16, len(ids) + 16, 16):
                    yield ReadProgress(index, len(ids), 2, min(end, len(ids)), end / 1000)
            if request.echo:
                yield self._echo(index, ids)
            pieces, reason, stop = self._said(room)
            for position, piece in enumerate(pieces):
                await self._interruptions(position)
                if self.stopped.is_set():
                    pieces, reason, stop = pieces[:position], "cancel", None
                    break
                num_tokens += 1
                channel = "reasoning" if position < script.num_reasoning else "content"
                yield self._delta(index, piece, channel)
            done.append(Timings(len(ids), 2, 0.25, len(pieces), 0.5))
            yield ChoiceDone(index, reason, stop)
        yield RequestDone(self._usage(num_tokens), tuple(done))

    async def _interruptions(self, position: int) -> None:
        script = self.service.script
        if position == script.fail_at:
            raise script.error
        if position == script.hold_at:
            await first_of(self.service.hold.wait(), self.stopped.wait())
        await asyncio.sleep(0)

    def _said(self, room: int) -> tuple[list[Any], Any, str | None]:
        text, pieces = "", []
        if not self.prepared.request.stop:
            pieces = list(self.service.script.pieces[:room])
            has_calls = any(isinstance(piece, ToolCallDelta) for piece in pieces)
            end = "tool_calls" if has_calls else "stop"
            return pieces, "length" if len(self.service.script.pieces) > room else end, None
        for piece in self.service.script.pieces[:room]:
            text += piece
            found = [text.find(stop) for stop in self.prepared.request.stop if stop in text]
            if found:
                cut = min(found) - (len(text) - len(piece))
                # A stop string that began earlier takes back what earlier pieces said.
                while cut < 0 and pieces:
                    last = pieces.pop()
                    cut += len(last)
                    piece = last
                matched = next(stop for stop in self.prepared.request.stop if stop in text)
                return [*pieces, piece[: max(cut, 0)]], "stop", matched
            pieces.append(piece)
        return pieces, "length" if len(self.service.script.pieces) > room else "stop", None

    def _delta(self, index: int, piece: Any, channel: Any) -> TextDelta | ToolCallDelta:
        if isinstance(piece, ToolCallDelta):
            return replace(piece, index=index)
        wanted = self.prepared.request.top_logprobs
        entries = () if wanted is None else (logprob_of(piece, wanted),)
        timings = Timings(4, 2, 0.25, 1, 0.5) if self.prepared.request.time_tokens else None
        return TextDelta(index, piece, channel, (token_of(piece),), entries, timings)

    def _echo(self, index: int, ids: tuple[int, ...]) -> PromptEcho:
        text = bytes(item for item in ids if item < 256).decode(errors="replace")
        wanted = self.prepared.request.top_logprobs
        entries = [] if wanted is None else [logprob_of(chr(item), wanted) for item in ids]
        if entries:
            entries[0] = replace(entries[0], logprob=None, top=())
        return PromptEcho(index, text, ids, tuple(entries))

    def _usage(self, num_tokens: int) -> Usage:
        return Usage(
            prompt_tokens=sum(len(ids) for ids in self.prompt_ids),
            completion_tokens=num_tokens,
            cached_tokens=2,
            reasoning_tokens=self.service.script.num_reasoning,
            context_len=self.service.current.info.context_len,
            active_kv_tokens=10,
            max_kv_tokens=4096,
            load_duration=0.5,
            prefill_duration=0.25,
            decoding_duration=0.5,
        )


class FakeService:
    version = "0.0.0"

    def __init__(
        self,
        script: Script | None = None,
        *,
        infos: Sequence[FakeInfo] = (FakeInfo("fake:1b"), FakeInfo("org/other:2b", loaded=False)),
    ) -> None:
        self.script = Script() if script is None else script
        self.infos = {info.id: info for info in infos}
        self.current = FakeModel(infos[0])
        self.health_error: FlmError | None = None
        self.aborted: list[str] = []
        self.requests: list[GenerationRequest] = []
        self.num_leases = 0
        self.hold = asyncio.Event()
        self.abort_event = asyncio.Event()

    async def closing(self) -> None:
        await asyncio.Event().wait()

    async def models(self) -> list[FakeInfo]:
        return list(self.infos.values())

    def health(self) -> None:
        if self.health_error is not None:
            raise self.health_error

    async def resolve(self, name: str | None) -> str:
        if name is None:
            return self.current.info.id
        name = name.removesuffix(":latest")
        if name not in self.infos:
            known = ", ".join(self.infos)
            raise ModelNotFoundError(f"No model {name!r}; available: {known}.", param="model")
        return name

    @asynccontextmanager
    async def model_lease(self, name: str | None) -> AsyncIterator[FakeModel]:
        if self.health_error is not None:
            raise self.health_error
        name = await self.resolve(name)
        if name != self.current.info.id:
            self.current = FakeModel(replace(self.infos[name], loaded=True))
        self.num_leases += 1
        try:
            yield self.current
        finally:
            self.num_leases -= 1

    async def prepare(self, model: FakeModel, request: GenerationRequest) -> FakePrepared:
        if self.script.prepare_error is not None:
            raise self.script.prepare_error
        rendered = None if request.messages is None else render(request)
        prompts = list(request.prompts or ())
        if rendered is not None:
            prompts = [(*request.history_ids, rendered)]
        prompt_ids = tuple(encode(prompt) for prompt in prompts)
        room = [model.info.context_len - len(ids) for ids in prompt_ids]
        if min(room) <= 0 and not request.is_counted:
            param = "prompt" if rendered is None else "messages"
            raise ContextLengthError("Max length reached! Too long.", param=param)
        if not all(prompt_ids):
            raise InvalidRequestError("The prompt has no tokens.", param="prompt")
        asked = request.max_tokens
        granted = tuple(left if asked is None else min(left, asked) for left in room)
        clamped = asked is not None and min(granted) < asked and not request.is_counted
        records = (
            Adaptation(request.max_tokens_field, "clamped", "No room.", asked, min(granted)),
        )
        return FakePrepared(
            request, prompt_ids, rendered, granted, records if clamped else (), not clamped
        )

    async def start(self, model: FakeModel, prepared: FakePrepared) -> FakeGeneration:
        if self.script.start_error is not None:
            raise self.script.start_error
        request = prepared.request
        self.requests.append(request)
        return FakeGeneration(self, prepared, model.store.commit(request.sent, request.id))

    def places(self, model: FakeModel) -> list[Place]:
        running = [Place(request, 1) for request in self.requests[:1]]
        return [*running, *[Place()] * (2 - len(running))]

    async def tokenize(
        self, model: FakeModel, text: str, *, bos: bool, control: bool
    ) -> list[TokenText]:
        ids = text.replace("<end>", "\xff") if control else text
        tokens = [TokenText(item, bytes([item])) for item in ids.encode("latin-1", "replace")]
        return [TokenText(1, b"<s>"), *tokens] if bos else tokens

    async def detokenize(self, model: FakeModel, token_ids: Sequence[int], *, param: str) -> str:
        if max(token_ids, default=0) >= VOCAB_SIZE:
            raise InvalidRequestError("No such token.", param=param)
        return model.tokenizer.decode(token_ids)

    async def cache_plans(self, model: FakeModel, prepared: FakePrepared) -> tuple[CachePlan, ...]:
        return tuple(CachePlan(min(2, len(ids) - 1)) for ids in prepared.prompt_ids)

    async def reload(self) -> None:
        self.current.store.reset()


async def first_of(*waits: Coroutine[Any, Any, Any]) -> None:
    """Return when the first of them does."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def render(request: GenerationRequest) -> str:
    lines = [f"{item['role']}: {item['content']}" for item in request.messages or ()]
    return "\n".join([*lines, *(["assistant:"] if request.opens_reply else [])])


def encode(prompt: Prompt) -> tuple[int, ...]:
    parts = (prompt,) if isinstance(prompt, str) else prompt
    return tuple(
        item for part in parts for item in (part.encode() if isinstance(part, str) else (part,))
    )


def token_of(piece: str) -> int:
    return sum(piece.encode()) % EOS_ID


def logprob_of(piece: str, num_top: int) -> TokenLogprob:
    top = tuple(
        TopLogprob(item, f"t{item}", f"t{item}".encode(), -float(item) - 1)
        for item in range(num_top)
    )
    return TokenLogprob(token_of(piece), piece, piece.encode(), -0.5, top)
