"""From a body to a request with every setting decided, and the record of what was changed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flm.errors import InvalidRequestError, require_token_ids
from flm.server.reasoning import request_switch, sent_switches
from flm.server.records import Records, record_unknown
from flm.server.schemas.conversation import ConversationBody, conversation_of
from flm.server.schemas.generation import GenerationBody
from flm.sticky import SAMPLING_FIELDS
from flm.types import GenerationRequest, SamplingParams

if TYPE_CHECKING:
    from flm.service import LoadedModel


@dataclass(frozen=True, slots=True)
class Resolution:
    """A decided request, with its adaptations in no order yet and lines for the log."""

    request: GenerationRequest
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Range:
    text: str
    holds: Callable[[float], bool]


_UNIT = _Range("a number from 0 to 1", lambda value: 0 <= value <= 1)
_NOT_NEGATIVE = _Range("a number >= 0", lambda value: value >= 0)
RANGES: Mapping[str, _Range] = {
    "temperature": _NOT_NEGATIVE,
    "top_k": _Range("an integer >= 1", lambda value: value >= 1),
    "top_p": _UNIT,
    "min_p": _UNIT,
    "repetition_penalty": _Range("a number > 0", lambda value: value > 0),
    "frequency_penalty": _NOT_NEGATIVE,
    "presence_penalty": _NOT_NEGATIVE,
}


def resolve(body: GenerationBody, model: "LoadedModel", request_id: str) -> Resolution:
    """Decide every setting of a request. Reads the sticky store and changes nothing.

    Raises:
        InvalidRequestError: a value that only the loaded model can judge is wrong.
    """
    records = Records()
    in_force = model.store.peek({}).settings
    sent = _sent_sampling(body, in_force.sampling, model.vocab_size, records)
    sent.update(sent_switches(body, model, in_force, records))
    template_kwargs = request_switch(body, model, sent, records)
    chat = conversation_of(body)
    _record_unread(body, model, records)
    if chat is not None:
        _record_unused_format(chat, records)
        _record_unread_by_template(chat, model, records)
    record_unknown(body, records)
    bias = _logit_bias(body, model)
    _check_token_ids(body, bias, model.vocab_size)
    max_tokens = _max_tokens(body, records)
    request = GenerationRequest(
        id=request_id,
        model=body.model if body.model is not None else model.info.id,
        settings=model.store.peek(sent).settings,
        sent=sent,
        messages=None if chat is None else chat.plain_messages,
        history_ids=() if chat is None else chat.history_ids,
        tools=() if chat is None else chat.shown_tools,
        template_kwargs=template_kwargs,
        prompts=body.prompts,
        seed=body.seed_in_force,
        n=body.num_choices,
        max_tokens=max_tokens.value,
        max_tokens_field=max_tokens.field,
        min_tokens=_min_tokens(body, max_tokens),
        stop=body.stops,
        stop_token_ids=frozenset(body.stop_token_ids if body.stop_token_ids is not None else ()),
        ignore_eos=body.ignore_eos is True,
        logit_bias=bias,
        top_logprobs=body.num_logprobs,
        stream=body.streams,
        echo=body.gives_prompt_back,
        time_tokens=body.with_token_timings,
        report_progress=body.with_progress,
        cache_prompt=body.cache_prompt is not False,
        constraint=body.constraint,
        calls=None if chat is None else chat.calls,
        continue_final_message=chat is not None and chat.continues,
        opens_reply=body.opens_reply,
        is_counted=body.is_counted,
        adaptations=tuple(records.adaptations),
    )
    return Resolution(request, tuple(records.warnings))


# --- sampling fields ---------------------------------------------------------------------------


def _sent_sampling(
    body: GenerationBody, in_force: SamplingParams, vocab_size: int, records: Records
) -> dict[str, Any]:
    sent: dict[str, Any] = {}
    for name in SAMPLING_FIELDS:
        value = body.sampling_value(name, vocab_size)
        if value is None:
            continue
        own_name = body.own_name(name)
        allowed = RANGES.get(name)
        if allowed is None or allowed.holds(value):
            sent[name] = value
            continue
        kept = getattr(in_force, name)
        reason = f"{own_name} must be {allowed.text}; {kept} is kept."
        records.dropped(own_name, reason, value)
        records.warnings.append(f"{own_name} {value} is ignored: {reason}")
    _clamp_top_k(sent, body.own_name("top_k"), vocab_size, records)
    if sent.get("repetition_penalty", 1.0) < 1:
        name = body.own_name("repetition_penalty")
        records.warnings.append(f"{name} below 1 rewards repeats and can make the model loop.")
    return sent


def _clamp_top_k(sent: dict[str, Any], name: str, vocab_size: int, records: Records) -> None:
    top_k = sent.get("top_k")
    if top_k is not None and top_k > vocab_size:
        reason = f"The vocabulary has {vocab_size} tokens."
        records.clamped(name, reason, top_k, vocab_size)
        records.warnings.append(f"{name} {top_k} becomes {vocab_size}: {reason}")
        sent["top_k"] = vocab_size


# --- lengths -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _MaxTokens:
    field: str
    value: int | None


def _max_tokens(body: GenerationBody, records: Records) -> _MaxTokens:
    found: _MaxTokens | None = None
    for name in body.length_fields:
        value = _asked_max(body.length_value(name), allows_none=body.may_say_nothing)
        if value is None:
            continue
        if found is None:
            found = _MaxTokens(name, value)
        elif value != found.value:
            records.dropped(name, f"{found.field} ({found.value}) was sent too and wins.", value)
    return _MaxTokens(body.length_fields[0], None) if found is None else found


def _asked_max(value: int | None, *, allows_none: bool) -> int | None:
    """The limit; 0 and below mean no limit, but for the 0 of who wants the prompt alone."""
    if value is None or value < 0 or (value == 0 and not allows_none):
        return None
    return value


def _min_tokens(body: GenerationBody, max_tokens: _MaxTokens) -> int:
    value = body.min_tokens if body.min_tokens is not None else 0
    if max_tokens.value is not None and value > max_tokens.value:
        raise InvalidRequestError(
            f"min_tokens ({value}) is more than {max_tokens.field} ({max_tokens.value}).",
            param="min_tokens",
        )
    return value


# --- fields that only need another form --------------------------------------------------------


def _logit_bias(body: GenerationBody, model: "LoadedModel") -> tuple[tuple[int, float], ...]:
    """By token id; a text stands for each of its tokens."""
    found: list[tuple[int, float]] = []
    for token, value in body.biases:
        ids = model.tokenizer.encode(token) if isinstance(token, str) else [token]
        found += [(token_id, value) for token_id in ids]
    return tuple(found)


def _check_token_ids(
    body: GenerationBody, bias: tuple[tuple[int, float], ...], vocab_size: int
) -> None:
    """Token ids that no token has cannot be meant."""
    stops = body.stop_token_ids if body.stop_token_ids is not None else []
    require_token_ids([token_id for token_id, _ in bias], vocab_size, param="logit_bias")
    require_token_ids(stops, vocab_size, param="stop_token_ids")


# --- fields without effect ---------------------------------------------------------------------


def _record_unread(body: GenerationBody, model: "LoadedModel", records: Records) -> None:
    _record_aliases(body, records)
    for item in (*body.unmet(), *body.unmet_by(model.info.context_len)):
        records.dropped(item.field, item.reason, item.asked)


def _record_aliases(body: GenerationBody, records: Records) -> None:
    """Fields that were sent under two names with different values."""
    for name, alias in type(body).aliases.items():
        value, winner = getattr(body, name), getattr(body, alias)
        if value is not None and winner is not None and value != winner:
            records.dropped(name, f"{alias} ({winner}) was sent too and wins.", value)


def _record_unused_format(body: ConversationBody, records: Records) -> None:
    constraint, calls = body.constraint, body.calls
    if constraint is not None and calls is not None and calls.is_forced:
        reason = "tool_choice forces a call, so there is no answer that it could apply to."
        records.dropped(body.format_field, reason)


def _record_unread_by_template(
    body: ConversationBody, model: "LoadedModel", records: Records
) -> None:
    """What a chat template that does not know it leaves out of the prompt."""
    variables = model.template_variables
    given = body.chat_template_kwargs if body.chat_template_kwargs is not None else {}
    for name, value in given.items():
        if value is not None and name not in {*variables, "enable_thinking"}:
            reason = "The chat template of this model does not read it."
            records.dropped(f"chat_template_kwargs.{name}", reason, value)
