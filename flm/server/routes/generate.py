"""OpenAI's ``/v1/chat/completions`` and ``/v1/completions``, and llama-server's ``/completion``."""

from typing import Any

from fastapi import FastAPI

from flm.server.chat_reply import ChatDialect
from flm.server.completion_reply import CompletionDialect
from flm.server.context import ServerContext
from flm.server.endpoint import Endpoint, add_endpoint
from flm.server.formats import OpenAIFormat
from flm.server.llama_reply import LlamaFormat
from flm.server.schemas.chat import ChatBody
from flm.server.schemas.completions import CompletionBody
from flm.server.schemas.llama import LlamaBody
from flm.server.schemas.llama_replies import LlamaChunk, LlamaReply
from flm.server.schemas.replies import ChatChunk, ChatReply, CompletionReply

_LLAMA_REPLY = LlamaReply | list[LlamaReply | dict[str, Any]] | dict[str, Any]
"""With ``response_fields`` a reply has what was asked for."""

ENDPOINTS = (
    Endpoint(
        "/v1/chat/completions",
        "chat completion",
        ChatBody,
        OpenAIFormat(ChatDialect()),
        "chatcmpl-",
        ChatReply,
        ChatChunk,
    ),
    Endpoint(
        "/v1/completions",
        "completion",
        CompletionBody,
        OpenAIFormat(CompletionDialect()),
        "cmpl-",
        CompletionReply,
        CompletionReply,
    ),
    *(
        Endpoint(
            path,
            "completion in llama-server's form",
            LlamaBody,
            LlamaFormat(),
            "cmpl-",
            _LLAMA_REPLY,
            LlamaChunk,
            has_plan=False,
        )
        for path in ("/completion", "/completions")
    ),
)


def add_routes(app: FastAPI, ctx: ServerContext) -> None:
    """Add the endpoints and their plans."""
    for endpoint in ENDPOINTS:
        add_endpoint(app, ctx, endpoint)
