"""Replies as the OpenAPI document shows them; the tests hold real replies against these."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Reply(BaseModel):
    """An object in a reply."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())


class ErrorDetail(Reply):
    """What went wrong; ``param`` is the dotted path of the field at fault."""

    message: str
    type: Literal["invalid_request_error", "model_error", "server_error"]
    param: str | None
    code: str


class ErrorReply(Reply):
    """Every error has this shape."""

    error: ErrorDetail


class AdaptationReply(Reply):
    """Something done other than asked."""

    field: str
    action: Literal["dropped", "clamped", "substituted", "client_side", "satisfied", "defaulted"]
    reason: str
    asked: Any = None
    applied: Any = None


class TimingsReply(Reply):
    """How long it took, in milliseconds, and the rates a second. With --speculate the tokens that
    were guessed ahead, and those of them that are in the reply."""

    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float
    draft_n: int | None = None
    draft_n_accepted: int | None = None


class ProgressReply(Reply):
    """How much of a prompt was read; ``cache`` counts in ``processed``."""

    total: int
    cache: int
    processed: int
    time_ms: int


class CachedTokens(Reply):
    """Where the prompt tokens came from. ``diverged_at`` is the index of the token at which the
    prompt left what else was cached; it is there only if it did."""

    cached_tokens: int
    diverged_at: int | None = None


class CompletionDetails(Reply):
    """What the new tokens were for, and with --speculate what guessing them came to."""

    reasoning_tokens: int
    accepted_prediction_tokens: int | None = None
    rejected_prediction_tokens: int | None = None


class UsageReply(Reply):
    """Counts in tokens, durations in seconds."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens
    completion_tokens_details: CompletionDetails
    kv_token_occupancy_rate_percentage: float
    active_kv_tokens: int
    max_kv_token_capacity: int
    load_duration: float
    prefill_duration_ttft: float
    decoding_duration: float
    prefill_speed_tps: float
    decoding_speed_tps: float


class TokenReply(Reply):
    """A token and its log probability."""

    token: str
    logprob: float
    bytes: list[int]


class PositionReply(TokenReply):
    """A chosen token with the best alternatives."""

    top_logprobs: list[TokenReply]


class ChatLogprobs(Reply):
    """Log probabilities of a chat choice."""

    content: list[PositionReply]
    refusal: None


class FunctionReply(Reply):
    """The function of a call; ``arguments`` is JSON text."""

    name: str
    arguments: str


class ToolCallReply(Reply):
    """A call of a tool."""

    id: str
    type: Literal["function"]
    function: FunctionReply


class ChatMessage(Reply):
    """The reply; ``reasoning_content`` only when the model reasoned, ``content`` null when it only
    called tools."""

    role: Literal["assistant"]
    content: str | None
    refusal: None
    annotations: list[None] = Field(max_length=0)
    reasoning_content: str | None = None
    tool_calls: list[ToolCallReply] | None = None


FinishReason = Literal["stop", "length", "tool_calls", "cancel", "error"]


class ChatChoice(Reply):
    """One of n replies."""

    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason
    token_ids: list[int] | None = None


class ReplyBase(Reply):
    """What all replies of text share."""

    id: str
    created: int
    model: str
    adaptations: list[AdaptationReply] | None = None
    timings: TimingsReply | None = None
    prompt_token_ids: list[int] | None = None


class ChatReply(ReplyBase):
    """A whole chat completion."""

    object: Literal["chat.completion"]
    choices: list[ChatChoice]
    usage: UsageReply


class FunctionDelta(Reply):
    """More of a call; the arguments of its parts add up to JSON text."""

    name: str | None = None
    arguments: str


class ToolCallDelta(Reply):
    """A part of a call; the id, type and name come once."""

    index: int
    id: str | None = None
    type: Literal["function"] | None = None
    function: FunctionDelta


class ChatDelta(Reply):
    """New text; the role comes once."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    refusal: None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCallDelta] | None = None


class ChatChunkChoice(Reply):
    """What a chunk adds to one reply."""

    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason | None
    token_ids: list[int] | None = None


class ChatChunk(ReplyBase):
    """One event of a stream; the last one before [DONE] may have only ``usage``."""

    object: Literal["chat.completion.chunk"]
    system_fingerprint: str
    choices: list[ChatChunkChoice]
    prompt_progress: ProgressReply | None = None
    usage: UsageReply | None = None


class CompletionLogprobs(Reply):
    """The legacy shape: parallel arrays."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(Reply):
    """One of n continuations of one prompt; in a stream, what a chunk adds to it."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason | None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


class CompletionReply(ReplyBase):
    """A whole completion, or one event of a stream (which has a fingerprint)."""

    object: Literal["text_completion"]
    choices: list[CompletionChoice]
    usage: UsageReply | None = None
    system_fingerprint: str | None = None
    prompt_progress: ProgressReply | None = None


class SettingsValues(Reply):
    """Every field that sticks."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    frequency_penalty: float
    presence_penalty: float
    repeat_last_n: int
    think: bool | None
    reasoning_effort: str | None


class DivergenceReply(Reply):
    """Where a prompt leaves what is cached: the index of the first token that differs, the message
    that it is in (null: none), the text in front of it, and how the prompt and the cache go on."""

    diverged_at: int
    message: int | None
    before: str
    prompt: str
    cached: str


class PromptPlan(Reply):
    """The counts of one prompt, in tokens, and where it leaves the cache (null: nowhere)."""

    prompt_tokens: int
    cached_tokens: int
    prefill_chunks: list[int]
    max_new_tokens: int
    divergence: DivergenceReply | None


class PlanReply(PromptPlan):
    """What a request would do. ``prompts`` is there when it has more than one."""

    object: Literal["plan"]
    model: str
    adaptations: list[AdaptationReply]
    settings: SettingsValues
    prompt: str | None
    fits: bool
    prompts: list[PromptPlan] | None = None


class ModelReply(Reply):
    """A model. Lengths in tokens; null where only a loaded model knows."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    context_length: int
    max_model_len: int
    family: str
    size_bytes: int
    quantization: str
    loaded: bool
    dtype: str | None
    kv_dtype: str | None
    device: str | None
    exact: bool | None
    vocab_size: int | None
    reasons: bool
    defaults: SettingsValues


class ModelList(Reply):
    """The models."""

    object: Literal["list"]
    data: list[ModelReply]


class SettingReply(Reply):
    """One sticky field; ``set_by`` is the request that set it."""

    field: str
    value: float | bool | str | None
    default: float | bool | str | None
    set_by: str | None
    set_at: str | None


class SettingsReply(Reply):
    """The sticky store."""

    object: Literal["settings"]
    model: str
    settings: list[SettingReply]


class CancelReply(Reply):
    """Whether a request was ended."""

    cancelled: bool
    message: str
    adaptations: list[AdaptationReply] | None = None


class Health(Reply):
    """The server can answer."""

    status: Literal["ok"]


class Version(Reply):
    """The server's version."""

    version: str = Field(examples=["1.0.0"])


class Greeting(Reply):
    """Who is there."""

    name: Literal["flm"]
    version: str
    docs: str
    api: str
    ollama: str
