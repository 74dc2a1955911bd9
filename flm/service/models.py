"""What the service holds and shows: models as they are listed, loaded and asked for."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from flm.adaptation import Adaptation
from flm.engine.protocol import EngineClient
from flm.sticky import StickyStore
from flm.text.grammar import CompiledGrammar, GrammarCompiler
from flm.text.parsers import OutputStyle, Parser, ReasoningStyle, ReplyShape, make_parser
from flm.text.template import ChatTemplate
from flm.text.tokenizer import Tokenizer
from flm.types import GenerationRequest, Settings, ThinkMode


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model as ``/v1/models`` shows it. The fields that only a loaded model has are None before.

    ``created`` is a Unix time in seconds, ``context_len`` is in tokens, ``path`` is where its files
    are, ``file_format`` gguf or safetensors, ``parameter_size`` like 135M. ``digest`` is the
    SHA-256 of an installed model in hexadecimal. ``kv_dtype`` is the format of its KV cache.
    ``exact`` is True where a reply has the same bits whatever else the server computes.
    """

    id: str
    created: int
    owned_by: str
    context_len: int
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
    defaults: Settings
    architecture: str
    file_format: str
    parameter_size: str
    num_parameters: int
    path: str | None = None
    digest: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LoadedModel:
    """A model that can answer: its text tools, its engine and the settings that stick to it.

    ``chunk_lengths`` says how a number of new prompt tokens is split into prefill chunks;
    ``output`` is what the model writes besides text. ``think`` says how it reasons, and
    ``reads_effort`` that its template knows levels of that. ``speculates`` is True where tokens
    are guessed ahead. ``load_duration`` is in seconds.
    """

    info: ModelInfo
    tokenizer: Tokenizer
    template: ChatTemplate
    engine: EngineClient
    store: StickyStore
    load_duration: float
    chunk_lengths: Callable[[int], tuple[int, ...]]
    output: OutputStyle
    grammars: GrammarCompiler
    think: ThinkMode
    reads_effort: bool
    speculates: bool = False

    @property
    def model_id(self) -> str:
        """The id that requests ask for."""
        return self.info.id

    @property
    def vocab_size(self) -> int:
        """Number of token ids that have both a text and a logit."""
        known = self.info.vocab_size
        mine = self.tokenizer.vocab_size
        return mine if known is None else min(mine, known)

    @property
    def template_variables(self) -> frozenset[str]:
        """Names that the chat template reads from outside."""
        return self.template.variables

    @property
    def thinking_switch(self) -> str:
        """The name among them that turns thinking on and off."""
        return self.template.thinking_switch

    @property
    def reasons(self) -> bool:
        """True when the model can think before it answers."""
        return self.info.reasons

    @property
    def reasoning(self) -> ReasoningStyle | None:
        """The tags of its reasoning, if it may write any."""
        return self.output.reasoning

    def make_parser(self, reply: ReplyShape) -> Parser:
        """A reader for one reply."""
        return make_parser(self.output, reply)


class ModelLibrary(Protocol):
    """Where models come from. Every method may block; the service calls them from threads."""

    def installed(self) -> list[ModelInfo]:
        """The models on this machine."""

    def resolve(self, name: str) -> str:
        """The id of an installed model.

        Raises:
            ModelNotFoundError: there is none; the message names what there is.
        """

    def check(self, model_id: str) -> None:
        """Raise an FlmError if the model plainly cannot be loaded (missing or damaged files)."""

    def load(self, model_id: str) -> LoadedModel:
        """Read the weights and start an engine."""

    def close(self) -> None:
        """Let go of what the models shared. Nothing is loaded afterwards."""


@dataclass(frozen=True, slots=True)
class TokenText:
    """A token and the bytes it adds to a text."""

    token_id: int
    raw: bytes


@dataclass(frozen=True, slots=True)
class Place:
    """A place in which a sequence runs: the request it belongs to (None: it is free) and how many
    tokens it has given so far."""

    request: GenerationRequest | None = None
    num_decoded: int = 0


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request whose prompt is tokens and fits. Nothing has been queued or written yet.

    ``prompt_ids`` and ``max_new_tokens`` have one entry per prompt; ``rendered`` is the chat
    template's text (None for completions); ``adaptations`` are those that only show here.
    ``fits`` is False when the asked ``max_tokens`` does not fit behind a prompt. ``grammar`` is
    what the answer must follow, if anything.
    """

    request: GenerationRequest
    prompt_ids: tuple[tuple[int, ...], ...]
    rendered: str | None
    max_new_tokens: tuple[int, ...]
    adaptations: tuple[Adaptation, ...]
    fits: bool
    grammar: CompiledGrammar | None = None
