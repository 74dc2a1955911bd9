"""A catalogue of tiny models whose source is memory, and a store for them."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flm.models.catalog import Catalog, CatalogEntry
from flm.models.sources.base import Progress, Receipt, StoredFile
from flm.models.store import ModelStore
from flm.types import SamplingParams


def stored(path: str, content: bytes) -> StoredFile:
    return StoredFile(path, len(content), hashlib.sha256(content).hexdigest())


@dataclass
class MemorySource:
    """Hands out ``files``. ``on_fetch`` runs first and may write, wait or fail."""

    files: Mapping[str, bytes]
    model_file: str | None = None
    on_fetch: Callable[[Path, Path], None] | None = None
    num_fetches: int = 0

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "memory"}

    def fetch(self, dest: Path, work: Path, progress: Progress) -> Receipt:
        self.num_fetches += 1
        if self.on_fetch is not None:
            self.on_fetch(dest, work)
        for name, content in self.files.items():
            progress.begin(name, len(content))
            target = dest / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            progress.advance(len(content))
        receipts = tuple(stored(name, content) for name, content in self.files.items())
        return Receipt("r1", receipts, self.model_file)


@dataclass
class TinyStore:
    """A store with two tags: ``tiny:1m`` is a GGUF file, ``tiny:2m`` a folder."""

    root: Path
    gguf: MemorySource = field(
        default_factory=lambda: MemorySource({"tiny.gguf": b"GGUF" * 100}, "tiny.gguf")
    )
    folder: MemorySource = field(
        default_factory=lambda: MemorySource(
            {"config.json": b"{}", "model.safetensors": b"weights", "sub/x.jinja": b"x"}
        )
    )

    @property
    def store(self) -> ModelStore:
        entries = (entry("tiny:1m", self.gguf), entry("tiny:2m", self.folder))
        return ModelStore(self.root, Catalog(entries))


def entry(name: str, source: MemorySource) -> CatalogEntry:
    return CatalogEntry(
        name=name,
        family="tiny",
        source=source,
        parameter_size="1M",
        quantization="F16",
        default_ctx_len=512,
        max_ctx_len=1000,
        max_prefill_len=4096,
        footprint_gb=0.1,
        sampling=SamplingParams(temperature=0.5),
    )
