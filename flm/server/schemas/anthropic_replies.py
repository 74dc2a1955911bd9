"""Replies of Anthropic's endpoints as the OpenAPI document shows them."""

from typing import Annotated, Any, Literal

from pydantic import Field, RootModel

from flm.server.schemas.replies import AdaptationReply, Reply

StopReason = Literal[
    "end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"
]


class TextReplyBlock(Reply):
    """What the model says."""

    type: Literal["text"]
    text: str
    citations: None


class ThinkingReplyBlock(Reply):
    """What the model thinks."""

    type: Literal["thinking"]
    thinking: str
    signature: Literal[""]


class DirectCaller(Reply):
    """The model itself."""

    type: Literal["direct"]


class ToolUseReplyBlock(Reply):
    """A call of a tool."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]
    caller: DirectCaller


ReplyBlock = Annotated[
    TextReplyBlock | ThinkingReplyBlock | ToolUseReplyBlock, Field(discriminator="type")
]


class ThinkingTokens(Reply):
    """What the new tokens were for."""

    thinking_tokens: int


class MessageDeltaUsage(Reply):
    """Tokens. ``input_tokens`` are those that were not in the cache."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: ThinkingTokens
    server_tool_use: None


class MessageUsage(MessageDeltaUsage):
    """The same for a whole message."""

    cache_creation: None
    inference_geo: None
    service_tier: Literal["standard"]


class MessageEnd(Reply):
    """Why a message ended; ``stop_sequence`` is the one that did it."""

    stop_reason: StopReason | None
    stop_sequence: str | None
    stop_details: None
    container: None


class MessageReply(MessageEnd):
    """A whole message, or in a stream its empty beginning."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[ReplyBlock]
    usage: MessageUsage
    adaptations: list[AdaptationReply] | None = None


class CountReply(Reply):
    """The tokens of a prompt, those in the cache included."""

    input_tokens: int
    adaptations: list[AdaptationReply] | None = None


# --- streams -----------------------------------------------------------------------------------


class MessageStart(Reply):
    """A message begins."""

    type: Literal["message_start"]
    message: MessageReply


class BlockStart(Reply):
    """A block begins, empty."""

    type: Literal["content_block_start"]
    index: int
    content_block: ReplyBlock


class MessageTextDelta(Reply):
    """More text."""

    type: Literal["text_delta"]
    text: str


class MessageThinkingDelta(Reply):
    """More thoughts."""

    type: Literal["thinking_delta"]
    thinking: str


class MessageSignatureDelta(Reply):
    """The end of the thoughts."""

    type: Literal["signature_delta"]
    signature: Literal[""]


class MessageInputDelta(Reply):
    """More of a tool's input; the parts add up to JSON text."""

    type: Literal["input_json_delta"]
    partial_json: str


class BlockDelta(Reply):
    """More of the open block."""

    type: Literal["content_block_delta"]
    index: int
    delta: Annotated[
        MessageTextDelta | MessageThinkingDelta | MessageSignatureDelta | MessageInputDelta,
        Field(discriminator="type"),
    ]


class BlockStop(Reply):
    """A block ends."""

    type: Literal["content_block_stop"]
    index: int


class MessageDelta(Reply):
    """Why the message ended, and the final counts."""

    type: Literal["message_delta"]
    delta: MessageEnd
    usage: MessageDeltaUsage


class MessageStop(Reply):
    """Nothing follows."""

    type: Literal["message_stop"]


class MessageEvent(
    RootModel[
        Annotated[
            MessageStart | BlockStart | BlockDelta | BlockStop | MessageDelta | MessageStop,
            Field(discriminator="type"),
        ]
    ]
):
    """One event of a stream; its name is its type."""


# --- errors, models ----------------------------------------------------------------------------


class MessageErrorCode(Reply):
    """The code where clients of Anthropic's look for it."""

    error_code: str


class MessageErrorDetail(Reply):
    """What went wrong; ``param`` is the dotted path of the field at fault."""

    type: Literal[
        "invalid_request_error",
        "not_found_error",
        "request_too_large",
        "api_error",
        "overloaded_error",
    ]
    message: str
    param: str | None
    code: str
    details: MessageErrorCode


class MessageErrorReply(Reply):
    """Every error has this shape, the event that ends a stream too."""

    type: Literal["error"]
    error: MessageErrorDetail
    request_id: str


class AnthropicModelReply(Reply):
    """A model, as clients of Anthropic's read it."""

    type: Literal["model"]
    id: str
    display_name: str
    created_at: str
    max_input_tokens: int
    max_tokens: int
    capabilities: None
    lifecycle: Literal["active"]
    line: None
    deprecated_at: None
    retires_at: None


class AnthropicModelList(Reply):
    """All of them, on one page."""

    data: list[AnthropicModelReply]
    has_more: Literal[False]
    first_id: str | None
    last_id: str | None
