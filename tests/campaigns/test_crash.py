"""The short form of crash.py, and the teeth of its judge: each kind of violation, written by hand, is found."""

from pathlib import Path

import pytest

from tests.campaigns.crash import SMALL, campaign
from tests.campaigns.crash_history import Ack, Extend, Got, History, Item, Pop, Push, Pushed, Settled
from tests.campaigns.crash_judge import Judge


async def test_nothing_is_lost_by_kills_under_load(tmp_path: Path) -> None:
    """P1, P4, L1, L2, L5, L7, O7, O8, A3, A4, R1, S1, Z3."""
    result = await campaign(tmp_path, SMALL, seed=1)
    assert result.violations == []
    assert sum(counts["completed"] for counts in result.history.counts.values()) > 0


def pushed(*numbers: int, at: float = 0.5, status: str = "queued", again: bool = False, ids: str = "id") -> Push:
    items = [Item(f"m{n}", "q", "p", n) for n in numbers]
    return Push(at - 0.1, items, again, at, [Pushed(f"{ids}-{n}", status) for n in numbers])


def unanswered(*numbers: int, stored: list[bool]) -> Push:
    return Push(0.1, [Item(f"m{n}", "q", "p", n) for n in numbers], False, 0.4, None, stored)


def popped(lease: str, at: float, counts: dict[int, int], ids: str = "id") -> Pop:
    messages = [Got(f"m{n}", f"{ids}-{n}", n, count) for n, count in counts.items()]
    return Pop(at - 0.1, "q", None, 10, False, at, True, "p", lease, messages)


def acked(lease: str, at: float, *numbers: int, asked: str = "completed", result: str | None = "completed") -> Ack:
    results = None if result is None else {f"m{n}": Settled(result, 0) for n in numbers}
    return Ack(at, lease, {f"m{n}": asked for n in numbers}, at + 0.1, results)


def transacted(lease: str, at: float, number: int, push: Push, result: str | None) -> Ack:
    ack = acked(lease, at, number, result=result)
    ack.with_push = push
    return ack


def history(*records: Push | Pop | Ack | Extend) -> History:
    made = History()
    for record in records:
        if isinstance(record, Push):
            made.pushes.append(record)
        elif isinstance(record, Pop):
            made.pops.append(record)
        elif isinstance(record, Ack):
            made.acks.append(record)
            if record.with_push is not None:
                made.pushes.append(record.with_push)
        else:
            made.extends.append(record)
    return made


def judged(seen: History) -> list[str]:
    return list(Judge(seen, {"q"}, {"q": (None,)}).violations())


REST = (popped("z", 9, {7: 0}), acked("z", 9.5, 7))

FAIR = {
    "plain": history(pushed(1, 2), popped("a", 1, {1: 0, 2: 0}), acked("a", 1.5, 1, 2)),
    "stored unheard, then pushed again": history(
        unanswered(1, stored=[True]), pushed(1, status="duplicate", again=True),
        popped("a", 1, {1: 0}), acked("a", 2, 1),
    ),
    "an expired lease": history(pushed(1), popped("a", 1, {1: 0}), popped("b", 3.2, {1: 1}), acked("b", 4, 1)),
    "a completion that did not happen": history(
        pushed(1), popped("a", 1, {1: 0}), acked("a", 1.5, 1, result=None), popped("b", 3.2, {1: 1}), acked("b", 4, 1)
    ),
    "a completion that happened unheard": history(
        pushed(1), popped("a", 1, {1: 0}), acked("a", 1.5, 1, result=None)
    ),
    "a transaction that happened unheard": history(
        pushed(1), popped("a", 1, {1: 0}), transacted("a", 1.5, 1, unanswered(7, stored=[True]), None), *REST
    ),
    "an extended lease": history(
        pushed(1), popped("a", 1, {1: 0}), Extend(1.5, "a", 3, 1.6, True), popped("b", 4.7, {1: 1}), acked("b", 5, 1)
    ),
}  # fmt: skip

FOUL = {
    "lost: m2": history(pushed(1, 2), popped("a", 1, {1: 0, 2: 0}), acked("a", 1.5, 1)),
    "pushed twice: m1 is id-1, then queued": history(
        pushed(1), pushed(1, at=0.7, again=True), popped("a", 1, {1: 0}), acked("a", 1.5, 1)
    ),
    "pushed twice: m1 is id-1, then duplicate as other-1": history(
        pushed(1), pushed(1, at=0.7, status="duplicate", again=True, ids="other"), popped("a", 1, {1: 0}),
        acked("a", 1.5, 1),
    ),
    "torn push": history(unanswered(1, 2, stored=[True, False]), popped("a", 1, {1: 0}), acked("a", 1.5, 1)),
    "false duplicate": history(pushed(1, status="duplicate"), popped("a", 1, {1: 0}), acked("a", 1.5, 1)),
    "never accepted: m1": history(unanswered(1, stored=[False]), popped("a", 1, {1: 0}), acked("a", 1.5, 1)),
    "changed": history(pushed(1), Pop(0.9, "q", None, 1, False, 1, True, "p", "a", [Got("m1", "id-1", 2, 0)])),
    "doubled: m1 is": history(pushed(1), popped("a", 1, {1: 0}, ids="other"), acked("a", 1.5, 1)),
    "doubled: m1 was completed by 2": history(
        pushed(1), popped("a", 1, {1: 0}), popped("b", 3.2, {1: 1}), acked("a", 3.3, 1), acked("b", 3.4, 1)
    ),
    "came back: m1": history(pushed(1), popped("a", 1, {1: 0}), acked("a", 1.5, 1), popped("b", 3.2, {1: 0})),
    "refused": history(
        pushed(1), popped("a", 1, {1: 0}), acked("a", 1.5, 1, result="conflict"), popped("b", 3.2, {1: 1}),
        acked("b", 3.3, 1),
    ),
    "wrong answer": history(pushed(1), popped("a", 1, {1: 0}), acked("a", 1.5, 1, result="failed")),
    "held twice": history(
        pushed(1, 2), popped("a", 1, {1: 0}), popped("b", 1.2, {2: 0}), acked("a", 1.5, 1), acked("b", 1.6, 2)
    ),
    "held twice: a partition of Place(queue='q', partition='p', group=None) was given away as b": history(
        pushed(1), popped("a", 1, {1: 0}), Extend(1.5, "a", 3, 1.6, True), popped("b", 4.0, {1: 1}), acked("b", 5, 1)
    ),
    "order: one lease": history(pushed(1, 2), popped("a", 1, {2: 0, 1: 0}), acked("a", 1.5, 1, 2)),
    "order: 2 of": history(
        pushed(1, 2), popped("a", 1, {2: 0}), acked("a", 1.5, 2), popped("b", 2, {1: 0}), acked("b", 2.5, 1)
    ),
    "order: 3 of": history(
        pushed(1, 2, 3), popped("a", 1, {1: 0, 3: 0}), acked("a", 1.5, 1, 3), popped("b", 2, {2: 0}),
        acked("b", 2.5, 2),
    ),
    "count: m1 has retryCount 0, not 1": history(
        pushed(1), popped("a", 1, {1: 0}), popped("b", 3.2, {1: 0}), acked("b", 4, 1)
    ),
    "torn transaction": history(
        pushed(1), popped("a", 1, {1: 0}), transacted("a", 1.5, 1, unanswered(7, stored=[False]), "conflict"),
        popped("b", 3.2, {1: 1}), acked("b", 4, 1), pushed(7), *REST,
    ),
    "came back: m1 was delivered to group None": history(  # by a transaction that left its pushes
        pushed(1), popped("a", 1, {1: 0}), transacted("a", 1.5, 1, unanswered(7, stored=[True]), None),
        popped("b", 3.2, {1: 1}), *REST,
    ),
}  # fmt: skip


@pytest.mark.parametrize("story", FAIR)
def test_what_is_right_or_may_be_right_passes(story: str) -> None:
    assert judged(FAIR[story]) == []


@pytest.mark.parametrize("violation", FOUL)
def test_each_kind_of_violation_is_found(violation: str) -> None:
    found = judged(FOUL[violation])
    assert [each for each in found if each.startswith(violation)], found


def test_wrong_counts_are_found() -> None:
    seen = history(pushed(1), popped("a", 1, {1: 0}), acked("a", 1.5, 1))
    seen.counts["q"] = {"pending": 0, "processing": 0, "completed": 0, "total": 1}
    assert [each for each in judged(seen) if each.startswith("statistics")]
