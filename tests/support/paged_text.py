"""A model that is a table, over what the pages really hold: its logits have the same bits however
a sequence is computed, and show every token that a row may look at."""

from zlib import crc32

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from flm.engine.step import StepPlan
from tests.support.fake_model import VOCAB_SIZE

Floats = npt.NDArray[np.float64]

_NUM_MOODS = 61


class PagedText:
    """A ``Runner``. What follows depends mostly on the last token, so that text repeats itself,
    and a little on all of them: a wrong token anywhere before changes every logit."""

    def __init__(self, num_blocks: int, block_size: int, *, steadiness: float) -> None:
        generator = np.random.Generator(np.random.PCG64(3))
        self._pages = np.full((num_blocks, block_size), -1, dtype=np.int64)
        self._block_size = block_size
        self._habits = steadiness * generator.standard_normal((VOCAB_SIZE, VOCAB_SIZE))
        self._moods = generator.standard_normal((_NUM_MOODS, VOCAB_SIZE))
        self.plans: list[StepPlan] = []

    def forward(self, plan: StepPlan) -> Tensor:
        """Logits [plan.num_rows, VOCAB_SIZE], float32."""
        self.plans.append(plan)
        for row in plan.decodes:
            self._write(row.token_ids, row.position, row.block_table)
        for chunk in plan.chunks:
            self._write(chunk.token_ids, chunk.start, chunk.block_table)
        rows = [
            self._logits(row.block_table, row.position + place)
            for row in plan.decodes
            for place in range(len(row.token_ids))
        ]
        for chunk in plan.chunks:
            end = chunk.start + len(chunk.token_ids)
            rows += [
                self._logits(chunk.block_table, position)
                for position in range(end - chunk.num_logits, end)
            ]
        if not rows:
            return torch.empty((0, VOCAB_SIZE))
        return torch.from_numpy(np.stack(rows)).float()

    def _write(self, token_ids: tuple[int, ...], start: int, table: tuple[int, ...]) -> None:
        for position, token_id in enumerate(token_ids, start):
            block, slot = divmod(position, self._block_size)
            self._pages[table[block], slot] = token_id

    def _logits(self, table: tuple[int, ...], position: int) -> Floats:
        tokens = self._pages[list(table)].ravel()[: position + 1]
        assert (tokens >= 0).all(), "a row looks at what was never written"
        mood = self._moods[crc32(tokens.tobytes()) % _NUM_MOODS]
        return np.asarray(self._habits[tokens[-1]] + mood)
