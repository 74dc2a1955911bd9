"""Whether a model thinks before it answers a request."""

from flm.service.models import LoadedModel
from flm.types import GenerationRequest


def may_reason(model: LoadedModel, request: GenerationRequest) -> bool:
    """True when the model thinks before it answers this request."""
    if model.think in ("none", "always"):
        return model.think == "always"
    switch = request.template_kwargs.get("enable_thinking")
    return (request.settings.think if switch is None else switch) is not False
