"""What was done to a partition, taken from its records: the commands behind the events, and what consumers did. Pure.

A consumer's part is told by delivery: how long after it each acknowledgement came, and what it said. So it can be
played again for a delivery that comes at another time.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from queen.actors.partition_state import Partition
from queen.audit.happenings import BY_TIME, returned_because, settled_because
from queen.commands import AckStatus, Bury, Clear, Delete, PartitionCommand, Retry, Seek
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
    MessagesSettled,
    Run,
)
from queen.names import SECOND
from queen.options import QueueOptions
from queen.store.format import Record


class Act(NamedTuple):
    """What a consumer did about a message `delay` µs after it had been delivered, in record `seq`. `order` is the
    message's place there. `seconds` is an extension's length, None: the queue's leaseTime."""

    kind: Literal["ack", "extend", "release"]
    delay: int
    seq: int
    order: int
    status: AckStatus = "completed"
    error: str | None = None
    seconds: int | None = None


@dataclass(slots=True)
class Attempt:
    """One delivery of one message: when, and what its consumer did then."""

    at: int
    acts: list[Act] = field(default_factory=list)


class Visit(NamedTuple):
    """A consumer comes and takes up to `batch` messages."""

    group: int
    batch: int
    lease: bytes
    worker: str | None = None
    auto_ack: bool = False


class Ticked(NamedTuple):
    """The server looked at what time had brought."""


class Configured(NamedTuple):
    """The queue's options are these from now on."""

    options: QueueOptions


class Forgotten(NamedTuple):
    """The group was deleted."""

    group: int


class Closed(NamedTuple):
    """The queue was deleted."""


class Fixed(NamedTuple):
    """Happens as it did: a push, or that a group began here."""

    event: AnyEvent
    shift: int


Step = Fixed | PartitionCommand | Visit | Ticked | Configured | Forgotten | Closed


class Cue(NamedTuple):
    """A step, and when it comes: at the time of its record, in the order of their numbers."""

    at: int
    seq: int
    step: Step


class Script:
    """The steps of one partition, and by group and position its messages' attempts. `ended` are the messages whose last
    attempt was their end."""

    def __init__(self) -> None:
        self.cues: list[Cue] = []
        self.attempts: dict[tuple[int, int], list[Attempt]] = {}
        self.ended: set[tuple[int, int]] = set()

    def take(self, record: Record, state: Partition, options: QueueOptions) -> None:
        """The next record; `state` and `options` are those in front of it."""
        events = record.events
        moved = next((event for event in events if isinstance(event, GroupMoved)), None)
        revived = next((event for event in events if isinstance(event, MessagesRevived)), None)
        if moved is not None:
            for event in events:
                if isinstance(event, GroupJoined):
                    self._cue(record, Fixed(event, record.shift))
            self._cue(record, Seek(moved.group, moved.cursor))
        elif revived is not None:
            command = Bury if len(events) > 1 else Retry
            self._cue(record, command(revived.group, revived.runs[0].first))
            self.ended.discard((revived.group, revived.runs[0].first))
        else:
            order = 0
            for event in events:
                order += self._event(record, event, state, options, order)

    def _event(self, record: Record, event: AnyEvent, state: Partition, options: QueueOptions, order: int) -> int:
        """Returns how many messages of it were acknowledged."""
        match event:
            case MessagesPushed() | GroupJoined():
                self._cue(record, Fixed(event, record.shift))
            case MessagesLeased():
                self._visit(record, event, event.lease)
            case MessagesSettled():
                return self._settled(record, event, state, order)
            case MessagesReturned():
                return self._returned(record, event, order)
            case LeaseExtended():
                lease = state.groups[event.group].leases[event.lease]
                seconds = (event.expires_at - record.at) // SECOND
                act = Act("extend", 0, record.seq, 0, seconds=None if seconds == options.lease_time else seconds)
                self._act(record, event.group, sorted(lease.positions), act)
            case MessagesDeleted():
                self._deleted(record, event)
        return 0

    def _settled(self, record: Record, event: MessagesSettled, state: Partition, order: int) -> int:
        positions = list(_positions(event.runs))
        view = state.groups.get(event.group)  # none yet where this very record joins it
        message = None if view is None else view.open.get(positions[0])
        match settled_because(event, record):
            case "autoAck" if message is None or message.lease is None:
                self._visit(record, event, event.lease or b"")
            case "ack" | "autoAck":
                status: AckStatus = event.asked  # type: ignore[assignment]  # an acknowledgement's, as it was asked
                act = Act("ack", 0, record.seq, order, status, event.error)
                self._act(record, event.group, positions, act)
                self.ended.update((event.group, position) for position in positions)
                return len(positions)
            case "leaseExpired":
                self._cue(record, Ticked())
                self.ended.update((event.group, position) for position in positions)
            case "operator":
                self._cue(record, Bury(event.group, positions[0]))
            case _:
                self._cue(record, Ticked())
        return 0

    def _returned(self, record: Record, event: MessagesReturned, order: int) -> int:
        self.ended.difference_update((event.group, position) for position in event.positions)
        match returned_because(event):
            case "leaseExpired":
                self._cue(record, Ticked())
                return 0
            case "operator":
                self._cue(record, Retry(event.group, event.positions[0]))
                return 0
            case "undelivered":
                act = Act("release", 0, record.seq, order)
            case because:
                status: AckStatus = "failed" if because == "failed" else "retry"
                act = Act("ack", 0, record.seq, order, status, event.error)
        self._act(record, event.group, list(event.positions), act)
        return len(event.positions)

    def _deleted(self, record: Record, event: MessagesDeleted) -> None:
        if record.who == BY_TIME:
            self._cue(record, Ticked())
        elif event.runs[0].pushed_at:
            self._cue(record, Delete(event.runs[0].first))
        else:
            self._cue(record, Clear())

    def _visit(self, record: Record, event: MessagesLeased | MessagesSettled, lease: bytes) -> None:
        positions = list(_positions(event.runs))
        auto_ack = isinstance(event, MessagesSettled)
        self._cue(record, Visit(event.group, len(positions), lease, event.worker, auto_ack))
        for position in positions:
            self.attempts.setdefault((event.group, position), []).append(Attempt(record.at))

    def _act(self, record: Record, group: int, positions: list[int], act: Act) -> None:
        for index, position in enumerate(positions):
            attempts = self.attempts.get((group, position))
            if attempts:
                done = act._replace(delay=record.at - attempts[-1].at, order=act.order + index)
                attempts[-1].acts.append(done)

    def _cue(self, record: Record, step: Step) -> None:
        cue = Cue(record.at, record.seq, step)
        if not (isinstance(step, Ticked) and self.cues and self.cues[-1] == cue):
            self.cues.append(cue)


def _positions(runs: tuple[Run, ...]) -> Iterator[int]:
    for first, length, _ in runs:
        yield from range(first, first + length)
