"""The store of replies: bounded by count and bytes, least recently used out."""

from typing import Any

import pytest

from flm.server.response_store import ResponseStore


def reply(number: int, text: str = "") -> dict[str, Any]:
    return {"id": f"resp_{number}", "output": [{"id": f"msg_{number}", "text": text}]}


def kept(store: ResponseStore, numbers: range) -> list[int]:
    return [number for number in numbers if store.item(f"msg_{number}") is not None]


def test_a_reply_with_what_it_was_given() -> None:
    store = ResponseStore()
    store.put(reply(1), [{"id": "msg_0", "text": "hi"}])
    found = store.get("resp_1")
    assert found is not None
    assert found.reply == reply(1)
    assert [item["id"] for item in found.items] == ["msg_0", "msg_1"]
    assert store.item("msg_0") == {"id": "msg_0", "text": "hi"}
    assert store.get("resp_2") is None
    assert store.item("msg_2") is None


def test_the_least_recently_used_goes_first() -> None:
    store = ResponseStore(2)
    store.put(reply(1), [])
    store.put(reply(2), [])
    assert store.get("resp_1") is not None
    store.put(reply(3), [])
    assert [store.get(f"resp_{number}") is not None for number in (1, 2, 3)] == [True, False, True]


def test_bytes_are_bounded_too() -> None:
    size = len(b'{"id":"resp_1","output":[{"id":"msg_1","text":"%s"}]}[]' % (b"x" * 100))
    store = ResponseStore(100, max_bytes=2 * size)
    for number in (1, 2, 3):
        store.put(reply(number, "x" * 100), [])
    assert kept(store, range(1, 4)) == [2, 3]
    # One that is larger than the whole store is not kept, and costs nothing.
    store.put(reply(4, "x" * 1000), [])
    assert kept(store, range(1, 5)) == [2, 3]


def test_what_was_let_go_of_makes_room() -> None:
    size = len(b'{"id":"resp_1","output":[{"id":"msg_1","text":"%s"}]}[]' % (b"x" * 100))
    store = ResponseStore(100, max_bytes=2 * size)
    store.put(reply(1, "x" * 100), [])
    store.put(reply(2, "x" * 100), [])
    assert store.delete("resp_1")
    assert not store.delete("resp_1")
    store.put(reply(3, "x" * 100), [])
    assert kept(store, range(1, 4)) == [2, 3]


@pytest.mark.parametrize(("count", "word"), [(0, "keeps no replies"), (7, "the last 7")])
def test_what_is_said_of_it(count: int, word: str) -> None:
    store = ResponseStore(count)
    assert word in store.bounds
    assert store.is_on == (count > 0)
    store.put(reply(1), [])
    assert (store.get("resp_1") is not None) == (count > 0)
