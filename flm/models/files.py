"""Opening a model: configuration, tokenizer, defaults and a table of its tensors.

Reads headers only, never a weight, and needs neither torch nor transformers: listing and checking
models stays quick.
"""

from glob import escape
from pathlib import Path

from flm.errors import ModelFileError
from flm.models.gguf_files import open_gguf
from flm.models.hf_files import open_folder
from flm.models.model_files import ModelFiles, ModelLabels

__all__ = ["Fingerprint", "ModelFiles", "ModelLabels", "fingerprint", "open_model"]

Fingerprint = tuple[tuple[str, int, int], ...]
"""Name, time of change in nanoseconds, and bytes of every file of a model."""


def open_model(path: Path) -> ModelFiles:
    """Open a GGUF file (one or split in parts) or a folder.

    A folder is a Hugging Face one when it has a config.json; else it must hold exactly one GGUF
    model. Raises ModelFileError where nothing at ``path`` can be read as a supported model.
    """
    if path.is_dir():
        return open_folder(path) if (path / "config.json").is_file() else _only_gguf(path)
    if not path.is_file():
        problem = "is no file" if path.exists() else "does not exist"
        raise ModelFileError(f"{path} {problem}. Name a .gguf file or a model's folder.")
    return open_gguf(path)


def fingerprint(path: Path) -> Fingerprint:
    """What tells a changed model from an unchanged one without opening it; empty when there is
    none at ``path``."""
    if path.is_dir():
        files = [item for item in path.iterdir() if item.is_file()]
    else:
        stem, mark, _ = path.name.partition("-00001-of-")
        parts = path.parent.glob(f"{escape(stem)}-*-of-*.gguf") if mark else [path]
        files = [item for item in parts if item.is_file()]
    found = ((item, item.stat()) for item in sorted(files))
    return tuple((str(item), stat.st_mtime_ns, stat.st_size) for item, stat in found)


def _only_gguf(folder: Path) -> ModelFiles:
    # Of a split model the first part stands for all.
    models = sorted(
        path
        for path in folder.glob("*.gguf")
        if "-of-" not in path.stem or "-00001-of-" in path.stem
    )
    if len(models) == 1:
        return open_gguf(models[0])
    if not models:
        raise ModelFileError(
            f"{folder} holds neither a config.json nor a .gguf file. Name a model's folder."
        )
    names = ", ".join(path.name for path in models)
    raise ModelFileError(f"{folder} holds several models: {names}. Name one of them.")
