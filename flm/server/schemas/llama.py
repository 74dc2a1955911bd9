"""The bodies of llama-server's own endpoints."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator

from flm.adaptation import Mode
from flm.errors import InvalidRequestError
from flm.server.schemas.chat import ChatBody
from flm.server.schemas.common import CommonBody
from flm.server.schemas.generation import Bias, Unread, checked
from flm.server.schemas.types import Int64, Number, Schema, TokenId
from flm.types import NEVER, OutputConstraint, Prompt

MAX_PROBS = 100
RANDOM_SEEDS = frozenset({-1, 2**32 - 1})
"""What stands for no seed there: -1, and the same as an unsigned number of 32 bits."""
SAMPLERS = ("penalties", "top_k", "top_p", "min_p", "temperature")
"""The stages that both have, in the order in which they are applied here."""
_MAX_TOKEN_ID = 2**31 - 1
_MAX_BIAS = 1e9


# --- prompts -----------------------------------------------------------------------------------

_PART = {"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 0, "maximum": _MAX_TOKEN_ID}]}
_OBJECT = {
    "type": "object",
    "required": ["prompt_string"],
    "properties": {
        "prompt_string": {"type": "string"},
        "multimodal_data": {"type": "array", "maxItems": 0},
    },
    "additionalProperties": False,
}
_ONE = {"anyOf": [{"type": "string"}, {"type": "array", "items": _PART, "minItems": 1}, _OBJECT]}
PROMPT_SCHEMA = {"anyOf": [*_ONE["anyOf"], {"type": "array", "items": _ONE, "minItems": 1}]}


def read_prompts(value: Any) -> tuple[Prompt, ...]:
    """One prompt (a text, an array with token ids in it, an object) or an array of such.

    Raises:
        InvalidRequestError: it is something else.
    """
    if isinstance(value, list) and value and not any(map(_is_integer, value)):
        return tuple(_read_prompt(item, f"prompt[{index}]") for index, item in enumerate(value))
    return (_read_prompt(value, "prompt"),)


def _read_prompt(value: Any, param: str) -> Prompt:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value:
        return tuple(_read_part(item, f"{param}[{index}]") for index, item in enumerate(value))
    if isinstance(value, dict) and isinstance(value.get("prompt_string"), str):
        _refuse_media(value, param)
        return str(value["prompt_string"])
    raise InvalidRequestError(
        f"{param} must be a text, a non-empty array of token ids and texts, an object with a "
        "prompt_string, or an array of these.",
        param=param,
    )


def _read_part(value: Any, param: str) -> int | str:
    if isinstance(value, str) or (_is_integer(value) and 0 <= value <= _MAX_TOKEN_ID):
        return value  # type: ignore[no-any-return]
    raise InvalidRequestError(f"{param} must be a token id or a text.", param=param)


def _refuse_media(value: Mapping[str, Any], param: str) -> None:
    for key, own in value.items():
        if key != "prompt_string" and own not in (None, []):
            raise InvalidRequestError(
                f"{param}.{key} cannot be read: the model reads text only.", param=f"{param}.{key}"
            )


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


# --- biases ------------------------------------------------------------------------------------

_AMOUNT = {
    "anyOf": [{"type": "number", "minimum": -_MAX_BIAS, "maximum": _MAX_BIAS}, {"const": False}]
}
BIAS_SCHEMA = {
    "anyOf": [
        {"type": "array", "items": {"type": "array", "prefixItems": [_PART, _AMOUNT]}},
        {"type": "object", "additionalProperties": _AMOUNT},
        {"type": "null"},
    ]
}


def read_biases(value: Any) -> tuple[Bias, ...]:
    """Pairs of a token (an id or a text) and a number, or false for never; or an object of them.

    Raises:
        InvalidRequestError: it is something else.
    """
    if value is None:
        return ()
    if isinstance(value, dict):
        return tuple((_named_token(key), _amount(own)) for key, own in value.items())
    is_pairs = isinstance(value, list) and all(
        isinstance(pair, list) and len(pair) == 2 for pair in value
    )
    if not is_pairs:
        raise _wrong_bias()
    return tuple((_token(token), _amount(own)) for token, own in value)


def _named_token(key: str) -> int | str:
    is_id = key.isascii() and key.isdigit() and len(key) <= 10
    return int(key) if is_id else key


def _token(value: Any) -> int | str:
    if isinstance(value, str) or (_is_integer(value) and 0 <= value <= _MAX_TOKEN_ID):
        return value  # type: ignore[no-any-return]
    raise _wrong_bias()


def _amount(value: Any) -> float:
    if value is False:
        return NEVER
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not -_MAX_BIAS <= value <= _MAX_BIAS:
        raise _wrong_bias()
    return float(value)


def _wrong_bias() -> InvalidRequestError:
    return InvalidRequestError(
        'logit_bias must be an array of pairs such as [15043, -1.5] or ["Hello", false], or an '
        f"object of these; biases are numbers from {-_MAX_BIAS:.0f} to {_MAX_BIAS:.0f}, or false.",
        param="logit_bias",
    )


def _read_schema(value: Any) -> None:
    if not isinstance(value, dict | bool | None):
        raise InvalidRequestError("json_schema must be a JSON Schema.", param="json_schema")


# --- fields without effect ---------------------------------------------------------------------


def _if(test: Callable[[float], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int | float) and test(value)


_OFF = _if(lambda value: value == 0)
_NOT_POSITIVE = _if(lambda value: value <= 0)


def _always(_value: Any) -> bool:
    return True


def _is_empty(value: Any) -> bool:
    return value in ([], {}, "", False)


def _is_own_order(value: Any) -> bool:
    return (
        isinstance(value, list)
        and tuple(name for name in value if name not in ("dry", "top_n_sigma", "typ_p", "xtc"))
        == SAMPLERS
    )


def _is_without_lora(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(item, dict) and item.get("scale") == 0 for item in value
    )


_SAMPLER = "This sampler is not there; top_k, top_p, min_p and temperature are."
_PLACE = "Requests have no place of their own; every one may use what any other left in the cache."
_TIME = "Nothing is ended by the clock; set n_predict."
UNREAD: Mapping[str, Unread] = {
    "dynatemp_range": Unread("The temperature is constant.", _OFF),
    "dynatemp_exponent": Unread("", _always),
    "typical_p": Unread(_SAMPLER, _if(lambda value: value >= 1)),
    "top_n_sigma": Unread(_SAMPLER, _NOT_POSITIVE),
    "xtc_probability": Unread(_SAMPLER, _OFF),
    "xtc_threshold": Unread("", _always),
    "dry_multiplier": Unread(_SAMPLER, _OFF),
    "dry_base": Unread("", _always),
    "dry_allowed_length": Unread("", _always),
    "dry_penalty_last_n": Unread("", _always),
    "dry_sequence_breakers": Unread("", _always),
    "mirostat": Unread(_SAMPLER, _OFF),
    "mirostat_tau": Unread("", _always),
    "mirostat_eta": Unread("", _always),
    "adaptive_target": Unread(_SAMPLER, _if(lambda value: value < 0)),
    "adaptive_decay": Unread("", _always),
    "min_keep": Unread("The samplers keep at least one token.", _if(lambda value: value <= 1)),
    "samplers": Unread(f"The order is always {', '.join(SAMPLERS)}.", _is_own_order),
    "backend_sampling": Unread("", _always),
    "post_sampling_probs": Unread(
        "Probabilities are those of the raw logits, before sampling.", _is_empty
    ),
    "n_indent": Unread("The indentation is the model's.", _OFF),
    "n_keep": Unread("", _always),
    "n_discard": Unread("Nothing is discarded: a reply ends when the context is full.", _OFF),
    "n_cache_reuse": Unread("Only the beginning of a prompt is reused.", _OFF),
    "t_max_prompt_ms": Unread(_TIME, _NOT_POSITIVE),
    "t_max_predict_ms": Unread(_TIME, _NOT_POSITIVE),
    "id_slot": Unread(_PLACE, _if(lambda value: value == -1)),
    "sse_ping_interval": Unread(
        "flm serve --keepalive-s sets it for all streams.", lambda _: False
    ),
    "lora": Unread("There are no adapters.", _is_without_lora),
    "grammar_lazy": Unread("A grammar holds from the first token on.", _is_empty),
    "grammar_triggers": Unread("A grammar holds from the first token on.", _is_empty),
    "preserved_tokens": Unread("", _always),
    "speculative.n_max": Unread("", _always),
    "speculative.n_min": Unread("", _always),
    "speculative.p_min": Unread("", _always),
    "speculative.type": Unread("", _always),
    "echo": Unread("POST /v1/completions gives the prompt back.", _is_empty),
}
"""Fields of llama-server's that ask for nothing here, each with the values that are met anyway.
Those that are always met only tune what is switched off, or change the speed and not the text."""


# --- bodies ------------------------------------------------------------------------------------


class LlamaBody(CommonBody):
    """A completion as llama-server takes it. Its names stand beside those of /v1/completions."""

    unread: ClassVar[Mapping[str, Unread]] = UNREAD
    length_fields: ClassVar[tuple[str, ...]] = ("n_predict", "max_tokens", "max_completion_tokens")
    aliases: ClassVar[Mapping[str, str]] = {
        "repetition_penalty": "repeat_penalty",
        "logprobs": "n_probs",
        "n": "n_cmpl",
    }

    prompt: Annotated[
        Any, BeforeValidator(checked(read_prompts)), WithJsonSchema(PROMPT_SCHEMA)
    ] = Field(description="A text, an array of token ids and texts, or an array of prompts.")
    n_predict: Int64 | None = Field(
        None,
        description="At most this many new tokens; < 0 or absent: until the context is full; 0: "
        "read the prompt into the cache and say nothing.",
    )
    repeat_penalty: Number | None = Field(None, description="repetition_penalty. Sticks.")
    n_probs: Annotated[int, Field(strict=True, ge=0, le=MAX_PROBS)] | None = Field(
        None, description="Alternatives at each position, in completion_probabilities; 0: none."
    )
    logprobs: Annotated[int, Field(strict=True, ge=0, le=MAX_PROBS)] | None = Field(
        None, description="Another name of n_probs."
    )
    n_cmpl: Annotated[int, Field(strict=True, ge=1, le=128)] | None = Field(
        None, description="Completions of each prompt."
    )
    logit_bias: Annotated[
        Any, BeforeValidator(checked(read_biases)), WithJsonSchema(BIAS_SCHEMA)
    ] = Field(
        None,
        description="Pairs of a token, by id or as text, and a number or false (never); or an "
        "object of them.",
    )
    json_schema: Annotated[
        Any,
        BeforeValidator(checked(_read_schema)),
        WithJsonSchema({"type": ["object", "boolean", "null"]}),
    ] = Field(None, description="The text must be JSON of this schema; {} is any JSON.")
    grammar: str | None = Field(None, description="The text must follow this GBNF grammar.")
    return_tokens: bool | None = Field(
        None, description="Give the ids of the new tokens in tokens; a stream always does."
    )
    response_fields: list[str] | None = Field(
        None, description="Only these fields of the reply; a/b takes b out of a."
    )

    @field_validator("logit_bias")
    @classmethod
    def _token_ids(cls, bias: Any) -> Any:
        return bias

    def _constraints(self) -> list[OutputConstraint]:
        own: list[OutputConstraint] = []
        if self.json_schema is not None:
            own.append(OutputConstraint("json", self.json_schema, "json_schema"))
        if self.grammar:
            own.append(OutputConstraint("grammar", self.grammar, "grammar"))
        return [*own, *super()._constraints()]

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """The prompts, one or many."""
        return read_prompts(self.prompt)

    @property
    def num_logprobs(self) -> int | None:
        """Alternatives wanted at each position; None: no log probabilities."""
        wanted = self.n_probs if self.n_probs is not None else self.logprobs
        return wanted or None

    @property
    def num_choices(self) -> int:
        """Completions of each prompt."""
        return self.n_cmpl if self.n_cmpl is not None else super().num_choices

    @property
    def may_say_nothing(self) -> bool:
        """A limit of 0 is one here."""
        return True

    @property
    def seed_in_force(self) -> int | None:
        """The seed; None where the body asks for a random one."""
        return None if self.seed in RANDOM_SEEDS else self.seed

    @property
    def biases(self) -> tuple[Bias, ...]:
        """What is added to the logits of which tokens."""
        return read_biases(self.logit_bias)

    def sampling_value(self, name: str, vocab_size: int) -> Any:
        """The value in our terms: top_k 0 or below is every token, a temperature below 0 greedy."""
        value = getattr(self, self.own_name(name))
        if name == "top_k" and value is not None and value <= 0:
            return vocab_size
        if name == "temperature" and value is not None and value < 0:
            return 0.0
        return value


class TemplateBody(ChatBody):
    """A chat whose prompt is wanted."""

    add_generation_prompt: bool | None = Field(
        None, description="false: the prompt ends behind the last message."
    )

    @property
    def opens_reply(self) -> bool:
        """True when the prompt ends where the model's reply begins."""
        return self.add_generation_prompt is not False


class TextBody(Schema):
    """What the bodies below share."""

    model: str | None = Field(None, description="Absent: the loaded model.")
    adaptations: Mode | None = Field(None, description="As in every other body.")


class TokenizeBody(TextBody):
    """A text to be cut into tokens."""

    content: str = Field(description="The text.")
    add_special: bool | None = Field(None, description="Put BOS first where the model wants one.")
    parse_special: bool | None = Field(
        None, description="false: special markers in the text are plain characters."
    )
    with_pieces: bool | None = Field(None, description="Give the text of each token too.")


class DetokenizeBody(TextBody):
    """Tokens to be put together."""

    tokens: list[TokenId] = Field(description="Token ids.")
