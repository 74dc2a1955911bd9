"""The models on this machine: installed ones, paths, and how a name becomes one of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from flm.config import model_dir
from flm.errors import ModelFileError, ModelNotFoundError
from flm.log import logger
from flm.models.catalog import Catalog, CatalogEntry, load_catalog
from flm.models.install import Installer
from flm.models.manifest import Manifest, read_manifest
from flm.models.names import ModelRef, as_path, loadable_path, parse_ref
from flm.models.sources.base import Progress, Silent, StoredFile, digest_file, safe_path
from flm.types import SamplingParams

DEFAULT_PREFILL_LEN = 4096


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model that can be loaded now.

    ``path`` is a GGUF file or a Hugging Face folder. ``entry`` is None for a model that the
    catalogue does not know: its own files then say what its defaults are. ``digest`` is that of an
    installed model's manifest.
    """

    name: str
    path: Path
    entry: CatalogEntry | None = None
    digest: str | None = None

    @property
    def sampling(self) -> SamplingParams | None:
        """The family's defaults; None: read them from the model's files."""
        return self.entry.sampling if self.entry is not None else None

    @property
    def default_ctx_len(self) -> int | None:
        """Context length in tokens when none is asked for; None: the model's own maximum."""
        return self.entry.default_ctx_len if self.entry is not None else None

    @property
    def max_ctx_len(self) -> int | None:
        """The longest context in tokens that the catalogue knows of."""
        return self.entry.max_ctx_len if self.entry is not None else None

    @property
    def max_prefill_len(self) -> int:
        """Tokens in a prefill chunk when none is asked for."""
        return self.entry.max_prefill_len if self.entry is not None else DEFAULT_PREFILL_LEN


@dataclass(frozen=True, slots=True)
class InstalledModel:
    """A model in the store. ``problem`` says why it cannot be loaded, or is None."""

    name: str
    folder: Path
    manifest: Manifest
    problem: str | None

    @property
    def path(self) -> Path:
        """What is loaded: the GGUF file, or the folder."""
        chosen = self.manifest.model_file
        return self.folder if chosen is None else self.folder / chosen


@dataclass(frozen=True, slots=True)
class FileCheck:
    """One file compared with the manifest. ``problem`` is None when it is as it should be."""

    path: Path
    problem: str | None


@dataclass(frozen=True, slots=True)
class PullResult:
    """``size`` in bytes; ``is_new`` is False when the model was there and nothing was fetched."""

    model: ResolvedModel
    size: int
    is_new: bool


class ModelStore:
    """A folder of installed models, and the catalogue of those that can be."""

    def __init__(self, root: Path, catalog: Catalog) -> None:
        self.root = root
        self.catalog = catalog
        self._installer = Installer(root)

    # --- looking -------------------------------------------------------------------------------

    def reference(self, name: str) -> ModelRef:
        """What a tag or a hub id stands for, installed or not.

        Raises:
            ModelNotFoundError: it is neither; the message has near names and the remedy.
        """
        ref = parse_ref(name, self.catalog)
        if ref is None:
            raise self._unknown(name)
        return ref

    def resolve(self, name: str) -> ResolvedModel:
        """The model that a tag, a path or a hub id names, ready to be loaded.

        A catalogue tag comes before a path of the same spelling.

        Raises:
            ModelNotFoundError: there is no such model, or it is not installed.
            ModelFileError: it is there and its files are not whole.
        """
        if (path := self._path(name)) is not None:
            found = loadable_path(path)
            return ResolvedModel(_path_name(found), found)
        return self.resolve_installed(name)

    def resolve_installed(self, name: str) -> ResolvedModel:
        """Like ``resolve``, for names that come from outside: no path is ever looked at.

        Raises:
            ModelNotFoundError: there is no such model, or it is not installed.
            ModelFileError: it is there and its files are not whole.
        """
        ref = self.reference(name)
        found = self._installed(ref.folder_in(self.root))
        if found is None:
            raise ModelNotFoundError(
                f"{ref.name} is not installed. Install it with: flm pull {ref.name}",
                param="model",
            )
        if found.problem is not None:
            raise ModelFileError(
                f"{ref.name} is damaged: {found.problem}. "
                f"Install it again with: flm pull {ref.name} --force"
            )
        return ResolvedModel(ref.name, found.path, ref.entry, found.manifest.digest)

    def is_missing(self, name: str) -> bool:
        """Whether ``pull`` has to be called before ``resolve`` can succeed.

        Raises:
            ModelNotFoundError: nothing is known by that name.
        """
        if self._path(name) is not None:
            return False
        return self._installed(self.reference(name).folder_in(self.root)) is None

    def installed(self) -> tuple[InstalledModel, ...]:
        """Every model in the store by name, those with a problem included."""
        return tuple(sorted(self._all_installed(), key=lambda model: model.name))

    def check(self, name: str) -> tuple[FileCheck, ...]:
        """Compare every file of an installed model with its manifest, content included.

        Raises:
            ModelNotFoundError: it is not installed.
            ModelFileError: its manifest is damaged.
        """
        if self._path(name) is not None:
            raise ModelNotFoundError(
                f"{name} is a path on this machine. Only the files of an installed model can be "
                "compared with what they should be; of a path nothing is known. `flm list "
                "--filter installed` shows what can be checked."
            )
        found = self._installed_or_raise(name)
        return tuple(_check_file(found.folder, file) for file in found.manifest.files)

    # --- changing ------------------------------------------------------------------------------

    def pull(self, name: str, progress: Progress, *, force: bool = False) -> PullResult:
        """Install a model, whole or not at all; ``force`` fetches it even when it is there.

        Safe to call from several processes at once: the second waits and finds it installed.

        Raises:
            ModelNotFoundError: nothing is known by that name.
            DownloadError: it could not be fetched whole. What has arrived is kept, and the next
                call goes on from there.
        """
        if self._path(name) is not None:
            raise ModelNotFoundError(
                f"{name} is a path on this machine; there is nothing to pull. "
                f"Serve it with: flm serve {name}"
            )
        ref = self.reference(name)
        folder = ref.folder_in(self.root)

        def is_wanted() -> bool:
            found = self._installed(folder)
            return force or found is None or found.problem is not None

        is_new = self._installer.install(ref, is_wanted, progress)
        size = self._installed_or_raise(name).manifest.size
        return PullResult(self.resolve_installed(name), size, is_new)

    def remove(self, name: str) -> int:
        """Delete an installed model and the remains of unfinished pulls; the bytes freed.

        Raises:
            ModelNotFoundError: there is nothing of that name to delete.
            ModelFileError: it is being pulled right now.
        """
        if self._path(name) is not None:
            raise ModelNotFoundError(
                f"{name} is a path on this machine, not an installed model. Delete it yourself."
            )
        ref = self.reference(name)
        freed = self._installer.remove(ref)
        if freed is None:
            raise self._not_installed(ref.name)
        return freed

    # --- helpers -------------------------------------------------------------------------------

    def _all_installed(self) -> Iterator[InstalledModel]:
        if not self.root.is_dir():
            return
        for folder in self.root.iterdir():
            if folder.name.startswith(".") or not folder.is_dir():
                continue
            try:
                found = self._installed(folder)
            except ModelFileError as error:
                logger.warning("%s", error)
                continue
            if found is not None:
                yield found

    def _installed(self, folder: Path) -> InstalledModel | None:
        manifest = read_manifest(folder)
        if manifest is None:
            return None
        problems = (_size_problem(folder / file.path, file.size) for file in manifest.files)
        problem = next((text for text in problems if text is not None), None)
        return InstalledModel(manifest.name, folder, manifest, problem)

    def _path(self, name: str) -> Path | None:
        return as_path(name) if self.catalog.find(name) is None else None

    def _installed_or_raise(self, name: str) -> InstalledModel:
        ref = self.reference(name)
        found = self._installed(ref.folder_in(self.root))
        if found is None:
            raise self._not_installed(ref.name)
        return found

    def _not_installed(self, name: str) -> ModelNotFoundError:
        names = ", ".join(model.name for model in self.installed())
        known = f"Installed: {names}." if names else "No model is installed."
        return ModelNotFoundError(f"{name} is not installed. {known}", param="model")

    def _unknown(self, name: str) -> ModelNotFoundError:
        others = tuple(model.name for model in self.installed())
        near = self.catalog.near(name, others)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        return ModelNotFoundError(
            f"Model not found: {name}.{hint} Check with `flm list`; a model can also be a path "
            "to a GGUF file or a Hugging Face folder, or a hub id (org/name).",
            param="model",
        )


def open_store() -> ModelStore:
    """The store of this user (``FLM_MODEL_PATH``) with the catalogue of this version."""
    return ModelStore(model_dir(), load_catalog())


# --- files -------------------------------------------------------------------------------------


def _size_problem(path: Path, size: int) -> str | None:
    if not path.is_file():
        return f"{path.name} is missing"
    actual = path.stat().st_size
    return None if actual == size else f"{path.name} has {actual} bytes instead of {size}"


def _check_file(folder: Path, file: StoredFile) -> FileCheck:
    path = safe_path(folder, file.path)
    problem = _size_problem(path, file.size)
    if problem is None and digest_file(path, Silent()).sha256 != file.sha256:
        problem = f"{path.name} has the right size and a wrong hash"
    return FileCheck(path, problem)


def _path_name(path: Path) -> str:
    return path.stem if path.suffix == ".gguf" else path.name
