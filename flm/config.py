"""The settings table: every option of ``flm serve`` with its default, environment variable,
help text and range, and the rounding rules of the length options.

Each option can be given as a flag (``--ctx-len``) or as an environment variable
(``FLM_CTX_LEN``); the flag wins.
"""

import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Literal, get_args

import regex

from flm.adaptation import Mode
from flm.errors import ConfigError

DEFAULT_MODEL = "smollm2:135m"
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 52625
MODEL_PATH_ENV = "FLM_MODEL_PATH"

DEFAULT_SPECULATE: Final = "off"
DEFAULT_RESPONSE_STORE = 256
MIN_CTX_LEN = 512
MIN_CHUNK_LEN = 512
MAX_LEN = 2**30
"""No length option goes beyond this many tokens; it keeps the arithmetic and the memory sane."""

Dtype = Literal["auto", "float32", "bfloat16", "float16"]
KvDtype = Literal["auto", "float32", "bfloat16", "float16", "int8"]
KernelChoice = Literal["auto", "native", "torch"]
ToolDialect = Literal[
    "auto", "hermes", "qwen3.5", "llama3", "pythonic", "mistral", "gemma4", "lfm2", "deepseek",
    "harmony",
]  # fmt: skip
SpeculateChoice = Literal["off", "ngram", "auto"]
WeightChoice = Literal["auto", "int8", "int4"]
CudaGraphChoice = Literal["auto", "off"]
LogLevel = Literal["debug", "info", "warning", "error"]

Check = Callable[[Any], str | None]
"""Returns what the value must be, or None when it is fine."""


# --- range checks ------------------------------------------------------------------------------


def _between(low: float, high: float) -> Check:
    def check(value: Any) -> str | None:
        in_range = math.isfinite(value) and low <= value <= high
        return None if in_range else f"must be between {low} and {high}"

    return check


def _one_of(*words: str) -> Check:
    return lambda value: None if value in words else f"must be one of {', '.join(words)}"


def _filled(value: str) -> str | None:
    return None if value.strip() else "must not be empty"


def _names(values: tuple[str, ...]) -> str | None:
    return None if all(value.strip() for value in values) else "must not contain an empty name"


def _patterns(values: tuple[str, ...]) -> str | None:
    for pattern in values:
        try:
            regex.compile(pattern)
        except regex.error as error:
            return f"must hold regular expressions, and {pattern!r} is none: {error}"
    return None


def _device(value: str) -> str | None:
    known = re.fullmatch(r"auto|cpu|cuda(:\d{1,3})?", value)
    return None if known is not None else "must be auto, cpu, cuda or cuda:N"


# --- the table ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Option:
    """One setting: the field of ``ServeConfig``, its help, its range, its own variable's name."""

    name: str
    help: str
    check: Check
    env_name: str | None = None
    is_argument: bool = False

    @property
    def flag(self) -> str:
        """The command-line flag, ``--ctx-len`` for the field ``ctx_len``; arguments in capitals."""
        return self.name.upper() if self.is_argument else "--" + self.name.replace("_", "-")

    @property
    def env(self) -> str:
        """The environment variable."""
        return self.env_name if self.env_name is not None else "FLM_" + self.name.upper()


OPTIONS: tuple[Option, ...] = (
    Option(
        "model",
        "A catalogue tag, a path to a GGUF file or to a Hugging Face folder, or a hub id.",
        _filled,
        is_argument=True,
    ),
    Option("host", "Address to listen on.", _filled),
    Option("port", "Port to listen on; 0 takes a free one.", _between(0, 65535), "FLM_SERVE_PORT"),
    Option(
        "ctx_len",
        "Context length in tokens, at least 512, rounded up to a power of two. "
        "Default: the catalogue's.",
        _between(1, MAX_LEN),
    ),
    Option(
        "prefill_chunk_len",
        "Tokens of a prompt read in one chunk, at least 512, rounded up to a power of two. "
        "Default: the catalogue's.",
        _between(1, MAX_LEN),
    ),
    Option("parallel", "Requests that run at the same time.", _between(1, 4096)),
    Option("q_len", "Requests that may wait; more get 503 with Retry-After.", _between(1, 2**20)),
    Option(
        "q_tokens",
        "Prompt tokens that may wait; a request that would exceed them gets 503 with Retry-After, "
        "unless nothing waits. Default: 4 times the KV cache.",
        _between(1, MAX_LEN),
    ),
    Option(
        "kv_tokens",
        "Tokens the KV cache can hold. Default: the larger of the context length and 16384, "
        "capped by free memory.",
        _between(MIN_CTX_LEN, MAX_LEN),
    ),
    Option(
        "served_name",
        "A further name the model answers to; repeat it for several, * accepts any.",
        _names,
    ),
    Option(
        "require_model",
        "Refuse requests that name no model, instead of answering with the loaded one.",
        _one_of("True", "False"),
    ),
    Option(
        "normalize",
        "A regular expression; what it matches in a line of a system message is taken out, and "
        "recorded. Repeat it for several.",
        _patterns,
    ),
    Option("cors", "Let web pages of any origin call the server.", _one_of("True", "False")),
    Option(
        "dtype",
        "auto is the fast mode, float32 the exact one.",
        _one_of("auto", "float32", "bfloat16", "float16"),
    ),
    Option(
        "weights",
        "int8 or int4 keep the matrices in so many bits and compute in bfloat16, for CUDA devices; "
        "auto keeps them as the mode does.",
        _one_of("auto", "int8", "int4"),
    ),
    Option(
        "kv_dtype",
        "Format of the keys and values in the KV cache. auto: that of the weights; bfloat16 with "
        "the native kernels, which can keep int8 too.",
        _one_of("auto", "float32", "bfloat16", "float16", "int8"),
    ),
    Option(
        "kernels",
        "auto uses the native kernels where they can be had, torch never does.",
        _one_of("auto", "native", "torch"),
    ),
    Option(
        "speculate",
        "Guess tokens ahead from the text so far: off, ngram, or auto where replies stay the same.",
        _one_of("off", "ngram", "auto"),
    ),
    Option("device", "auto, cpu, cuda or cuda:N.", _device),
    Option(
        "cuda_graphs",
        "auto decodes with CUDA graphs on CUDA devices, off launches every kernel by itself.",
        _one_of("auto", "off"),
    ),
    Option("threads", "CPU threads. Default: one for each core.", _between(1, 1024)),
    Option(
        "adaptations",
        "What happens to a request that cannot be done as asked: note, silent or refuse.",
        _one_of("note", "silent", "refuse"),
    ),
    Option(
        "tool_dialect",
        "How the model writes tool calls; auto reads it off the chat template.",
        _one_of(*get_args(ToolDialect)),
    ),
    Option(
        "response_store",
        "Replies of /v1/responses kept in memory, to be gone on from; 0 keeps none.",
        _between(0, 2**20),
    ),
    Option("grace_s", "Seconds that running requests get to end at shutdown.", _between(0, 3600)),
    Option(
        "keepalive_s", "Seconds of silence before a stream sends a comment.", _between(0.1, 3600)
    ),
    Option("log_level", "How much to log.", _one_of("debug", "info", "warning", "error")),
)

OPTIONS_BY_NAME: dict[str, Option] = {option.name: option for option in OPTIONS}


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """How to serve, validated. Lengths and ``kv_tokens`` are in tokens, as asked: the rounding
    is done by ``chunk_len`` and ``effective_ctx_len``, which know the model's limits.

    Raises:
        ConfigError: a value is out of its range; the message names the flag and the variable.
    """

    model: str = DEFAULT_MODEL
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    ctx_len: int | None = None
    prefill_chunk_len: int | None = None
    parallel: int = 16
    q_len: int = 64
    q_tokens: int | None = None
    kv_tokens: int | None = None
    served_name: tuple[str, ...] = ()
    require_model: bool = False
    normalize: tuple[str, ...] = ()
    cors: bool = True
    dtype: Dtype = "auto"
    weights: WeightChoice = "auto"
    kv_dtype: KvDtype = "auto"
    kernels: KernelChoice = "auto"
    speculate: SpeculateChoice = DEFAULT_SPECULATE
    device: str = "auto"
    cuda_graphs: CudaGraphChoice = "auto"
    threads: int | None = None
    adaptations: Mode = "note"
    tool_dialect: ToolDialect = "auto"
    response_store: int = DEFAULT_RESPONSE_STORE
    grace_s: float = 10.0
    keepalive_s: float = 10.0
    log_level: LogLevel = "info"

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if value is not None:
                _require(OPTIONS_BY_NAME[item.name], value)


def _require(option: Option, value: Any) -> None:
    complaint = option.check(str(value) if isinstance(value, bool) else value)
    if complaint is not None:
        raise ConfigError(
            f"{option.flag} (or {option.env}) is {value!r}; it {complaint}.", param=option.name
        )


# --- rounding ----------------------------------------------------------------------------------


def round_up_pow2(value: int, minimum: int) -> int:
    """The smallest power of two that is at least ``value`` and ``minimum`` (itself one)."""
    return max(minimum, 1 << max(value - 1, 0).bit_length())


def chunk_len(asked: int) -> int:
    """Tokens in a prefill chunk: at least 512, rounded up to a power of two (5000 -> 8192)."""
    return round_up_pow2(asked, MIN_CHUNK_LEN)


def effective_ctx_len(asked: int | None, model_max: int, default: int | None = None) -> int:
    """The context length in force, in tokens.

    ``asked`` is raised to 512 and rounded up to a power of two; when only the rounding passes
    ``model_max``, that is used. None asks for ``default`` (or the maximum), never more than the
    model has.

    Raises:
        ConfigError: ``asked`` itself is above ``model_max``.
    """
    if asked is None:
        return min(default if default is not None else model_max, model_max)
    if asked > model_max:
        option = OPTIONS_BY_NAME["ctx_len"]
        raise ConfigError(
            f"{option.flag} (or {option.env}) is {asked}, but the model's context holds at most "
            f"{model_max} tokens. Ask for {model_max} or less.",
            param=option.name,
        )
    return min(round_up_pow2(asked, MIN_CTX_LEN), model_max)


# --- places ------------------------------------------------------------------------------------


def model_dir() -> Path:
    """Where models are installed.

    ``FLM_MODEL_PATH``, else ``flm/models`` under ``XDG_DATA_HOME``, else
    ``~/.local/share/flm/models``. An empty variable counts as unset.
    """
    own = os.environ.get(MODEL_PATH_ENV, "")
    if own.strip():
        return Path(own).expanduser().absolute()
    data_home = os.environ.get("XDG_DATA_HOME", "")
    # The XDG specification says that a relative path there is to be ignored.
    base = Path(data_home) if data_home.startswith("/") else Path.home() / ".local" / "share"
    return base / "flm" / "models"
