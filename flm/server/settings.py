"""From a body to a request with every setting decided, and the record of what was changed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flm.errors import InvalidRequestError
from flm.server.reasoning import request_switch, sent_switches
from flm.server.records import Records, Speller, shown
from flm.server.schemas.chat import ChatBody
from flm.server.schemas.common import CommonBody
from flm.server.schemas.completions import CompletionBody
from flm.server.schemas.messages import as_plain
from flm.server.schemas.output import GUIDED
from flm.server.schemas.types import unknown_fields
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


def resolve(body: CommonBody, model: "LoadedModel", request_id: str) -> Resolution:
    """Decide every setting of a request. Reads the sticky store and changes nothing.

    Raises:
        InvalidRequestError: a value that only the loaded model can judge is wrong.
    """
    records = Records()
    in_force = model.store.peek({}).settings
    sent = _sent_sampling(body, in_force.sampling, model.vocab_size, records)
    sent.update(sent_switches(body, model, in_force, records))
    template_kwargs = request_switch(body, model, sent, records)
    _record_unread(body, records)
    _record_unread_by_template(body, model, records)
    _check_token_ids(body, model.vocab_size)
    max_tokens = _max_tokens(body, records)
    request = GenerationRequest(
        id=request_id,
        model=body.model if body.model is not None else model.info.id,
        settings=model.store.peek(sent).settings,
        sent=sent,
        messages=_messages(body),
        tools=body.shown_tools if isinstance(body, ChatBody) else (),
        template_kwargs=template_kwargs,
        prompts=body.prompts if isinstance(body, CompletionBody) else None,
        seed=body.seed,
        n=body.n if body.n is not None else 1,
        max_tokens=max_tokens.value,
        max_tokens_field=max_tokens.field,
        min_tokens=_min_tokens(body, max_tokens.value),
        stop=body.stops,
        stop_token_ids=frozenset(body.stop_token_ids if body.stop_token_ids is not None else ()),
        ignore_eos=body.ignore_eos is True,
        logit_bias=_logit_bias(body),
        top_logprobs=_num_logprobs(body),
        echo=isinstance(body, CompletionBody) and body.echo is True,
        cache_prompt=body.cache_prompt is not False,
        constraint=body.constraint,
        calls=body.calls if isinstance(body, ChatBody) else None,
        continue_final_message=isinstance(body, ChatBody) and body.continue_final_message is True,
        adaptations=tuple(records.adaptations),
    )
    return Resolution(request, tuple(records.warnings))


# --- sampling fields ---------------------------------------------------------------------------


def _sent_sampling(
    body: CommonBody, in_force: SamplingParams, vocab_size: int, records: Records
) -> dict[str, Any]:
    sent: dict[str, Any] = {}
    for name in SAMPLING_FIELDS:
        value = getattr(body, name)
        if value is None:
            continue
        allowed = RANGES.get(name)
        if allowed is None or allowed.holds(value):
            sent[name] = value
            continue
        kept = getattr(in_force, name)
        reason = f"{name} must be {allowed.text}; {kept} is kept."
        records.dropped(name, reason, value)
        records.warnings.append(f"{name} {value} is ignored: {reason}")
    _clamp_top_k(sent, vocab_size, records)
    if sent.get("repetition_penalty", 1.0) < 1:
        records.warnings.append(
            "repetition_penalty below 1 rewards repeats and can make the model loop."
        )
    return sent


def _clamp_top_k(sent: dict[str, Any], vocab_size: int, records: Records) -> None:
    top_k = sent.get("top_k")
    if top_k is not None and top_k > vocab_size:
        reason = f"The vocabulary has {vocab_size} tokens."
        records.clamped("top_k", reason, top_k, vocab_size)
        records.warnings.append(f"top_k {top_k} becomes {vocab_size}: {reason}")
        sent["top_k"] = vocab_size


# --- lengths -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _MaxTokens:
    field: str
    value: int | None


def _max_tokens(body: CommonBody, records: Records) -> _MaxTokens:
    allows_none = isinstance(body, CompletionBody) and body.echo is True
    one = _asked_max(body.max_tokens, allows_none=allows_none)
    other = _asked_max(body.max_completion_tokens, allows_none=allows_none)
    if one is not None and other is not None and one != other:
        records.dropped(
            "max_completion_tokens", f"max_tokens ({one}) was sent too and wins.", other
        )
    name = "max_tokens" if one is not None else "max_completion_tokens"
    value = one if one is not None else other
    if value is None:
        return _MaxTokens("max_tokens", None)
    return _MaxTokens(name, value)


def _asked_max(value: int | None, *, allows_none: bool) -> int | None:
    """The limit; 0 and below mean no limit, but for the 0 of who wants the prompt alone."""
    if value is None or value < 0 or (value == 0 and not allows_none):
        return None
    return value


def _min_tokens(body: CommonBody, max_tokens: int | None) -> int:
    value = body.min_tokens if body.min_tokens is not None else 0
    if max_tokens is not None and value > max_tokens:
        raise InvalidRequestError(
            f"min_tokens ({value}) is more than max_tokens ({max_tokens}).", param="min_tokens"
        )
    return value


# --- fields that only need another form --------------------------------------------------------


def _messages(body: CommonBody) -> tuple[Mapping[str, Any], ...] | None:
    if not isinstance(body, ChatBody):
        return None
    return tuple(as_plain(message) for message in body.messages)


def _num_logprobs(body: CommonBody) -> int | None:
    if isinstance(body, ChatBody):
        return body.num_logprobs
    return body.logprobs if isinstance(body, CompletionBody) else None


def _logit_bias(body: CommonBody) -> tuple[tuple[int, float], ...]:
    bias = body.logit_bias if body.logit_bias is not None else {}
    return tuple((int(key), value) for key, value in bias.items())


def _check_token_ids(body: CommonBody, vocab_size: int) -> None:
    """Token ids that no token has cannot be meant."""
    bias = body.logit_bias if body.logit_bias is not None else {}
    stops = body.stop_token_ids if body.stop_token_ids is not None else []
    for name, ids in (("logit_bias", map(int, bias)), ("stop_token_ids", iter(stops))):
        for token_id in ids:
            if token_id >= vocab_size:
                raise InvalidRequestError(
                    f"{name}: there is no token {token_id}; ids run from 0 to {vocab_size - 1}.",
                    param=name,
                )


# --- fields without effect ---------------------------------------------------------------------


def _record_unread(body: CommonBody, records: Records) -> None:
    if body.store:
        records.dropped("store", "Replies are never stored.", True)
    if body.service_tier not in (None, "auto", "default"):
        records.dropped("service_tier", "There is one tier.", body.service_tier)
    if body.stream_options is not None and body.stream_options.include_obfuscation:
        reason = "Streams are never padded."
        records.dropped("stream_options.include_obfuscation", reason, True)
    if isinstance(body, CompletionBody) and body.suffix:
        reason = "The model continues the prompt; it cannot fill a gap before a suffix."
        records.dropped("suffix", reason, shown(body.suffix))
    if isinstance(body, ChatBody):
        _record_unused_format(body, records)
    _record_unknown(body, records)


def _record_unused_format(body: ChatBody, records: Records) -> None:
    constraint, calls = body.constraint, body.calls
    if constraint is not None and calls is not None and calls.is_forced:
        reason = "tool_choice forces a call, so there is no answer that it could apply to."
        records.dropped(constraint.param.partition(".")[0], reason)


def _record_unread_by_template(body: CommonBody, model: "LoadedModel", records: Records) -> None:
    """What a chat template that does not know it leaves out of the prompt."""
    if not isinstance(body, ChatBody):
        return
    variables = model.template_variables
    given = body.chat_template_kwargs if body.chat_template_kwargs is not None else {}
    for name, value in given.items():
        if value is not None and name not in {*variables, "enable_thinking"}:
            reason = "The chat template of this model does not read it."
            records.dropped(f"chat_template_kwargs.{name}", reason, value)


def _record_unknown(body: CommonBody, records: Records) -> None:
    speller = Speller(tuple(type(body).model_fields))
    for path, value in unknown_fields(body):
        if path in GUIDED:
            continue
        if path == "options" and isinstance(value, dict):
            reason = "options is not read here; send its fields, such as repeat_last_n, at the "
            records.dropped(path, f"{reason}top level.")
            continue
        near = None if "." in path else speller.suggestion(path)
        hint = "" if near is None else f" Did you mean {near}?"
        records.dropped(path, f"This field is not read.{hint}", value)
