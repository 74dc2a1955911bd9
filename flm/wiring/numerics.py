"""Where and how a model computes: device, number format, size of the KV pool."""

from dataclasses import dataclass

import psutil
import torch

from flm.config import ServeConfig
from flm.errors import ConfigError
from flm.kernels.build import load_kernels
from flm.kernels.library import Kernels
from flm.kernels.weight_only import WeightFormat, problem_of
from flm.kvcache.layout import CacheLayout
from flm.log import logger
from flm.models.config import ModelConfig
from flm.models.fused import can_fuse

BLOCK_SIZE = 32
MIN_POOL_TOKENS = 4 * 4096
POOL_SHARE_OF_FREE_MEMORY = 0.6


@dataclass(frozen=True, slots=True)
class Numerics:
    """``kv_dtype`` is that of the cache and ``dtype``, without the native ``kernels``, that of the
    weights. ``is_exact``: weights and cache are as they are, in float32, and a row's results have
    the same bits whatever is computed beside it; ``exact_kernels`` make that fast.
    ``weight_format`` is how the matrices of the layers are kept, if not in ``dtype``."""

    device: torch.device
    dtype: torch.dtype
    kv_dtype: torch.dtype
    is_exact: bool
    kernels: Kernels | None = None
    exact_kernels: Kernels | None = None
    weight_format: WeightFormat | None = None

    @property
    def keeps_bits(self) -> bool:
        """True when a row's results have the same bits whatever is computed beside it."""
        return self.is_exact or self.kernels is not None

    @property
    def dtype_name(self) -> str:
        """``float32``, ``bfloat16`` or ``float16``; ``int8`` where products are in integers; both
        where only the weights are, as in ``bfloat16 with int4 weights``."""
        if self.kernels is not None:
            return "int8"
        own = str(self.dtype).removeprefix("torch.")
        return own if self.weight_format is None else f"{own} with {self.weight_format} weights"

    @property
    def kv_dtype_name(self) -> str:
        """``float32``, ``bfloat16``, ``float16`` or ``int8``."""
        return str(self.kv_dtype).removeprefix("torch.")

    @property
    def free_bytes(self) -> int:
        """Bytes of memory free where the model computes."""
        if self.device.type == "cuda":
            # torch keeps what a model unloaded before has given back.
            torch.cuda.empty_cache()
            free: int = torch.cuda.mem_get_info(self.device)[0]
            return free
        return int(psutil.virtual_memory().available)


def choose_numerics(config: ServeConfig, model: ModelConfig) -> Numerics:
    """The device and format that a configuration means on this machine, for this model.

    Raises:
        ConfigError: the device, or what ``--kernels native`` needs, is not there; or the native
            kernels, or plain torch, do not keep the cache in the format asked for.
    """
    device = _device(config.device)
    if config.kernels == "native" and (config.dtype != "auto" or device.type != "cpu"):
        raise ConfigError(
            "--kernels native computes in its own format on the CPU; leave --dtype at auto and "
            "use --device cpu.",
            param="kernels",
        )
    if config.weights != "auto":
        return _weight_only(config, device)
    if config.dtype != "auto":
        asked: torch.dtype = getattr(torch, config.dtype)
        kv_dtype = _kv_dtype(config, asked)
        is_exact = asked == kv_dtype == torch.float32 and device.type == "cpu"
        kernels = _exact_kernels(config) if is_exact else None
        return Numerics(device, asked, kv_dtype, is_exact=is_exact, exact_kernels=kernels)
    kernels = _kernels(config, model) if device.type == "cpu" else None
    if kernels is not None:
        kv_dtype = _native_kv_dtype(config)
        return Numerics(device, torch.bfloat16, kv_dtype, is_exact=False, kernels=kernels)
    # bfloat16 keeps 8 bits of each logit, which small models feel: on the CPU, where it gains the
    # least, greedy replies of SmolLM2-135M change.
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    return Numerics(device, dtype, _kv_dtype(config, dtype), is_exact=False)


def _weight_only(config: ServeConfig, device: torch.device) -> Numerics:
    """Few bits for the weights, more for everything else."""
    if config.dtype == "float32" or config.kernels == "native":
        other = "--dtype float32" if config.dtype == "float32" else "--kernels native"
        raise ConfigError(
            f"--weights {config.weights} does not go with {other}, which has its own format for "
            "the weights. Leave one of them out.",
            param="weights",
        )
    dtype: torch.dtype = torch.bfloat16 if config.dtype == "auto" else getattr(torch, config.dtype)
    format_: WeightFormat = "int8" if config.weights == "int8" else "int4"
    kv_dtype = _kv_dtype(config, dtype)
    problem = problem_of(format_, device, dtype)
    if problem is not None:
        reason = f"torch has no {format_} kernel for {device} in {config.dtype} ({problem})"
        logger.warning("%s; the weights are widened before each product, which is slow.", reason)
    return Numerics(device, dtype, kv_dtype, is_exact=False, weight_format=format_)


def speculates(config: ServeConfig, numerics: Numerics) -> bool:
    """Whether sequences guess tokens ahead.

    Raises:
        ConfigError: that is insisted on, and would change replies.
    """
    if config.speculate == "ngram" and not numerics.keeps_bits:
        raise ConfigError(
            "--speculate ngram needs the native kernels or --dtype float32 on the CPU: elsewhere a "
            "guess could change the reply. Use one of these, or --speculate auto, which then does "
            "without.",
            param="speculate",
        )
    if config.speculate == "auto" and not numerics.keeps_bits:
        logger.info("No tokens are guessed ahead: here that could change replies.")
    return config.speculate != "off" and numerics.keeps_bits


def num_pool_blocks(
    layout: CacheLayout, numerics: Numerics, *, asked_tokens: int | None, context_len: int
) -> int:
    """Blocks of the KV pool: those asked for, else enough for the context and for several short
    requests, within a share of the free memory."""
    if asked_tokens is not None:
        return -(-asked_tokens // BLOCK_SIZE)
    wanted = max(context_len, MIN_POOL_TOKENS)
    per_token = layout.bytes_per_token(numerics.kv_dtype.itemsize)
    affordable = int(numerics.free_bytes * POOL_SHARE_OF_FREE_MEMORY) // per_token
    return max(min(wanted, affordable) // BLOCK_SIZE, 1)


def _kv_dtype(config: ServeConfig, weights: torch.dtype) -> torch.dtype:
    """What plain torch keeps."""
    if config.kv_dtype == "auto":
        return weights
    if config.kv_dtype == "int8":
        raise ConfigError(
            "--kv-dtype int8: only the native kernels on the CPU keep keys and values in 8 bits. "
            "Leave --dtype and --kernels at auto and use --device cpu (--kernels native then says "
            "what is missing), or ask for --kv-dtype bfloat16.",
            param="kv_dtype",
        )
    asked: torch.dtype = getattr(torch, config.kv_dtype)
    return asked


def _native_kv_dtype(config: ServeConfig) -> torch.dtype:
    if config.kv_dtype in ("auto", "bfloat16"):
        return torch.bfloat16
    if config.kv_dtype == "int8":
        return torch.int8
    raise ConfigError(
        f"--kv-dtype {config.kv_dtype}: the native kernels keep keys and values in bfloat16 or "
        "int8. Leave --kv-dtype at auto, or serve with --kernels torch, several times slower.",
        param="kv_dtype",
    )


def _kernels(config: ServeConfig, model: ModelConfig) -> Kernels | None:
    """The native kernels; None where they are not wanted, or not to be had."""
    if config.kernels == "torch":
        return None
    if can_fuse(model):
        found = load_kernels()
        if found.kernels is not None:
            return found.kernels
        problem = f"the native kernels are missing: {found.problem}"
    else:
        problem = "the native kernels do not know networks of this shape"
    if config.kernels == "native":
        raise ConfigError(f"--kernels native: {problem}.", param="kernels")
    logger.warning("Plain torch serves, several times slower: %s.", problem)
    return None


def _exact_kernels(config: ServeConfig) -> Kernels | None:
    """The native kernels for the exact mode; None where they are not wanted, or not to be had."""
    if config.kernels == "torch":
        return None
    found = load_kernels()
    if found.kernels is None:
        reason = f"the native kernels are missing: {found.problem}"
        logger.warning("The exact mode computes its products on one thread: %s.", reason)
    return found.kernels


def _device(asked: str) -> torch.device:
    has_cuda = torch.cuda.is_available()
    if asked == "auto":
        return torch.device("cuda" if has_cuda else "cpu")
    device = torch.device(asked)
    if device.type == "cuda" and not has_cuda:
        raise ConfigError(
            f"--device {asked}: torch sees no CUDA device. Use --device cpu, or install a CUDA "
            "build of torch (FLM_TORCH=cuda scripts/setup).",
            param="device",
        )
    if device.index is not None and device.index >= torch.cuda.device_count():
        raise ConfigError(
            f"--device {asked}: there are {torch.cuda.device_count()} CUDA devices, from 0 up.",
            param="device",
        )
    return device
