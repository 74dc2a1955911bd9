"""Where guessing tokens ahead may be turned on."""

import pytest
import torch

from flm.config import ServeConfig, SpeculateChoice
from flm.errors import ConfigError
from flm.kernels.build import load_kernels
from flm.wiring.numerics import Numerics, speculates

CPU = torch.device("cpu")
EXACT = Numerics(CPU, torch.float32, torch.float32, is_exact=True)
NATIVE = Numerics(
    CPU, torch.bfloat16, torch.bfloat16, is_exact=False, kernels=load_kernels().kernels
)
PLAIN = Numerics(CPU, torch.float32, torch.float32, is_exact=False)


@pytest.mark.parametrize("numerics", [EXACT, NATIVE], ids=["exact", "native"])
@pytest.mark.parametrize(("choice", "expected"), [("off", False), ("ngram", True), ("auto", True)])
def test_guessing_where_a_row_keeps_its_bits(
    numerics: Numerics, choice: SpeculateChoice, expected: bool
) -> None:
    assert speculates(ServeConfig(speculate=choice), numerics) is expected


def test_no_guessing_where_it_could_change_a_reply() -> None:
    assert not speculates(ServeConfig(speculate="off"), PLAIN)
    assert not speculates(ServeConfig(speculate="auto"), PLAIN)
    with pytest.raises(ConfigError, match=r"--dtype float32.*--speculate auto") as caught:
        speculates(ServeConfig(speculate="ngram"), PLAIN)
    assert caught.value.param == "speculate"
