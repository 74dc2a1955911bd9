"""Masks beside a forward."""

import gc
import threading

import pytest

import flm.engine.engine as engine_module
from flm.engine.masks import EarlyMask, MaskMaker
from flm.engine.protocol import Failed
from flm.errors import InvalidRequestError
from tests.support.engines import make_engine, prompt, request, run


class Slow:
    """A grammar that knows where and beside what its masks are made."""

    def __init__(self) -> None:
        self.threads: list[str] = []
        self.may_go_on = threading.Event()

    def mask(self) -> bytes | None:
        assert self.may_go_on.wait(10)
        self.threads.append(threading.current_thread().name)
        return b"\x07"

    def accept(self, token_id: int) -> None:
        assert token_id < 3


class Broken(Slow):
    def mask(self) -> bytes | None:
        raise KeyboardInterrupt("no mask")


class Complex(Slow):
    def mask(self) -> bytes | None:
        raise InvalidRequestError("too complex")


def mask_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "flm-masks"]


def test_masks_are_made_while_the_block_runs_and_are_there_at_its_end() -> None:
    maker, slow, other = MaskMaker(), Slow(), Slow()
    masks = [EarlyMask(slow), EarlyMask(other)]
    other.may_go_on.set()
    with maker.making(masks):
        slow.may_go_on.set()  # the block runs before the first mask is there
    assert [mask.take() for mask in masks] == [b"\x07"] * 2
    assert slow.threads == other.threads == ["flm-masks"]


def test_an_error_waits_for_who_takes_the_mask() -> None:
    maker, fine = MaskMaker(), Slow()
    fine.may_go_on.set()
    masks = [EarlyMask(Broken()), EarlyMask(fine)]
    with maker.making(masks):
        pass
    assert masks[1].take() == b"\x07"
    with pytest.raises(KeyboardInterrupt, match="no mask"):
        masks[0].take()


def fail_beside(maker: MaskMaker, slow: Slow) -> None:
    with maker.making([EarlyMask(slow)]):
        slow.may_go_on.set()
        raise RuntimeError


def test_a_block_that_fails_leaves_no_mask_behind() -> None:
    maker = MaskMaker()
    for _ in range(2):
        slow = Slow()
        with pytest.raises(RuntimeError):
            fail_beside(maker, slow)
        assert slow.threads == ["flm-masks"]


def test_without_masks_there_is_no_thread_and_it_ends_with_its_owner() -> None:
    gc.collect()
    before = mask_threads()
    maker, slow = MaskMaker(), Slow()
    with maker.making([]):
        pass
    assert mask_threads() == before
    slow.may_go_on.set()
    with maker.making([EarlyMask(slow)]):
        pass
    (thread,) = set(mask_threads()) - set(before)
    del maker
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.parametrize("early_s", [0.0, 1e9])
def test_the_engine_makes_slow_ones_early_with_the_same_reply(
    monkeypatch: pytest.MonkeyPatch, early_s: float
) -> None:
    monkeypatch.setattr(engine_module, "EARLY_S", early_s)
    grammar = Slow()
    grammar.may_go_on.set()
    replies = run(
        make_engine(),
        request("a", prompt(5), max_new_tokens=6, grammar=grammar),
        request("b", prompt(6, 1), max_new_tokens=6),
    )
    own = threading.current_thread().name
    assert grammar.threads == [own if early_s else "flm-masks"] * 6
    assert set(replies["a"].token_ids) <= {0, 1, 2}
    alone = run(make_engine(), request("b", prompt(6, 1), max_new_tokens=6))["b"]
    assert replies["b"].token_ids == alone.token_ids


def test_an_early_mask_that_fails_fails_only_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "EARLY_S", 0.0)
    replies = run(
        make_engine(),
        request("a", prompt(5), grammar=Complex()),
        request("b", prompt(6, 1)),
    )
    end = replies["a"].end
    assert isinstance(end, Failed)
    assert end.error.message == "too complex"
    assert len(replies["b"].token_ids) > 1


def test_a_mask_says_how_long_it_took() -> None:
    mask = EarlyMask(Slow())
    threading.Timer(0.02, mask._grammar.may_go_on.set).start()  # type: ignore[attr-defined]
    mask.make()
    assert mask.seconds >= 0.02
