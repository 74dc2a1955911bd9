"""The composition root: the only room that knows every other and puts them together."""

from flm.config import ServeConfig
from flm.models.store import open_store
from flm.service.service import Service
from flm.text.normalize import Normalizer
from flm.wiring.library import Library


def build_service(config: ServeConfig) -> Service:
    """The service for a configuration. Loads nothing yet.

    Raises:
        ModelNotFoundError, ModelFileError: the model is unknown, not installed or damaged.
        ConfigError: an option does not fit the model or the machine.
    """
    library = Library(config, open_store())
    return Service(
        library,
        library.default_id,
        served_names=config.served_name,
        max_waiting=config.q_len,
        normalizer=Normalizer(config.normalize),
    )
