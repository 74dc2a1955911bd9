"""The one description of a network, whatever file it came from.

``hf_config`` and ``gguf_config`` read it; nothing else knows the names those formats use.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from flm.errors import ModelFileError

Architecture = Literal["llama", "mistral", "qwen2", "qwen3"]

ARCHITECTURES: Final[tuple[Architecture, ...]] = ("llama", "mistral", "qwen2", "qwen3")
"""The architectures that can be run, by the names both formats use for them."""

MAX_SIZE: Final = 1 << 31
"""No dimension or id of a real model reaches this; a larger one is a damaged file."""
_MAX_NUMBER: Final = 1e15


# --- rope scaling ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LinearScaling:
    """Positions divided by ``factor`` (position interpolation, arXiv 2306.15595)."""

    factor: float


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Llama 3.1's scaling: long wavelengths divided by ``factor``, short ones kept, the band
    between them blended. ``original_max_len`` is the trained context in tokens."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_len: int


@dataclass(frozen=True, slots=True)
class YarnScaling:
    """YaRN (arXiv 2309.00071). ``attention_factor`` multiplies cosine and sine; ``truncate``
    rounds the bounds of the blended band to whole dimensions."""

    factor: float
    original_max_len: int
    attention_factor: float
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True


@dataclass(frozen=True, slots=True)
class FactorScaling:
    """Each inverse frequency divided by its own number, as a GGUF's rope_freqs tensor gives."""

    factors: tuple[float, ...]


RopeScaling = LinearScaling | Llama3Scaling | YarnScaling | FactorScaling


def yarn_attention_factor(factor: float) -> float:
    """The YaRN paper's default: ``0.1 ln(factor) + 1``, and 1 where nothing is stretched."""
    return 0.1 * math.log(factor) + 1.0 if factor > 1.0 else 1.0


# --- the network -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The shape and constants of a decoder-only transformer.

    ``max_context_len`` is what the model can use, in tokens. ``sliding_window`` is None unless a
    window narrower than the stated context caps it: up to the window, windowed and full
    attention are the same function, so the context is cut to it rather than approximated.
    Raises ModelFileError where the numbers contradict each other.
    """

    architecture: Architecture
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None
    max_context_len: int
    tie_embeddings: bool
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    sliding_window: int | None = None
    activation: Literal["silu"] = "silu"

    def __post_init__(self) -> None:
        sizes = ("vocab_size", "hidden_size", "intermediate_size", "num_layers", "num_heads")
        for name in (*sizes, "num_kv_heads", "head_dim", "max_context_len"):
            value = getattr(self, name)
            _require(0 < value < MAX_SIZE, f"{name} is {value}, which no model has")
        _require(
            self.num_heads % self.num_kv_heads == 0,
            f"{self.num_heads} attention heads cannot share {self.num_kv_heads} key/value heads",
        )
        _require(self.head_dim % 2 == 0, f"head_dim is {self.head_dim}, an odd number")
        _require(self.rope_theta > 1, f"rope_theta is {self.rope_theta}, it must be above 1")
        _require(self.rms_norm_eps >= 0, f"rms_norm_eps is {self.rms_norm_eps}, below zero")
        _check_scaling(self.rope_scaling, self.head_dim)


def _check_scaling(scaling: RopeScaling | None, head_dim: int) -> None:
    match scaling:
        case FactorScaling(factors=factors):
            fit = len(factors) == head_dim // 2
            _require(fit, f"{len(factors)} rope factors do not fit head_dim {head_dim}")
            usable = all(math.isfinite(factor) and factor > 0 for factor in factors)
            _require(usable, "its rope factors are not all finite and above zero")
        case Llama3Scaling(low_freq_factor=low, high_freq_factor=high):
            _require(low < high, f"low_freq_factor {low} is not below high_freq_factor {high}")
            _check_original_len(scaling.original_max_len)
        case YarnScaling():
            _check_original_len(scaling.original_max_len)


def _check_original_len(length: int) -> None:
    _require(0 < length < MAX_SIZE, f"the context before scaling is {length}")


def _require(condition: bool, problem: str) -> None:
    if not condition:
        raise ModelFileError(
            f"The model's configuration is wrong: {problem}. Fetch the model again."
        )


def capped_context(context_len: int, window: int | None) -> tuple[int, int | None]:
    """The usable context, and the window where it is what limits it."""
    if window is None or window >= context_len:
        return context_len, None
    return window, window


def known_architecture(name: str, path: Path) -> Architecture:
    """``name`` as one of ARCHITECTURES; raises ModelFileError where it cannot be run."""
    if name in ARCHITECTURES:
        return name
    raise ModelFileError(
        f"{path}: the architecture {name!r} is not supported. "
        f"Supported are: {', '.join(ARCHITECTURES)}. Choose a model of one of these."
    )


# --- typed access to a file's own keys ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fields:
    """The key/value pairs of one configuration, read with the type each must have.

    Every method raises ModelFileError, naming the file and the key, for a value of another
    type or a missing value without a default.
    """

    path: Path
    values: Mapping[str, Any]

    def integer(self, key: str, default: int | None = None) -> int:
        """An integer; a float with no fraction counts, true and false do not."""
        value = self._value(key, default)
        if isinstance(value, float) and value.is_integer() and abs(value) < _MAX_NUMBER:
            return int(value)
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _MAX_NUMBER:
            return value
        raise self._wrong(key, "an integer")

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number."""
        value = self._value(key, default)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and abs(value) < _MAX_NUMBER:
            return float(value)
        raise self._wrong(key, "a finite number")

    def positive(self, key: str, default: float | None = None) -> float:
        """A finite number above zero."""
        value = self.number(key, default)
        if value > 0:
            return value
        raise self._wrong(key, "a number above zero")

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self._value(key, default)
        if isinstance(value, bool):
            return value
        raise self._wrong(key, "true or false")

    def text(self, key: str, default: str | None = None) -> str:
        """A string."""
        value = self._value(key, default)
        if isinstance(value, str):
            return value
        raise self._wrong(key, "a string")

    def section(self, key: str) -> Mapping[str, Any]:
        """An object; missing or null is an empty one."""
        value = self.values.get(key)
        if value is None:
            return {}
        if isinstance(value, Mapping):
            return value
        raise self._wrong(key, "an object")

    def optional_integer(self, key: str) -> int | None:
        """An integer, or None where it is missing or null."""
        return None if self.values.get(key) is None else self.integer(key)

    def _value(self, key: str, default: object) -> Any:
        value = self.values.get(key)
        if value is not None:
            return value
        if default is None:
            raise ModelFileError(f"{self.path}: {key!r} is missing. Fetch the model again.")
        return default

    def _wrong(self, key: str, wanted: str) -> ModelFileError:
        value = str(self.values.get(key))[:80]
        return ModelFileError(
            f"{self.path}: {key!r} must be {wanted}, not {value}. Fetch the model again."
        )
