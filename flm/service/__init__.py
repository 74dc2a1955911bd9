"""From a validated request to events: prompts, the engine, and the text that comes back."""

from flm.service.generation import Generation
from flm.service.models import LoadedModel, ModelInfo, ModelLibrary, Prepared
from flm.service.service import Service

__all__ = ["Generation", "LoadedModel", "ModelInfo", "ModelLibrary", "Prepared", "Service"]
