"""Tables for what time alone brings: T1, T4, T5, lesson 11, and ticks of bounded size."""

import pytest

from queen.actors.time_rules import TICK_LIMIT
from queen.commands import Clear, Pop, Release, Retry, Seek
from queen.events import MessagesDeleted, MessagesSettled
from queen.names import SECOND
from queen.options import QueueOptions
from queen.replies import Nothing
from tests.model.world import PartitionHarness

KEEP_10 = QueueOptions(retention_enabled=True, retention_seconds=10)
KEEP_DONE_10 = QueueOptions(retention_enabled=True, completed_retention_seconds=10)


# -- ttl (T1) ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dlq", "outcome"), [(False, "failed"), (True, "dead_letter")])
def test_t1_a_pending_message_is_given_up_at_its_ttl(dlq: bool, outcome: str) -> None:
    world = PartitionHarness(QueueOptions(ttl=10, dlq_after_max_retries=dlq))
    world.push(count=2)
    assert world.wait(9.999999) == []
    (event,) = world.wait(0.000001)
    assert isinstance(event, MessagesSettled)
    assert (event.outcome, event.error, event.asked) == (outcome, "expired", None)
    assert world.status(2) == (outcome, 0)
    assert world.pop() == []


def test_t1_a_leased_message_is_spared_until_it_comes_back() -> None:
    world = PartitionHarness(QueueOptions(ttl=10))
    world.push(count=2)
    world.pop(2)
    world.wait(20)
    world.ack(1)
    world.ack(2, "failed")
    world.tick()
    assert world.status(1) == ("completed", 0)
    assert world.status(2) == ("failed", 1), "returned after its ttl: its attempts are kept"


def test_t1_a_delayed_message_has_a_ttl_too() -> None:
    world = PartitionHarness(QueueOptions(ttl=10, delayed_processing=20))
    world.push(count=1)
    world.wait(10)
    assert world.status(1) == ("failed", 0)


@pytest.mark.parametrize("ordering", ["strict", "relaxed"])
@pytest.mark.parametrize("returned", [False, True])
def test_t1_a_pop_that_comes_before_the_tick_gets_nothing_past_its_ttl(ordering: str, returned: bool) -> None:
    """The shell bounds its ticks before a command, so that of a mass of late messages some may be there still."""
    world = PartitionHarness(QueueOptions(ttl=10, ordering=ordering))
    world.push(count=2)
    if returned:
        world.pop(2)
        world.do(Release(world.lease))
    world.now += 10 * SECOND
    decision = world.decide(Pop(0, 2, b"lease"))
    assert decision.events == ()
    assert isinstance(decision.reply, Nothing)


def test_t1_each_group_gives_up_for_itself() -> None:
    world = PartitionHarness(QueueOptions(ttl=10))
    world.push(count=1)
    world.join(1)
    world.pop()
    world.ack(1)
    world.wait(10)
    assert world.status(1) == ("completed", 0)
    assert world.status(1, group=1) == ("failed", 0)


def test_t5_a_ttl_set_later_applies_to_what_waits() -> None:
    world = PartitionHarness()
    world.push(count=1)
    world.wait(100)
    world.configure(ttl=50)
    assert world.status(1) == ("failed", 0)


def test_r3_a_message_given_up_by_ttl_can_be_revived_once_the_ttl_allows_it() -> None:
    world = PartitionHarness(QueueOptions(ttl=10))
    world.push(count=1)
    world.wait(10)
    world.configure(ttl=0)
    world.do(Retry(0, 1))
    assert world.pop() == [1]


# -- retention of pending messages (T4) --------------------------------------------------------------------------


def test_t4_pending_messages_are_deleted_at_their_age() -> None:
    world = PartitionHarness(KEEP_10)
    world.push(count=1)
    world.wait(1)
    world.push(count=1)
    assert world.wait(8.999999) == []
    world.wait(0.000001)
    assert world.status(1) is None
    assert world.pop() == [2]


def test_t4_lesson_11_retention_goes_around_a_pinned_message() -> None:
    world = PartitionHarness(KEEP_10)
    world.push(count=3)
    assert world.pop() == [1]
    (event,) = world.wait(10)
    assert isinstance(event, MessagesDeleted)
    assert [(run.first, run.length) for run in event.runs] == [(2, 2)]
    assert world.ack(1) == ("completed", 0)
    world.push(count=1)
    assert world.pop() == [4]


def test_t4_a_returned_message_past_its_age_goes_as_well() -> None:
    world = PartitionHarness(KEEP_10)
    world.push(count=1)
    world.pop()
    world.wait(20)
    world.ack(1, "retry")
    world.tick()
    assert world.status(1) is None


@pytest.mark.parametrize("options", [QueueOptions(retention_seconds=10), QueueOptions(retention_enabled=True)])
def test_t4_z8_retention_is_off_without_its_switch_or_at_0(options: QueueOptions) -> None:
    world = PartitionHarness(options)
    world.push(count=1)
    assert world.wait(1000) == []
    assert world.pop() == [1]


# -- retention of settled messages (T4) --------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["completed", "dead_letter"])
def test_t4_settled_messages_go_that_long_after_they_settled(status: str) -> None:
    world = PartitionHarness(KEEP_DONE_10)
    world.push(count=1)
    world.wait(100)
    world.pop()
    world.ack(1, status)  # type: ignore[arg-type]  # one of the literal's words
    assert world.wait(9.999999) == []
    world.wait(0.000001)
    assert world.status(1) is None
    assert world.state.groups[0].completed == world.state.groups[0].dead_letter == 0


@pytest.mark.parametrize("apart", [5, 50])
def test_t4_a_message_that_another_group_still_needs_stays(apart: int) -> None:
    world = PartitionHarness(KEEP_DONE_10)
    world.push(count=1)
    world.join(1)
    world.pop()
    world.ack(1)
    world.wait(apart)
    assert world.pop(group=1) == [1]
    world.ack(1, group=1)
    world.wait(9)
    assert world.status(1) == ("completed", 0), "ten seconds count from the last group's settlement"
    world.wait(1)
    assert world.status(1) is None


def test_t4_the_time_counts_from_the_latest_settlement() -> None:
    world = PartitionHarness(KEEP_DONE_10)
    world.push(count=1)
    world.pop()
    world.ack(1, "dead_letter")
    world.wait(8)
    world.do(Retry(0, 1))
    world.pop()
    world.ack(1)
    world.wait(9)
    assert world.status(1) == ("completed", 0)
    world.wait(1)
    assert world.status(1) is None


def test_t4_what_a_seek_made_pending_again_stays() -> None:
    world = PartitionHarness(KEEP_DONE_10)
    world.push(count=1)
    world.pop()
    world.ack(1)
    world.do(Seek(0, 1))
    world.wait(100)
    assert world.pop() == [1]


def test_t4_t5_a_retention_turned_on_late_applies_to_what_is_there() -> None:
    world = PartitionHarness()
    world.push(count=2)
    world.pop()
    world.ack(1)
    world.wait(100)
    world.configure(retention_enabled=True, completed_retention_seconds=10)
    assert (world.status(1), world.status(2)) == (None, ("pending", 0))


def test_t4_small_steps_a_mass_goes_in_ticks_of_bounded_size() -> None:
    world = PartitionHarness(KEEP_DONE_10)
    total = 2 * TICK_LIMIT + 500
    for _ in range(5):
        world.push(count=total // 5)
    world.do(Seek(0, total + 1))  # one record that settles all of them
    steps = [event for event in world.wait(10) if isinstance(event, MessagesDeleted)]
    sizes = [sum(run.length for run in event.runs) for event in steps]
    assert sum(sizes) == total
    assert max(sizes) <= TICK_LIMIT
    assert world.state.groups[0].completed == 0


def test_t4_a_cleared_partition_has_no_deadline_that_does_nothing() -> None:
    world = PartitionHarness(KEEP_DONE_10)
    world.push(count=1)
    world.pop()
    world.ack(1)
    world.do(Clear())
    world.wait(10)
    assert world.next_deadline() is None


def test_ticks_of_bounded_size_end_many_leases_and_ttls() -> None:
    world = PartitionHarness(QueueOptions(ordering="relaxed", ttl=400))
    for _ in range(3):
        world.push(count=700)
        world.pop(700)
    for event in world.wait(300):
        assert sum(run.length for run in getattr(event, "runs", ())) <= 2 * TICK_LIMIT
    assert world.state.groups[0].pending == 2100
    world.wait(100)
    assert world.state.groups[0].failed == 2100
