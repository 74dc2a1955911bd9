"""How long things took, in llama-server's shapes: milliseconds, and rates a second."""

from typing import Any

from flm.types import Drafts, ReadProgress, Timings


def timings_dict(timings: Timings) -> dict[str, Any]:
    """llama-server's ``timings``. A rate over no time at all is 0; the counts of drafts are there
    when tokens are guessed ahead."""
    num_read = timings.prompt_tokens - timings.cached_tokens
    read = _rates("prompt", num_read, timings.prefill_duration)
    said = _rates("predicted", timings.completion_tokens, timings.decoding_duration)
    return {"cache_n": timings.cached_tokens, **read, **said, **_drafts(timings.drafts)}


def _drafts(drafts: Drafts | None) -> dict[str, Any]:
    if drafts is None:
        return {}
    return {"draft_n": drafts.num_drafted, "draft_n_accepted": drafts.num_accepted}


def _rates(name: str, count: int, duration: float) -> dict[str, Any]:
    return {
        f"{name}_n": count,
        f"{name}_ms": 1000 * duration,
        f"{name}_per_token_ms": 1000 * duration / count if count > 0 else 0.0,
        f"{name}_per_second": count / duration if duration > 0 else 0.0,
    }


def progress_dict(event: ReadProgress) -> dict[str, Any]:
    """llama-server's ``prompt_progress``; the cached tokens count as processed."""
    return {
        "total": event.prompt_tokens,
        "cache": event.cached_tokens,
        "processed": event.read_tokens,
        "time_ms": round(1000 * event.duration),
    }
