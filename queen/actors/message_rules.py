"""Deciding what an operator does to messages: retry, bury, delete, clear, seek. Pure.

R3, R4, R5, G3 and the readings Z3, Z5, Z15. A refusal concerns the whole command, so it is raised.
"""

from queen.actors.availability import sections
from queen.actors.decision import Decision, joined, runs_of, stored
from queen.actors.partition_state import Partition
from queen.actors.time_rules import count_settled
from queen.commands import Bury, Clear, Delete, Retry, Seek
from queen.errors import Conflict
from queen.events import (
    Event,
    GroupMoved,
    MessagesDeleted,
    MessagesReturned,
    MessagesRevived,
    MessagesSettled,
    Run,
    SettledCount,
)
from queen.history import History, Settled
from queen.options import QueueOptions

# What a seek past a pending message records as its error: it is done with, though nobody processed it.
SKIPPED = "skipped by a seek"


def retry(state: Partition, command: Retry, now: int, options: QueueOptions, history: History) -> Decision:
    """R3: pending at its old place with no retries counted; one that waits for its retry is available now."""
    view = joined(state, command.group)
    position = stored(state, command.position)
    message = view.open.get(position)
    if message is not None:
        if message.lease is not None:
            raise Conflict("the message is being processed")
        if message.because != "failed":
            raise Conflict("the message is pending already")
        if message.available_at <= now:
            return Decision()
        return Decision((MessagesReturned(command.group, "failed", (position,), (message.retry_count,), now),))
    ended = _ended(state, command.group, position, history)
    if ended.outcome == "completed":
        raise Conflict("the message is completed")
    return Decision((_revival(command.group, position, ended, history),))


def bury(state: Partition, command: Bury, now: int, options: QueueOptions, history: History) -> Decision:
    """R4: a message that has failed at least once becomes a dead letter; a dead letter stays one (Z3)."""
    view = joined(state, command.group)
    position = stored(state, command.position)
    message = view.open.get(position)
    if message is not None:
        if message.lease is not None:
            raise Conflict("the message is being processed")
        if message.failed_at is None:
            raise Conflict("the message has not failed")
        return Decision(
            (_dead(command, position, message.pushed_at, message.retry_count, message.error, message.last_lease),)
        )
    ended = _ended(state, command.group, position, history)
    if ended.outcome == "dead_letter":
        return Decision()
    if ended.outcome == "completed":
        raise Conflict("the message is completed")
    revival = _revival(command.group, position, ended, history)
    burial = _dead(command, position, revival.runs[0].pushed_at, ended.retry_count, ended.error, ended.lease)
    return Decision((revival, burial))


def delete(state: Partition, command: Delete, now: int, options: QueueOptions, history: History) -> Decision:
    """R5: gone in whatever status, for every group."""
    position = stored(state, command.position)
    run = Run(position, 1, _pushed_at(position, history))
    return Decision((MessagesDeleted((run,), count_settled(state, [position], history)),))


def clear(state: Partition, command: Clear, now: int, options: QueueOptions, history: History) -> Decision:
    """Every message goes; the reply is how many there were."""
    runs = tuple(Run(start, stop - start, 0) for start, stop in state.deleted.gaps(1, state.next_position))
    if not runs:
        return Decision((), 0)
    settled = tuple(
        SettledCount(group, view.completed, view.failed, view.dead_letter)
        for group, view in state.groups.items()
        if view.completed or view.failed or view.dead_letter
    )
    return Decision((MessagesDeleted(runs, settled),), sum(run.length for run in runs))


def seek(state: Partition, command: Seek, now: int, options: QueueOptions, history: History) -> Decision:
    """G3, Z15: messages before the place are done with, those from it on are delivered, again if need be."""
    view = joined(state, command.group)
    target = max(1, min(command.position, state.next_position))
    if target == view.cursor and not view.open:
        return Decision((), target)
    passed = sorted((place, message) for place, message in view.open.items() if place < target)
    retry_counts = {place: message.retry_count for place, message in passed if message.retry_count}
    skipped = [*runs_of((place, message.pushed_at) for place, message in passed)]
    for start, stop, run in sections(state, view, history):
        if start >= target:
            break
        skipped.append(Run(start, min(stop, target) - start, run.pushed_at))
    count = sum(run.length for run in skipped)
    completed, failed, dead_letter = _settled_before(state, command.group, target, history)
    events: list[Event] = []
    if skipped:
        runs = tuple(skipped)
        events.append(MessagesSettled(command.group, "completed", runs, error=SKIPPED, retry_counts=retry_counts))
    events.append(GroupMoved(command.group, target, completed + count, failed, dead_letter))
    return Decision(tuple(events), target)


def _settled_before(state: Partition, group: int, target: int, history: History) -> tuple[int, int, int]:
    """How many messages before `target` the group has settled, by outcome; looks at the smaller side of it."""
    view = state.groups[group]
    before = target <= view.cursor // 2
    start, stop = (1, target) if before else (target, view.cursor)
    counts = {"completed": 0, "failed": 0, "dead_letter": 0}
    for first, end in state.deleted.gaps(start, stop):
        for place in range(first, end):
            if place not in view.open and (ended := history.settled(group, place)) is not None:
                counts[ended.outcome] += 1
    found = counts["completed"], counts["failed"], counts["dead_letter"]
    if before:
        return found
    return view.completed - found[0], view.failed - found[1], view.dead_letter - found[2]


def _ended(state: Partition, group: int, position: int, history: History) -> Settled:
    if position >= state.groups[group].cursor:
        raise Conflict("the message is pending and has not failed")
    ended = history.settled(group, position)
    if ended is None:
        raise Conflict("the message was never given to this consumer group")
    return ended


def _revival(group: int, position: int, ended: Settled, history: History) -> MessagesRevived:
    run = Run(position, 1, _pushed_at(position, history))
    return MessagesRevived(group, (run,), int(ended.outcome == "failed"), int(ended.outcome == "dead_letter"))


def _dead(
    command: Bury, position: int, pushed_at: int, retry_count: int, error: str | None, lease: bytes | None
) -> MessagesSettled:
    counts = {position: retry_count} if retry_count else {}
    run = Run(position, 1, pushed_at)
    return MessagesSettled(command.group, "dead_letter", (run,), None, lease, error=error, retry_counts=counts)


def _pushed_at(position: int, history: History) -> int:
    return next(history.runs(position)).pushed_at
