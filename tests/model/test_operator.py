"""Tables for what an operator does: R3, R4, R5, G2, G3, Z3, Z5, Z15, and lesson 13 (no event without a change)."""

import pytest

from queen.commands import Bury, Clear, Delete, Join, Pop, Retry, Seek
from queen.errors import Conflict, NotFound
from queen.options import QueueOptions
from tests.model.world import PartitionHarness

FINAL_AT_ONCE = QueueOptions(retry_limit=0)


def failed(options: QueueOptions = FINAL_AT_ONCE, count: int = 1) -> PartitionHarness:
    """The first of `count` messages has failed."""
    world = PartitionHarness(options)
    world.push(count=count)
    world.pop()
    world.ack(1, "failed", error="broken")
    return world


# -- retry (R3, Z3) ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dlq", [False, True])
def test_r3_a_final_message_is_pending_again_at_its_old_place(dlq: bool) -> None:
    world = failed(QueueOptions(retry_limit=0, dlq_after_max_retries=dlq), count=2)
    world.do(Retry(0, 1))
    assert world.status(1) == ("pending", 0)
    assert world.pop(2) == [1, 2]


def test_r3_the_retries_count_anew() -> None:
    world = PartitionHarness(QueueOptions(retry_limit=1))
    world.push(count=1)
    for _ in range(2):
        world.pop()
        world.ack(1, "failed")
    assert world.status(1) == ("failed", 1)
    world.do(Retry(0, 1))
    world.pop()
    assert world.ack(1, "failed") == ("retry_scheduled", 1)


def test_r3_a_message_that_waits_for_its_retry_is_available_now() -> None:
    world = failed(QueueOptions(retry_delay=60_000))
    assert world.pop() == []
    world.do(Retry(0, 1))
    assert world.status(1) == ("pending", 1), "its attempts are kept"
    assert world.events(Retry(0, 1)) == (), "nothing is left to change (lesson 13)"
    assert world.pop() == [1]


@pytest.mark.parametrize("state", ["pending", "processing", "completed", "expired", "released"])
def test_r3_z3_others_are_refused(state: str) -> None:
    world = PartitionHarness()
    world.push(count=1)
    if state != "pending":
        world.pop()
    if state == "completed":
        world.ack(1)
    if state == "expired":
        world.wait(300)
    if state == "released":
        world.ack(1, "retry")
    with pytest.raises(Conflict):
        world.do(Retry(0, 1))


@pytest.mark.parametrize("command", [Retry(0, 9), Bury(0, 9), Delete(9), Delete(0)])
def test_r3_r4_r5_unknown_messages(command: Retry | Bury | Delete) -> None:
    with pytest.raises(NotFound):
        failed().do(command)


@pytest.mark.parametrize("command", [Retry(5, 1), Bury(5, 1), Seek(5, 1)])
def test_z4_a_group_that_the_partition_has_not_met(command: Retry | Bury | Seek) -> None:
    with pytest.raises(Conflict):
        failed().do(command)


# -- bury (R4, Z3) -----------------------------------------------------------------------------------------------


def test_r4_a_failed_message_becomes_a_dead_letter_with_its_attempts() -> None:
    world = PartitionHarness(QueueOptions(retry_limit=1))
    world.push(count=1)
    for _ in range(2):
        world.pop()
        world.ack(1, "failed")
    world.do(Bury(0, 1))
    assert world.status(1) == ("dead_letter", 1)
    assert (world.state.groups[0].failed, world.state.groups[0].dead_letter) == (0, 1)


def test_r4_a_message_that_waits_for_its_retry_becomes_one_and_blocks_no_longer() -> None:
    world = failed(QueueOptions(retry_delay=60_000), count=2)
    world.do(Bury(0, 1))
    assert world.status(1) == ("dead_letter", 1)
    ended = world.history.settled(0, 1)
    assert ended is not None
    assert ended.error == "broken"
    assert world.pop() == [2]


def test_r4_an_ended_lease_is_a_failure_too() -> None:
    world = PartitionHarness()
    world.push(count=1)
    world.pop()
    world.wait(300)
    world.do(Bury(0, 1))
    assert world.status(1) == ("dead_letter", 1)


def test_z3_burying_a_dead_letter_changes_nothing() -> None:
    world = failed()
    world.do(Bury(0, 1))
    assert world.events(Bury(0, 1)) == ()


@pytest.mark.parametrize("state", ["pending", "processing", "completed", "revived"])
def test_r4_z3_others_cannot_be_buried(state: str) -> None:
    world = PartitionHarness(FINAL_AT_ONCE)
    world.push(count=1)
    if state != "pending":
        world.pop()
    if state == "completed":
        world.ack(1)
    if state == "revived":
        world.ack(1, "failed")
        world.do(Retry(0, 1))
    with pytest.raises(Conflict):
        world.do(Bury(0, 1))


# -- delete and clear (R5, Z5) -----------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["pending", "processing", "retrying", "completed", "failed", "dead_letter"])
def test_r5_a_message_in_whatever_status_is_gone_at_once(status: str) -> None:
    world = PartitionHarness(QueueOptions(retry_limit=int(status == "retrying"), retry_delay=1000))
    world.push("a")
    if status != "pending":
        world.pop()
    if status in ("retrying", "failed"):
        world.ack(1, "failed")
    elif status in ("completed", "dead_letter"):
        world.ack(1, status)  # type: ignore[arg-type]  # one of the literal's words
    world.do(Delete(1))
    view = world.state.groups[0]
    assert (view.pending, view.processing, view.completed, view.failed, view.dead_letter) == (0, 0, 0, 0, 0)
    assert world.ack(1)[0] == "not_found"
    with pytest.raises(NotFound):
        world.do(Delete(1))
    assert world.push("a") == [2], "Z5: its transactionId is free"
    assert world.pop() == [2]


def test_r5_deleted_messages_leave_no_hole_in_a_delivery() -> None:
    world = PartitionHarness()
    world.push(count=5)
    for position in (1, 3, 5):
        world.do(Delete(position))
    assert world.pop(5) == [2, 4]


def test_clear_deletes_everything_and_says_how_much() -> None:
    world = failed(count=4)
    world.do(Delete(3))
    world.pop()
    assert world.do(Clear()) == 3
    assert world.events(Clear()) == ()
    world.push(count=1)
    assert world.pop(9) == [5]


# -- groups and seeking (G2, G3, Z15) ----------------------------------------------------------------------------


def test_g2_a_group_begins_at_its_cursor_and_keeps_its_place() -> None:
    world = PartitionHarness()
    world.push(count=3)
    world.join(1, cursor=3)
    assert world.status(1, group=1) is None
    assert world.pop(9, group=1) == [3]
    assert world.events(Join(1, 1)) == ()


def test_g3_z15_seeking_back_delivers_again_completed_or_not() -> None:
    world = failed(count=3)
    world.pop(2)
    world.ack(2)
    world.do(Seek(0, 1))
    assert [world.status(place) for place in (1, 2, 3)] == [("pending", 0)] * 3
    assert world.pop(9) == [1, 2, 3]


def test_g3_the_leases_of_the_group_are_released_and_those_of_others_are_not() -> None:
    world = PartitionHarness()
    world.push(count=2)
    world.join(1)
    world.pop(group=1)
    world.pop()
    lease = world.lease
    world.do(Seek(0, 1))
    assert world.ack(1, lease=lease)[0] == "conflict"
    assert world.pop() == [1]
    assert world.status(1, group=1) == ("processing", 0)


def test_g3_seeking_to_the_end_is_done_with_everything_before_it() -> None:
    world = failed(QueueOptions(retry_delay=60_000), count=3)
    world.do(Seek(0, 4))
    assert [world.status(place) for place in (1, 2, 3)] == [("completed", 1), ("completed", 0), ("completed", 0)]
    world.push(count=1)
    assert world.pop(9) == [4]


def test_g3_a_seek_past_the_end_stops_there() -> None:
    world = PartitionHarness()
    world.push(count=1)
    assert world.do(Seek(0, 99)) == 2
    world.push(count=1)
    assert world.pop(9) == [2]


@pytest.mark.parametrize("target", [1, 2, 5, 8, 9, 11])
def test_g3_the_counts_are_those_before_the_cursor_wherever_it_goes(target: int) -> None:
    world = PartitionHarness(QueueOptions(retry_limit=0, ordering="relaxed"))
    world.push(count=10)
    world.pop(8)
    for position, status in ((1, "completed"), (2, "failed"), (4, "dead_letter"), (7, "completed"), (8, "failed")):
        world.ack(position, status)  # type: ignore[arg-type]  # one of the literal's words
    world.do(Delete(4))
    world.do(Seek(0, target))  # the harness counts again after every command
    expected = [place for place in range(target, 11) if place != 4]
    assert world.pop(20) == expected


def test_g3_lesson_13_a_seek_to_where_the_group_stands_writes_nothing() -> None:
    world = PartitionHarness()
    world.push(count=2)
    assert world.events(Seek(0, 1)) == ()
    world.do(Pop(0, 1, b"lease"))
    assert world.events(Seek(0, 2)) != (), "a lease was ended"
