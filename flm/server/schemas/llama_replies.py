"""Replies of llama-server's endpoints as the OpenAPI document shows them."""

from typing import Any, Literal

from flm.server.schemas.replies import AdaptationReply, ProgressReply, Reply, TimingsReply


class TopProbability(Reply):
    """A token and its log probability."""

    id: int
    token: str
    bytes: list[int]
    logprob: float


class TokenProbability(TopProbability):
    """A chosen token with the best alternatives."""

    top_logprobs: list[TopProbability]


class LlamaParams(Reply):
    """Settings of a request; those of samplers that are not there say that they are off."""

    seed: int
    temperature: float
    dynatemp_range: float
    dynatemp_exponent: float
    top_k: int
    top_p: float
    min_p: float
    top_n_sigma: float
    xtc_probability: float
    xtc_threshold: float
    typical_p: float
    repeat_last_n: int
    repeat_penalty: float
    presence_penalty: float
    frequency_penalty: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_penalty_last_n: int
    dry_sequence_breakers: list[str]
    mirostat: int
    mirostat_tau: float
    mirostat_eta: float
    stop: list[str]
    max_tokens: int
    n_predict: int
    n_keep: int
    n_discard: int
    ignore_eos: bool
    stream: bool
    logit_bias: list[dict[str, float | bool]]
    n_probs: int
    min_keep: int
    grammar: str
    samplers: list[str]
    timings_per_token: bool
    post_sampling_probs: bool
    lora: list[Any]


class LlamaSettings(LlamaParams):
    """Settings of a request, and the context it ran in."""

    n_ctx: int


class LlamaReply(Reply):
    """A whole completion, or the last event of a streamed one."""

    index: int
    content: str
    tokens: list[int]
    id_slot: int
    stop: Literal[True]
    model: str
    tokens_predicted: int
    tokens_evaluated: int
    generation_settings: LlamaSettings
    prompt: str
    has_new_line: bool
    truncated: bool
    stop_type: Literal["eos", "limit", "word", "none"]
    stopping_word: str
    tokens_cached: int
    timings: TimingsReply
    completion_probabilities: list[TokenProbability] | None = None
    adaptations: list[AdaptationReply] | None = None


class LlamaChunk(Reply):
    """An event of a stream before the last."""

    index: int
    content: str
    tokens: list[int]
    stop: Literal[False]
    id_slot: int
    tokens_predicted: int
    tokens_evaluated: int
    timings: TimingsReply | None = None
    prompt_progress: ProgressReply | None = None
    completion_probabilities: list[TokenProbability] | None = None
    adaptations: list[AdaptationReply] | None = None


class TextReply(Reply):
    """What the replies below share."""

    adaptations: list[AdaptationReply] | None = None


class TokenPiece(Reply):
    """A token and its text, or its bytes where they are no text."""

    id: int
    piece: str | list[int]


class TokenizeReply(TextReply):
    """The tokens of a text."""

    tokens: list[int] | list[TokenPiece]


class DetokenizeReply(TextReply):
    """The text of tokens."""

    content: str


class TemplateReply(TextReply):
    """The prompt of a chat."""

    prompt: str


class DefaultSettings(Reply):
    """The settings of a request that sends none."""

    n_ctx: int
    speculative: bool
    is_processing: bool
    params: LlamaParams


class Modalities(Reply):
    """What the model reads besides text."""

    vision: bool
    audio: bool


class PropsReply(Reply):
    """The server and its loaded model."""

    default_generation_settings: DefaultSettings
    total_slots: int
    model_alias: str
    model_path: str | None
    modalities: Modalities
    endpoint_slots: bool
    endpoint_props: bool
    endpoint_metrics: bool
    webui: bool
    chat_template: str
    chat_template_caps: dict[str, bool]
    bos_token: str
    eos_token: str
    build_info: str
    is_sleeping: bool


class NextToken(Reply):
    """How far a place has come."""

    has_next_token: bool
    n_remain: int
    n_decoded: int


class SlotReply(Reply):
    """A running place."""

    id: int
    id_task: int
    n_ctx: int
    speculative: bool
    is_processing: bool
    params: LlamaParams
    next_token: NextToken
