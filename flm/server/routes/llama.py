"""llama-server's endpoints beside ``/completion``: text and tokens, ``/props`` and ``/slots``."""

from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request
from pydantic import BaseModel
from starlette.responses import Response

from flm.errors import UnavailableError
from flm.server.admission import Call, decided, visible_of_prompt
from flm.server.body import read_body
from flm.server.context import ServerContext
from flm.server.errors import JSONReply
from flm.server.llama_settings import default_params, slot_dict
from flm.server.openapi import query_parameter, request_body, responses
from flm.server.records import extras_of, unknown_extras
from flm.server.schemas.llama import DetokenizeBody, TemplateBody, TokenizeBody
from flm.server.schemas.llama_replies import (
    DetokenizeReply,
    PropsReply,
    SlotReply,
    TemplateReply,
    TokenizeReply,
)

Handler = Callable[[Request], Awaitable[Response]]


def add_routes(app: FastAPI, ctx: ServerContext) -> None:
    """Add them."""
    posts: tuple[tuple[str, Handler, str, type[BaseModel], type[BaseModel]], ...] = (
        ("/tokenize", _tokenize(ctx), "The tokens of a text", TokenizeBody, TokenizeReply),
        ("/detokenize", _detokenize(ctx), "The text of tokens", DetokenizeBody, DetokenizeReply),
        ("/apply-template", _template(ctx), "The prompt of a chat", TemplateBody, TemplateReply),
    )
    for path, handler, summary, body, reply in posts:
        app.add_api_route(
            path,
            handler,
            methods=["POST"],
            summary=summary,
            responses=responses(reply, 400, 404, 413, 503),
            openapi_extra=request_body(body),
            response_model=None,
        )
    app.add_api_route(
        "/props",
        _props(ctx),
        methods=["GET"],
        summary="The loaded model, in llama-server's words",
        responses=responses(PropsReply, 503),
        response_model=None,
    )
    app.add_api_route(
        "/slots",
        _slots(ctx),
        methods=["GET"],
        summary="What runs now, a place each",
        responses=responses(list[SlotReply], 503),
        openapi_extra=query_parameter("fail_on_no_slot", "1: 503 when no place is free."),
        response_model=None,
    )


# --- text and tokens ---------------------------------------------------------------------------


def _tokenize(ctx: ServerContext) -> Handler:
    async def tokenize(request: Request) -> Response:
        body = (await read_body(request, TokenizeBody, ctx)).body
        extras = unknown_extras(body, ctx.mode(body.adaptations))
        async with ctx.service.model_lease(body.model) as model:
            found = await ctx.service.tokenize(
                model,
                body.content,
                bos=body.add_special is True,
                control=body.parse_special is not False,
            )
        if body.with_pieces:
            pieces = [{"id": token.token_id, "piece": _piece(token.raw)} for token in found]
            return JSONReply({"tokens": pieces, **extras})
        return JSONReply({"tokens": [token.token_id for token in found], **extras})

    return tokenize


def _piece(raw: bytes) -> str | list[int]:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return list(raw)


def _detokenize(ctx: ServerContext) -> Handler:
    async def detokenize(request: Request) -> Response:
        body = (await read_body(request, DetokenizeBody, ctx)).body
        extras = unknown_extras(body, ctx.mode(body.adaptations))
        async with ctx.service.model_lease(body.model) as model:
            content = await ctx.service.detokenize(model, body.tokens, param="tokens")
        return JSONReply({"content": content, **extras})

    return detokenize


def _template(ctx: ServerContext) -> Handler:
    async def apply_template(request: Request) -> Response:
        read = await read_body(request, TemplateBody, ctx)
        call = Call(request.state.request_id, read.body, read.is_large)
        async with decided(ctx, call) as found:
            told = visible_of_prompt(call, found)
            return JSONReply({"prompt": found.prepared.rendered, **extras_of(told)})

    return apply_template


# --- the server --------------------------------------------------------------------------------


def _props(ctx: ServerContext) -> Handler:
    async def props(_request: Request) -> Response:
        async with ctx.service.model_lease(None) as model:
            places = ctx.service.places(model)
            info, tokenizer = model.info, model.tokenizer
            settings = {
                "n_ctx": info.context_len,
                "speculative": model.speculates,
                "is_processing": False,
                "params": default_params(model.store.peek({}).settings.sampling),
            }
            reply = {
                "default_generation_settings": settings,
                "total_slots": len(places),
                "model_alias": info.id,
                "model_path": info.path,
                "modalities": {"vision": False, "audio": False},
                "endpoint_slots": True,
                "endpoint_props": False,
                "endpoint_metrics": False,
                "webui": False,
                "chat_template": model.template.source,
                "chat_template_caps": {},
                "bos_token": _marker(tokenizer.marker(tokenizer.bos_id)),
                "eos_token": _marker(tokenizer.marker(tokenizer.eos_id)),
                "build_info": f"flm-{ctx.service.version}",
                "is_sleeping": False,
            }
            return JSONReply(reply)

    return props


def _marker(text: str | None) -> str:
    return "" if text is None else text


def _slots(ctx: ServerContext) -> Handler:
    async def slots(request: Request) -> Response:
        ctx.service.health()
        model = ctx.service.current
        assert model is not None
        places = ctx.service.places(model)
        if request.query_params.get("fail_on_no_slot") == "1" and all(
            place.request is not None for place in places
        ):
            raise UnavailableError("Every place is taken; try again shortly.")
        return JSONReply([slot_dict(model, index, place) for index, place in enumerate(places)])

    return slots
