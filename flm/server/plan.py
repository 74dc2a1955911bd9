"""The preview of a request: everything that is known before it starts."""

from typing import TYPE_CHECKING, Any

from flm.adaptation import Adaptation
from flm.server.admission import Decided
from flm.server.context import ServerContext
from flm.sticky import REASONING_FIELDS, SAMPLING_FIELDS, Snapshot
from flm.types import Settings

if TYPE_CHECKING:
    from flm.service import CachePlan, Divergence, LoadedModel


async def plan_dict(
    ctx: ServerContext, found: Decided, snapshot: Snapshot, adaptations: tuple[Adaptation, ...]
) -> dict[str, Any]:
    """The body of a plan. With several prompts the counts are sums, ``max_new_tokens`` is the
    smallest, ``divergence`` is null, and ``prompts`` has those of each."""
    prepared = found.prepared
    caches = await ctx.service.cache_plans(found.model, prepared)
    parts = zip(prepared.prompt_ids, caches, prepared.max_new_tokens, strict=True)
    prompts = [_prompt_plan(found.model, len(ids), cache, room) for ids, cache, room in parts]
    plan: dict[str, Any] = {
        "object": "plan",
        "model": prepared.request.model,
        "adaptations": [entry.to_dict() for entry in adaptations],
        "settings": settings_dict(snapshot.settings),
        "prompt": _prompt_text(found),
        "prompt_tokens": sum(item["prompt_tokens"] for item in prompts),
        "cached_tokens": sum(item["cached_tokens"] for item in prompts),
        "prefill_chunks": [size for item in prompts for size in item["prefill_chunks"]],
        "max_new_tokens": min(prepared.max_new_tokens),
        "fits": prepared.fits,
        "divergence": prompts[0]["divergence"] if len(prompts) == 1 else None,
    }
    return plan if len(prompts) == 1 else {**plan, "prompts": prompts}


def settings_dict(settings: Settings) -> dict[str, Any]:
    """Every sticky field and the value in force."""
    sampling = {name: getattr(settings.sampling, name) for name in SAMPLING_FIELDS}
    return {**sampling, **{name: getattr(settings, name) for name in REASONING_FIELDS}}


def _prompt_plan(
    model: "LoadedModel", num_tokens: int, cache: "CachePlan", room: int
) -> dict[str, Any]:
    return {
        "prompt_tokens": num_tokens,
        "cached_tokens": cache.cached_tokens,
        "prefill_chunks": list(model.chunk_lengths(num_tokens - cache.cached_tokens)),
        "max_new_tokens": room,
        "divergence": None if cache.divergence is None else _divergence_dict(cache.divergence),
    }


def _divergence_dict(found: "Divergence") -> dict[str, Any]:
    return {
        "diverged_at": found.at,
        "message": found.message,
        "before": found.before,
        "prompt": found.prompt,
        "cached": found.cached,
    }


def _prompt_text(found: Decided) -> str | None:
    """The text the model would read; None where the prompt was sent as token ids or as a list."""
    if found.prepared.rendered is not None:
        return found.prepared.rendered
    prompts = found.prepared.request.prompts
    is_text = prompts is not None and len(prompts) == 1 and isinstance(prompts[0], str)
    return prompts[0] if is_text and prompts is not None and isinstance(prompts[0], str) else None
