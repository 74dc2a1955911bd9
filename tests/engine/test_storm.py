"""Many clients at once, some of which go away."""

import random
import threading

from flm.engine.worker import EngineWorker
from flm.errors import QueueFullError
from tests.support.engines import WARM, Replies, make_engine, prompt, request, text


def test_a_storm_of_submissions_and_aborts_leaks_nothing() -> None:
    engine = make_engine(num_blocks=40, max_running=5, max_waiting=6, slice_len=8)
    worker = EngineWorker(engine)
    worker.start()
    expected: dict[int, list[int]] = {
        kind: text(prompt(5 + 9 * kind, kind % 3), max_new_tokens=20, sampling=WARM, seed=kind)
        for kind in range(6)
    }
    problems: list[str] = []

    def client(number: int) -> None:
        generator = random.Random(number)
        for turn in range(12):
            name, kind = f"{number}-{turn}", generator.randrange(6)
            replies = Replies()
            wanted = request(
                name,
                prompt(5 + 9 * kind, kind % 3),
                max_new_tokens=20,
                sampling=WARM,
                seed=kind,
                cache_prompt=generator.random() < 0.8,
            )
            try:
                worker.submit([wanted], replies)
            except QueueFullError:
                continue
            stop_at = generator.choice([None, None, 0, 3])
            if stop_at is not None:
                reply = replies[name]
                replies.wait_until(
                    lambda: reply.end is not None or len(reply.token_ids) >= stop_at  # noqa: B023
                )
                worker.abort(name, keep_tokens=generator.choice([None, 2]))
            replies.wait_for(name)
            found = replies[name].token_ids
            if found != expected[kind][: len(found)]:
                problems.append(f"{name}: {found} is not the beginning of {expected[kind]}")
            if replies[name].finished.reason == "length" and len(found) != 20:
                problems.append(f"{name} ended early")
            worker.check_integrity()
            worker.cached_prefix(wanted.prompt_ids)

    clients = [threading.Thread(target=client, args=(number,)) for number in range(8)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join(120)
    assert not problems
    stats = worker.stats()
    assert stats.alive
    assert (stats.num_running, stats.num_waiting, stats.active_kv_tokens) == (0, 0, 0)
    assert stats.num_preemptions > 0
    worker.check_integrity()
    worker.close()
