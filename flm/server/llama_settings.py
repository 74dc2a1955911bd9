"""Settings as llama-server writes them: ``generation_settings``, ``/props`` and ``/slots``."""

from typing import TYPE_CHECKING, Any

from flm.server.schemas.llama import SAMPLERS
from flm.types import NEVER, GenerationRequest, SamplingParams

if TYPE_CHECKING:
    from flm.service import LoadedModel, Place

RANDOM_SEED = 2**32 - 1
"""What llama-server writes where there is no seed."""
NO_PLACE = -1
"""Requests have no fixed place of their own."""

# What is not there, with the values that switch it off.
_SWITCHED_OFF: dict[str, Any] = {
    "dynatemp_range": 0.0,
    "dynatemp_exponent": 1.0,
    "top_n_sigma": -1.0,
    "xtc_probability": 0.0,
    "xtc_threshold": 0.1,
    "typical_p": 1.0,
    "dry_multiplier": 0.0,
    "dry_base": 1.75,
    "dry_allowed_length": 2,
    "dry_penalty_last_n": 0,
    "dry_sequence_breakers": [],
    "mirostat": 0,
    "mirostat_tau": 5.0,
    "mirostat_eta": 0.1,
    "n_keep": 0,
    "n_discard": 0,
    "min_keep": 0,
    "post_sampling_probs": False,
    "lora": [],
}


def sampling_dict(sampling: SamplingParams) -> dict[str, Any]:
    """The sampling fields in force, under llama-server's names, and its samplers that are off."""
    return {
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "repeat_last_n": sampling.repeat_last_n,
        "repeat_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        **_SWITCHED_OFF,
        "samplers": list(SAMPLERS),
    }


def default_params(sampling: SamplingParams) -> dict[str, Any]:
    """The settings of a request that sends none."""
    rest = {
        "seed": RANDOM_SEED,
        "stop": [],
        "max_tokens": -1,
        "n_predict": -1,
        "ignore_eos": False,
        "stream": False,
        "logit_bias": [],
        "n_probs": 0,
        "grammar": "",
        "timings_per_token": False,
    }
    return {**sampling_dict(sampling), **rest}


def params_of(request: GenerationRequest) -> dict[str, Any]:
    """The settings of a request. ``grammar`` is the text of one, or the kind of what else binds the
    reply."""
    limit = -1 if request.max_tokens is None else request.max_tokens
    constraint = request.constraint
    grammar = "" if constraint is None else constraint.kind
    if constraint is not None and constraint.kind == "grammar":
        grammar = constraint.value
    rest = {
        "seed": RANDOM_SEED if request.seed is None else request.seed,
        "stop": list(request.stop),
        "max_tokens": limit,
        "n_predict": limit,
        "ignore_eos": request.ignore_eos,
        "stream": request.stream,
        "logit_bias": [
            {"bias": False if bias == NEVER else bias, "token": token}
            for token, bias in request.logit_bias
        ],
        "n_probs": 0 if request.top_logprobs is None else request.top_logprobs,
        "grammar": grammar,
        "timings_per_token": request.time_tokens,
    }
    return {**sampling_dict(request.settings.sampling), **rest}


def slot_dict(model: "LoadedModel", index: int, place: "Place") -> dict[str, Any]:
    """One running place. What is free shows the settings in force."""
    request = place.request
    limit = None if request is None else request.max_tokens
    sampling = model.store.peek({}).settings.sampling
    return {
        "id": index,
        "id_task": NO_PLACE,
        "n_ctx": model.info.context_len,
        "speculative": model.speculates,
        "is_processing": request is not None,
        "params": default_params(sampling) if request is None else params_of(request),
        "next_token": {
            "has_next_token": request is not None,
            "n_remain": -1 if limit is None else limit - place.num_decoded,
            "n_decoded": place.num_decoded,
        },
    }
