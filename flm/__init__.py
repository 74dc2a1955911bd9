"""flm: a local inference server that people trust with every field they send."""

from flm.version import __version__

__all__ = ["__version__"]
