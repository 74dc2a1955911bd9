"""What a model can be called: a catalogue tag, a path, or a hub id."""

import re
from dataclasses import dataclass
from pathlib import Path

from flm.errors import ModelFileError, ModelNotFoundError
from flm.models.catalog import Catalog, CatalogEntry
from flm.models.sources.base import Source
from flm.models.sources.hub import HubSource

_HUB_ID = re.compile(
    r"(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(:(?P<file>[^\0\\:]+\.gguf))?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class ModelRef:
    """A model that can be installed. ``name`` is its full tag or its hub id."""

    name: str
    source: Source
    entry: CatalogEntry | None

    @property
    def slug(self) -> str:
        """The name of its folder in the store. Hub names never hold two dashes in a row."""
        plain = re.sub(r"[/:]", "--", self.name)
        return plain if self.entry is not None else f"hub--{plain}"

    def folder_in(self, root: Path) -> Path:
        """Where it is installed under ``root``."""
        return root / self.slug


def parse_ref(name: str, catalog: Catalog) -> ModelRef | None:
    """What a tag or hub id (``org/name`` or ``org/name:file.gguf``) stands for, if anything."""
    entry = catalog.find(name)
    if entry is not None:
        return ModelRef(entry.name, entry.source, entry)
    match = _HUB_ID.fullmatch(name)
    if match is None or ".." in name:
        return None
    return ModelRef(name, HubSource(repo=match["repo"], file=match["file"]), None)


def as_path(name: str) -> Path | None:
    """The path that ``name`` denotes: it is spelt as one, or something of that name is there."""
    if not name.strip() or "\0" in name:
        return None
    path = Path(name).expanduser() if name.startswith("~/") else Path(name)
    is_spelt_so = name.startswith(("/", "./", "../", "~/")) or name in (".", "..")
    is_gguf = name.endswith(".gguf") and _HUB_ID.fullmatch(name) is None
    return path if is_spelt_so or is_gguf or _exists(path) else None


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name too long for the file system
        return False


def loadable_path(path: Path) -> Path:
    """The GGUF file or Hugging Face folder at ``path``, made absolute.

    Raises:
        ModelNotFoundError: there is nothing there.
        ModelFileError: what is there is neither.
    """
    if not _exists(path):
        raise ModelNotFoundError(
            f"There is no file or folder {path}. Check the spelling; a relative path starts at "
            f"{Path.cwd()}.",
            param="model",
        )
    if path.is_file():
        if path.suffix == ".gguf":
            return path.absolute()
        raise ModelFileError(
            f"{path} is not a GGUF file. For safetensors give the folder that holds config.json."
        )
    return _loadable_folder(path)


def _loadable_folder(folder: Path) -> Path:
    if (folder / "config.json").is_file() and any(folder.glob("*.safetensors")):
        return folder.absolute()
    ggufs = sorted(folder.glob("*.gguf"))
    if len(ggufs) == 1:
        return ggufs[0].absolute()
    if ggufs:
        names = ", ".join(path.name for path in ggufs)
        raise ModelFileError(f"{folder} holds several GGUF files; give one of them: {names}.")
    raise ModelFileError(
        f"{folder} is not a model: it has neither config.json with *.safetensors nor a GGUF file."
    )
