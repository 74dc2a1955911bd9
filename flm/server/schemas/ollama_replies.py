"""Replies of Ollama's endpoints as the OpenAPI document shows them."""

from typing import Any, Literal

from flm.server.schemas.replies import AdaptationReply, FinishReason, PositionReply, Reply


class OllamaErrorReply(Reply):
    """An error. Ollama's clients read ``error``; ``param`` is the dotted path of the field."""

    error: str
    type: Literal["invalid_request_error", "model_error", "server_error"]
    param: str | None
    code: str


class OllamaCalledFunction(Reply):
    """A function and the object of its arguments."""

    index: int
    name: str
    arguments: dict[str, Any]


class OllamaCallReply(Reply):
    """A call of a tool."""

    id: str
    function: OllamaCalledFunction


class OllamaMessageReply(Reply):
    """What was said, in a stream since the line before."""

    role: Literal["assistant"]
    content: str
    thinking: str | None = None
    tool_calls: list[OllamaCallReply] | None = None


class OllamaReply(Reply):
    """What both replies share. The counts come with ``done``; durations are in nanoseconds."""

    model: str
    created_at: str
    done: bool
    done_reason: FinishReason | Literal["load", "unload"] | None = None
    total_duration: int | None = None
    load_duration: int | None = None
    prompt_eval_count: int | None = None
    prompt_eval_duration: int | None = None
    eval_count: int | None = None
    eval_duration: int | None = None
    logprobs: list[PositionReply] | None = None
    adaptations: list[AdaptationReply] | None = None


class OllamaChatReply(OllamaReply):
    """A whole reply, or a line of a stream."""

    message: OllamaMessageReply


class OllamaGenerateReply(OllamaReply):
    """A whole reply, or a line of a stream."""

    response: str
    thinking: str | None = None
    context: list[int] | None = None


class ModelDetails(Reply):
    """What kind of model it is."""

    parent_model: str
    format: str
    family: str
    families: list[str]
    parameter_size: str
    quantization_level: str


class TaggedModel(Reply):
    """An installed model; sizes in bytes. A model named by its path has no digest."""

    name: str
    model: str
    modified_at: str
    size: int
    digest: str | None = None
    details: ModelDetails


class TagsReply(Reply):
    """The installed models."""

    models: list[TaggedModel]


class LoadedTag(Reply):
    """The loaded model; ``context_length`` in tokens."""

    name: str
    model: str
    size: int
    size_vram: int
    expires_at: str
    context_length: int
    digest: str | None = None
    details: ModelDetails


class PsReply(Reply):
    """The loaded models: one, or none."""

    models: list[LoadedTag]


class ShowReply(Reply):
    """A model. ``template`` is there once it is loaded."""

    modelfile: str
    parameters: str
    template: str | None = None
    details: ModelDetails
    model_info: dict[str, str | int]
    capabilities: list[Literal["completion", "tools", "thinking"]]
    modified_at: str
    adaptations: list[AdaptationReply] | None = None
