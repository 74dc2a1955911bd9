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


def test_drafts_are_rows_behind_their_own_and_leave_the_others_alone() -> None:
    first, second, third = prompt(12, 1), prompt(9, 2), prompt(6, 3)
    tables = TABLES | {"c": (3, 6)}
    mixed = runner()
    read = (("a", first[:5]), ("b", second[:7]), ("c", third[:4]))
    for name, ids in read:
        mixed.forward(StepPlan(chunks=(Chunk(name, ids, 0, tables[name], 0),)))
    rows = (
        DecodeRow("a", first[5], 5, tables["a"]),
        DecodeRow("b", second[7], 7, tables["b"], drafts=(90,)),
        DecodeRow("c", third[4], 4, tables["c"]),
    )
    plan = StepPlan(decodes=rows)
    assert plan.rows() == {"a": range(1), "b": range(1, 3), "c": range(3, 4)}
    wanted = ((first[:6], 1), ((*second[:8], 90), 2), (third[:5], 1))
    expected = [
        runner().forward(StepPlan(chunks=(chunk("a", ids, 0, num_logits),)))
        for ids, num_logits in wanted
    ]
    logits = mixed.forward(plan)
    torch.testing.assert_close(logits, torch.cat(expected), atol=1e-5, rtol=1e-5)
    # What was guessed is written over, and was looked at by nobody.
    after = StepPlan(decodes=(DecodeRow("b", second[8], 8, tables["b"], drafts=(91, 92)),))
    whole = runner().forward(StepPlan(chunks=(chunk("b", (*second, 91, 92), 0, 3),)))
    torch.testing.assert_close(mixed.forward(after), whole, atol=1e-5, rtol=1e-5)
