"""The OpenAPI document: real schemas for bodies, replies and errors, and every status."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from flm.server.framing import LINES, OPENAI_EVENTS, Framing
from flm.server.schemas.anthropic import CountBody, MessagesBody
from flm.server.schemas.anthropic_replies import MessageEvent
from flm.server.schemas.cancel import CancelBody
from flm.server.schemas.chat import ChatBody
from flm.server.schemas.completions import CompletionBody
from flm.server.schemas.llama import DetokenizeBody, LlamaBody, TemplateBody, TokenizeBody
from flm.server.schemas.llama_replies import LlamaChunk
from flm.server.schemas.ollama import OllamaChatBody, OllamaGenerateBody
from flm.server.schemas.ollama_replies import OllamaChatReply, OllamaGenerateReply
from flm.server.schemas.ollama_show import ShowBody
from flm.server.schemas.open_responses import InputTokensBody, ResponsesBody
from flm.server.schemas.open_responses_replies import ResponsesEvent
from flm.server.schemas.replies import ChatChunk, ErrorReply

_REF = "#/components/schemas/{model}"
_BODIES: tuple[type[BaseModel], ...] = (
    ChatBody,
    CompletionBody,
    ResponsesBody,
    InputTokensBody,
    LlamaBody,
    TokenizeBody,
    DetokenizeBody,
    TemplateBody,
    MessagesBody,
    CountBody,
    CancelBody,
    OllamaChatBody,
    OllamaGenerateBody,
    ShowBody,
)
_CHUNKS: tuple[type[BaseModel], ...] = (
    ChatChunk,
    LlamaChunk,
    MessageEvent,
    ResponsesEvent,
    OllamaChatReply,
    OllamaGenerateReply,
)

_WHEN = {
    400: "A field cannot be read or honoured; error.param names it.",
    404: "There is no such model, or no such reply.",
    499: "The request was cancelled while it waited for its model.",
    405: "The id is the name of another path, which takes other methods.",
    413: "The body is larger than the server reads.",
    500: "The server failed; the x-request-id header names the entry in its log.",
    503: "Not now: the queue is full, a model is loading, or the engine has stopped.",
}


def responses(
    reply: Any,
    *statuses: int,
    stream: type[BaseModel] | None = None,
    framing: Framing = OPENAI_EVENTS,
    error: type[BaseModel] = ErrorReply,
) -> dict[int | str, dict[str, Any]]:
    """The documented statuses of a path: 200, 500 and ``statuses``, errors in the form ``error``.
    ``stream`` is a chunk of its streams."""
    result: dict[int | str, dict[str, Any]] = {200: {"model": reply, "description": "The reply."}}
    if stream is not None:
        schema = _line_schema if framing is LINES else _event_schema
        media_type = framing.media_type.partition(";")[0]
        result[200]["content"] = {media_type: {"schema": schema(stream, error)}}
    for status in (*statuses, 500):
        result[status] = {"model": error, "description": _WHEN[status]}
    if 503 in result:
        header = {"schema": {"type": "integer"}, "description": "Seconds to wait."}
        result[503]["headers"] = {"Retry-After": header}
    return result


def _event_schema(chunk: type[BaseModel], error: type[BaseModel]) -> dict[str, Any]:
    """Each event of a stream: a chunk, one error that ends it, or the mark of a whole reply."""
    documents = [{"$ref": _REF.format(model=model.__name__)} for model in (chunk, error)]
    json_text = {
        "type": "string",
        "contentMediaType": "application/json",
        "contentSchema": {"anyOf": documents},
    }
    data = {"anyOf": [{"const": "[DONE]"}, json_text]}
    return {"type": "object", "required": ["data"], "properties": {"data": data}}


def _line_schema(chunk: type[BaseModel], error: type[BaseModel]) -> dict[str, Any]:
    """Each line of a stream is JSON; the last one may be an error."""
    names = f"{chunk.__name__}, the last perhaps {error.__name__}"
    return {"type": "string", "description": f"Lines of {names}, as JSON."}


def request_body(schema: type[BaseModel]) -> dict[str, Any]:
    """The body of a path; the route reads it itself."""
    ref = {"$ref": _REF.format(model=schema.__name__)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": ref}}}}


def path_parameter(name: str) -> dict[str, Any]:
    """A part of the path that may hold any text."""
    schema = {"type": "string", "minLength": 1}
    return {"parameters": [{"name": name, "in": "path", "required": True, "schema": schema}]}


def query_parameter(name: str, description: str) -> dict[str, Any]:
    """A parameter that may be left out."""
    parameter = {"name": name, "in": "query", "required": False, "description": description}
    return {"parameters": [{**parameter, "schema": {"type": "string"}}]}


def install_document(app: FastAPI) -> None:
    """Replace the generated document by one that knows the bodies the routes read themselves."""
    document: dict[str, Any] = {}

    def openapi() -> dict[str, Any]:
        if not document:
            document.update(_document(app))
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, routes=app.routes)
    _, schemas = models_json_schema(
        [
            *((body, "validation") for body in _BODIES),
            *((chunk, "serialization") for chunk in _CHUNKS),
        ],
        ref_template=_REF,
    )
    document["components"]["schemas"].update(schemas["$defs"])
    return document
