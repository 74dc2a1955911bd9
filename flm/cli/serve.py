"""``flm serve``: everything that can be found wrong is found before the model is loaded."""

from typing import TYPE_CHECKING, Annotated, cast

import typer

from flm.adaptation import Mode
from flm.cli.options import model_argument, option, switch
from flm.config import (
    CudaGraphChoice,
    Dtype,
    KernelChoice,
    KvDtype,
    LogLevel,
    ServeConfig,
    SpeculateChoice,
    ToolDialect,
    WeightChoice,
    effective_ctx_len,
)

if TYPE_CHECKING:
    from flm.models.store import ModelStore

_DEFAULT = ServeConfig()


# The casts state what ServeConfig checks when it is made.
def serve(
    model: Annotated[str, model_argument()] = _DEFAULT.model,
    host: Annotated[str, option("host")] = _DEFAULT.host,
    port: Annotated[int, option("port", "-p")] = _DEFAULT.port,
    ctx_len: Annotated[int | None, option("ctx_len", "-c")] = None,
    prefill_chunk_len: Annotated[int | None, option("prefill_chunk_len")] = None,
    parallel: Annotated[int, option("parallel")] = _DEFAULT.parallel,
    q_len: Annotated[int, option("q_len", "-q")] = _DEFAULT.q_len,
    q_tokens: Annotated[int | None, option("q_tokens")] = None,
    kv_tokens: Annotated[int | None, option("kv_tokens")] = None,
    served_name: Annotated[list[str] | None, option("served_name")] = None,
    require_model: Annotated[bool, switch("require_model")] = _DEFAULT.require_model,
    normalize: Annotated[list[str] | None, option("normalize")] = None,
    cors: Annotated[bool, switch("cors")] = _DEFAULT.cors,
    dtype: Annotated[str, option("dtype")] = _DEFAULT.dtype,
    weights: Annotated[str, option("weights")] = _DEFAULT.weights,
    kv_dtype: Annotated[str, option("kv_dtype")] = _DEFAULT.kv_dtype,
    kernels: Annotated[str, option("kernels")] = _DEFAULT.kernels,
    speculate: Annotated[str, option("speculate")] = _DEFAULT.speculate,
    device: Annotated[str, option("device")] = _DEFAULT.device,
    cuda_graphs: Annotated[str, option("cuda_graphs")] = _DEFAULT.cuda_graphs,
    threads: Annotated[int | None, option("threads")] = None,
    adaptations: Annotated[str, option("adaptations")] = _DEFAULT.adaptations,
    tool_dialect: Annotated[str, option("tool_dialect")] = _DEFAULT.tool_dialect,
    response_store: Annotated[int, option("response_store")] = _DEFAULT.response_store,
    grace_s: Annotated[float, option("grace_s")] = _DEFAULT.grace_s,
    keepalive_s: Annotated[float, option("keepalive_s")] = _DEFAULT.keepalive_s,
    log_level: Annotated[str, option("log_level")] = _DEFAULT.log_level,
) -> None:
    """Serve a model to OpenAI clients. A model that is not installed is pulled first."""
    config = ServeConfig(
        model=model,
        host=host,
        port=port,
        ctx_len=ctx_len,
        prefill_chunk_len=prefill_chunk_len,
        parallel=parallel,
        q_len=q_len,
        q_tokens=q_tokens,
        kv_tokens=kv_tokens,
        served_name=tuple(served_name) if served_name is not None else (),
        require_model=require_model,
        normalize=tuple(normalize) if normalize is not None else (),
        cors=cors,
        dtype=cast("Dtype", dtype),
        weights=cast("WeightChoice", weights),
        kv_dtype=cast("KvDtype", kv_dtype),
        kernels=cast("KernelChoice", kernels),
        speculate=cast("SpeculateChoice", speculate),
        device=device,
        cuda_graphs=cast("CudaGraphChoice", cuda_graphs),
        threads=threads,
        adaptations=cast("Mode", adaptations),
        tool_dialect=cast("ToolDialect", tool_dialect),
        response_store=response_store,
        grace_s=grace_s,
        keepalive_s=keepalive_s,
        log_level=cast("LogLevel", log_level),
    )
    raise typer.Exit(start(config))


def start(config: ServeConfig) -> int:
    """Check what can be checked, pull the model when it is missing, and run the server.

    Raises:
        FlmError: the model is unknown, damaged or cannot be had, the context is larger than the
            model's, or the port is taken.
    """
    from flm.cli.ports import require_free_port
    from flm.models.store import open_store

    store = open_store()
    is_missing = require_known(store, config.model)
    entry = store.catalog.find(config.model)
    if entry is not None:
        effective_ctx_len(config.ctx_len, entry.max_ctx_len)
    require_free_port(config.host, config.port)
    if is_missing:
        pull(store, config.model)
    from flm.cli.host import run_server

    return run_server(config)


def require_known(store: "ModelStore", model: str) -> bool:
    """Make sure that the model can be loaded or pulled; True when it has to be pulled.

    Raises:
        FlmError: it is unknown, or damaged.
    """
    if store.is_missing(model):
        return True
    store.resolve(model)
    return False


def pull(store: "ModelStore", model: str) -> None:
    """Install a tag or a hub id that is not there yet.

    Raises:
        FlmError: it cannot be had.
    """
    from flm.cli.console import note
    from flm.cli.progress import DownloadDisplay

    note(f"{model} is not installed yet; pulling it.")
    with DownloadDisplay() as display:
        store.pull(model, display)
