"""What every rule returns, and the small steps that several rules share. Pure."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from queen.actors.partition_state import GroupView, Partition
from queen.errors import Conflict, NotFound
from queen.events import Event, Run


class Decision(NamedTuple):
    """Events to record (none: nothing changes), the reply, and the payloads that the record carries."""

    events: tuple[Event, ...] = ()
    reply: Any = None
    payloads: tuple[bytes, ...] = ()


def runs_of(messages: Iterable[tuple[int, int]]) -> tuple[Run, ...]:
    """Runs for (position, pushed_at) pairs in ascending order."""
    runs: list[Run] = []
    first = stop = stamp = 0
    for position, pushed_at in messages:
        if position != stop or pushed_at != stamp:
            if stop > first:
                runs.append(Run(first, stop - first, stamp))
            first, stamp = position, pushed_at
        stop = position + 1
    if stop > first:
        runs.append(Run(first, stop - first, stamp))
    return tuple(runs)


def stored(state: Partition, position: int) -> int:
    """`position` if a message is stored there; raises `NotFound` otherwise."""
    if not 1 <= position < state.next_position or position in state.deleted:
        raise NotFound("there is no such message")
    return position


def joined(state: Partition, group: int) -> GroupView:
    """The group's view; raises `Conflict` where the group has not met this partition (Z4)."""
    view = state.groups.get(group)
    if view is None:
        raise Conflict("the consumer group has not been given any message of this partition")
    return view
