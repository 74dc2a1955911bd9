"""From a prepared request to what the engine takes: one sequence per choice."""

from flm.engine.protocol import EngineRequest, EngineStats
from flm.errors import InvalidRequestError
from flm.service.constraints import matcher
from flm.service.models import LoadedModel, Prepared
from flm.types import NEVER, GenerationRequest

_SEED_SPACE = 1 << 64


def engine_requests(model: LoadedModel, prepared: Prepared) -> tuple[EngineRequest, ...]:
    """One engine request per choice, in choice order (``prompt index * n + i``).

    Choice i of a prompt uses ``seed + i`` modulo 2^64, so a prompt in a list gives what it gives
    alone.
    """
    request = prepared.request
    return tuple(
        _engine_request(model, prepared, prompt_index, choice)
        for prompt_index in range(len(prepared.prompt_ids))
        for choice in range(request.n)
    )


def check_count(request: GenerationRequest, stats: EngineStats) -> None:
    """Refuse what no waiting could make possible.

    Raises:
        InvalidRequestError: there are more sequences than may run and wait together.
    """
    num_sequences = request.n * (1 if request.prompts is None else len(request.prompts))
    capacity = stats.max_running + stats.max_waiting
    if num_sequences > capacity:
        raise InvalidRequestError(
            f"The request asks for {num_sequences} choices (n times the number of prompts) and "
            f"this server takes {capacity} at once. Send fewer in a request, or start the server "
            "with a larger --q-len.",
            param="n",
        )


def _engine_request(
    model: LoadedModel, prepared: Prepared, prompt_index: int, choice: int
) -> EngineRequest:
    request = prepared.request
    eos_ids = _end_ids(model, request)
    max_new_tokens = prepared.max_new_tokens[prompt_index]
    # Of several biases for a token, the last one counts.
    bias = dict(request.logit_bias)
    return EngineRequest(
        id=f"{request.id}-{prompt_index * request.n + choice}",
        prompt_ids=prepared.prompt_ids[prompt_index],
        sampling=request.settings.sampling,
        max_new_tokens=max_new_tokens,
        seed=None if request.seed is None else (request.seed + choice) % _SEED_SPACE,
        min_new_tokens=request.min_tokens,
        eos_ids=eos_ids,
        logit_bias=tuple((token, own) for token, own in bias.items() if own != NEVER),
        banned_ids=tuple(token for token, own in bias.items() if own == NEVER),
        num_logprobs=request.top_logprobs,
        prompt_logprobs=request.echo and request.top_logprobs is not None,
        report_progress=request.report_progress,
        cache_prompt=request.cache_prompt,
        grammar=matcher(model, prepared, eos_ids, max_new_tokens),
    )


def _end_ids(model: LoadedModel, request: GenerationRequest) -> frozenset[int]:
    own: frozenset[int] = frozenset() if request.ignore_eos else model.tokenizer.eos_ids
    return own | request.stop_token_ids
