"""What subscribers of the feed were told, against the journal: in commit order, all of it, nothing too early (W1).

A subscriber hears from the first record on that is handed in after it came.
"""

from typing import Any, NamedTuple

from queen.events import MessagesLeased, MessagesPushed, MessagesReturned, MessagesSettled, QueueCreated
from queen.notices import (
    MessageCompleted,
    MessageFailed,
    MessageProcessing,
    MessagePushed,
    Notice,
    NoticesDropped,
    QueueAdded,
)
from tests.sim.history import History, Stamp
from tests.sim.ledger import Part
from tests.sim.violation import demand


class Told(NamedTuple):
    """What there is to be told of a record: kind of notice, subject, consumer group."""

    seq: int
    kind: str
    subject: str
    group: str | None


def told_of(seq: int, part: Part | None, event: Any) -> list[Told]:
    """What subscribers are to hear of an event, before the audit has carried it out."""
    if isinstance(event, QueueCreated):
        return [Told(seq, "QueueAdded", event.name, None)]
    if part is None:
        return []
    if isinstance(event, MessagesPushed):
        entries = part.entries[event.first - 1 : event.first - 1 + len(event.sizes)]
        return [Told(seq, "MessagePushed", entry.name, None) for entry in entries]
    if isinstance(event, MessagesReturned):
        positions = event.positions if event.because in ("failed", "expired") else ()
        kind = "MessageFailed"
    elif isinstance(event, MessagesLeased | MessagesSettled):
        positions = tuple(position for run in event.runs for position in range(run.first, run.first + run.length))
        ended = "MessageCompleted" if getattr(event, "outcome", "") == "completed" else "MessageFailed"
        kind = "MessageProcessing" if isinstance(event, MessagesLeased) else ended
    else:
        return []
    crowd = part.store.groups[event.group]
    return [Told(seq, kind, part.entries[position - 1].name, crowd.name) for position in positions]


def follows(history: History, told: list[Told]) -> None:
    """Raise where a subscriber has heard something else than `told`, or something too early."""
    for start, heard in history.heard:
        # What was handed in when it came may be lost with its engine; then later records have those numbers.
        heads = [e.head for e in history.epochs if e.began.process == start.process and e.number > start.epoch]
        first = min([start.seq, *heads])
        expected = [each for each in told if each.seq > first]
        place = 0
        for stamp, notice in heard:
            demand(not isinstance(notice, NoticesDropped), "W2", f"notices were dropped at {stamp.time}")
            found = _found(notice)
            if found is None:
                continue
            demand(place < len(expected), "W1", f"{found} was told at {stamp.time}, and never happened")
            due = expected[place]
            demand(due[1:] == found, "W1", f"{found} was told at {stamp.time}, and not {due}")
            demand(due.seq <= stamp.synced, "law 3", f"{found} of record {due.seq} was told before its commit")
            place += 1
        _complete(history.all_told, start, expected[place:])


def _complete(end: Stamp | None, start: Stamp, left: list[Told]) -> None:
    """In the end, the last subscriber has heard everything."""
    if end is not None and end.process == start.process:
        missing = [each for each in left if each.seq <= end.synced]
        demand(not missing, "W1", f"nobody was told {missing[:1]}")


def _found(notice: Notice) -> tuple[str, str, str | None] | None:
    kind = type(notice).__name__
    if isinstance(notice, QueueAdded):
        return kind, notice.queue, None
    if isinstance(notice, MessagePushed | MessageProcessing | MessageCompleted | MessageFailed):
        return kind, notice.transaction_id, notice.group
    return None
