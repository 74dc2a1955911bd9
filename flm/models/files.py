"""Opening a model: configuration, tokenizer, defaults and a table of its tensors.

Reads headers only, never a weight, and needs neither torch nor transformers: listing and checking
models stays quick.
"""

from pathlib import Path

from flm.errors import ModelFileError
from flm.models.gguf_files import open_gguf
from flm.models.hf_files import open_folder
from flm.models.model_files import ModelFiles, ModelLabels

__all__ = ["ModelFiles", "ModelLabels", "open_model"]


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
