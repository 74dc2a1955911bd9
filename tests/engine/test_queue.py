from flm.engine.queue import WaitingLine
from flm.engine.sequence import Sequence
from tests.support.engines import request


def waiting(name: str) -> Sequence:
    return Sequence(request(name), arrival=0, submitted_at=0.0, random=None)


def test_first_come_first_served_and_the_preempted_before_all() -> None:
    line = WaitingLine()
    a, b, c = waiting("a"), waiting("b"), waiting("c")
    line.append(a)
    line.append(b)
    line.return_to_front(c)
    assert [item.id for item in line] == ["c", "a", "b"]
    line.remove(a)
    assert [item.id for item in line] == ["c", "b"]
    assert len(line) == 2
