"""Requests without the lines that the server takes out of system messages, and the record of it."""

from dataclasses import replace

from flm.adaptation import Adaptation
from flm.text.normalize import Normalizer, Removal
from flm.types import GenerationRequest

_MAX_SHOWN = 200


def normalised(
    normalizer: Normalizer, request: GenerationRequest
) -> tuple[GenerationRequest, tuple[Adaptation, ...]]:
    """The request as it is answered, and a record for each message that was changed."""
    if request.messages is None:
        return request, ()
    messages, removals = normalizer.apply(request.messages)
    if not removals:
        return request, ()
    return replace(request, messages=messages), tuple(map(_record, removals))


def _record(removal: Removal) -> Adaptation:
    return Adaptation(
        field=f"messages[{removal.index}].content",
        action="substituted",
        reason="This server takes such text out of system messages (--normalize), so that their "
        "start stays the same and the prefix cache holds.",
        asked=removal.text if len(removal.text) <= _MAX_SHOWN else None,
        applied="",
    )
