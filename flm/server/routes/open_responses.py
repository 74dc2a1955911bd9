"""OpenAI's ``/v1/responses``: to make one, to look at it again, and to go on from it."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

from fastapi import FastAPI, Request
from starlette.convertors import Convertor, register_url_convertor
from starlette.responses import Response

from flm.errors import InvalidRequestError, PreviousReplyNotFoundError, ReplyNotFoundError
from flm.server.admission import decided, visible_of_prompt
from flm.server.context import ServerContext
from flm.server.endpoint import Endpoint, add_endpoint, read_call
from flm.server.errors import JSONReply
from flm.server.open_responses_reply import ResponsesFormat
from flm.server.openapi import path_parameter, query_parameter, request_body, responses
from flm.server.records import extras_of
from flm.server.response_store import KeptReply, ResponseStore
from flm.server.schemas.open_responses import Given, InputTokensBody, ResponsesBody
from flm.server.schemas.open_responses_items import (
    Item,
    ItemReference,
    as_item,
    user_message,
    with_distinct_ids,
)
from flm.server.schemas.open_responses_replies import (
    DeletedReply,
    InputTokensReply,
    ItemList,
    ResponsesEvent,
    ResponsesReply,
)

Handler = Callable[[Request], Awaitable[Response]]
PATH = "/v1/responses"
_PREFIX = "resp_"
MAX_PAGE = 100
DEFAULT_PAGE = 20


class _ReplyId(Convertor[str]):
    """Ids of replies, and nothing else that may stand behind the path."""

    regex = f"{_PREFIX}[^/]+"

    def convert(self, value: str) -> str:
        """The id."""
        return value

    def to_string(self, value: str) -> str:
        """The part of the path."""
        return value


register_url_convertor("reply", _ReplyId())


def add_routes(app: FastAPI, ctx: ServerContext) -> None:
    """Add every path."""
    endpoint = Endpoint(
        PATH,
        "response",
        ResponsesBody,
        ResponsesFormat(ctx.replies),
        _PREFIX,
        ResponsesReply,
        ResponsesEvent,
        complete=partial(completed, store=ctx.replies),
    )
    add_endpoint(app, ctx, endpoint)
    app.add_api_route(
        f"{PATH}/input_tokens",
        _count(ctx, replace(endpoint, schema=InputTokensBody)),
        methods=["POST"],
        summary="Count the input tokens of a response, without making it",
        responses=responses(InputTokensReply, 400, 404, 413, 503),
        openapi_extra=request_body(InputTokensBody),
        response_model=None,
    )
    app.add_api_route(
        f"{PATH}/{{reply_id:reply}}/cancel",
        partial(_cancel, ctx),
        methods=["POST"],
        include_in_schema=False,
    )
    _add_kept(app, ctx)


def _add_kept(app: FastAPI, ctx: ServerContext) -> None:
    one = path_parameter("reply_id")
    paging = [
        query_parameter("limit", f"1 to {MAX_PAGE}; absent: {DEFAULT_PAGE}."),
        query_parameter("order", "asc or desc, which is the default: the last one first."),
        query_parameter("after", "The id of the item behind which to begin."),
    ]
    for path, method, handler, summary, reply, queries in (
        ("", "GET", _show, "Show a kept response", ResponsesReply, []),
        ("", "DELETE", _delete, "Let go of a kept response", DeletedReply, []),
        ("/input_items", "GET", _input_items, "List what a response was given", ItemList, paging),
    ):
        parameters = [item for found in (one, *queries) for item in found["parameters"]]
        app.add_api_route(
            f"{PATH}/{{reply_id:reply}}{path}",
            partial(handler, ctx.replies),
            methods=[method],
            summary=summary,
            responses=responses(reply, 400, 404, 405),
            openapi_extra={"parameters": parameters},
            response_model=None,
        )


# --- what a request is given -------------------------------------------------------------------


def completed(body: ResponsesBody, store: ResponseStore) -> ResponsesBody:
    """The body with every item that its reply is made from.

    Raises:
        InvalidRequestError: it names a reply or an item that is not kept.
    """
    past = _past(body.previous_response_id, store)
    is_kept = body.store is not False and store.is_on
    items = with_distinct_ids((*past, *_input(body, store)))
    return body.complete(Given(items, len(past), is_kept))


def _past(reply_id: str | None, store: ResponseStore) -> Sequence[Item]:
    if reply_id is None:
        return ()
    kept = store.get(reply_id)
    if kept is None:
        raise PreviousReplyNotFoundError(
            f"Previous response with id {reply_id[:80]!r} not found. {store.bounds} Send the whole "
            "conversation as input instead.",
            param="previous_response_id",
        )
    return kept.items


def _input(body: ResponsesBody, store: ResponseStore) -> list[Item]:
    if body.input is None:
        return []
    if isinstance(body.input, str):
        return [user_message(body.input)]
    return [
        _referenced(item, index, store) if isinstance(item, ItemReference) else as_item(item)
        for index, item in enumerate(body.input)
    ]


def _referenced(reference: ItemReference, index: int, store: ResponseStore) -> Item:
    found = store.item(reference.id)
    if found is None:
        raise ReplyNotFoundError(
            f"Item with id {reference.id[:80]!r} not found. {store.bounds}",
            param=f"input[{index}].id",
        )
    return found


# --- handlers ----------------------------------------------------------------------------------


def _count(ctx: ServerContext, endpoint: Endpoint) -> Handler:
    async def count(request: Request) -> Response:
        call = await read_call(request, ctx, endpoint, request.state.request_id)
        async with decided(ctx, call) as found:
            told = visible_of_prompt(call, found)
            num_tokens = sum(map(len, found.prepared.prompt_ids))
        reply = {"object": "response.input_tokens", "input_tokens": num_tokens}
        return JSONReply({**reply, **extras_of(told)})

    return count


async def _show(store: ResponseStore, request: Request) -> Response:
    if request.query_params.get("stream", "false").lower() not in ("false", "0"):
        raise InvalidRequestError(
            "A kept response is not streamed again; leave stream out.", param="stream"
        )
    return Response(_kept(store, request).reply_json, media_type="application/json")


async def _delete(store: ResponseStore, request: Request) -> Response:
    reply_id = request.path_params["reply_id"]
    if not store.delete(reply_id):
        raise _not_found(store, reply_id)
    return JSONReply({"id": reply_id, "object": "response", "deleted": True})


async def _input_items(store: ResponseStore, request: Request) -> Response:
    items = _kept(store, request).given
    if _order(request) == "desc":
        items.reverse()
    items = items[_begin(request, items) :]
    page = items[: _limit(request)]
    reply = {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(page) < len(items),
    }
    return JSONReply(reply)


async def _cancel(ctx: ServerContext, request: Request) -> Response:
    reply_id = request.path_params["reply_id"]
    if reply_id not in ctx.running and ctx.replies.get(reply_id) is None:
        raise _not_found(ctx.replies, reply_id)
    raise InvalidRequestError(
        "Only responses that are made in the background can be cancelled so, and here none are. "
        "POST /api/cancel ends one that is being made; it takes its id as request_id."
    )


def _kept(store: ResponseStore, request: Request) -> KeptReply:
    reply_id = request.path_params["reply_id"]
    kept = store.get(reply_id)
    if kept is None:
        raise _not_found(store, reply_id)
    return kept


def _not_found(store: ResponseStore, reply_id: str) -> ReplyNotFoundError:
    return ReplyNotFoundError(f"Response with id {reply_id[:80]!r} not found. {store.bounds}")


def _order(request: Request) -> str:
    order = request.query_params.get("order", "desc")
    if order not in ("asc", "desc"):
        raise InvalidRequestError("order must be asc or desc.", param="order")
    return order


def _limit(request: Request) -> int:
    text = request.query_params.get("limit", str(DEFAULT_PAGE))
    if not (text.isascii() and text.isdigit() and len(text) < 4 and 1 <= int(text) <= MAX_PAGE):
        raise InvalidRequestError(f"limit must be from 1 to {MAX_PAGE}.", param="limit")
    return int(text)


def _begin(request: Request, items: Sequence[Item]) -> int:
    after = request.query_params.get("after")
    if after is None:
        return 0
    ids = [item["id"] for item in items]
    if after not in ids:
        raise InvalidRequestError("after must be the id of an item in the list.", param="after")
    return ids.index(after) + 1
