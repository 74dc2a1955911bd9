"""The models a server can answer with: the installed ones, and the one named at its start."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from flm.config import ServeConfig
from flm.errors import ModelFileError, ModelNotFoundError
from flm.log import logger
from flm.models.files import Fingerprint, fingerprint, open_model
from flm.models.store import ModelStore, ResolvedModel
from flm.service.models import LoadedModel, ModelInfo
from flm.text.grammar import Sandbox

# A request may name a model in megabytes; the reply quotes the beginning.
_MAX_SHOWN = 120

if TYPE_CHECKING:
    from flm.wiring.loading import Opened


class Library:
    """Implements the service's ``ModelLibrary`` over the model store.

    Raises:
        ModelNotFoundError, ModelFileError: the model named at the start cannot be used.
        ConfigError: an option does not fit it.
    """

    def __init__(self, config: ServeConfig, store: ModelStore) -> None:
        self._config = config
        self._store = store
        self._default = store.resolve(config.model)
        self._sandbox = Sandbox()
        self._listed: dict[str, tuple[Fingerprint, ModelInfo]] = {}

    @property
    def default_id(self) -> str:
        """The id of the model named at the start."""
        return self._default.name

    def installed(self) -> list[ModelInfo]:
        """Every model that a request can name and whose files can be read."""
        return list(self._infos())

    def resolve(self, name: str) -> str:
        """The id of an installed model; a tag may leave its size out.

        A request cannot name a path: files are chosen by who starts the server.

        Raises:
            ModelNotFoundError: there is no such model; the message names what there is.
        """
        entry = self._store.catalog.find(name)
        ids = [model.name for model in self._usable()]
        wanted = name if entry is None else entry.name
        if wanted in ids:
            return wanted
        raise ModelNotFoundError(
            f"Model {_quoted(name)} not found. Available here: {', '.join(ids)}. "
            "Install another with: flm pull TAG",
            param="model",
        )

    def check(self, model_id: str) -> None:
        """Raise an FlmError if the model plainly cannot be loaded."""
        model = self._find(model_id)
        _ = self._opened(model).context_len

    def load(self, model_id: str) -> LoadedModel:
        """Read the weights and start an engine."""
        from flm.wiring.loading import load

        model = self._find(model_id)
        return load(self._opened(model), self._sandbox)

    def close(self) -> None:
        """End the process that tries grammars."""
        self._sandbox.close()

    def _find(self, model_id: str) -> ResolvedModel:
        return (
            self._default
            if model_id == self.default_id
            else self._store.resolve_installed(model_id)
        )

    def _opened(self, model: ResolvedModel) -> "Opened":
        """A model's files, under the server's options. ``--ctx-len`` was meant for the model named
        at the start; another one that has less gets what it has."""
        from flm.wiring.loading import Opened

        files, config = open_model(model.path), self._config
        asked, limit = config.ctx_len, files.config.max_context_len
        if model.name != self.default_id and asked is not None and asked > limit:
            config = replace(config, ctx_len=limit)
        return Opened(model, files, config)

    def _usable(self) -> Iterator[ResolvedModel]:
        yield self._default
        for model in self._store.installed():
            if model.problem is None and model.name != self.default_id:
                yield self._store.resolve_installed(model.name)

    def _infos(self) -> Iterator[ModelInfo]:
        for model in self._usable():
            try:
                yield self._info(model)
            except ModelFileError as error:
                logger.warning("%s is left out of the list: %s", model.name, error)

    def _info(self, model: ResolvedModel) -> ModelInfo:
        """What was found when the model's files were last opened, while they are the same."""
        seen = fingerprint(model.path)
        listed = self._listed.get(model.name)
        if listed is None or listed[0] != seen:
            listed = self._listed[model.name] = (seen, self._opened(model).info())
        return listed[1]


def _quoted(name: str) -> str:
    return repr(name if len(name) <= _MAX_SHOWN else f"{name[:_MAX_SHOWN]}...")
