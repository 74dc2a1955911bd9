"""Frozen values that cross between rooms, with no behaviour beyond small derivations."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from flm.adaptation import Adaptation

FinishReason = Literal["stop", "length", "tool_calls", "cancel", "error"]
Channel = Literal["content", "reasoning"]
ThinkMode = Literal["none", "off", "on", "always"]
"""How a model reasons: not at all, only when asked, unless told not to, or always."""

NEVER = -math.inf
"""The bias of a token that cannot be sampled, whatever else is possible."""

LOWEST_LOGPROB = -9999.0
"""Stands for a probability of zero, which JSON cannot say as a logarithm."""


# --- settings ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """The sampling fields in force for one request. Ranges: docs/sampling.md."""

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.9
    min_p: float = 0.1
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repeat_last_n: int = 64

    @property
    def is_greedy(self) -> bool:
        """True when the best token is taken and no random number is drawn."""
        return self.temperature == 0.0 or self.top_k == 1

    @property
    def has_penalties(self) -> bool:
        """False when the penalty stage would change nothing."""
        neutral = (
            self.repetition_penalty == 1.0
            and self.frequency_penalty == 0.0
            and self.presence_penalty == 0.0
        )
        return self.repeat_last_n != 0 and not neutral


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that sticks: the sampling fields and the two reasoning switches.

    ``think`` and ``reasoning_effort`` are None on a model that does not reason.
    """

    sampling: SamplingParams = SamplingParams()
    think: bool | None = None
    reasoning_effort: str | None = None


# --- tokenizer data, as read from a model's files ----------------------------------------------


@dataclass(frozen=True, slots=True)
class GGUFVocab:
    """The ``tokenizer.ggml.*`` metadata of a GGUF file.

    ``token_types`` uses the GGUF numbering: 1 normal, 2 unknown, 3 control, 4 user-defined,
    5 unused, 6 byte.
    """

    model: str
    pre: str | None
    tokens: tuple[str, ...]
    token_types: tuple[int, ...]
    merges: tuple[str, ...]
    scores: tuple[float, ...]
    add_space_prefix: bool | None


@dataclass(frozen=True, slots=True)
class TokenizerData:
    """What a tokenizer and a chat template are built from; exactly one of the first two is set.

    ``eos_ids`` end a generation; ``eos_id`` is the one that templates call ``eos_token`` (None:
    the lowest of them).
    """

    tokenizer_json: str | None
    vocab: GGUFVocab | None
    chat_template: str | None
    bos_id: int | None
    eos_ids: frozenset[int]
    unk_id: int | None
    pad_id: int | None
    add_bos: bool
    add_eos: bool
    named_templates: Mapping[str, str] = field(default_factory=dict)
    eos_id: int | None = None


# --- a request ---------------------------------------------------------------------------------


Prompt = str | tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class OutputConstraint:
    """What the answer must be: JSON of a schema (None: any object), a text that a regular
    expression matches, one of several texts, a text of a grammar. ``param`` is the field that
    asked for it."""

    kind: Literal["json", "regex", "choice", "grammar"]
    value: Any
    param: str


@dataclass(frozen=True, slots=True)
class CallableTool:
    """A tool that may be called. ``parameters`` is the JSON Schema of its arguments (None: it takes
    none), ``param`` the field that holds it. ``is_enforced``: the arguments satisfy the schema;
    otherwise they are any object."""

    name: str
    parameters: Mapping[str, Any] | None
    param: str
    is_enforced: bool


@dataclass(frozen=True, slots=True)
class CallRules:
    """Which calls a reply may make: at most ``at_most`` of ``tools``, and at least one where
    ``is_forced``. ``param`` is the field that asked for it."""

    tools: tuple[CallableTool, ...]
    at_most: int
    is_forced: bool
    param: str


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One validated request with every setting decided.

    Exactly one of ``messages`` (chat) and ``prompts`` (completions) is set. ``messages`` are
    plain dictionaries as the chat template reads them: ``role``, ``content`` (a string) and the
    optional keys of OpenAI's message object. ``prompts`` holds strings or token ids.
    ``settings`` are those the store would give now; ``sent`` are the sticky fields the body
    carried, already checked, to be written when the request is admitted. A prompt of ids may hold
    texts among them, which are tokenised in their place. ``tools`` are shown to the model;
    ``calls`` are rules for calling them that are enforced, ``constraint`` holds for an answer
    without calls. With ``time_tokens`` every delta tells how long it took so far, with
    ``report_progress`` every slice of a prompt that was read is told. Without ``opens_reply`` a
    chat's prompt ends behind its last message. ``history_ids`` are tokens before a chat's prompt.
    ``is_counted``: only the number of its prompt's tokens is wanted, whatever the context holds.
    """

    id: str
    model: str
    settings: Settings
    sent: Mapping[str, Any]
    messages: tuple[Mapping[str, Any], ...] | None = None
    history_ids: tuple[int, ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    prompts: tuple[Prompt, ...] | None = None
    seed: int | None = None
    n: int = 1
    max_tokens: int | None = None
    max_tokens_field: str = "max_tokens"
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    logit_bias: tuple[tuple[int, float], ...] = ()
    top_logprobs: int | None = None
    stream: bool = False
    echo: bool = False
    time_tokens: bool = False
    report_progress: bool = False
    cache_prompt: bool = True
    constraint: OutputConstraint | None = None
    calls: CallRules | None = None
    continue_final_message: bool = False
    opens_reply: bool = True
    is_counted: bool = False
    adaptations: tuple[Adaptation, ...] = ()

    @property
    def reads_cache(self) -> bool:
        """False when every token of the prompt is to be computed."""
        return self.cache_prompt and not (self.echo and self.top_logprobs is not None)

    @property
    def is_chat(self) -> bool:
        """True for a chat request, False for a completion."""
        return self.messages is not None


# --- a reply, as events ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopLogprob:
    """One alternative at a position. ``text`` may be partial UTF-8 shown with U+FFFD."""

    token_id: int
    text: str
    raw: bytes
    logprob: float


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A sampled (or prompt) token with its log probability and the best alternatives.

    ``logprob`` is None only for the first token of an echoed prompt, which has no distribution.
    ``is_hidden``: the text of the reply leaves the token out, as it does with control tokens.
    """

    token_id: int
    text: str
    raw: bytes
    logprob: float | None
    top: tuple[TopLogprob, ...] = ()
    is_hidden: bool = False


@dataclass(frozen=True, slots=True)
class Drafts:
    """What guessing tokens ahead came to: ``num_accepted`` of ``num_drafted`` are in the reply."""

    num_drafted: int = 0
    num_accepted: int = 0

    def __add__(self, other: "Drafts") -> "Drafts":
        return Drafts(self.num_drafted + other.num_drafted, self.num_accepted + other.num_accepted)


@dataclass(frozen=True, slots=True)
class Timings:
    """How long a reply took, so far or in all. Durations are in seconds.

    ``prefill_duration`` is from when the prompt began to be read to the first token,
    ``decoding_duration`` from the first token to the last. ``drafts`` is None where no tokens are
    guessed ahead.
    """

    prompt_tokens: int
    cached_tokens: int
    prefill_duration: float
    completion_tokens: int
    decoding_duration: float
    drafts: Drafts | None = None


@dataclass(frozen=True, slots=True)
class ReadProgress:
    """A part of the prompt of one choice was read: ``read_tokens`` of ``prompt_tokens`` are in the
    cache, and ``cached_tokens`` of them were before. ``duration`` is in seconds."""

    index: int
    prompt_tokens: int
    cached_tokens: int
    read_tokens: int
    duration: float


@dataclass(frozen=True, slots=True)
class PromptEcho:
    """The prompt of one choice, given back because ``echo`` asked for it. Comes first."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...]


@dataclass(frozen=True, slots=True)
class TextDelta:
    """New text of one choice, with the tokens it accounts for.

    A token whose text is held back (a partial character, a possible stop string) travels with
    the delta that settles it, so over a choice the deltas carry every token exactly once.
    ``text`` may be empty.
    """

    index: int
    text: str
    channel: Channel
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    timings: Timings | None = None


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A part of a tool call of one choice, with the tokens it accounts for (as ``TextDelta``).

    ``call_index`` counts the calls of the choice. ``id`` and ``name`` come with the first part of
    a call and only there; the ``arguments`` of its parts add up to the JSON text of the whole.
    """

    index: int
    call_index: int
    id: str | None
    name: str | None
    arguments: str
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    timings: Timings | None = None


@dataclass(frozen=True, slots=True)
class ChoiceDone:
    """The end of one choice. Nothing of that choice follows. ``stop_string`` is the one that
    matched, if one did."""

    index: int
    finish_reason: FinishReason
    stop_string: str | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts and timings of a whole request (all choices). Durations are in seconds.

    ``prefill_duration`` is from submission to the first token; the first ``waiting_duration`` of it
    passed in the queue. ``diverged_at`` is the index of the token at which the prompt left what
    else was cached; None if it did not, and with several prompts. ``drafts`` is None where no
    tokens are guessed ahead.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    context_len: int
    active_kv_tokens: int
    max_kv_tokens: int
    load_duration: float
    prefill_duration: float
    decoding_duration: float
    num_choices: int = 1
    waiting_duration: float = 0.0
    drafts: Drafts | None = None
    diverged_at: int | None = None

    @property
    def timings(self) -> Timings:
        """The same without the time in the queue."""
        return Timings(
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            prefill_duration=self.prefill_duration - self.waiting_duration,
            completion_tokens=self.completion_tokens,
            decoding_duration=self.decoding_duration,
            drafts=self.drafts,
        )

    @property
    def total_tokens(self) -> int:
        """Prompt and completion together."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class RequestDone:
    """The end of the whole request: every choice is done and the counts are final. ``choices`` has
    the timings of each."""

    usage: Usage
    choices: tuple[Timings, ...] = ()


Event = ReadProgress | PromptEcho | TextDelta | ToolCallDelta | ChoiceDone | RequestDone
"""What the service yields for a request, in this order: progress, echoes, deltas and ends of the
choices interleaved, one RequestDone. A failure is an exception raised from the iterator."""
