"""What must hold of events and states, whatever happened: the model's rules, looked at from outside. Pure.

The server's own rules decide so that these hold. Here they are looked at again, event by event, so that a journal that
was made by a bug, or by somebody who knows the format, is told from one that the server can have written.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Self

from queen.actors.partition_state import Partition
from queen.events import (
    AnyEvent,
    GroupJoined,
    GroupMoved,
    LeaseExtended,
    MessagesDeleted,
    MessagesLeased,
    MessagesPushed,
    MessagesReturned,
    MessagesRevived,
    MessagesSetAside,
    MessagesSettled,
    PartitionCreated,
    Run,
)
from queen.names import DEFAULT_GROUP
from queen.options import STRICT


@dataclass
class Before:
    """What the events of a record are judged by beside the state: when it was made, the queue's order, and how far each
    group had got. (A delivery in relaxed order sets messages aside first: the cursor moves past what it then takes.)"""

    at: int
    ordering: str
    cursors: dict[int, int]

    @classmethod
    def of(cls, state: Partition, at: int, ordering: str) -> Self:
        """How a partition is before the record."""
        return cls(at, ordering, {group: view.cursor for group, view in state.groups.items()})

    def take(self, event: AnyEvent) -> None:
        """An event of the record that puts a group somewhere."""
        if isinstance(event, GroupJoined | GroupMoved):
            self.cursors[event.group] = event.cursor


def misfit(state: Partition, event: AnyEvent, before: Before) -> str | None:
    """Why the event can't have happened to a partition in this state, or None."""
    if isinstance(event, PartitionCreated):
        return "the partition is created a second time" if state.groups else None
    if not state.groups:
        return "the partition was never created"
    group: int | None = getattr(event, "group", None)
    if group is not None and group not in state.groups and not isinstance(event, GroupJoined):
        return f"consumer group {group} has not met the partition"
    look = _LOOK.get(type(event))
    return None if look is None else look(state, event, before)


def unsound(state: Partition) -> Iterator[str]:
    """What is wrong with a state in itself."""
    stored = state.next_position - 1 - sum(stop - start for start, stop in state.deleted.ranges())
    for number, view in sorted(state.groups.items()):
        name = "the default group" if number == DEFAULT_GROUP else f"group {number}"
        if min(view.counts) < 0:
            yield f"{name} counts {view.counts}: less than none"
        if number == DEFAULT_GROUP and view.counts.total != stored:
            yield f"{name} counts {view.counts.total} messages where {stored} are stored"
        if not 1 <= view.cursor <= state.next_position:
            yield f"{name} stands at position {view.cursor} of {state.next_position - 1}"
        leased = [position for lease in view.leases.values() for position in lease.positions]
        if len(leased) != len(set(leased)):
            yield f"{name} has leased a message twice"
        if sorted(leased) != sorted(place for place, message in view.open.items() if message.lease is not None):
            yield f"{name} has leases that don't hold what is leased"
        if any(place >= view.cursor or place in state.deleted for place in view.open):
            yield f"{name} holds open messages that are deleted, or not reached yet"


def _pushed(state: Partition, event: MessagesPushed, before: Before) -> str | None:
    if event.first != state.next_position:
        return f"messages are pushed at position {event.first}, where {state.next_position} is next"
    if before.at < state.latest_at:
        return "messages are pushed before their predecessors (N4)"
    return None


def _leased(state: Partition, event: MessagesLeased, before: Before) -> str | None:
    view = state.groups[event.group]
    if before.ordering == STRICT and view.leases:
        return "a lease is given while another one runs, in strict order (L1)"
    if event.lease in view.leases or event.expires_at <= before.at:
        return "a lease is given twice, or ends before it begins"
    for position in _positions(event.runs):
        message = view.open.get(position)
        if message is not None and message.lease is not None:
            return f"position {position} is delivered while it is leased (O8)"
        if (fault := _not_pending(state, event.group, position, before)) is not None:
            return f"{fault}, and is delivered"
    return None


def _extended(state: Partition, event: LeaseExtended, before: Before) -> str | None:
    lease = state.groups[event.group].leases.get(event.lease)
    if lease is None:
        return "a lease is extended that does not run (L6)"
    return "a lease is made shorter (L6)" if event.expires_at < lease.expires_at else None


def _settled(state: Partition, event: MessagesSettled, before: Before) -> str | None:
    for position in _positions(event.runs):
        if (fault := _not_pending(state, event.group, position, before)) is not None:
            return f"{fault}, and is settled as {event.outcome}"
    return None


def _returned(state: Partition, event: MessagesReturned, before: Before) -> str | None:
    view = state.groups[event.group]
    for position in event.positions:
        if position not in view.open:
            return f"position {position} is given back, though nobody had it"
    return None


def _set_aside(state: Partition, event: MessagesSetAside, before: Before) -> str | None:
    view = state.groups[event.group]
    for position in _positions(event.runs):
        if position < view.cursor or position >= state.next_position or position in state.deleted:
            return f"position {position} is set aside, though it is not pending"
    return None


def _revived(state: Partition, event: MessagesRevived, before: Before) -> str | None:
    view = state.groups[event.group]
    for position in _positions(event.runs):
        if position >= view.cursor or position in view.open or position in state.deleted:
            return f"position {position} is revived, though it was not settled (R3)"
    return None


def _deleted(state: Partition, event: MessagesDeleted, before: Before) -> str | None:
    for position in _positions(event.runs):
        if position >= state.next_position or position in state.deleted:
            return f"position {position} is deleted, though it does not exist"
    return None


def _not_pending(state: Partition, group: int, position: int, before: Before) -> str | None:
    """Why a message is neither pending nor leased."""
    view = state.groups[group]
    if position >= state.next_position or position in state.deleted:
        return f"position {position} does not exist"
    if position < before.cursors.get(group, view.cursor) and position not in view.open:
        return f"position {position} was settled before"
    return None


def _positions(runs: tuple[Run, ...]) -> Iterator[int]:
    for first, length, _ in runs:
        yield from range(first, first + length)


_LOOK: Final[dict[type, Callable[[Partition, Any, Before], str | None]]] = {
    MessagesPushed: _pushed,
    MessagesLeased: _leased,
    LeaseExtended: _extended,
    MessagesSettled: _settled,
    MessagesReturned: _returned,
    MessagesSetAside: _set_aside,
    MessagesRevived: _revived,
    MessagesDeleted: _deleted,
}
