"""The real vocabulary, and transformers' reading of the same file."""

from pathlib import Path
from typing import Any

import pytest

from flm.models.files import open_model
from flm.text.tokenizer import Tokenizer
from flm.types import TokenizerData


@pytest.fixture(scope="session")
def smollm2_data(smollm2_gguf: Path) -> TokenizerData:
    return open_model(smollm2_gguf).tokenizer


@pytest.fixture(scope="session")
def smollm2(smollm2_data: TokenizerData) -> Tokenizer:
    return Tokenizer.from_data(smollm2_data)


@pytest.fixture(scope="session")
def smollm2_twin(smollm2_gguf: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(smollm2_gguf.parent, gguf_file=smollm2_gguf.name)
