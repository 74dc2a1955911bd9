"""Writes docs/models.md from the catalogue: ``python scripts/models_doc.py``.

A test compares the file with what this prints, so the page cannot drift from the catalogue.
"""

from pathlib import Path

from flm.models.catalog import CatalogEntry, load_catalog
from flm.types import SamplingParams

TARGET = Path(__file__).parent.parent / "docs" / "models.md"

INTRO = """\
# Models

<!-- Written by scripts/models_doc.py from flm/models/catalog.json; edit those. -->

These are the models of the catalogue. `flm pull TAG` installs one and `flm serve TAG` pulls it when
it is missing; a tag without its size means the first row of that name. `flm list` says what is
installed. Any other model of a known architecture can be served too, from a path or a hub id:
see [serve.md](serve.md).
"""
CARDS = """\
- **size** is that of the weights on disk; the KV cache and the program need memory besides.
- **context** is the default of `--ctx-len`, and the largest possible one where that is different.
- **prefill** is the default of `--prefill-chunk-len`: the tokens of a prompt read in one chunk.
- **reasoning** says what `think` does: *on* or *off* is what holds when no request says otherwise,
  *always* cannot be switched off. **tools**: the model's chat template shows them; any other model
  is told of them in the system message. **gated**: the terms of the model must be accepted on its
  page first.
"""
SAMPLING = """\
## Sampling defaults

A request that sends no sampling field gets these; see [sampling.md](sampling.md) for what they do.
`repeat_last_n` is 64 for all. A model from a path has those of its own files instead.
"""
_FIELDS = (
    *("temperature", "top_k", "top_p", "min_p"),
    *("repetition_penalty", "frequency_penalty", "presence_penalty"),
)


def page() -> str:
    """The whole page."""
    entries = load_catalog().entries
    assert all(entry.sampling.repeat_last_n == SamplingParams().repeat_last_n for entry in entries)
    parts = [INTRO, _cards(entries), CARDS, SAMPLING, _defaults(entries)]
    return "\n".join(parts)


def _cards(entries: tuple[CatalogEntry, ...]) -> str:
    head = ("tag", "parameters", "weights", "size", "context", "prefill", "capabilities")
    return _table(head, [_card(entry) for entry in entries])


def _card(entry: CatalogEntry) -> tuple[str, ...]:
    lengths = dict.fromkeys((entry.default_ctx_len, entry.max_ctx_len))
    return (
        f"`{entry.name}`",
        entry.parameter_size,
        entry.quantization,
        f"{entry.footprint_gb:g} GB",
        " / ".join(map(str, lengths)),
        str(entry.max_prefill_len),
        ", ".join(_capabilities(entry)),
    )


def _capabilities(entry: CatalogEntry) -> list[str]:
    return [f"reasoning ({entry.think})" if item == "reasoning" else item for item in entry.labels]


def _defaults(entries: tuple[CatalogEntry, ...]) -> str:
    """A row for each set of values, with the tags that have it."""
    tags: dict[SamplingParams, list[str]] = {}
    for entry in entries:
        tags.setdefault(entry.sampling, []).append(f"`{entry.name}`")
    rows = [
        (", ".join(names), *(f"{getattr(values, field):g}" for field in _FIELDS))
        for values, names in tags.items()
    ]
    return _table(("tags", *(f"`{field}`" for field in _FIELDS)), rows)


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
