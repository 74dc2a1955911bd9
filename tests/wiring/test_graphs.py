"""Where decoding is recorded."""

from typing import Any

import pytest
import torch

from flm.config import ServeConfig
from flm.engine.graphs import GraphedDecode
from flm.wiring import loading
from tests.support.fake_model import FakeModel


class Pool:
    """What a choice looks at."""

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)


@pytest.mark.parametrize(
    ("device", "choice", "expected"),
    [
        ("cuda", "auto", True),
        ("cuda:1", "auto", True),
        ("cuda", "off", False),
        ("cpu", "auto", False),
    ],
)
def test_graphs_are_for_cuda_devices(
    device: str, choice: Any, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "CudaGraphs", lambda device: device)
    monkeypatch.setattr("flm.engine.graphs.DecodeRunner", lambda model, pool: None)
    config = ServeConfig(cuda_graphs=choice, parallel=5)
    found = loading._graphs(FakeModel(), Pool(device), config)  # type: ignore[arg-type]
    assert isinstance(found, GraphedDecode) is expected
    if found is not None:
        assert (found._capture, found._max_rows) == (torch.device(device), 5)
