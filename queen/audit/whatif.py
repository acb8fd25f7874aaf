"""What would have happened under other options: what is recorded, beside a re-run of it by the rules.

Every partition of the queues concerned is re-run by itself (`rerun.py`, which says what is held fixed). With the
options that there were, the re-run's events are the recorded ones.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import Any, Final, NamedTuple

import msgspec

from queen.actors.catalogue_state import Slot
from queen.actors.partition_state import Partition
from queen.audit.happenings import BY_TIME, transaction_ids
from queen.audit.reading import Moment, Past, read, records
from queen.audit.remembered import Remembered
from queen.audit.rerun import Rerun, Told
from queen.audit.script import Closed, Configured, Cue, Forgotten, Script, Step
from queen.audit.world import World
from queen.commands import Status
from queen.errors import Invalid, NotFound
from queen.events import (
    AnyEvent,
    GroupDeleted,
    MessagesDeleted,
    MessagesLeased,
    MessagesPushed,
    MessagesReturned,
    MessagesSettled,
    PartitionCreated,
    QueueConfigured,
    QueueDeleted,
)
from queen.options import OPTIONS, QueueOptions, merge
from queen.store.format import Record

NOT_OF_A_PARTITION: Final = ("priority", "maxSize", "maxWaitTimeSeconds", "encryptionEnabled")
"""Options that act before or beside a partition's rules: pushes that were refused and pops that found nothing are not
recorded, so nobody can tell."""
_EVERY = 1000

Progress = Callable[[int, int], None]


class Figures(msgspec.Struct, rename="camel"):
    """What happened to a queue's messages for one group, in messages; `pending` and `processing` at the end."""

    deliveries: int = 0
    retries: int = 0
    leases_ended: int = 0
    completed: int = 0
    failed: int = 0
    dead_letters: int = 0
    expired: int = 0
    dropped: int = 0
    pending: int = 0
    processing: int = 0


class Compared(msgspec.Struct, rename="camel"):
    """One queue and group, as recorded and as it would have been."""

    queue: str
    group: str | None
    recorded: Figures
    rerun: Figures


class Otherwise(msgspec.Struct, rename="camel"):
    """A message that would have been otherwise in the end; None: deleted."""

    queue: str
    partition: str
    group: str | None
    transaction_id: str
    recorded: Status | None
    rerun: Status | None


class WhatIf(msgspec.Struct, rename="camel"):
    """The answer. `assumed` deliveries were more than were recorded of their messages; `refused` commands and
    acknowledgements would not have been accepted."""

    first_record: int
    last_record: int
    queues: list[Compared]
    messages: list[Otherwise]
    refused: int
    assumed: int


class Changes(NamedTuple):
    """By queue, options that would have been otherwise, under their wire names."""

    by_queue: dict[str, dict[str, Any]]

    @classmethod
    def parse(cls, settings: Sequence[str]) -> "Changes":
        """Read `queue.option=value` each; a value is JSON or a bare word. Raises `Invalid`."""
        found: dict[str, dict[str, Any]] = {}
        for setting in settings:
            place, equals, text = setting.rpartition("=")
            queue, dot, option = place.rpartition(".")
            if not (equals and dot and queue):
                raise Invalid("--set", f"must be queue.option=value, is {setting!r}")
            if option not in OPTIONS or option in NOT_OF_A_PARTITION:
                known = ", ".join(name for name in OPTIONS if name not in NOT_OF_A_PARTITION)
                raise Invalid("--set", f"{option!r} is no option that a re-run can tell of; those are {known}")
            found.setdefault(queue, {})[option] = _value(text)
        for options in found.values():
            merge(QueueOptions(), options)
        return cls(found)

    def applied(self, queue: str, options: QueueOptions) -> QueueOptions:
        """The options that the queue would have had."""
        return merge(options, self.by_queue.get(queue, {}))


def _value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


class Played(NamedTuple):
    """One partition that was re-run: how it ended in the recording, and the re-run. `told` are the recorded events."""

    part: "_Part"
    told: list[Told]
    rerun: Rerun


def whatif(past: Past, first: Moment, last: Moment, changes: Changes, progress: Progress) -> WhatIf:
    """Compare what happened behind record `first.seq` up to `last.seq` with what would have. Without changes, all
    queues are re-run. Keeps every message of the queues concerned in memory. Raises `NotFound`, `ChainBroken`."""
    recording = _Recording(changes, first.seq)
    for record in records(past, 0, last.seq):
        recording.take(record)
        if record.seq % _EVERY == 0:
            progress(record.seq, last.seq)
    unknown = changes.by_queue.keys() - recording.queues
    if unknown:
        raise NotFound(f"There is no queue {min(unknown)!r} by then.")
    begin = read(past, first.seq).at if first.seq else 0
    return _compared(recording, list(recording.played(begin, recording.at)), first, last)


def replayed(past: Past, first: int, last: int, changes: Changes) -> Iterator[tuple[list[Told], list[Told]]]:
    """The recorded events of each partition, and the re-run's."""
    recording = _Recording(changes, first)
    for record in records(past, 0, last):
        recording.take(record)
    for played in recording.played(read(past, first).at if first else 0, recording.at):
        yield played.told, played.rerun.events


class _Part:
    """What is gathered of one partition."""

    def __init__(self, slot: Slot, state: Partition, options: QueueOptions) -> None:
        self.queue = slot.queue
        self.name = slot.name
        self.final = state  # goes on with the recording
        self.state = deepcopy(state)
        self.options = options
        self.script = Script()
        self.started: dict[tuple[int, int], int] = {}
        self.recorded = Remembered()
        self.history = Remembered()
        self.pushes: list[MessagesPushed] = []
        self.told: list[Told] = []

    def begin(self, options: QueueOptions) -> None:
        """The re-run starts here."""
        self.state = deepcopy(self.final)
        self.options = options
        self.script.cues.clear()
        self.started = {key: len(attempts) for key, attempts in self.script.attempts.items()}


class _Recording:
    """The records, taken apart by partition."""

    def __init__(self, changes: Changes, first: int) -> None:
        self._changes = changes
        self._first = first
        self._begun = False
        self._world = World()
        self._parts: dict[int, _Part] = {}
        self.queues: set[str] = set()
        self.at = 0

    def take(self, record: Record) -> None:
        """The next record."""
        if not self._begun and record.seq > self._first:
            self._begun = True
            for part in self._parts.values():
                part.begin(self._changes.applied(part.queue.name, part.queue.options))
        if record.partition in self._parts:
            part = self._parts[record.partition]
            part.script.take(record, part.final, part.queue.options)
        for event in record.events:
            self._catalogue(record, event)
        self._world.apply(record)
        for event in record.events:
            self._after(record, event)
        if record.partition in self._parts:
            self._feed(self._parts[record.partition], record)
        self.at = record.at

    def _catalogue(self, record: Record, event: AnyEvent) -> None:
        """What concerns all partitions of a queue, and is seen before it happens."""
        match event:
            case QueueDeleted():
                self._cue(record, event.queue, Closed())
            case GroupDeleted():
                self._cue(record, event.queue, Forgotten(event.group))

    def _after(self, record: Record, event: AnyEvent) -> None:
        slot = self._world.catalogue.slots.get(record.partition)
        match event:
            case PartitionCreated() if slot is not None:
                self.queues.add(slot.queue.name)
                if not self._changes.by_queue or slot.queue.name in self._changes.by_queue:
                    options = self._changes.applied(slot.queue.name, slot.queue.options)
                    self._parts[record.partition] = _Part(slot, self._world.states[record.partition], options)
            case QueueConfigured():
                queue = self._world.catalogue.numbers.get(event.queue)
                if queue is not None:
                    self._cue(record, event.queue, Configured(self._changes.applied(queue.name, queue.options)))

    def _cue(self, record: Record, queue: int, step: Step) -> None:
        for part in self._parts.values():
            if part.queue.number == queue:
                part.script.cues.append(Cue(record.at, record.seq, step))

    def _feed(self, part: _Part, record: Record) -> None:
        part.recorded.feed(record.seq, record.at, record.shift, record.events)
        part.pushes.extend(event for event in record.events if isinstance(event, MessagesPushed))
        if not self._begun:
            part.history.feed(record.seq, record.at, record.shift, record.events)
        else:
            timed = record.who == BY_TIME
            part.told.extend(
                Told(record.at, event, timed) for event in record.events if not isinstance(event, PartitionCreated)
            )

    def played(self, begin: int, end: int) -> Iterator[Played]:
        """Each partition, re-run."""
        for _, part in sorted(self._parts.items()):
            if not self._begun:
                part.begin(part.options)
            rerun = Rerun(part.script, part.state, part.history, part.options, part.started)
            rerun.run(begin, end)
            yield Played(part, part.told, rerun)


# -- the comparison -------------------------------------------------------------------------------------------


def _compared(recording: _Recording, plays: list[Played], first: Moment, last: Moment) -> WhatIf:
    rows: dict[tuple[str, str | None], Compared] = {}
    messages: list[Otherwise] = []
    for played in plays:
        part = played.part
        groups = {number: _group(part, number) for number in {**part.final.groups, **played.rerun.state.groups}}
        for number, name in groups.items():
            key = part.queue.name, name
            row = rows.setdefault(key, Compared(*key, Figures(), Figures()))
            _count(row.recorded, number, played.told, part.final)
            _count(row.rerun, number, played.rerun.events, played.rerun.state)
            messages += _otherwise(played, number, name)
    found = [rows[key] for key in sorted(rows, key=lambda key: (key[0], key[1] or ""))]
    refused = sum(played.rerun.refused for played in plays)
    return WhatIf(first.seq, last.seq, found, messages, refused, sum(played.rerun.assumed for played in plays))


def _group(part: _Part, number: int) -> str | None:
    found = part.queue.groups.numbered(number)
    return None if found is None else found.name


def _count(figures: Figures, group: int, told: list[Told], state: Partition) -> None:
    for _, event, timed in told:
        match event:
            case MessagesLeased() if event.group == group:
                figures.deliveries += sum(run.length for run in event.runs)
            case MessagesSettled() if event.group == group:
                _count_settled(figures, event)
            case MessagesReturned() if event.group == group:
                figures.retries += len(event.positions) if event.because in ("failed", "expired") else 0
                figures.leases_ended += len(event.positions) if event.because == "expired" else 0
            case MessagesDeleted() if timed:
                figures.dropped += sum(run.length for run in event.runs)
    view = state.groups.get(group)
    if view is not None:
        figures.pending += view.pending
        figures.processing += view.processing


def _count_settled(figures: Figures, event: MessagesSettled) -> None:
    count = sum(run.length for run in event.runs)
    match event.outcome:
        case "completed":
            figures.completed += count
        case "failed":
            figures.failed += count
        case "dead_letter":
            figures.dead_letters += count
    if event.asked is None and event.error == "expired":
        figures.expired += count
    elif event.asked is None and event.leased_at is not None:
        figures.leases_ended += count


def _otherwise(played: Played, group: int, name: str | None) -> Iterator[Otherwise]:
    part, rerun = played.part, played.rerun
    for pushed in part.pushes:
        names: list[str] = []
        for index in range(len(pushed.sizes)):
            position = pushed.first + index
            recorded = _status(part.final, part.recorded, group, position)
            other = _status(rerun.state, rerun.history, group, position)
            if recorded != other:
                names = names or transaction_ids(pushed)
                yield Otherwise(part.queue.name, part.name, name, names[index], recorded, other)


def _status(state: Partition, history: Remembered, group: int, position: int) -> Status | None:
    view = state.groups.get(group)
    if view is None or position in state.deleted:
        return None
    if position >= view.cursor:
        return "pending"
    message = view.open.get(position)
    if message is not None:
        return "pending" if message.lease is None else "processing"
    ended = history.settled(group, position)
    return None if ended is None else ended.outcome
