"""Settings that stick: atomic writes, snapshots, origins, reset."""

import threading

from flm.sticky import STICKY_FIELDS, StickyStore, merged
from flm.types import SamplingParams, Settings

DEFAULTS = Settings(sampling=SamplingParams(presence_penalty=1.5))


def test_a_sent_field_stays_for_later_requests() -> None:
    store = StickyStore(DEFAULTS)
    first = store.commit({"temperature": 0.2}, "one")
    second = store.commit({"top_k": 5}, "two")
    assert first.settings.sampling.temperature == 0.2
    assert second.settings.sampling.temperature == 0.2
    assert second.settings.sampling.top_k == 5
    assert first.settings.sampling.top_k == DEFAULTS.sampling.top_k


def test_peek_writes_nothing() -> None:
    store = StickyStore(DEFAULTS)
    assert store.peek({"temperature": 0.0}).settings.sampling.temperature == 0.0
    assert store.peek({}).settings == DEFAULTS


def test_inherited_are_the_unsent_fields_that_differ_from_the_default() -> None:
    store = StickyStore(DEFAULTS)
    store.commit({"presence_penalty": 0.0, "top_p": 0.9, "temperature": 0.3}, "one")
    snapshot = store.peek({"temperature": 0.5})
    assert [entry.field for entry in snapshot.inherited] == ["presence_penalty"]
    entry = snapshot.inherited[0]
    assert entry.value == 0.0
    assert entry.default == 1.5
    assert entry.origin is not None
    assert entry.origin.request_id == "one"
    assert entry.origin.at.tzinfo is not None


def test_reset_restores_values_and_forgets_origins() -> None:
    store = StickyStore(DEFAULTS)
    store.commit(dict.fromkeys(["temperature", "min_p"], 0.5), "one")
    store.reset()
    assert store.peek({}).settings == DEFAULTS
    assert all(entry.origin is None for entry in store.entries())
    assert [entry.field for entry in store.entries()] == list(STICKY_FIELDS)


def test_reasoning_switches_stick_beside_the_sampling_fields() -> None:
    settings = merged(Settings(think=True), {"think": False, "temperature": 0.0})
    assert settings.think is False
    assert settings.sampling.temperature == 0.0


def test_concurrent_commits_are_never_torn() -> None:
    store = StickyStore(DEFAULTS)
    torn: list[object] = []

    def write(value: int) -> None:
        for _ in range(200):
            sent = {"temperature": float(value), "top_k": value, "repeat_last_n": value}
            sampling = store.commit(sent, str(value)).settings.sampling
            if {sampling.temperature, sampling.top_k, sampling.repeat_last_n} != {value}:
                torn.append(sampling)

    threads = [threading.Thread(target=write, args=(value,)) for value in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not torn
