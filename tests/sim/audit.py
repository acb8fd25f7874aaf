"""The journal against the semantics: record by record, who was entitled to it, whether it came in time, what it did to
queues and groups. What it did to messages is for `effects`.
"""

from collections.abc import Callable

from queen.actors.catalogue_state import options_from
from queen.events import (
    ClockShifted,
    GroupDeleted,
    GroupStarted,
    PartitionCreated,
    QueueConfigured,
    QueueCreated,
    QueueDeleted,
)
from queen.names import SECOND
from queen.store.chain import follow
from queen.store.format import ORIGIN, Record
from tests.model.reference import ReferenceQueue
from tests.sim.effects import Effects
from tests.sim.feed import Told, told_of
from tests.sim.history import Attempt, Epoch, History
from tests.sim.ledger import Crowd, Ledger, Part, Store
from tests.sim.violation import demand

UNDURABLE = 3 * SECOND
"""What an engine decided so long before its end may not have come to the disk: two of the slowest commits."""
RETENTION_SLACK = 61 * SECOND


class Audit:
    """Fills a ledger from the frames, in order. `run` raises the first violation."""

    def __init__(self, history: History, frames: list[bytes], slack: int) -> None:
        self._history = history
        self._frames = frames
        self._epochs = list(history.epochs)
        self._epoch: Epoch | None = None
        self._slack = slack
        self._crashes = [(stamp.epoch, stamp.now) for stamp in history.crashes]
        self.ledger = Ledger()
        self.told: list[Told] = []
        self._effects = Effects(self.ledger)

    def run(self) -> Ledger:
        """Go through all of it."""
        for record, _ in follow(((seq, frame) for seq, frame in enumerate(self._frames, 1)), 0, ORIGIN):
            while self._epochs and self._epochs[0].head < record.seq:
                self._change_epoch(self._epochs.pop(0))
            self._take(record)
        for epoch in self._epochs:
            self._change_epoch(epoch)
        self._change_epoch(None)
        return self.ledger

    # -- engines ----------------------------------------------------------------------------------------------

    def _change_epoch(self, epoch: Epoch | None) -> None:
        if self._epoch is not None and self._epoch.number in self._history.ends:
            end = self._history.ends[self._epoch.number].now - UNDURABLE
            for part in self.ledger.parts.values():
                self._punctual(part, end)
                part.close(end, self._epoch.number)
        self._epoch = epoch
        if epoch is not None:
            for part in self.ledger.parts.values():
                part.measure(epoch.began.now, epoch.number)

    def _due(self, part: Part, at: int) -> int:
        """Nothing can have been due before the engine ran and the options were as they are."""
        assert self._epoch is not None
        return max(at, self._epoch.began.now, part.store.configured_at)

    def _late(self, due: int, now: int, more: int = 0) -> bool:
        assert self._epoch is not None
        if due + self._slack + more >= now:
            return False
        number = self._epoch.number
        return not any(epoch == number and due - SECOND <= at <= now for epoch, at in self._crashes)

    def _punctual(self, part: Part, now: int) -> None:
        """L5, T1, T4: what was due before `now` has happened."""
        options = part.store.options
        for message in part.plain.messages:
            for group, copy in message.copies.items():
                since = part.entries[message.position - 1].versions[group][-1].at
                where = f"{part.store.name}/{part.name}:{message.position} for group {group}"
                if copy.status == "processing":
                    end = part.plain.leases[copy.lease or b""]
                    late = self._late(self._due(part, end), now)
                    demand(not late, "L5", f"{where} is leased until {end}, and still at {now}")
                elif copy.status == "pending" and options.ttl:
                    due = self._due(part, max(since, message.pushed_at + options.ttl * SECOND))
                    demand(not self._late(due, now), "T1", f"{where} is pending at {now}, its ttl ended at {due}")
            if options.retention_enabled and options.retention_seconds and message.copies[0].status == "pending":
                since = part.entries[message.position - 1].versions[0][-1].at
                due = self._due(part, max(since, message.pushed_at + options.retention_seconds * SECOND))
                late = self._late(due, now, RETENTION_SLACK)
                demand(not late, "T4", f"{part.name}:{message.position} is kept at {now}, due at {due}")

    # -- records ----------------------------------------------------------------------------------------------

    def _take(self, record: Record) -> None:
        self._effects.begin(record)
        self.ledger.ats.append(record.at)
        attempt = self._attempt_of(record)
        if attempt is not None:
            self.ledger.by_request.setdefault(record.request, []).append(record.seq)
        part = self.ledger.parts.get(record.partition)
        known = part is not None or all(type(event) in _CATALOGUE for event in record.events)
        demand(known, "X1", f"record {record.seq} is of a partition that doesn't exist")
        if part is not None:
            demand(part.store.deleted_seq is None, "Z11", f"record {record.seq} of a deleted queue")
            demand(record.at >= part.latest_at, "N4", f"time runs back in {part.name} at record {record.seq}")
            part.latest_at = record.at
            self._punctual(part, record.at)
            part.plain.now = record.at
        for event in record.events:
            catalogue = _CATALOGUE.get(type(event))
            if catalogue is not None:
                self.ledger.made.add(record.seq)
                catalogue(self, record, event)
        if part is not None:
            self._effects.carry_out(record, part, attempt)
            part.measure(record.at, self._epoch_number())
        for event in record.events:
            self.told += told_of(record.seq, part, event)

    def _attempt_of(self, record: Record) -> Attempt | None:
        if record.who == "server":
            return None
        number = int.from_bytes(record.request)
        demand(number < len(self._history.attempts), "X1", f"record {record.seq} names a request that nobody made")
        attempt = self._history.attempts[number]
        demand(attempt.who == record.who, "X1", f"record {record.seq} is {record.who}'s, its request {attempt.who}'s")
        early = attempt.began.epoch == self._epoch_number() and record.at < attempt.began.now
        demand(not early, "X1", f"record {record.seq} is older than its request #{number}")
        return attempt

    def _epoch_number(self) -> int:
        return 0 if self._epoch is None else self._epoch.number

    # -- the catalogue ----------------------------------------------------------------------------------------

    def _created(self, record: Record, event: QueueCreated) -> None:
        demand(event.queue not in self.ledger.stores, "X2", f"queue number {event.queue} is given twice")
        demand(event.name not in self.ledger.live, "C1", f"queue {event.name} is created though it exists")
        options, grouping = options_from(event.options), (event.namespace, event.task)
        store = Store(event.queue, event.name, record.seq, options, grouping, record.at)
        store.versions.append((record.seq, options))
        self.ledger.stores[event.queue] = self.ledger.live[event.name] = store

    def _configured(self, record: Record, event: QueueConfigured) -> None:
        store = self.ledger.stores[event.queue]
        for part in store.parts.values():
            self._punctual(part, record.at)
        store.options, store.grouping = options_from(event.options), (event.namespace, event.task)
        store.configured_at = record.at
        store.versions.append((record.seq, store.options))
        for part in store.parts.values():
            part.plain.options = store.options
            part.measure(record.at, self._epoch_number())

    def _queue_deleted(self, record: Record, event: QueueDeleted) -> None:
        store = self.ledger.stores[event.queue]
        store.deleted_seq = record.seq
        del self.ledger.live[store.name]
        for part in store.parts.values():
            part.close(record.at, self._epoch_number())
            self._effects.delete(part, [message.position for message in part.plain.messages])
            self._effects.end_leases(part, "deleted")

    def _group_started(self, record: Record, event: GroupStarted) -> None:
        store = self.ledger.stores[event.queue]
        demand(event.group not in store.groups, "G2", f"group number {event.group} is given twice")
        store.groups[event.group] = Crowd(event.group, event.name, event.after_seq, event.from_at, record.seq)

    def _group_deleted(self, record: Record, event: GroupDeleted) -> None:
        store = self.ledger.stores[event.queue]
        store.groups[event.group].deleted_seq = record.seq
        for part in store.parts.values():
            part.plain.groups.discard(event.group)
            part.close(record.at, self._epoch_number(), event.group)
            for message in part.plain.messages:
                if message.copies.pop(event.group, None) is not None:
                    part.note(record.seq, record.at, [event.group], [message.position])
            self._effects.end_leases(part, "deleted")

    def _partition_created(self, record: Record, event: PartitionCreated) -> None:
        demand(record.partition not in self.ledger.parts, "X2", f"partition {record.partition} is created twice")
        store = self.ledger.stores[event.queue]
        demand(event.name not in store.parts, "X2", f"partition {event.name} of {store.name} is created twice")
        part = Part(record.partition, event.name, store, ReferenceQueue(store.options, record.at), record.seq)
        store.parts[event.name] = self.ledger.parts[record.partition] = part

    def _shifted(self, record: Record, event: ClockShifted) -> None:
        pass


_CATALOGUE: dict[type, Callable[..., None]] = {
    QueueCreated: Audit._created,
    QueueConfigured: Audit._configured,
    QueueDeleted: Audit._queue_deleted,
    GroupStarted: Audit._group_started,
    GroupDeleted: Audit._group_deleted,
    PartitionCreated: Audit._partition_created,
    ClockShifted: Audit._shifted,
}
