"""Answering questions about messages: how they are for a group, and which have a status. Pure; decides no events."""

from bisect import bisect_left
from collections.abc import Iterator

from queen.actors.availability import head, oldest_waiting
from queen.actors.decision import Decision
from queen.actors.explaining import explain
from queen.actors.partition_state import GroupView, Open, Partition
from queen.commands import Census, Explain, Look, Status, Survey
from queen.history import History, Settled
from queen.options import QueueOptions
from queen.replies import Glance, Progress, Surveyed

# Messages that one question may pass over before it answers "so far", so that nobody waits long for it.
SURVEY_LIMIT = 1000


def look(state: Partition, command: Look, now: int, options: QueueOptions, history: History) -> Decision:
    """For each position how the message is; None where there is none, or none for this group."""
    view = state.groups.get(command.group)
    if view is None:
        return Decision((), (None,) * len(command.positions))
    return Decision((), tuple([_glance(state, view, command.group, place, history) for place in command.positions]))


def census(state: Partition, command: Census, now: int, options: QueueOptions, history: History) -> Decision:
    """The progress of each group that has met the partition, by its number."""
    return Decision((), {group: progress(state, view, options, history) for group, view in state.groups.items()})


def progress(state: Partition, view: GroupView, options: QueueOptions, history: History) -> Progress:
    """How far a group has got."""
    first = head(state, view, options, history) if view.pending > len(view.waiting) else None
    pushed = [oldest_waiting(view), None if first is None else first.pushed_at]
    return Progress(
        view.cursor,
        state.next_position,
        view.pending,
        view.processing,
        view.dead_letter,
        min((at for at in pushed if at is not None), default=None),
    )


def explanation(state: Partition, command: Explain, now: int, options: QueueOptions, history: History) -> Decision:
    """Why a pop of the group would get something now, or would not."""
    return Decision((), explain(state, command.group, command.partition, now, options, history, command.lost))


def survey(state: Partition, command: Survey, now: int, options: QueueOptions, history: History) -> Decision:
    """The newest messages of a status (S1: as the group sees them), newest first."""
    view = state.groups.get(command.group)
    if view is None:
        return Decision((), Surveyed((), 1))
    below = min(command.below, state.next_position)
    found: list[int] = []
    candidates = _candidates(state, view, command.group, command.status, below, history)
    for looked, (position, fits) in enumerate(candidates, 1):
        if fits:
            found.append(position)
        if len(found) >= command.count or looked >= SURVEY_LIMIT:
            return Decision((), Surveyed(tuple(found), position))
    return Decision((), Surveyed(tuple(found), 1))


def _candidates(
    state: Partition, view: GroupView, group: int, status: Status, below: int, history: History
) -> Iterator[tuple[int, bool]]:
    """Positions below `below`, descending, and whether they have the status."""
    if status == "pending" or status == "processing":
        if status == "pending":
            yield from ((position, True) for position in _stored_between(state, view.cursor, below))
            stop = bisect_left(view.places, below)
            yield from ((view.places[index], True) for index in range(stop - 1, -1, -1))
        else:
            places = [place for place, message in view.open.items() if place < below and message.lease is not None]
            yield from ((place, True) for place in sorted(places, reverse=True))
        return
    below = min(below, view.cursor)
    if status == "completed":
        places_before = _closed_before(state, view, below)
    else:
        places_before = history.given_up(group, status, below)
    for position in places_before:
        if position in view.open or position in state.deleted:
            yield position, False
        else:
            ended = history.settled(group, position)
            yield position, ended is not None and ended.outcome == status


def _stored_between(state: Partition, first: int, stop: int) -> Iterator[int]:
    """Stored positions from `stop` - 1 down to `first`."""
    position = state.deleted.last_before(stop)
    while position >= first:
        yield position
        position = state.deleted.last_before(position)


def _closed_before(state: Partition, view: GroupView, below: int) -> Iterator[int]:
    """Stored positions below `below`, descending; of open messages that stand side by side, only the first."""
    position = state.deleted.last_before(below)
    while position >= 1:
        message = view.open.get(position)
        if message is not None:
            position = _block_start(view, message, position)
        yield position
        position = state.deleted.last_before(position)


def _block_start(view: GroupView, message: Open, position: int) -> int:
    """The first of the positions that end with `position` without a gap, all of them of one lease or all waiting. May
    say `position` itself where there are more: an acknowledgement has left a gap in the lease."""
    if message.lease is not None:
        held = message.lease.positions
        first = min(held)
        return first if max(held) == position and position - first + 1 == len(held) else position
    index = bisect_left(view.places, position)
    # Up to here, places minus their indexes grow where there is a gap, and nowhere else.
    return view.places[bisect_left(range(index), position - index, key=lambda each: view.places[each] - each)]


def _glance(state: Partition, view: GroupView, group: int, position: int, history: History) -> Glance | None:
    if not 1 <= position < state.next_position or position in state.deleted:
        return None
    if position >= view.cursor:
        return Glance("pending")
    message = view.open.get(position)
    if message is not None:
        return _glance_open(message)
    ended = history.settled(group, position)
    return None if ended is None else _glance_settled(ended)


def _glance_open(message: Open) -> Glance:
    """One that failed before keeps its error and when that was (R1), also while it is tried again."""
    error, failed_at = message.error, message.failed_at
    lease = message.lease
    if lease is None:
        return Glance("pending", message.retry_count, error=error, failed_at=failed_at)
    return Glance("processing", message.retry_count, lease.worker, lease.leased_at, lease.expires_at, error, failed_at)


def _glance_settled(ended: Settled) -> Glance:
    """`failed_at` of one that was given up is when that was."""
    failed_at = None if ended.outcome == "completed" else ended.at
    return Glance(
        ended.outcome, ended.retry_count, ended.worker, ended.leased_at, None, ended.error, failed_at, ended.at
    )
