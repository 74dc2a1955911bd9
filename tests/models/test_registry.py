import logging
from pathlib import Path

import pytest
import torch

from flm.errors import ModelFileError
from flm.kvcache.layout import LayerState
from flm.models.config import ARCHITECTURES
from flm.models.files import open_model
from flm.models.llama import Llama
from flm.models.registry import NETWORKS, load_model
from tests.support.tiny import Architecture, tiny_folder, tiny_gguf

CPU = torch.device("cpu")


def load(path: Path) -> Llama:
    model = load_model(open_model(path), dtype=torch.float32, device=CPU, exact=True)
    assert isinstance(model, Llama)
    return model


def test_every_architecture_has_a_network() -> None:
    assert set(NETWORKS) == set(ARCHITECTURES)


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_the_layout_follows_the_configuration(architecture: Architecture, tmp_path: Path) -> None:
    model = load(tiny_folder(tmp_path, architecture))
    head_dim = 32 if architecture == "qwen3" else 16
    assert model.layout.layers == (LayerState(2, head_dim),) * 2


def test_a_tied_head_shares_the_embedding(tmp_path: Path) -> None:
    tied = load(tiny_folder(tmp_path / "a", tied=True))
    assert tied.head.weight is tied.embedding
    untied = load(tiny_folder(tmp_path / "b", tied=False))
    assert not torch.equal(untied.head.weight, untied.embedding)


def test_a_vocabulary_padded_beyond_the_tokenizer(tmp_path: Path) -> None:
    for path in (
        tiny_folder(tmp_path / "f", vocab_size=544),
        tiny_gguf(tmp_path / "m.gguf", vocab_size=544),
    ):
        assert load(path).logits(torch.ones(3, 64)).shape == (3, 544)


def test_no_rows_give_no_logits(tmp_path: Path) -> None:
    logits = load(tiny_folder(tmp_path)).logits(torch.ones(0, 64))
    assert logits.shape == (0, 512)
    assert logits.dtype == torch.float32


def test_bfloat16_logits_are_float32(tmp_path: Path) -> None:
    files = open_model(tiny_folder(tmp_path))
    model = load_model(files, dtype=torch.bfloat16, device=CPU, exact=False)
    assert model.logits(torch.ones(2, 64, dtype=torch.bfloat16)).dtype == torch.float32


@pytest.mark.parametrize("limited", [True, False])
def test_a_capped_context_is_logged(
    limited: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    window = {"sliding_window": 512 if limited else None}
    files = open_model(tiny_folder(tmp_path / "windowed", "mistral", overrides=window))
    logger = logging.getLogger("flm")
    logger.addHandler(caplog.handler)
    try:
        load_model(files, dtype=torch.float32, device=CPU, exact=True)
    finally:
        logger.removeHandler(caplog.handler)
    messages = [record.getMessage() for record in caplog.records]
    said = "windowed attends within a window of 512 tokens; the context is limited to it."
    assert (said in messages) == limited


def test_weights_that_contradict_the_configuration(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path, overrides={"intermediate_size": 256})
    with pytest.raises(ModelFileError, match=r"gate_proj\.weight' has the shape \[128, 64\]"):
        load(folder)


def test_more_layers_than_weights(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path, overrides={"num_hidden_layers": 3})
    with pytest.raises(ModelFileError, match=r"'model\.layers\.2\..*' is missing"):
        load(folder)


def test_an_untied_configuration_without_a_head(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path, overrides={"tie_word_embeddings": False})
    with pytest.raises(ModelFileError, match=r"'lm_head\.weight' is missing"):
        load(folder)
