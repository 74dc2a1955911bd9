"""The record of what a chat template leaves out of the prompt."""

from collections.abc import Iterator, Mapping
from typing import Any

from flm.adaptation import Adaptation
from flm.service.models import LoadedModel
from flm.types import GenerationRequest

_MAX_SHOWN = 200


def unshown_records(
    model: LoadedModel, request: GenerationRequest, kwargs: Mapping[str, Any]
) -> Iterator[Adaptation]:
    """A record for each name of a message, and each key of a tool, that changes nothing in the
    prompt. The path of a tool begins with ``shown_tools``, its index counts those of the request
    that the model sees. ``kwargs`` are the variables of the template."""
    messages = request.messages if request.messages is not None else ()
    found = model.template.unshown(messages, tools=request.tools, kwargs=kwargs)
    for index in found.names:
        name = messages[index]["name"]
        yield _dropped(f"messages[{index}].name", "the name", name)
    for index, path in found.keys:
        value: Any = request.tools[index]
        for key in path:
            value = value[key]
        yield _dropped(f"shown_tools[{index}].{'.'.join(path)}", "it", value)


def _dropped(field: str, what: str, asked: Any) -> Adaptation:
    is_short = isinstance(asked, bool | int | float) or (
        isinstance(asked, str) and len(asked) <= _MAX_SHOWN
    )
    reason = f"The chat template of this model does not show {what}."
    return Adaptation(field, "dropped", reason, asked if is_short else None)
