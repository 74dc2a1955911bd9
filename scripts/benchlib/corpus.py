"""Real English prose that comes with Python and with the project: paragraphs of the language
reference, which ``help()`` shows, and of the pages here."""

import re
from pathlib import Path
from pydoc_data.topics import topics

ROOT = Path(__file__).parents[2]
MIN_WORDS = 30
MARKS = tuple("#|-*>`+.=<0123456789")


def _paragraphs(text: str) -> list[str]:
    """Blocks of plain sentences, each on one line; lists, tables, code and headings left out."""
    without_code = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    blocks = re.split(r"\n\s*\n", without_code)
    return [
        " ".join(block.split())
        for block in blocks
        if block and not block[0].isspace() and not block.strip().startswith(MARKS)
    ]


def paragraphs() -> list[str]:
    """All paragraphs of at least 30 words, always in the same order. The reference, which
    changes with Python only, comes before the pages of the project."""
    texts = [topics[name] for name in sorted(topics)]
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    texts += [page.read_text("utf-8") for page in pages]
    found = [paragraph for text in texts for paragraph in _paragraphs(text)]
    return [text for text in dict.fromkeys(found) if len(text.split()) >= MIN_WORDS]


def passage(number: int, num_words: int) -> str:
    """The ``number``-th passage of at least that many words, counted around."""
    blocks = paragraphs()
    at = (number * 7) % len(blocks)
    words: list[str] = []
    while len(words) < num_words:
        words += blocks[at % len(blocks)].split()
        at += 1
    return " ".join(words)
