"""Replies of the Responses API as the OpenAPI document shows them."""

from typing import Any, Literal

from flm.server.schemas.replies import (
    AdaptationReply,
    CachedTokens,
    CompletionDetails,
    PositionReply,
    Reply,
)


class OutputTextReply(Reply):
    """Text of the model; ``logprobs`` are empty unless asked for."""

    type: Literal["output_text"]
    text: str
    annotations: list[Any]
    logprobs: list[PositionReply]


class InputTextReply(Reply):
    """Text that was given to the model."""

    type: Literal["input_text"]
    text: str


class RefusalReply(Reply):
    """An earlier refusal."""

    type: Literal["refusal"]
    refusal: str


class ReasoningTextReply(Reply):
    """What the model thought, or another one's summary of it."""

    type: Literal["reasoning_text", "summary_text"]
    text: str


class MessageReply(Reply):
    """A message. A reply has those of the assistant."""

    id: str
    type: Literal["message"]
    status: str
    role: Literal["user", "assistant", "system", "developer"]
    content: list[OutputTextReply | InputTextReply | RefusalReply]
    phase: str | None = None


class CallReply(Reply):
    """A call of a function; ``arguments`` is JSON text."""

    id: str
    type: Literal["function_call"]
    status: str
    call_id: str
    name: str
    arguments: str


class CallOutputReply(Reply):
    """What a called function gave back."""

    id: str
    type: Literal["function_call_output"]
    status: str
    call_id: str
    output: str | list[InputTextReply | RefusalReply]


class ReasoningReply(Reply):
    """What the model thought."""

    id: str
    type: Literal["reasoning"]
    status: str | None = None
    summary: list[ReasoningTextReply]
    content: list[ReasoningTextReply]


OutputReply = MessageReply | CallReply | ReasoningReply
ItemReply = OutputReply | CallOutputReply


class InputDetails(CachedTokens):
    """Where the input tokens came from, and how many of them were put into the cache."""

    cache_write_tokens: int


class ResponsesUsage(Reply):
    """Counts in tokens, durations in seconds."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: CompletionDetails
    total_tokens: int
    kv_token_occupancy_rate_percentage: float
    active_kv_tokens: int
    max_kv_token_capacity: int
    load_duration: float
    prefill_duration_ttft: float
    decoding_duration: float
    prefill_speed_tps: float
    decoding_speed_tps: float


class FailureReply(Reply):
    """Why a response failed."""

    code: Literal["server_error"]
    message: str


class IncompleteReply(Reply):
    """Why a response is not complete."""

    reason: Literal["max_output_tokens"]


class ReasoningInForce(Reply):
    """How the model reasons."""

    effort: str | None
    summary: None


class TextInForce(Reply):
    """How the answer is written."""

    format: dict[str, Any]
    verbosity: Literal["medium"]


class FunctionToolReply(Reply):
    """A tool that could be called."""

    type: Literal["function"]
    name: str
    description: str | None
    parameters: dict[str, Any] | None
    strict: bool


class ResponsesReply(Reply):
    """A response, with the settings that were in force."""

    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: Literal["in_progress", "completed", "incomplete", "cancelled", "failed"]
    model: str
    output: list[OutputReply]
    error: FailureReply | None
    incomplete_details: IncompleteReply | None
    usage: ResponsesUsage | None
    background: Literal[False]
    frequency_penalty: float
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    metadata: dict[str, Any]
    parallel_tool_calls: bool
    presence_penalty: float
    previous_response_id: str | None
    prompt_cache_key: str | None
    reasoning: ReasoningInForce
    safety_identifier: str | None
    service_tier: Literal["default"]
    store: bool
    temperature: float
    text: TextInForce
    tool_choice: str | dict[str, Any]
    tools: list[FunctionToolReply]
    top_logprobs: int
    top_p: float
    truncation: Literal["disabled"]
    user: str | None
    adaptations: list[AdaptationReply] | None = None


class StreamError(Reply):
    """What went wrong in a stream."""

    message: str
    type: str
    param: str | None
    code: str


class ResponsesEvent(Reply):
    """One event of a stream; which keys it has depends on its type."""

    type: Literal[
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.output_item.done",
        "response.content_part.added",
        "response.content_part.done",
        "response.output_text.delta",
        "response.output_text.done",
        "response.reasoning_text.delta",
        "response.reasoning_text.done",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.completed",
        "response.incomplete",
        "response.failed",
        "error",
    ]
    sequence_number: int
    response: ResponsesReply | None = None
    item: OutputReply | None = None
    part: OutputTextReply | ReasoningTextReply | None = None
    item_id: str | None = None
    output_index: int | None = None
    content_index: int | None = None
    delta: str | None = None
    text: str | None = None
    logprobs: list[PositionReply] | None = None
    name: str | None = None
    arguments: str | None = None
    error: StreamError | None = None


class ItemList(Reply):
    """A page of the items that a response was given."""

    object: Literal["list"]
    data: list[ItemReply]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedReply(Reply):
    """A response that is kept no longer."""

    id: str
    object: Literal["response"]
    deleted: Literal[True]


class InputTokensReply(Reply):
    """How many tokens a response would be given."""

    object: Literal["response.input_tokens"]
    input_tokens: int
    adaptations: list[AdaptationReply] | None = None
