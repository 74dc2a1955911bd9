"""Ollama's requests without a message or prompt: they load the model, or ask to unload it."""

from flm.adaptation import Adaptation
from flm.server.admission import Call, check_model_is_named
from flm.server.context import ServerContext
from flm.server.endpoint import Shortcut
from flm.server.errors import JSONReply
from flm.server.ollama_reply import Shape, Stretch, opening
from flm.server.records import Records, enforce, extras_of, ordered, record_unknown
from flm.server.schemas.ollama import OllamaBody

_READ = frozenset(
    {"model", "messages", "prompt", "keep_alive", "stream", "adaptations", "request_id"}
)


def loads(shape: Shape) -> Shortcut:
    """Answers the bodies that ask for no text, in the form of their endpoint."""

    async def load(ctx: ServerContext, call: Call) -> JSONReply | None:
        body = call.body
        assert isinstance(body, OllamaBody)
        if not body.asks_nothing:
            return None
        check_model_is_named(ctx, body)
        adaptations = await _records(ctx, body)
        mode = ctx.mode(body.adaptations)
        enforce(mode, adaptations)
        name = await _done(ctx, call, body)
        reason = "unload" if body.asks_unload else "load"
        reply = {**opening(name), **shape.said(Stretch()), "done": True, "done_reason": reason}
        return JSONReply({**reply, **({} if mode == "silent" else extras_of(adaptations))})

    return load


async def _done(ctx: ServerContext, call: Call, body: OllamaBody) -> str:
    """Load the model, unless it is to be unloaded; its name as it was asked for."""
    if body.asks_unload:
        model_id = await ctx.service.resolve(body.model)
    else:
        with ctx.running.entered(call.id, body.request_id) as ticket, ticket.waiting():
            async with ctx.service.model_lease(body.model) as model:
                model_id = model.info.id
    return model_id if body.model is None else body.model


async def _records(ctx: ServerContext, body: OllamaBody) -> tuple[Adaptation, ...]:
    records = Records()
    for name in type(body).model_fields:
        value = getattr(body, name)
        if name not in _READ and value not in (None, "", [], {}, False):
            records.dropped(name, "This request loads a model and generates nothing.", value)
    if body.asks_unload and await _is_loaded(ctx, body):
        reason = "The model stays loaded until another one is asked for."
        records.dropped("keep_alive", reason, body.keep_alive)
    record_unknown(body, records)
    return ordered(records.adaptations, type(body))


async def _is_loaded(ctx: ServerContext, body: OllamaBody) -> bool:
    model_id = await ctx.service.resolve(body.model)
    return ctx.service.current is not None and ctx.service.current.model_id == model_id
