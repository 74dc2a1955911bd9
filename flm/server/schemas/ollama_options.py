"""The ``options`` of Ollama's bodies: those that are read, and those that ask for nothing here."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import Field, field_validator

from flm.errors import InvalidRequestError
from flm.server.schemas.common import MAX_STOPS, Stop
from flm.server.schemas.generation import Unread
from flm.server.schemas.types import Int64, Number, Schema
from flm.sticky import SAMPLING_FIELDS

OPTION_OF: Mapping[str, str] = {
    **{name: name for name in SAMPLING_FIELDS},
    "repetition_penalty": "repeat_penalty",
    "seed": "seed",
    "max_tokens": "num_predict",
}
"""Our name of a field to the option of the same meaning."""
RANDOM_SEED = -1
"""What stands for no seed there."""


class Options(Schema):
    """Settings of a reply. Those that stick stay in force for later requests."""

    temperature: Number | None = Field(None, description="0 or below is greedy. Sticks.")
    top_k: Int64 | None = Field(None, description="0 or below is every token. Sticks.")
    top_p: Number | None = Field(None, description="0 to 1. Sticks.")
    min_p: Number | None = Field(None, description="0 to 1. Sticks.")
    repeat_last_n: Annotated[int, Field(strict=True, ge=-1, le=2**63 - 1)] | None = Field(
        None, description="Length of the penalty window in tokens; -1: the whole reply. Sticks."
    )
    repeat_penalty: Number | None = Field(None, description="> 0; 1 is off. Sticks.")
    presence_penalty: Number | None = Field(None, description=">= 0; 0 is off. Sticks.")
    frequency_penalty: Number | None = Field(None, description=">= 0; 0 is off. Sticks.")
    seed: Int64 | None = Field(None, description="For this request only; -1 is a random one.")
    stop: Stop | None = Field(None, description="A string or up to 16 of them.")
    num_predict: Int64 | None = Field(
        None, description="At most this many new tokens; 0 or below: until the context is full."
    )
    num_ctx: Int64 | None = Field(
        None, description="Recorded as dropped where it is not the context of the server."
    )

    @field_validator("stop")
    @classmethod
    def _few_stops(cls, stop: Stop | None) -> Stop | None:
        if isinstance(stop, list) and len(stop) > MAX_STOPS:
            raise InvalidRequestError(
                f"options.stop takes at most {MAX_STOPS} strings.", param="options.stop"
            )
        return stop


# --- what asks for nothing here ----------------------------------------------------------------


def _never(_value: Any) -> bool:
    return False


def _always(_value: Any) -> bool:
    return True


def _if(test: Callable[[float], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int | float) and test(value)


_SAMPLER = "This sampler is not there; top_k, top_p, min_p and temperature are."
_START = "That is chosen when the server starts: flm serve"
_OFF = _if(lambda value: value == 0)

UNREAD_OPTIONS: Mapping[str, Unread] = {
    "typical_p": Unread(_SAMPLER, _if(lambda value: value >= 1)),
    "tfs_z": Unread(_SAMPLER, _if(lambda value: value >= 1)),
    "mirostat": Unread(_SAMPLER, _OFF),
    "mirostat_tau": Unread("", _always),
    "mirostat_eta": Unread("", _always),
    "penalize_newline": Unread("A line break is penalised as any token.", _if(bool)),
    "num_keep": Unread("", _always),
    "num_batch": Unread(f"{_START} --prefill-chunk-len.", _never),
    "num_gpu": Unread(f"{_START} --device.", _if(lambda value: value < 0)),
    "main_gpu": Unread(f"{_START} --device.", _OFF),
    "num_thread": Unread(f"{_START} --threads.", _OFF),
    "f16_kv": Unread(f"{_START} --kv-dtype.", _never),
    "numa": Unread("Threads are placed by the operating system.", _OFF),
    "low_vram": Unread("The whole model is kept in memory.", _OFF),
    "use_mmap": Unread("How the model's files are read cannot be chosen.", _never),
    "use_mlock": Unread("Memory is not locked.", _OFF),
    "logits_all": Unread("top_logprobs has the log probabilities.", _OFF),
    "vocab_only": Unread("The whole model is loaded.", _OFF),
    "embedding_only": Unread("The models here generate text.", _OFF),
}
"""Options of Ollama's that have no effect here, each with the values that are met anyway. Those
that are always met only tune what is switched off or keep what is never thrown away."""
