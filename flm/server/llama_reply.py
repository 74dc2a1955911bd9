"""Replies of ``POST /completion``, whole and streamed, in llama-server's shapes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flm.errors import FlmError
from flm.server.admission import Admitted
from flm.server.formats import Chunks, Whole
from flm.server.framing import EVENTS
from flm.server.llama_settings import NO_PLACE, params_of
from flm.server.responses import Piece, ReplyHead, piece_of
from flm.server.schemas.llama import LlamaBody
from flm.server.timings import progress_dict, timings_dict
from flm.types import (
    ChoiceDone,
    Event,
    GenerationRequest,
    PromptEcho,
    ReadProgress,
    RequestDone,
    TextDelta,
    Timings,
    TokenLogprob,
    ToolCallDelta,
)

if TYPE_CHECKING:
    from flm.service import LoadedModel


class LlamaFormat:
    """One object for each choice; an array of them where there are several."""

    framing = EVENTS

    def whole(self, head: ReplyHead, admission: Admitted) -> Whole:
        """The reply of every choice."""
        return _WholeReply(_facts(head, admission))

    def chunks(self, head: ReplyHead, admission: Admitted) -> Chunks:
        """Events of text, and for each choice a last one with everything else."""
        return _StreamedReply(_facts(head, admission))


@dataclass(frozen=True, slots=True)
class _Facts:
    """What is known when the request is admitted."""

    head: ReplyHead
    request: GenerationRequest
    model: "LoadedModel"
    with_tokens: bool
    fields: Sequence[str]

    @property
    def extras(self) -> dict[str, Any]:
        if not self.head.adaptations:
            return {}
        return {"adaptations": [entry.to_dict() for entry in self.head.adaptations]}


def _facts(head: ReplyHead, admission: Admitted) -> _Facts:
    body, decided = admission.call.body, admission.decided
    assert isinstance(body, LlamaBody)
    return _Facts(
        head=head,
        request=admission.generation.prepared.request,
        model=decided.model,
        with_tokens=bool(body.return_tokens or body.return_token_ids),
        fields=body.response_fields if body.response_fields is not None else (),
    )


@dataclass(slots=True)
class _Choice:
    """One choice as far as it has come. ``waiting`` are tokens that no text has accounted for."""

    index: int
    texts: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    entries: list[TokenLogprob] = field(default_factory=list)
    end: ChoiceDone | None = None

    def take(self, piece: Piece) -> None:
        # A raw continuation has no channels; whatever came is text.
        self.texts.append(piece.reasoning + piece.content)
        self.token_ids += piece.token_ids
        self.entries += piece.logprobs

    @property
    def text(self) -> str:
        return "".join(self.texts)


class _WholeReply:
    """Gathers the events of all choices."""

    def __init__(self, facts: _Facts) -> None:
        self._facts = facts
        self._choices = [_Choice(index) for index in range(facts.head.num_choices)]
        self._timings: Sequence[Timings] = ()

    @property
    def num_entries(self) -> int:
        """Prompt tokens, and new ones whose log probability is told."""
        prompts = sum(map(len, self._facts.head.prompt_ids))
        return prompts + sum(len(choice.entries) for choice in self._choices)

    def feed(self, event: Event) -> None:
        """Take one event."""
        if isinstance(event, RequestDone):
            self._timings = event.choices
        elif isinstance(event, ChoiceDone):
            self._choices[event.index].end = event
        elif isinstance(event, TextDelta | ToolCallDelta):
            self._choices[event.index].take(piece_of(event))

    def flush(self) -> Any:
        """One object, or an array of them."""
        facts = self._facts
        replies = []
        for choice, timings in zip(self._choices, self._timings, strict=True):
            ids = choice.token_ids if facts.with_tokens else []
            reply = _final(facts, choice, timings, choice.text, ids, choice.text)
            replies.append(_selected(reply, facts.fields) | facts.extras)
        return replies[0] if len(replies) == 1 else replies


class _StreamedReply:
    """Sends text as it comes; the last event of a choice has its tokens that showed no text."""

    def __init__(self, facts: _Facts) -> None:
        self._facts = facts
        self._extras = facts.extras
        self._choices = [_Choice(index) for index in range(facts.head.num_choices)]
        self._numbers = [0] * facts.head.num_choices
        self._has_line = [False] * facts.head.num_choices

    def open(self) -> list[dict[str, Any]]:
        """What a stream begins with: nothing before there is some text."""
        return []

    def feed(self, event: Event) -> list[dict[str, Any]]:
        """The chunks that ``event`` becomes."""
        if isinstance(event, RequestDone):
            return [self._last(choice, event) for choice in self._choices]
        if isinstance(event, ChoiceDone):
            self._choices[event.index].end = event
            return []
        if isinstance(event, ReadProgress):
            chunk = self._chunk(_Choice(event.index))
            return [chunk | {"prompt_progress": progress_dict(event)}]
        return [] if isinstance(event, PromptEcho) else self._on_text(event)

    def fail(self, error: FlmError) -> list[dict[str, Any]]:
        """What ends a stream that cannot go on."""
        return [error.to_dict()]

    def _on_text(self, event: TextDelta | ToolCallDelta) -> list[dict[str, Any]]:
        choice = self._choices[event.index]
        choice.take(piece_of(event))
        self._numbers[event.index] += len(event.token_ids)
        if not choice.text:
            return []
        self._has_line[event.index] |= "\n" in choice.text
        self._choices[event.index] = _Choice(event.index)
        chunk = self._chunk(choice)
        if event.timings is not None:
            chunk["timings"] = timings_dict(event.timings)
        return [chunk]

    def _chunk(self, choice: _Choice) -> dict[str, Any]:
        chunk: dict[str, Any] = {
            "index": choice.index,
            "content": choice.text,
            "tokens": choice.token_ids,
            "stop": False,
            "id_slot": NO_PLACE,
            "tokens_predicted": self._numbers[choice.index],
            "tokens_evaluated": len(self._facts.head.prompt_of(choice.index)),
        }
        if choice.entries:
            chunk["completion_probabilities"] = [_entry(entry) for entry in choice.entries]
        return chunk | self._taken_extras()

    def _last(self, choice: _Choice, event: RequestDone) -> dict[str, Any]:
        facts = self._facts
        line = "\n" if self._has_line[choice.index] else ""
        timings = event.choices[choice.index]
        reply = _final(facts, choice, timings, choice.text, choice.token_ids, line)
        return _selected(reply, facts.fields) | self._taken_extras()

    def _taken_extras(self) -> dict[str, Any]:
        extras, self._extras = self._extras, {}
        return extras


def _final(
    facts: _Facts,
    choice: _Choice,
    timings: Timings,
    content: str,
    token_ids: Sequence[int],
    whole_text: str,
) -> dict[str, Any]:
    head, model, end = facts.head, facts.model, choice.end
    assert end is not None
    prompt_ids = head.prompt_of(choice.index)
    num_tokens = len(prompt_ids) + timings.completion_tokens
    reply: dict[str, Any] = {
        "index": choice.index,
        "content": content,
        "tokens": list(token_ids),
        "id_slot": NO_PLACE,
        "stop": True,
        "model": head.model,
        "tokens_predicted": timings.completion_tokens,
        "tokens_evaluated": len(prompt_ids),
        "generation_settings": {
            "n_ctx": model.info.context_len,
            **params_of(facts.request),
        },
        "prompt": model.tokenizer.decode(prompt_ids, skip_control=False),
        "has_new_line": "\n" in whole_text,
        "truncated": end.finish_reason == "length" and num_tokens >= model.info.context_len,
        "stop_type": _stop_type(end),
        "stopping_word": "" if end.stop_string is None else end.stop_string,
        "tokens_cached": timings.cached_tokens,
        "timings": timings_dict(timings),
    }
    if choice.entries:
        reply["completion_probabilities"] = [_entry(entry) for entry in choice.entries]
    return reply


def _stop_type(end: ChoiceDone) -> str:
    if end.finish_reason == "stop":
        return "eos" if end.stop_string is None else "word"
    return "limit" if end.finish_reason == "length" else "none"


def _entry(entry: TokenLogprob) -> dict[str, Any]:
    logprob = entry.logprob if entry.logprob is not None else 0.0
    top = [_token(item.token_id, item.text, item.raw, item.logprob) for item in entry.top]
    return {**_token(entry.token_id, entry.text, entry.raw, logprob), "top_logprobs": top}


def _token(token_id: int, text: str, raw: bytes, logprob: float) -> dict[str, Any]:
    return {
        "id": token_id,
        "token": text,
        "bytes": list(raw),
        "logprob": logprob,
    }


def _selected(reply: dict[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    """The fields asked for, under the paths that asked for them; all of them for none. What is not
    there is left out."""
    if not fields:
        return reply
    return {path: found[0] for path in fields if (found := _found(reply, path.split("/")))}


def _found(value: Any, path: Sequence[str]) -> tuple[Any, ...]:
    for step in path:
        if not isinstance(value, Mapping) or step not in value:
            return ()
        value = value[step]
    return (value,)
