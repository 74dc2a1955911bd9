"""From a request to prompt tokens: template, tokenizer and the check against the context.

Plain blocking functions; the service runs them in its small pool.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from flm.adaptation import Adaptation
from flm.errors import ContextLengthError, InvalidRequestError, require_token_ids
from flm.service.constraints import compiled
from flm.service.history import behind
from flm.service.models import LoadedModel, Prepared
from flm.service.unshown import unshown_records
from flm.text.template import RenderedPrompt
from flm.types import GenerationRequest, Prompt, Settings

# What is only counted need not fit the context, but is not worth minutes of tokenising either.
_MAX_COUNTED = 64 * 1024


@dataclass(frozen=True, slots=True)
class _Prompts:
    rendered: str | None
    prompt_ids: tuple[tuple[int, ...], ...]


def prepare(model: LoadedModel, request: GenerationRequest) -> Prepared:
    """Render, tokenise and check one request.

    Raises:
        InvalidRequestError: the template rejects the messages, or a prompt has no tokens.
        ContextLengthError: a prompt has as many tokens as the context, or more.
    """
    prompts = _chat_prompt(model, request) if request.is_chat else _raw_prompts(model, request)
    param = "messages" if request.is_chat else "prompt"
    context_len = model.info.context_len
    for ids in () if request.is_counted else prompts.prompt_ids:
        _check_length(len(ids), context_len, param)
    max_new_tokens = tuple(
        _max_new_tokens(request, context_len - len(ids)) for ids in prompts.prompt_ids
    )
    clamp = _clamp_record(request, min(max_new_tokens))
    lengths = (clamp, _min_tokens_record(request, min(max_new_tokens)))
    records = () if request.is_counted else lengths
    return Prepared(
        request=request,
        prompt_ids=prompts.prompt_ids,
        rendered=prompts.rendered,
        max_new_tokens=max_new_tokens,
        adaptations=(
            *(record for record in records if record is not None),
            *unshown_records(model, request, _template_kwargs(model, request)),
        ),
        fits=clamp is None,
        grammar=compiled(model, request),
    )


def with_settings(request: GenerationRequest, settings: Settings) -> GenerationRequest:
    """The same request under other settings."""
    return replace(request, settings=settings)


def renders_alike(one: Settings, other: Settings) -> bool:
    """True when both give the same prompt: only the reasoning switches reach a template."""
    return (one.think, one.reasoning_effort) == (other.think, other.reasoning_effort)


def _chat_prompt(model: LoadedModel, request: GenerationRequest) -> _Prompts:
    rendered = _rendered(model, request)
    return _Prompts(rendered.text, (tuple(rendered.ids),))


def _rendered(model: LoadedModel, request: GenerationRequest) -> RenderedPrompt:
    messages = request.messages if request.messages is not None else ()
    kwargs = _template_kwargs(model, request)
    limit = max(model.info.context_len, _MAX_COUNTED if request.is_counted else 0)
    check = partial(_check_text, model, "messages", limit=limit)
    begin = partial(
        model.template.render_continued, tools=request.tools, kwargs=kwargs, check=check
    )
    render = partial(
        model.template.render,
        tools=request.tools,
        add_generation_prompt=request.opens_reply,
        kwargs=kwargs,
        check=check,
    )
    if request.continue_final_message:
        _check_continuable(model)
        return begin(messages)
    if not request.history_ids:
        return render(messages)
    require_token_ids(request.history_ids, model.vocab_size, param="context")
    return behind(model, request.history_ids, messages, render=render, begin=begin)


def chat_prompt_ids(model: LoadedModel, request: GenerationRequest) -> tuple[int, ...]:
    """The prompt tokens of a chat alone.

    Raises:
        FlmError: as ``prepare``.
    """
    return _chat_prompt(model, request).prompt_ids[0]


def _check_continuable(model: LoadedModel) -> None:
    if model.output.has_channels:
        raise InvalidRequestError(
            "continue_final_message does not work with this model: it writes its messages in "
            "channels, and no reply can begin inside of one.",
            param="continue_final_message",
        )


def _template_kwargs(model: LoadedModel, request: GenerationRequest) -> dict[str, Any]:
    switches: dict[str, Any] = {}
    if request.settings.think is not None:
        switches["enable_thinking"] = request.settings.think
    if request.settings.reasoning_effort is not None:
        switches["reasoning_effort"] = request.settings.reasoning_effort
    variables = {**switches, **request.template_kwargs}
    if "enable_thinking" in variables:
        # Requests have one name for the switch, templates several.
        variables[model.template.thinking_switch] = variables["enable_thinking"]
    return variables


def _raw_prompts(model: LoadedModel, request: GenerationRequest) -> _Prompts:
    prompts = request.prompts if request.prompts is not None else ()
    return _Prompts(None, tuple(_raw_ids(model, prompt) for prompt in prompts))


def _raw_ids(model: LoadedModel, prompt: Prompt) -> tuple[int, ...]:
    parts = (prompt,) if isinstance(prompt, str) else prompt
    ids = tuple(
        token_id
        for index, part in enumerate(parts)
        for token_id in _ids_of_part(model, part, is_first=index == 0)
    )
    if not ids:
        raise InvalidRequestError(
            "The prompt has no tokens; send at least one character or token id.", param="prompt"
        )
    require_token_ids(ids, model.vocab_size, param="prompt")
    return ids


def _ids_of_part(model: LoadedModel, part: int | str, *, is_first: bool) -> Sequence[int]:
    if isinstance(part, str):
        _check_text(model, "prompt", part)
        return model.tokenizer.encode(part, control=True, bos=is_first)
    return (part,)


def _check_text(model: LoadedModel, param: str, text: str, *, limit: int | None = None) -> None:
    """Refuse a text that has ``limit`` tokens (None: those of the context) or more however it is
    tokenised, which takes long for such a text."""
    at_least = model.tokenizer.min_tokens(text)
    if at_least >= (model.info.context_len if limit is None else limit):
        raise _too_long(f"at least {at_least}", model.info.context_len, param)


def _check_length(prompt_len: int, context_len: int, param: str) -> None:
    if prompt_len >= context_len:
        raise _too_long(str(prompt_len), context_len, param)


def _too_long(count: str, context_len: int, param: str) -> ContextLengthError:
    return ContextLengthError(
        f"Max length reached! The prompt has {count} tokens and the context holds {context_len}; "
        "shorten it or start the server with a larger --ctx-len.",
        param=param,
    )


def _max_new_tokens(request: GenerationRequest, room: int) -> int:
    room = max(room, 0)
    return room if request.max_tokens is None else min(request.max_tokens, room)


def _clamp_record(request: GenerationRequest, granted: int) -> Adaptation | None:
    if request.max_tokens is None or granted >= request.max_tokens:
        return None
    return Adaptation(
        field=request.max_tokens_field,
        action="clamped",
        reason="The context has no room for more tokens behind the prompt.",
        asked=request.max_tokens,
        applied=granted,
    )


def _min_tokens_record(request: GenerationRequest, granted: int) -> Adaptation | None:
    if request.min_tokens <= granted:
        return None
    return Adaptation(
        field="min_tokens",
        action="clamped",
        reason="The context has no room for so many tokens behind the prompt.",
        asked=request.min_tokens,
        applied=granted,
    )
