"""What a command costs does not grow with the leases that run in a partition, nor with the messages that wait in it."""

from typing import Any, NoReturn

from queen.actors.partition_rules import decide
from queen.actors.partition_state import ended_leases, leases_touched
from queen.commands import Ack, AckEntry, Extend, PartitionCommand, Pop, Survey, Tick
from queen.names import SECOND
from queen.options import QueueOptions
from tests.model.world import PartitionHarness


class Unwalked(dict[Any, Any]):
    """A dict that may be asked for single keys alone."""

    def _refuse(self, *_: Any) -> NoReturn:
        raise AssertionError("all leases or messages were walked through")

    __iter__ = keys = values = items = _refuse


class Counted(list[Any]):
    """A list that counts how often it is looked into."""

    looks = 0

    def __getitem__(self, index: Any) -> Any:
        Counted.looks += 1
        return super().__getitem__(index)


def test_no_command_walks_through_the_leases_of_a_partition() -> None:
    """L2, L5, L6: a pop, an extension, acknowledgements, and what is offered after each."""
    world = PartitionHarness(QueueOptions(ordering="relaxed", ttl=10_000))
    world.push(count=300)
    lease = b""
    for number in range(200):
        lease = number.to_bytes(16)
        run(world, Pop(0, 1, lease))
    view = world.state.groups[0]
    view.leases, view.open = Unwalked(view.leases), Unwalked(view.open)
    run(world, Pop(0, 1, b"next"))
    run(world, Extend(lease, 900))
    run(world, Ack(0, (AckEntry(7, "completed"), AckEntry(8, "failed"))))
    assert world.offer() is not None
    assert world.next_deadline() == view.next_expiry
    grant = run(world, Pop(0, 2, b"last"))
    assert [message.position for message in grant.taken] == [8, 202]


def run(world: PartitionHarness, command: PartitionCommand) -> Any:
    """Without the harness's own checks, which look at everything."""
    decision = decide(world.state, command, world.now, world.options, world.history)
    for event in decision.events:
        leases_touched(world.state, event)
    world._commit(decision.events)
    return decision.reply


def test_leases_that_have_ended_are_found_without_the_others() -> None:
    world = PartitionHarness(QueueOptions(ordering="relaxed", lease_time=100))
    world.push(count=1000)
    for number in range(1000):
        run(world, Pop(0, 1, number.to_bytes(16)))
        if number == 4:
            world.now += SECOND
    view = world.state.groups[0]
    view.expiries = Counted(view.expiries)
    Counted.looks = 0
    assert len(list(ended_leases(view, world.now + 99 * SECOND))) == 5
    assert Counted.looks < 20


def test_completed_messages_below_a_large_leased_block_are_found_at_once() -> None:
    """S5: by one question, whether the block is leased, waits again, or a part of it is done."""
    world = PartitionHarness(QueueOptions(ordering="relaxed", lease_time=100))
    world.push(count=8000)
    run(world, Pop(0, 100, b"done", auto_ack=True))
    for number in range(7):
        run(world, Pop(0, 1000, number.to_bytes(16)))
    wanted = tuple(range(100, 92, -1))
    assert run(world, Survey(0, "completed", 2**62, 8)).positions == wanted
    run(world, Ack(0, tuple(AckEntry(place, "completed") for place in (7100, 5000))))
    assert run(world, Survey(0, "completed", 2**62, 1)).positions == (7100,)
    assert run(world, Survey(0, "completed", 7100, 1)).positions == (5000,)
    while world.next_deadline() is not None:
        world.now = max(world.now, world.next_deadline() or 0)
        run(world, Tick())
    assert len(world.state.groups[0].waiting) == 6998
    assert run(world, Survey(0, "completed", 7100, 10)).positions == (5000, *wanted, 92)
    assert run(world, Survey(0, "pending", 7000, 2)).positions == (6999, 6998)
