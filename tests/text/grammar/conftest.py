"""A small vocabulary with every byte, some merges and control tokens, and a compiler over it."""

from collections.abc import Iterator

import pytest

from flm.text.grammar import GrammarCompiler, Sandbox, Vocabulary, vocabulary_of
from flm.text.tokenizer import Tokenizer
from tests.support.vocabularies import CHATML_MARKERS, byte_level_json, data_of

MARKERS = (*CHATML_MARKERS, "[TOOL_CALLS]")


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_data(data_of(byte_level_json(MARKERS), eos="<|im_end|>"))


@pytest.fixture(scope="session")
def vocabulary(tokenizer: Tokenizer) -> Vocabulary:
    return vocabulary_of(tokenizer)


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    box = Sandbox()
    yield box
    box.close()


@pytest.fixture(scope="session")
def compiler(vocabulary: Vocabulary, sandbox: Sandbox) -> GrammarCompiler:
    return GrammarCompiler(vocabulary, sandbox)
