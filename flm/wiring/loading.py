"""Loading one model: weights, engine, text tools and settings put together."""

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from flm.config import ServeConfig, chunk_len, effective_ctx_len
from flm.engine.engine import Engine
from flm.engine.graphs import GraphedDecode
from flm.engine.protocol import EngineConfig
from flm.engine.runner import FusedRunner, TorchRunner
from flm.engine.worker import EngineWorker
from flm.errors import ConfigError
from flm.kernels.cuda_graphs import CudaGraphs
from flm.kvcache.pool import KVPool
from flm.log import logger
from flm.models.files import ModelFiles
from flm.models.fused import FusedModel
from flm.models.registry import CausalLM, load_fused, load_model
from flm.models.store import ResolvedModel
from flm.prefill.plan import chunk_lengths
from flm.sampling.pipeline import Sampler
from flm.service.models import LoadedModel, ModelInfo
from flm.sticky import StickyStore
from flm.text.grammar import GrammarCompiler, Sandbox, vocabulary_of
from flm.text.parsers import THINK, OutputStyle, ReasoningStyle, ToolDialect, detect_reasoning
from flm.text.template import ChatTemplate
from flm.text.thinking import probe_thinking, reads_effort
from flm.text.tokenizer import Tokenizer
from flm.types import SamplingParams, Settings, ThinkMode
from flm.wiring.memory import give_memory_back
from flm.wiring.numerics import (
    BLOCK_SIZE,
    Numerics,
    choose_numerics,
    num_pool_blocks,
    speculates,
)

OWNER = "flm"
SLICE = 512
NATIVE_SLICE = 128
QUEUED_POOLS = 4
"""Unless told otherwise, as many prompt tokens may wait as would fill the KV pool so many times."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A model whose files have been opened, and the options it is to run under."""

    model: ResolvedModel
    files: ModelFiles
    config: ServeConfig

    @property
    def context_len(self) -> int:
        """Context length in tokens.

        Raises:
            ConfigError: the asked one is above the model's, or above ``--kv-tokens``.
        """
        config = self.config
        context_len = effective_ctx_len(
            config.ctx_len, self.files.config.max_context_len, self.model.default_ctx_len
        )
        if config.kv_tokens is not None and config.kv_tokens < context_len:
            raise ConfigError(
                f"--kv-tokens {config.kv_tokens} is smaller than the context of {context_len} "
                "tokens; raise it or ask for a smaller --ctx-len.",
                param="kv_tokens",
            )
        return context_len

    @property
    def chunk_len(self) -> int:
        """Tokens in a prefill chunk."""
        asked = self.config.prefill_chunk_len
        return chunk_len(self.model.max_prefill_len if asked is None else asked)

    def info(self) -> ModelInfo:
        """What is known before the model is loaded."""
        labels, entry = self.files.labels, self.model.entry
        return ModelInfo(
            id=self.model.name,
            created=int(self.model.path.stat().st_mtime),
            owned_by=OWNER,
            context_len=self._listed_context_len(),
            family=labels.family if entry is None else entry.family,
            size_bytes=labels.num_bytes,
            quantization=labels.quantization,
            loaded=False,
            dtype=None,
            kv_dtype=None,
            device=None,
            exact=None,
            vocab_size=None,
            reasons=self.think != "none",
            defaults=self.defaults(),
            architecture=self.files.config.architecture,
            file_format=self.files.format,
            parameter_size=labels.parameter_size if entry is None else entry.parameter_size,
            num_parameters=labels.num_parameters,
            path=str(self.model.path),
            digest=self.model.digest,
        )

    @property
    def think(self) -> ThinkMode:
        """How the model reasons: as the catalogue says, else as its chat template shows."""
        entry, source = self.model.entry, self.files.tokenizer.chat_template
        if entry is not None:
            return entry.think
        return "none" if source is None else probe_thinking(source)

    @property
    def reasoning(self) -> ReasoningStyle | None:
        """The tags around its reasoning.

        A template may know tags and not show that the model always writes them; so where the
        catalogue knows nothing of the model, they are looked for.
        """
        entry, source = self.model.entry, self.files.tokenizer.chat_template
        if entry is not None and entry.think == "none":
            return None
        found = None if source is None else detect_reasoning(source)
        return THINK if found is None and self.think != "none" else found

    def defaults(self) -> Settings:
        """The settings of a request that sends none: the family's, else the files' own."""
        sampling = self.model.sampling
        if sampling is None:
            own: dict[str, Any] = dict(self.files.sampling)
            sampling = replace(SamplingParams(), **own)
        think = self.think
        return Settings(sampling, think=None if think == "none" else think != "off")

    def _listed_context_len(self) -> int:
        try:
            return self.context_len
        except ConfigError:
            return self.files.config.max_context_len


def load(opened: Opened, sandbox: Sandbox) -> LoadedModel:
    """Read the weights and start the engine.

    Raises:
        FlmError: the files or an option are at fault; the message says how to mend it.
    """
    start = time.monotonic()
    tokenizer = Tokenizer.from_data(opened.files.tokenizer)
    data = opened.files.tokenizer
    template = ChatTemplate(data.chat_template, tokenizer, named=data.named_templates)
    numerics = choose_numerics(opened.config, opened.files.config)
    is_speculating = speculates(opened.config, numerics)
    engine = _start_engine(opened, numerics, is_speculating=is_speculating)
    info = replace(
        opened.info(),
        context_len=_fitting_context_len(opened.context_len, engine.max_kv_tokens),
        loaded=True,
        dtype=numerics.dtype_name,
        kv_dtype=numerics.kv_dtype_name,
        device=str(numerics.device),
        exact=numerics.is_exact,
        vocab_size=opened.files.config.vocab_size,
    )
    give_memory_back()
    return LoadedModel(
        info=info,
        tokenizer=tokenizer,
        template=template,
        engine=engine,
        store=StickyStore(info.defaults),
        load_duration=time.monotonic() - start,
        chunk_lengths=partial(chunk_lengths, chunk_len=opened.chunk_len),
        output=OutputStyle(opened.reasoning, _tool_dialect(template, opened.config)),
        grammars=GrammarCompiler(vocabulary_of(tokenizer), sandbox),
        think=opened.think,
        reads_effort=reads_effort(template.source),
        speculates=is_speculating,
    )


def _tool_dialect(template: ChatTemplate, config: ServeConfig) -> ToolDialect:
    """The dialect asked for, but for a model that is told in words which one to write."""
    asked = config.tool_dialect
    if asked == "auto":
        return template.tool_dialect
    if not template.knows_tools:
        logger.warning(
            "--tool-dialect %s is not used: the chat template knows no tools, so the model is told "
            "of them in the Hermes form.",
            asked,
        )
        return template.tool_dialect
    return asked


def _start_engine(opened: Opened, numerics: Numerics, *, is_speculating: bool) -> EngineWorker:
    config = opened.config
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    files = opened.files
    model: FusedModel | CausalLM
    if numerics.kernels is not None:
        model = load_fused(files, numerics.kernels)
    else:
        model = load_model(
            files,
            dtype=numerics.dtype,
            device=numerics.device,
            exact=numerics.is_exact,
            kernels=numerics.exact_kernels,
            weight_format=numerics.weight_format,
        )
    num_blocks = num_pool_blocks(
        model.layout, numerics, asked_tokens=config.kv_tokens, context_len=opened.context_len
    )
    pool = KVPool(model.layout, num_blocks, BLOCK_SIZE, numerics.kv_dtype, numerics.device)
    limits = EngineConfig(
        chunk_len=opened.chunk_len,
        max_running=config.parallel,
        max_waiting=config.q_len,
        max_waiting_tokens=(
            QUEUED_POOLS * num_blocks * BLOCK_SIZE if config.q_tokens is None else config.q_tokens
        ),
        # Here a short slice costs no more a token than a long one, and a shorter pause.
        slice_len=SLICE if numerics.kernels is None else NATIVE_SLICE,
        block_size=BLOCK_SIZE,
        num_blocks=num_blocks,
        speculates=is_speculating,
    )
    runner = (
        FusedRunner(model, pool)
        if isinstance(model, FusedModel)
        else TorchRunner(model, pool, _graphs(model, pool, config))
    )
    sampler = Sampler(numerics.kernels)
    engine = Engine(runner, limits, sampler=sampler, vocab_size=files.config.vocab_size)
    worker = EngineWorker(engine)
    worker.start()
    return worker


def _graphs(model: CausalLM, pool: KVPool, config: ServeConfig) -> GraphedDecode | None:
    if pool.device.type != "cuda" or config.cuda_graphs == "off":
        return None
    return GraphedDecode(model, pool, CudaGraphs(pool.device), max_rows=config.parallel)


def _fitting_context_len(context_len: int, capacity: int) -> int:
    if capacity >= context_len:
        return context_len
    logger.warning(
        "Free memory holds a KV cache of %d tokens only, so the context is that instead of %d. "
        "Free some memory or ask for a smaller --ctx-len.",
        capacity,
        context_len,
    )
    return capacity
