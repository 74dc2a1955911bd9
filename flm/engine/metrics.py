"""What the engine has done so far, as plain numbers."""

from dataclasses import dataclass, field

from flm.engine.protocol import EngineFinish


def _no_finishes() -> dict[EngineFinish, int]:
    return {"stop": 0, "length": 0, "abort": 0}


@dataclass(slots=True)
class EngineMetrics:
    """Counters since the engine was made. Only its own thread writes them.

    ``num_prefill_tokens`` counts what was computed as prompt, again after a preemption too;
    ``num_cached_tokens`` what the prefix cache saved at first admissions. Of the
    ``num_drafted_tokens`` that were guessed, ``num_accepted_tokens`` were right.
    """

    num_steps: int = 0
    num_prefill_tokens: int = 0
    num_cached_tokens: int = 0
    num_generated_tokens: int = 0
    num_drafted_tokens: int = 0
    num_accepted_tokens: int = 0
    num_preemptions: int = 0
    num_failed: int = 0
    num_finished: dict[EngineFinish, int] = field(default_factory=_no_finishes)
