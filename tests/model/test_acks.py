"""Tables for acknowledgements and failures: A1-A5, R1, R2, R6, T5, Z2-Z4."""

import pytest

from queen.commands import Ack, AckEntry, AckStatus, Delete, Extend, Pop, Release
from queen.events import MessagesReturned, MessagesSettled
from queen.names import SECOND
from queen.options import QueueOptions
from tests.model.world import PartitionHarness

OTHER = b"some other lease"


def leased(options: QueueOptions | None = None, count: int = 1) -> PartitionHarness:
    """A partition whose `count` messages are all leased."""
    world = PartitionHarness(options or QueueOptions())
    world.push(count=count)
    world.pop(count)
    return world


# -- what becomes of a message (A1, A2) --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "answer", "becomes"),
    [
        ("completed", ("completed", 0), ("completed", 0)),
        ("failed", ("retry_scheduled", 1), ("pending", 1)),
        ("retry", ("retry_scheduled", 0), ("pending", 0)),
        ("dead_letter", ("dead_letter", 0), ("dead_letter", 0)),
    ],
)
def test_a1_a2_z3_each_status(status: AckStatus, answer: tuple[str, int], becomes: tuple[str, int]) -> None:
    world = leased()
    assert world.ack(1, status) == answer
    assert world.status(1) == becomes


def test_a2_the_answer_says_when() -> None:
    world = leased()
    world.wait(5)
    (first,) = world.do(Ack(0, (AckEntry(1, "completed"),)))
    world.wait(5)
    (again,) = world.do(Ack(0, (AckEntry(1, "completed"),)))
    assert first.at == again.at == world.now - 5 * SECOND


def test_a1_the_event_keeps_what_was_asked_and_by_whom() -> None:
    world = PartitionHarness()
    world.push(count=1)
    world.do(Pop(0, 1, b"lease", worker="w"))
    leased_at = world.now
    world.wait(1)
    (event,) = world.events(Ack(0, (AckEntry(1, "dead_letter", "broken"),)))
    assert isinstance(event, MessagesSettled)
    assert (event.asked, event.error, event.lease, event.leased_at, event.worker) == (
        "dead_letter",
        "broken",
        b"lease",
        leased_at,
        "w",
    )


# -- idempotence (A3, Z2) ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("named", ["no lease", "its lease"])
@pytest.mark.parametrize("status", ["completed", "failed", "retry", "dead_letter"])
def test_a3_z2_the_same_ack_again_answers_the_same_and_changes_nothing(status: AckStatus, named: str) -> None:
    world = leased()
    lease = world.lease if named == "its lease" else None
    answer = world.ack(1, status, lease)
    command = Ack(0, (AckEntry(1, status, None, lease),))
    assert world.events(command) == ()
    assert (world.reply[0].status, world.reply[0].retry_count) == answer


@pytest.mark.parametrize("dlq", [False, True])
def test_a3_the_same_ack_again_after_the_final_failure(dlq: bool) -> None:
    world = leased(QueueOptions(retry_limit=0, dlq_after_max_retries=dlq))
    answer = ("dead_letter" if dlq else "failed", 0)
    assert world.ack(1, "failed") == answer
    assert world.ack(1, "failed", world.lease) == answer
    assert world.ack(1, "completed")[0] == "conflict"
    assert world.ack(1, "dead_letter")[0] == "conflict", "it was asked for otherwise, whatever it came to"


@pytest.mark.parametrize("first", ["completed", "failed", "retry", "dead_letter"])
@pytest.mark.parametrize("second", ["completed", "failed", "retry", "dead_letter"])
def test_a3_z2_a_different_ack_is_refused(first: AckStatus, second: AckStatus) -> None:
    world = leased()
    answer = world.ack(1, first)
    assert world.ack(1, second) == (answer if first == second else ("conflict", 0))


def test_a3_an_auto_acked_message_takes_its_completion_again() -> None:
    world = PartitionHarness()
    world.push(count=1)
    world.pop(auto_ack=True)
    assert world.ack(1) == ("completed", 0)
    assert world.ack(1, "failed")[0] == "conflict"


def test_z2_a_settled_message_is_fenced_too() -> None:
    world = leased()
    world.ack(1)
    assert world.ack(1, lease=OTHER)[0] == "conflict"


# -- who may (A4, Z4) --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("position", [0, 2, 99])
def test_a4_an_unknown_message(position: int) -> None:
    assert leased().ack(position)[0] == "not_found"


def test_r5_a_deleted_message_is_unknown() -> None:
    world = leased()
    world.do(Delete(1))
    assert world.ack(1)[0] == "not_found"


def test_a4_a_message_that_was_never_leased() -> None:
    world = leased(QueueOptions(ordering="relaxed"))
    world.push(count=1)
    assert world.ack(2)[0] == "conflict"


def test_a4_fencing_another_lease_is_refused_and_none_is_taken() -> None:
    world = leased()
    assert world.ack(1, lease=OTHER)[0] == "conflict"
    assert world.status(1) == ("processing", 0)
    assert world.ack(1) == ("completed", 0)


def test_a4_lesson_18_a_stale_worker_settles_nothing_of_the_new_owner() -> None:
    world = leased()
    stale = world.lease
    world.wait(300)
    assert world.pop() == [1]
    assert world.ack(1, lease=stale)[0] == "conflict"
    assert world.ack(1, lease=world.lease) == ("completed", 1)
    assert world.ack(1, lease=stale)[0] == "conflict"


@pytest.mark.parametrize("named", ["no lease", "its lease"])
def test_a4_z2_after_expiry_while_nobody_holds_it(named: str) -> None:
    world = leased()
    world.wait(300)
    assert world.ack(1, lease=world.lease if named == "its lease" else None) == ("completed", 1)
    assert world.ack(1, lease=OTHER)[0] == "conflict"


def test_a4_after_a_release_the_old_lease_still_settles() -> None:
    world = leased()
    world.do(Release(world.lease))
    assert world.ack(1, lease=world.lease) == ("completed", 0)


def test_z4_lesson_24_a_group_that_has_not_leased_it() -> None:
    world = PartitionHarness()
    world.push(count=1)
    world.join(1)
    world.pop(group=1)
    (reply,) = world.do(Ack(0, (AckEntry(1, "completed"),)))
    assert (reply.status, bool(reply.error)) == ("conflict", True)
    assert world.ack(1, group=7)[0] == "conflict"
    assert world.ack(1, group=1) == ("completed", 0)
    assert world.status(1, group=0) == ("pending", 0)


# -- batches (A5) ------------------------------------------------------------------------------------------------


def test_a5_lesson_26_each_entry_has_its_own_outcome_in_the_order_asked_for() -> None:
    world = leased(count=4)
    entries = (AckEntry(3, "failed"), AckEntry(1, "completed"), AckEntry(9, "completed"), AckEntry(2, "retry"))
    replies = world.do(Ack(0, entries))
    assert [reply.status for reply in replies] == ["retry_scheduled", "completed", "not_found", "retry_scheduled"]
    assert [world.status(place) for place in (1, 2, 3, 4)] == [
        ("completed", 0),
        ("pending", 0),
        ("pending", 1),
        ("processing", 0),
    ]


def test_a5_lesson_25_a_partial_ack_keeps_the_lease_for_the_rest() -> None:
    world = leased(count=3)
    world.do(Ack(0, (AckEntry(1, "completed"), AckEntry(3, "completed"))))
    assert world.pop() == []
    world.do(Ack(0, (AckEntry(2, "failed"),)))
    assert world.pop(3) == [2]


@pytest.mark.parametrize(
    ("first", "second", "accepted"),
    [
        (AckEntry(1, "completed"), AckEntry(1, "completed"), True),
        (AckEntry(1, "failed"), AckEntry(1, "failed"), True),
        (AckEntry(1, "retry"), AckEntry(1, "retry"), True),
        (AckEntry(1, "completed"), AckEntry(1, "failed"), False),
        (AckEntry(1, "failed"), AckEntry(1, "completed"), False),
        (AckEntry(1, "completed"), AckEntry(1, "completed", lease=OTHER), False),
    ],
)
def test_a5_a_repeated_entry_is_judged_by_the_one_before(first: AckEntry, second: AckEntry, accepted: bool) -> None:
    world = leased()
    before, after = world.do(Ack(0, (first, second)))
    assert before.accepted
    assert after.accepted == accepted
    if accepted:
        assert after == before


def test_a5_a_refused_entry_does_not_spoil_the_next_one() -> None:
    world = leased()
    entries = (AckEntry(1, "completed", lease=OTHER), AckEntry(1, "completed"))
    assert [reply.status for reply in world.do(Ack(0, entries))] == ["conflict", "completed"]


# -- retries (R1, R6) --------------------------------------------------------------------------------------------


def test_r1_a_failure_is_kept_with_its_time_and_reason() -> None:
    world = leased()
    world.wait(1)
    (event,) = world.events(Ack(0, (AckEntry(1, "failed", "no luck"),)))
    assert isinstance(event, MessagesReturned)
    assert (event.because, event.error, event.failed_at) == ("failed", "no luck", world.now)
    message = world.state.groups[0].open[1]
    assert (message.error, message.failed_at, message.retry_count) == ("no luck", world.now, 1)


def test_r1_lesson_28_a_failed_message_keeps_its_place() -> None:
    world = leased(count=3)
    world.ack(2, "failed")
    world.ack(1)
    world.ack(3)
    world.push(count=1)
    assert world.pop(9) == [2, 4]


@pytest.mark.parametrize(
    ("delay_ms", "backoff", "waits"),
    [(0, 1, [0, 0, 0]), (500, 1, [0.5, 0.5, 0.5]), (500, 2, [0.5, 1, 2]), (100, 1.5, [0.1, 0.15, 0.225])],
)
def test_r1_the_wait_grows_by_the_backoff(delay_ms: int, backoff: float, waits: list[float]) -> None:
    world = PartitionHarness(QueueOptions(retry_delay=delay_ms, retry_backoff=backoff))
    world.push(count=1)
    for wait in waits:
        world.pop()
        world.ack(1, "failed")
        if wait:
            assert world.blocked() == ("retry", wait)
            world.wait(wait)
    assert world.pop() == [1]


def test_r1_an_absurd_backoff_still_gives_a_date() -> None:
    world = PartitionHarness(QueueOptions(retry_limit=2000, retry_delay=1000, retry_backoff=1000))
    world.push(count=1)
    for _ in range(200):
        world.pop()
        world.ack(1, "failed")
        world.wait(2**31 / 1000)
    assert world.status(1) == ("pending", 200)


def test_r1_strict_a_retry_blocks_what_is_behind_it_and_relaxed_does_not() -> None:
    for ordering, delivered in (("strict", []), ("relaxed", [2])):
        world = leased(QueueOptions(retry_delay=1000, ordering=ordering))
        world.push(count=1)
        world.ack(1, "failed")
        assert world.pop() == delivered


# -- giving up (R2, R6, Z3) --------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, 1, 3])
@pytest.mark.parametrize("dlq", [False, True])
@pytest.mark.parametrize("how", ["ack", "expiry"])
def test_r2_r6_lessons_19_and_20_after_the_limit_by_ack_or_by_expiry(limit: int, dlq: bool, how: str) -> None:
    world = PartitionHarness(QueueOptions(retry_limit=limit, dlq_after_max_retries=dlq))
    world.push(count=2)
    for attempt in range(limit + 1):
        assert world.pop() == [1], attempt
        if how == "ack":
            world.ack(1, "failed")
        else:
            world.wait(300)
    assert world.status(1) == ("dead_letter" if dlq else "failed", limit)
    assert world.pop() == [2], "it blocks no longer"


def test_t5_a_changed_retry_limit_applies_at_once() -> None:
    world = leased()
    world.configure(retry_limit=0)
    assert world.ack(1, "failed") == ("failed", 0)


def test_a4_a_message_that_was_given_up_at_expiry_is_settled() -> None:
    world = leased(QueueOptions(retry_limit=0))
    world.wait(300)
    assert world.status(1) == ("failed", 0)
    assert world.ack(1, lease=world.lease)[0] == "conflict"


def test_l6_an_extension_saves_a_message_from_its_expiry() -> None:
    world = leased(QueueOptions(retry_limit=0))
    world.wait(200)
    world.do(Extend(world.lease))
    world.wait(200)
    assert world.ack(1) == ("completed", 0)
