"""Models as Ollama lists and shows them."""

from typing import TYPE_CHECKING, Any

from flm.server.ollama_reply import rfc3339
from flm.server.schemas.ollama_options import OPTION_OF
from flm.sticky import SAMPLING_FIELDS
from flm.types import SamplingParams

if TYPE_CHECKING:
    from flm.service import LoadedModel, ModelInfo

NEVER = "9999-12-31T23:59:59Z"
"""When a loaded model is unloaded for not being used."""


def tag_dict(info: "ModelInfo") -> dict[str, Any]:
    """An entry of ``/api/tags``."""
    return {**_named(info), "modified_at": _modified_at(info)}


def loaded_dict(info: "ModelInfo") -> dict[str, Any]:
    """An entry of ``/api/ps``. The weights are in one place as a whole."""
    is_on_cpu = info.device is None or info.device.startswith("cpu")
    return {
        **_named(info),
        "size_vram": 0 if is_on_cpu else info.size_bytes,
        "expires_at": NEVER,
        "context_length": info.context_len,
    }


def show_dict(info: "ModelInfo", loaded: "LoadedModel | None") -> dict[str, Any]:
    """The reply of ``/api/show``; ``loaded`` is the model if it is loaded."""
    in_force = info.defaults if loaded is None else loaded.store.peek({}).settings
    parameters = _parameters(in_force.sampling)
    told = "".join(f"PARAMETER {name} {value}\n" for name, value in parameters.items())
    shown: dict[str, Any] = {
        "modelfile": f"FROM {info.id}\n{told}",
        "parameters": "\n".join(f"{name:<30} {value}" for name, value in parameters.items()),
        "details": _details(info),
        "model_info": _facts(info),
        "capabilities": ["completion", "tools", *(["thinking"] if info.reasons else [])],
        "modified_at": _modified_at(info),
    }
    return shown if loaded is None else {**shown, "template": loaded.template.source}


def _named(info: "ModelInfo") -> dict[str, Any]:
    digest = {} if info.digest is None else {"digest": info.digest}
    names = {"name": info.id, "model": info.id, "size": info.size_bytes}
    return {**names, **digest, "details": _details(info)}


def _modified_at(info: "ModelInfo") -> str:
    return rfc3339(info.created * 10**9)


def _details(info: "ModelInfo") -> dict[str, Any]:
    return {
        "parent_model": "",
        "format": info.file_format,
        "family": info.architecture,
        "families": [info.architecture],
        "parameter_size": info.parameter_size,
        "quantization_level": info.quantization,
    }


def _facts(info: "ModelInfo") -> dict[str, str | int]:
    """Under the names of GGUF metadata. The context is the one that a request can have here."""
    facts: dict[str, str | int] = {
        "general.architecture": info.architecture,
        "general.parameter_count": info.num_parameters,
        f"{info.architecture}.context_length": info.context_len,
    }
    if info.vocab_size is not None:
        facts[f"{info.architecture}.vocab_size"] = info.vocab_size
    return facts


def _parameters(sampling: SamplingParams) -> dict[str, float | int]:
    return {OPTION_OF[name]: getattr(sampling, name) for name in SAMPLING_FIELDS}
