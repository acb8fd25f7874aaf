"""Tables for pushes, pops and leases as far as a partition decides: P4, L1-L8, O3, O7, O8, T2, T3, T5, Z5, Z9, Z10."""

import pytest
from msgspec.structs import replace

from queen.actors import availability, delivery_rules
from queen.actors.partition_state import Partition
from queen.commands import Delete, Extend, Pop, PushItem, Release
from queen.errors import NotFound
from queen.events import MessagesLeased, MessagesReturned, MessagesSetAside, MessagesSettled
from queen.names import SECOND
from queen.options import QueueOptions
from queen.replies import Grant
from tests.model.world import PartitionHarness

RELAXED = QueueOptions(ordering="relaxed")


def delayed(seconds: int) -> PushItem:
    """A message with a delay of its own."""
    return PushItem(b"1", delay_s=seconds)


def test_p4_a_transaction_id_is_stored_once_also_within_one_push() -> None:
    world = PartitionHarness()
    assert world.push("a", "a", "b") == [1, None, 2]
    assert world.push("b", "c") == [None, 3]


def test_z5_the_transaction_id_of_a_deleted_message_is_free_again() -> None:
    world = PartitionHarness()
    world.push("a")
    world.wait(1)
    world.do(Delete(1))
    assert world.push("a") == [2]


# -- strict and relaxed order (L1, L2) -----------------------------------------------------------------------


def test_l1_while_messages_are_leased_nobody_else_of_the_group_gets_any() -> None:
    world = PartitionHarness()
    world.push(count=3)
    assert world.pop(2) == [1, 2]
    assert world.pop() == []
    world.ack(1)
    assert world.pop() == []
    world.ack(2)
    assert world.pop() == [3]


def test_l1_another_group_has_its_own_order_and_leases_g1() -> None:
    world = PartitionHarness()
    world.push(count=2)
    world.join(1)
    assert world.pop(2) == [1, 2]
    assert world.pop(1, group=1) == [1]


@pytest.mark.parametrize("ending", ["ack", "expiry", "release", "deletion"])
def test_l1_each_end_of_a_lease_opens_the_partition(ending: str) -> None:
    world = PartitionHarness()
    world.push(count=2)
    world.pop()
    if ending == "ack":
        world.ack(1)
    elif ending == "expiry":
        world.wait(300)
    elif ending == "release":
        world.do(Release(world.lease))
    else:
        world.do(Delete(1))
    assert world.pop() == ([1] if ending in ("expiry", "release") else [2])


def test_l2_relaxed_order_leases_message_by_message() -> None:
    world = PartitionHarness(RELAXED)
    world.push(count=5)
    assert world.pop(2) == [1, 2]
    assert world.pop(2) == [3, 4]
    world.ack(3, "retry")
    assert world.pop(2) == [3, 5], "delivery is in order"


def test_t5_strict_order_waits_for_leases_given_in_relaxed_order() -> None:
    world = PartitionHarness(RELAXED)
    world.push(count=3)
    world.pop()
    world.pop()
    world.configure(ordering="strict")
    assert world.pop() == []
    world.ack(1)
    assert world.pop() == []
    world.ack(2)
    assert world.pop() == [3]


# -- leases (L4-L7) ------------------------------------------------------------------------------------------


def test_l4_a_pop_says_which_lease_and_until_when() -> None:
    world = PartitionHarness()
    world.push(count=2)
    grant = world.do(Pop(0, 2, b"lease", worker="w"))
    assert isinstance(grant, Grant)
    assert (grant.lease, grant.leased_at, grant.expires_at) == (b"lease", world.now, world.now + 300 * SECOND)
    assert world.state.groups[0].leases[b"lease"].worker == "w"


def test_l5_an_ended_lease_gives_its_messages_back_in_front_and_counts() -> None:
    world = PartitionHarness()
    world.push(count=3)
    assert world.pop(2) == [1, 2]
    assert world.wait(299.999999) == []
    (event,) = world.wait(0.000001)
    assert isinstance(event, MessagesReturned)
    assert (event.because, event.positions, event.retry_counts, event.error) == (
        "expired",
        (1, 2),
        (1, 1),
        "lease expired",
    )
    assert world.pop(3) == [1, 2, 3]


def test_l5_lesson_22_expiry_touches_that_lease_only() -> None:
    world = PartitionHarness(RELAXED)
    world.push(count=2)
    world.pop()
    world.wait(100)
    world.pop()
    world.wait(200)
    assert world.status(1) == ("pending", 1)
    assert world.status(2) == ("processing", 0)


def test_l5_z3_no_retry_delay_after_expiry() -> None:
    world = PartitionHarness(QueueOptions(retry_delay=5000))
    world.push(count=1)
    world.pop()
    world.wait(300)
    assert world.pop() == [1]


def test_l6_an_extension_counts_from_now_and_is_never_earlier() -> None:
    world = PartitionHarness()
    world.push(count=1)
    world.pop()
    end = world.now + 300 * SECOND
    assert world.events(Extend(world.lease, 10)) == ()
    assert world.reply == end
    world.wait(299)
    assert world.do(Extend(world.lease, 10)) == world.now + 10 * SECOND
    assert world.do(Extend(world.lease)) == world.now + 300 * SECOND
    world.wait(299)
    assert world.status(1) == ("processing", 0)


@pytest.mark.parametrize("end", [300, 301])
def test_l6_an_ended_lease_is_not_extended(end: int) -> None:
    world = PartitionHarness()
    world.push(count=1)
    world.pop()
    world.wait(end)
    with pytest.raises(NotFound):
        world.do(Extend(world.lease, 10))
    with pytest.raises(NotFound):
        world.do(Extend(b"unknown"))


def test_l6_z8_a_changed_lease_time_moves_no_running_lease() -> None:
    world = PartitionHarness()
    world.push(count=1)
    world.pop()
    world.configure(lease_time=1)
    world.wait(299)
    assert world.status(1) == ("processing", 0)


def test_l7_leases_survive_a_replay_with_their_deadlines() -> None:
    world = PartitionHarness()
    world.push(count=1)
    world.pop()
    world.wait(100)
    replayed: Partition = world.replayed()
    assert replayed == world.state
    assert replayed.groups[0].leases[world.lease].expires_at == world.now + 200 * SECOND


def test_l8_a_release_is_uncounted_and_keeps_the_place() -> None:
    world = PartitionHarness()
    world.push(count=3)
    assert world.pop(2) == [1, 2]
    world.ack(1)
    world.do(Release(world.lease))
    assert world.status(2) == ("pending", 0)
    assert world.pop(2) == [2, 3]


def test_l8_releasing_an_ended_lease_changes_nothing() -> None:
    world = PartitionHarness()
    world.push(count=1)
    world.pop()
    world.ack(1)
    assert world.events(Release(world.lease)) == ()


def test_lesson_25_a_lease_ends_with_its_last_message_at_once() -> None:
    world = PartitionHarness()
    world.push(count=3)
    world.pop(2)
    world.ack(2)
    world.ack(1)
    assert not world.state.groups[0].leases
    assert world.next_deadline() is None
    assert world.pop() == [3]


# -- pops (O3, O7, O8) -----------------------------------------------------------------------------------------


def test_o7_auto_ack_completes_at_delivery_without_a_lease() -> None:
    world = PartitionHarness()
    world.push(count=3)
    (event,) = world.events(Pop(0, 2, b"lease", auto_ack=True))
    assert isinstance(event, MessagesSettled)
    assert (event.outcome, event.asked, event.lease) == ("completed", "completed", b"lease")
    assert world.status(2) == ("completed", 0)
    assert world.pop() == [3]


def test_o8_a_delivered_message_is_in_the_events_that_come_before_the_answer() -> None:
    world = PartitionHarness()
    world.push(count=2)
    (event,) = world.events(Pop(0, 2, b"lease"))
    assert isinstance(event, MessagesLeased)
    assert [(run.first, run.length) for run in event.runs] == [(1, 2)]


def test_w5_a_pop_that_finds_nothing_writes_nothing() -> None:
    world = PartitionHarness()
    assert world.events(Pop(0, 1, b"lease")) == ()
    world.push(count=1)
    world.pop()
    assert world.events(Pop(0, 1, b"lease 2")) == ()


def test_o3_an_offer_is_ranked_by_the_age_of_its_first_message() -> None:
    world = PartitionHarness()
    pushed_at = world.now
    world.push(count=1)
    world.wait(5)
    world.push(count=1)
    world.pop()
    assert world.offer() is None
    world.wait(300)
    offered = world.offer()
    assert offered is not None
    assert offered.head_at == pushed_at


# -- delays (T2, Z9) -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queue_delay", "own", "ready_after"),
    [(0, None, 0), (10, None, 10), (10, 3, 3), (10, 0, 0), (0, 7, 7), (3, 10, 10)],
)
def test_t2_a_delay_of_its_own_wins(queue_delay: int, own: int | None, ready_after: int) -> None:
    world = PartitionHarness(QueueOptions(delayed_processing=queue_delay))
    world.push(PushItem(b"1", delay_s=own))
    if ready_after:
        world.wait(ready_after - 0.000001)
        assert world.pop() == []
        world.wait(0.000001)
    assert world.pop() == [1]


def test_t5_a_changed_delay_applies_to_what_waits() -> None:
    world = PartitionHarness(QueueOptions(delayed_processing=10))
    world.push(count=1)
    assert world.blocked() == ("delayed", 10)
    world.configure(delayed_processing=2)
    assert world.blocked() == ("delayed", 2)


def test_z9_strict_a_delayed_head_blocks_what_is_behind_it() -> None:
    world = PartitionHarness()
    world.push(delayed(5))
    world.push(count=1)
    assert world.blocked() == ("delayed", 5)
    world.wait(5)
    assert world.pop(2) == [1, 2]


def test_l2_t2_relaxed_order_goes_past_delayed_messages_and_comes_back_to_each_in_time() -> None:
    world = PartitionHarness(RELAXED)
    world.push(delayed(5), delayed(2), delayed(0))
    aside, leased = world.events(Pop(0, 1, b"lease"))
    assert isinstance(aside, MessagesSetAside)
    assert isinstance(leased, MessagesLeased)
    assert leased.runs[0].first == 3
    assert world.blocked() == ("delayed", 2)
    world.wait(2)
    assert world.pop(3) == [2]
    world.wait(3)
    assert world.pop(3) == [1]


def test_t2_relaxed_a_message_with_no_delay_is_ready_behind_ones_with_the_queues_delay() -> None:
    world = PartitionHarness(replace(RELAXED, delayed_processing=60))
    world.push(count=2)
    world.push(delayed(0))
    assert world.pop() == [3]
    assert world.blocked() == ("delayed", 60)


@pytest.mark.parametrize("waiting", [0, 1, 2, 3])
def test_relaxed_order_looks_only_so_far_and_an_offer_promises_no_more(
    waiting: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is set aside costs memory; the bound holds for what waits already and for what is looked past."""
    monkeypatch.setattr(availability, "LOOK_AHEAD", 2)
    monkeypatch.setattr(delivery_rules, "LOOK_AHEAD", 2)
    world = PartitionHarness(replace(RELAXED, retry_delay=900_000))
    world.push(count=waiting)
    for position in range(1, waiting + 1):
        world.pop()
        world.ack(position, "failed")
    world.push(delayed(60), delayed(60), delayed(0))
    reachable = waiting == 0
    offered = world.offer()
    assert offered is not None
    assert (offered.ready_at <= world.now) == reachable
    assert world.pop() == ([3] if reachable else [])


def test_relaxed_delayed_messages_alone_are_not_set_aside() -> None:
    world = PartitionHarness(RELAXED)
    world.push(delayed(5), delayed(2))
    assert world.events(Pop(0, 1, b"lease")) == ()


def test_lesson_17_a_delay_is_no_lease_and_counts_nothing() -> None:
    world = PartitionHarness()
    world.push(delayed(1000))
    world.wait(1000)
    assert world.status(1) == ("pending", 0)
    assert world.pop() == [1]


# -- windows (T3) ----------------------------------------------------------------------------------------------


def test_t3_a_window_waits_for_silence() -> None:
    world = PartitionHarness(QueueOptions(window_buffer=2))
    world.push(count=1)
    world.wait(1)
    world.push(count=1)
    assert world.blocked() == ("buffered", 2)
    world.wait(2)
    assert world.pop(5) == [1, 2]


def test_t3_lesson_36_a_partition_that_never_falls_silent_is_delivered_after_ten_windows() -> None:
    world = PartitionHarness(QueueOptions(window_buffer=2))
    for _ in range(20):
        world.push(count=1)
        assert world.pop() == []
        world.wait(1)
    world.push(count=1)
    assert world.pop() == [1]


def test_z10_the_delay_is_named_where_it_outlasts_the_window() -> None:
    world = PartitionHarness(QueueOptions(window_buffer=2, delayed_processing=9))
    world.push(count=1)
    assert world.blocked() == ("delayed", 9)


# -- causes (L3, Z10) ------------------------------------------------------------------------------------------


def test_l3_the_causes_and_when_they_end() -> None:
    world = PartitionHarness(QueueOptions(lease_time=30, retry_delay=4000))
    assert world.blocked() == (None, None)
    world.push(count=2)
    world.pop()
    assert world.blocked() == ("leased", 30)
    world.ack(1, "failed")
    assert world.blocked() == ("retry", 4)
    world.wait(4)
    assert world.pop(2) == [1, 2]
    assert world.blocked() == (None, None), "nothing is pending"


def test_z10_of_several_leases_the_one_that_ends_first() -> None:
    world = PartitionHarness(RELAXED)
    world.push(count=3)
    world.pop()
    world.wait(10)
    world.pop()
    world.configure(ordering="strict")
    assert world.blocked() == ("leased", 290)
