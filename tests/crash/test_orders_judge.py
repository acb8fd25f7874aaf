"""The judge of examples/orders.py has teeth: each kind of violation, written by hand into the books, is found.

And it is fair: what may have happened otherwise is not held against the server.
"""

from collections.abc import Iterable
from itertools import count

import pytest
from shop.judge import judge
from shop.records import (
    AckAnswered,
    AckLost,
    AckSent,
    Died,
    Fault,
    Item,
    Leased,
    PopLost,
    Pushed,
    Record,
    Result,
    Taken,
)
from shop.records import order as content

LEASE_S = 5.0
Books = list[tuple[str, Record]]


def pushed(*numbers: int, at: float = 0.5, status: str = "queued", lost: int = 0, ids: str = "id") -> Record:
    return Pushed(at - 0.1, at, lost, False, [Item(n, "p", f"{ids}-{n}", status) for n in numbers])


def leased(name: str, at: float, counts: dict[int, int], partition: str = "p") -> Record:
    """Orders with these retryCounts, popped between at - 0.1 and at."""
    taken = [Taken(n, f"id-{n}", retries, content(n)) for n, retries in counts.items()]
    return Leased(at - 0.1, at, name, at - 0.05 + LEASE_S, partition, taken)


_attempts = count(1)


def acked(lease: str, at: float, asked: dict[int, str], *results: Result, lost: bool = False) -> list[Record]:
    """An acknowledgement sent at `at`, answered or given up 0.1 s later; with neither, nothing more was heard."""
    attempt = next(_attempts)
    records: list[Record] = [AckSent(attempt, at, lease, {str(n): status for n, status in asked.items()})]
    if lost:
        records.append(AckLost(attempt, at + 0.1))
    elif results:
        records.append(AckAnswered(attempt, at + 0.1, list(results)))
    return records


def completed(lease: str, at: float, *numbers: int) -> list[Record]:
    return acked(lease, at, dict.fromkeys(numbers, "completed"), *(Result(n, "completed", 0) for n in numbers))


def failed(lease: str, at: float, number: int, retry_count: int) -> list[Record]:
    return acked(lease, at, {number: "failed"}, Result(number, "retry_scheduled", retry_count))


def given_back(lease: str, at: float, number: int, retry_count: int) -> list[Record]:
    return acked(lease, at, {number: "retry"}, Result(number, "retry_scheduled", retry_count))


def books(*records: Record | list[Record]) -> Books:
    flat: Iterable[Record] = (r for some in records for r in (some if isinstance(some, list) else [some]))
    return [("book", record) for record in flat]


FAIR = {
    "plain": books(pushed(1, 2), leased("a", 1, {1: 0, 2: 0}), completed("a", 2, 1, 2)),
    "a push whose first answer was lost": books(
        pushed(1, status="duplicate", lost=1), leased("a", 1, {1: 0}), completed("a", 2, 1)
    ),
    "failed, and the rest given back": books(
        pushed(1, 2),
        leased("a", 1, {1: 0, 2: 0}),
        acked("a", 2, {1: "failed", 2: "retry"}, Result(1, "retry_scheduled", 1), Result(2, "retry_scheduled", 0)),
        leased("b", 3, {1: 1, 2: 0}),
        completed("b", 4, 1, 2),
    ),
    "an expired lease": books(
        pushed(1), leased("a", 1, {1: 0}), Died(1.1), leased("b", 6.2, {1: 1}), completed("b", 7, 1)
    ),
    "a completion that did not happen": books(
        pushed(1),
        leased("a", 1, {1: 0}),
        acked("a", 2, {1: "completed"}, lost=True),
        leased("b", 6.2, {1: 1}),
        completed("b", 7, 1),
    ),
    "a completion that happened unheard": books(pushed(1), leased("a", 1, {1: 0}), acked("a", 2, {1: "completed"})),
    "a completion repeated until answered": books(
        pushed(1), leased("a", 1, {1: 0}), acked("a", 2, {1: "completed"}, lost=True), completed("a", 3, 1)
    ),
    "a lease that nobody saw": books(
        pushed(1), PopLost(0.6, 0.9), leased("a", 6, {1: 1}), completed("a", 7, 1)
    ),
    "a late failure, counted beside the expiry": books(
        pushed(1), leased("a", 1, {1: 0}), failed("a", 6.5, 1, 2), leased("b", 7, {1: 2}), completed("b", 8, 1)
    ),
    "too late": books(
        pushed(1),
        leased("a", 1, {1: 0}),
        leased("b", 6.2, {1: 1}),
        acked("a", 6.3, {1: "completed"}, Result(1, "conflict", None)),
        completed("b", 7, 1),
    ),
    "a lease that begins while the last acknowledgement of the one before is on its way": books(
        pushed(1, 2), leased("a", 1, {1: 0}), completed("a", 2, 1), leased("b", 2.05, {2: 0}), completed("b", 3, 2)
    ),
}  # fmt: skip

FOUL = {
    "lost: order 2": books(pushed(1, 2), leased("a", 1, {1: 0}), completed("a", 2, 1)),
    "lost: order 1": books(
        # The completion of the first lease is unknown, but a later delivery proves that it did not happen.
        pushed(1), leased("a", 1, {1: 0}), acked("a", 2, {1: "completed"}, lost=True), leased("b", 6.2, {1: 1})
    ),
    "doubled: order 1 was completed by 2": books(
        pushed(1), leased("a", 1, {1: 0}), leased("b", 6.2, {1: 1}), completed("a", 6.3, 1), completed("b", 6.4, 1)
    ),
    "doubled: order 1 was delivered after": books(
        pushed(1), leased("a", 1, {1: 0}), completed("a", 2, 1), leased("b", 6.2, {1: 1}), completed("b", 7, 1)
    ),
    "never accepted: order 3": books(
        pushed(1), leased("a", 1, {1: 0, 3: 0}), completed("a", 2, 1, 3)
    ),
    "changed: order 1": books(
        pushed(1), Leased(0.9, 1, "a", 6, "p", [Taken(1, "id-1", 0, content(2))]), completed("a", 2, 1)
    ),
    "changed: order 1 was delivered as id-1 in q": books(
        pushed(1), leased("a", 1, {1: 0}, partition="q"), completed("a", 2, 1)
    ),
    "order: one lease": books(pushed(1, 2), leased("a", 1, {2: 0, 1: 0}), completed("a", 2, 1, 2)),
    "order: 2 was delivered before 1": books(
        pushed(1, 2), leased("a", 1, {2: 0}), completed("a", 2, 2), leased("b", 3, {1: 0}), completed("b", 4, 1)
    ),
    "order: 2 of p was completed before 1": books(
        pushed(1, 2), leased("a", 1, {1: 0, 2: 0}), completed("a", 2, 2), completed("a", 3, 1)
    ),
    "overlap: p": books(
        pushed(1, 2), leased("a", 1, {1: 0}), leased("b", 2, {2: 0}), completed("a", 3, 1), completed("b", 4, 2)
    ),
    "overlap: p was given away as b while a": books(
        pushed(1), leased("a", 1, {1: 0}), Died(1.1), leased("b", 5, {1: 1}), completed("b", 6, 1)
    ),
    "count: order 1 was delivered with retryCount 0, not 1": books(  # an expiry that was not counted
        pushed(1), leased("a", 1, {1: 0}), Died(1.1), leased("b", 6.2, {1: 0}), completed("b", 7, 1)
    ),
    "count: order 1 was delivered with retryCount 1, not 0": books(  # a `retry` that was counted
        pushed(1), leased("a", 1, {1: 0}), given_back("a", 2, 1, 0), leased("b", 3, {1: 1}), completed("b", 4, 1)
    ),
    "count: order 1 was delivered with retryCount 1, not 0 to 0": books(  # a first delivery, and no pop was lost
        pushed(1), leased("a", 1, {1: 1}), completed("a", 2, 1)
    ),
    "count: order 1: 'failed' after retryCount 0": books(
        pushed(1), leased("a", 1, {1: 0}), failed("a", 2, 1, 2), leased("b", 3, {1: 2}), completed("b", 4, 1)
    ),
    "count: 2 leases that nobody saw": books(  # one lost pop can't explain two partitions
        pushed(1),
        Pushed(0.4, 0.5, 0, False, [Item(2, "q", "id-2", "queued")]),
        PopLost(0.6, 0.9),
        leased("a", 6, {1: 1}),
        completed("a", 7, 1),
        leased("b", 6, {2: 1}, partition="q"),
        completed("b", 7, 2),
    ),
    "pushed twice: order 1": books(
        pushed(1), pushed(1, at=0.7), leased("a", 1, {1: 0}), completed("a", 2, 1)
    ),
    "pushed twice: order 1 was id-1, the second time duplicate": books(
        pushed(1), pushed(1, at=0.7, status="duplicate", ids="other"), leased("a", 1, {1: 0}), completed("a", 2, 1)
    ),
    "torn push: of one request": books(
        Pushed(0, 0.5, 1, False, [Item(1, "p", "id-1", "duplicate"), Item(2, "p", "id-2", "queued")]),
        leased("a", 1, {1: 0, 2: 0}),
        completed("a", 2, 1, 2),
    ),
    "false duplicate: orders from 1": books(
        pushed(1, status="duplicate"), leased("a", 1, {1: 0}), completed("a", 2, 1)
    ),
    "refused: order 1": books(
        pushed(1),
        leased("a", 1, {1: 0}),
        acked("a", 2, {1: "completed"}, Result(1, "conflict", None)),
        leased("b", 6.2, {1: 1}),
        completed("b", 7, 1),
    ),
    "wrong answer: 'completed' of order 1 was answered 'not_found'": books(
        pushed(1),
        leased("a", 1, {1: 0}),
        acked("a", 2, {1: "completed"}, Result(1, "not_found", None)),
        leased("b", 6.2, {1: 1}),
        completed("b", 7, 1),
    ),
    "fault: pop answered 500": books(
        pushed(1), Fault(0.6, "pop answered 500"), leased("a", 1, {1: 0}), completed("a", 2, 1)
    ),
}  # fmt: skip


@pytest.mark.parametrize("story", FAIR)
def test_what_is_right_or_may_be_right_passes(story: str) -> None:
    assert judge(FAIR[story]).violations == []


@pytest.mark.parametrize("violation", FOUL)
def test_each_kind_of_violation_is_found(violation: str) -> None:
    assert [found for found in judge(FOUL[violation]).violations if found.startswith(violation)]


def test_the_counts_are_those_of_the_books() -> None:
    counts = judge(FAIR["failed, and the rest given back"]).counts
    assert (counts["orders accepted"], counts["orders completed"], counts["deliveries"]) == (2, 2, 4)
    assert (counts["deliveries failed"], counts["deliveries given back"], counts["highest retryCount"]) == (1, 1, 1)
