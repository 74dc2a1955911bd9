import torch

from flm.engine.runner import TorchRunner
from flm.engine.step import DecodeRow, StepPlan
from flm.kvcache.pool import KVPool
from flm.prefill.chunk import Chunk
from tests.support.engines import prompt
from tests.support.fake_model import VOCAB_SIZE, FakeModel

TABLES = {"a": (0, 1, 2), "b": (7, 4, 5)}


def runner() -> TorchRunner:
    model = FakeModel()
    return TorchRunner(model, KVPool(model.layout, 8, 4, torch.float32, "cpu"))


def chunk(name: str, token_ids: tuple[int, ...], start: int, num_logits: int) -> Chunk:
    return Chunk(name, token_ids, start, TABLES[name], num_logits)


def test_rows_come_in_the_plans_order() -> None:
    first, second = prompt(9, 1), prompt(7, 2)
    expected = torch.cat(
        [
            runner().forward(StepPlan(chunks=(chunk("a", first, 0, 1),))),
            runner().forward(StepPlan(chunks=(chunk("b", second, 0, 3),))),
        ]
    )
    mixed = runner()
    assert mixed.forward(StepPlan(chunks=(chunk("a", first[:-1], 0, 0),))).numel() == 0
    row = DecodeRow("a", first[-1], 8, TABLES["a"])
    plan = StepPlan(decodes=(row,), chunks=(chunk("b", second, 0, 3),))
    logits = mixed.forward(plan)
    assert logits.shape == (plan.num_rows, VOCAB_SIZE) == (4, VOCAB_SIZE)
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)


def test_decoding_in_a_batch_is_as_reading_it_as_a_prompt() -> None:
    first, second = prompt(12, 1), prompt(5, 2)
    together = runner()
    together.forward(StepPlan(chunks=(chunk("a", first[:3], 0, 0), chunk("b", second[:2], 0, 0))))
    for step in range(3):
        rows = (
            DecodeRow("a", first[3 + step], 3 + step, TABLES["a"]),
            DecodeRow("b", second[2 + step], 2 + step, TABLES["b"]),
        )
        logits = together.forward(StepPlan(decodes=rows))
    expected = [
        runner().forward(StepPlan(chunks=(chunk("a", first[:6], 0, 1),))),
        runner().forward(StepPlan(chunks=(chunk("b", second[:5], 0, 1),))),
    ]
    torch.testing.assert_close(logits, torch.cat(expected), atol=1e-5, rtol=1e-5)


def test_an_empty_plan_gives_nothing() -> None:
    assert runner().forward(StepPlan()).numel() == 0
