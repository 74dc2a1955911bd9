"""The one order in which every request is decided, whatever dialect it came in.

Parse, lease the model, resolve the settings, prepare the prompt, settle the record (and refuse),
start. Everything that can answer 4xx or 503 happens before a byte of the reply.
"""

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from anyio import to_thread

from flm.adaptation import Adaptation, Mode
from flm.errors import FlmError, InvalidRequestError
from flm.log import logger
from flm.server.context import ServerContext
from flm.server.records import defaulted, enforce, ordered
from flm.server.running import Ticket
from flm.server.schemas.conversation import conversation_of
from flm.server.schemas.generation import GenerationBody
from flm.server.settings import Resolution, resolve
from flm.sticky import REASONING_FIELDS, Snapshot
from flm.types import GenerationRequest

if TYPE_CHECKING:
    from flm.service import Generation, LoadedModel, Prepared


@dataclass(frozen=True, slots=True)
class Call:
    """A parsed request and the id its reply will carry. ``arrived_at`` is on the monotonic
    clock."""

    id: str
    body: GenerationBody
    is_large: bool = False
    arrived_at: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class Decided:
    """A request that could start now. ``records`` are in order; ``lease_duration`` are the seconds
    that it waited for its model."""

    model: "LoadedModel"
    prepared: "Prepared"
    mode: Mode
    records: tuple[Adaptation, ...]
    warnings: tuple[str, ...]
    lease_duration: float = 0.0


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request the engine has taken. ``adaptations`` is what the reply shows."""

    call: Call
    decided: Decided
    generation: "Generation"
    adaptations: tuple[Adaptation, ...]


@asynccontextmanager
async def decided(ctx: ServerContext, call: Call) -> AsyncIterator[Decided]:
    """Hold the model and everything known about the request before it starts.

    Raises:
        FlmError: any reason not to answer it, except that there is no room now.
    """
    async with _decided(ctx, call, Ticket()) as found:
        yield found


@asynccontextmanager
async def _decided(ctx: ServerContext, call: Call, ticket: Ticket) -> AsyncIterator[Decided]:
    check_model_is_named(ctx, call.body)
    async with AsyncExitStack() as stack:
        with ticket.waiting():
            model = await stack.enter_async_context(ctx.service.model_lease(call.body.model))
        lease_duration = time.monotonic() - call.arrived_at
        resolution = await _resolve(ctx, call, model)
        with _named_as(call.body):
            prepared = await ctx.service.prepare(model, resolution.request)
        mode = ctx.mode(call.body.adaptations)
        made = (
            replace(item, field=_own_path(call.body, item.field)) for item in prepared.adaptations
        )
        found = (*resolution.request.adaptations, *made)
        records = ordered(found, type(call.body))
        enforce(mode, records)
        yield Decided(model, prepared, mode, records, resolution.warnings, lease_duration)


def check_model_is_named(ctx: ServerContext, body: GenerationBody) -> None:
    """Under ``--require-model``, no request means whatever model is loaded.

    Raises:
        InvalidRequestError: this one does.
    """
    if ctx.require_model and body.model is None:
        problem = "model is required: this server was started with --require-model"
        raise InvalidRequestError(f"{problem}. GET /v1/models lists what there is.", param="model")


async def _resolve(ctx: ServerContext, call: Call, model: "LoadedModel") -> Resolution:
    if not call.is_large:
        return resolve(call.body, model, call.id)
    return await to_thread.run_sync(resolve, call.body, model, call.id, limiter=ctx.limiter)


@contextmanager
def _named_as(body: GenerationBody) -> Iterator[None]:
    """Errors about the messages name the fields that these came in."""
    try:
        yield
    except FlmError as error:
        error.param = None if error.param is None else _own_path(body, error.param)
        raise


def _own_path(body: GenerationBody, path: str) -> str:
    chat = conversation_of(body)
    return path if chat is None else chat.own_path(path)


@asynccontextmanager
async def admitted(ctx: ServerContext, call: Call) -> AsyncIterator[Admitted]:
    """Start the request and hold the model until the reply is finished; leaving ends it.

    Raises:
        FlmError: any reason not to answer it; nothing was written then.
    """
    async with AsyncExitStack() as stack:
        ticket = stack.enter_context(ctx.running.entered(call.id, call.body.request_id))
        plan = await stack.enter_async_context(_decided(ctx, call, ticket))
        generation = await ctx.service.start(plan.model, plan.prepared)
        try:
            ticket.started(generation)
            for warning in plan.warnings:
                logger.warning("%s: %s", call.id, warning)
            yield Admitted(call, plan, generation, visible(call, plan, generation.snapshot))
        finally:
            generation.cancel()


def visible(call: Call, plan: Decided, snapshot: Snapshot) -> tuple[Adaptation, ...]:
    """The record as the client sees it: with what it inherits, or nothing under ``silent``."""
    if plan.mode == "silent":
        return ()
    told = {entry.field for entry in plan.records}
    hidden = _without_effect(call.body, plan.prepared.request) | told
    inherited = [
        replace(defaulted(entry), field=call.body.own_name(entry.field))
        for entry in snapshot.inherited
        if entry.field not in hidden and call.body.own_name(entry.field) not in hidden
    ]
    return ordered((*plan.records, *inherited), type(call.body))


def visible_of_prompt(call: Call, plan: Decided) -> tuple[Adaptation, ...]:
    """As ``visible``, for a reply about the prompt alone: how tokens would be chosen does not
    matter to it."""
    snapshot = plan.model.store.peek(plan.prepared.request.sent)
    shown = {call.body.own_name(name) for name in REASONING_FIELDS}
    told = visible(call, plan, snapshot)
    return tuple(entry for entry in told if entry.action != "defaulted" or entry.field in shown)


def _without_effect(body: GenerationBody, request: GenerationRequest) -> frozenset[str]:
    """Inherited settings that do not act on this request."""
    chat = conversation_of(body)
    if chat is None:
        return frozenset(REASONING_FIELDS)
    if chat.enable_thinking is not None or "enable_thinking" in request.template_kwargs:
        return frozenset({"think"})
    return frozenset()
