"""From a validated request to events: prompts, the engine, and the text that comes back."""

from flm.service.explain import CachePlan, Divergence
from flm.service.generation import Generation
from flm.service.models import LoadedModel, ModelInfo, ModelLibrary, Place, Prepared, TokenText
from flm.service.service import Service

__all__ = [
    "CachePlan",
    "Divergence",
    "Generation",
    "LoadedModel",
    "ModelInfo",
    "ModelLibrary",
    "Place",
    "Prepared",
    "Service",
    "TokenText",
]
