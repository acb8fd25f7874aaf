"""The journal against the semantics: every record is carried out on the plain reference queue as well, and must say what
that does. So each event is legal where it stands, has the outcome that the rules give it, and comes in time.
"""

from collections.abc import Callable
from typing import Any

from queen.actors.catalogue_state import options_from
from queen.events import (
    ClockShifted,
    GroupDeleted,
    GroupJoined,
    GroupMoved,
    GroupStarted,
    LeaseExtended,
    MessagesDeleted,
    MessagesLeased,
    MessagesPushed,
    MessagesReturned,
    MessagesRevived,
    MessagesSetAside,
    MessagesSettled,
    PartitionCreated,
    QueueConfigured,
    QueueCreated,
    QueueDeleted,
)
from queen.names import SECOND, generated_transaction_id, message_id, uuid_text
from queen.store.chain import follow
from queen.store.format import ORIGIN, Record
from tests.model.reference import Copy, ReferenceQueue, Refused
from tests.sim.feed import Told, told_of
from tests.sim.history import Attempt, Epoch, History
from tests.sim.ledger import Crowd, Entry, Lease, Ledger, Part, Store
from tests.sim.violation import Violation, demand

SLACK = SECOND // 10
"""How late what is due may come, in µs of simulated time."""
UNDURABLE = 3 * SECOND
"""What an engine decided so long before its end may not have come to the disk: two of the slowest commits."""
RETENTION_SLACK = 61 * SECOND


class Audit:
    """Fills a ledger from the frames, in order. `run` raises the first violation."""

    def __init__(self, history: History, frames: list[bytes], commits: list[int]) -> None:
        self._history = history
        self._frames = frames
        self._commits = commits
        self._epochs = list(history.epochs)
        self._epoch: Epoch | None = None
        self._crashes = [(stamp.epoch, stamp.now) for stamp in history.crashes]
        self.ledger = Ledger()
        self.told: list[Told] = []
        self._seq = 0
        self._at = 0

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

    def _late(self, due: int, now: int, slack: int = SLACK) -> bool:
        assert self._epoch is not None
        if due + slack >= now:
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
        self._seq, self._at = record.seq, record.at
        self.ledger.ats.append(record.at)
        attempt = self._attempt_of(record)
        if attempt is not None:
            self.ledger.by_request.setdefault(record.request, []).append(record.seq)
        part = self.ledger.parts.get(record.partition)
        if part is not None:
            demand(part.store.deleted_seq is None, "Z11", f"record {record.seq} of a deleted queue")
            demand(record.at >= part.latest_at, "N4", f"time runs back in {part.name} at record {record.seq}")
            part.latest_at = record.at
            self._punctual(part, record.at)
            part.plain.now = record.at
        events = list(record.events)
        told = [event for event in events if not isinstance(event, MessagesPushed)]
        self.told += [each for event in told for each in told_of(record.seq, part, event)]
        if any(isinstance(event, GroupMoved) for event in events):
            self._moved(self._part(part), events, self._asked(attempt, "seek"))
        else:
            for event in events:
                self._apply(record, part, event, attempt)
        if part is not None:
            self.told += [each for event in events if event not in told for each in told_of(record.seq, part, event)]
            part.measure(record.at, self._epoch_number())

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

    def _apply(self, record: Record, part: Part | None, event: Any, attempt: Attempt | None) -> None:
        catalogue = _CATALOGUE.get(type(event))
        if catalogue is not None:
            self.ledger.made.add(record.seq)
            catalogue(self, record, event)
        elif isinstance(event, MessagesPushed):
            self._pushed(self._part(part), record, event, self._asked(attempt, "push", "transact"))
        else:
            _PARTITION[type(event)](self, self._part(part), event, attempt)

    def _part(self, part: Part | None) -> Part:
        if part is None:
            raise Violation("X1", f"record {self._seq} is of a partition that doesn't exist")
        return part

    def _asked(self, attempt: Attempt | None, *kinds: str) -> Attempt:
        """The attempt that the event comes from, which must be of one of these kinds."""
        if attempt is None or attempt.what not in kinds:
            what = "the server" if attempt is None else f"#{attempt.number}, a {attempt.what},"
            raise Violation("X1", f"record {self._seq} was made by {what} and not by a {' or '.join(kinds)}")
        return attempt

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
            self._delete(part, [message.position for message in part.plain.messages])
            self._end_leases(part, "deleted")

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
            self._end_leases(part, "deleted")

    def _partition_created(self, record: Record, event: PartitionCreated) -> None:
        demand(record.partition not in self.ledger.parts, "X2", f"partition {record.partition} is created twice")
        store = self.ledger.stores[event.queue]
        demand(event.name not in store.parts, "X2", f"partition {event.name} of {store.name} is created twice")
        part = Part(record.partition, event.name, store, ReferenceQueue(store.options, record.at), record.seq)
        store.parts[event.name] = self.ledger.parts[record.partition] = part

    def _shifted(self, record: Record, event: ClockShifted) -> None:
        pass

    # -- messages ---------------------------------------------------------------------------------------------

    def _pushed(self, part: Part, record: Record, event: MessagesPushed, attempt: Attempt) -> None:
        demand(event.first == part.plain.positions + 1, "X1", f"positions of {part.name} leave a gap at {event.first}")
        shown = record.at + record.shift
        demand(shown >= part.latest_shown, "N4", f"createdAt runs back in {part.name} at record {record.seq}")
        part.latest_shown = shown
        asked = {item.trace_id: item for item in attempt.asked["items"]}
        base = int.from_bytes(event.base)
        for index in range(len(event.sizes)):
            given = event.transaction_ids[index] if event.transaction_ids else None
            trace = event.trace_ids[index] if event.trace_ids else None
            name = uuid_text(generated_transaction_id(base, index)) if given is None else given
            item = asked.get(trace)
            if item is None:
                raise Violation("P1", f"{trace} in record {record.seq} was never pushed by #{attempt.number}")
            where = item.queue, item.partition, item.transaction_id
            demand(where == (part.store.name, part.name, given), "P1", f"{trace} is at another place than {where}")
            demand(self.ledger.stored(name) is None, "P4", f"transactionId {name} is stored twice")
            demand(trace not in self.ledger.traces, "P4", f"{trace} is stored twice")
            sealed = event.key is not None
            demand(sealed == part.store.options.encryption_enabled, "C4", f"{trace} is sealed: {sealed}")
            id = uuid_text(message_id(base, index))
            position = event.first + index
            entry = Entry(name, id, trace, part, position, record.seq, record.at, shown, event.key)
            part.entries.append(entry)
            self.ledger.names.setdefault(name, []).append(entry)
            self.ledger.traces[str(trace)] = entry
            part.plain.push([(None, event.delays_s[index] if event.delays_s else None)])
        bound, depth = part.store.options.max_size, part.store.depth
        demand(not bound or depth <= bound, "P6", f"{part.store.name} holds {depth} of at most {bound}")
        part.note(record.seq, record.at, list(part.plain.groups), [*range(event.first, part.plain.positions + 1)])

    def _joined(self, part: Part, event: GroupJoined, attempt: Attempt | None) -> None:
        store = part.store
        demand(event.group in store.groups and event.group not in part.plain.groups, "G2", f"group {event.group} joins")
        crowd = store.groups[event.group]
        for entry in part.entries:
            belongs = entry.seq > crowd.after_seq and entry.shown_at >= crowd.from_at
            gets = entry.position >= event.cursor
            if entry.deleted_seq is None:
                demand(gets == belongs, "G2", f"group {event.group} begins at {event.cursor}: {entry.trace}")
        part.plain.join(event.group, event.cursor)
        positions = [message.position for message in part.plain.messages if event.group in message.copies]
        part.note(self._seq, self._at, [event.group], positions)

    def _leased(self, part: Part, event: MessagesLeased, attempt: Attempt | None) -> None:
        asked = self._asked(attempt, "pop")
        positions = _positions(event)
        counts = self._pop(part, event.group, positions, event.lease, asked, auto=False)
        expires_at = part.plain.leases[event.lease]
        demand(event.expires_at == expires_at, "L5", f"a lease of {part.name} ends at {event.expires_at}")
        lease = Lease(event.lease, part, event.group, positions, self._seq, self._at, asked.request, False, counts)
        lease.ends.append((self._seq, expires_at))
        self.ledger.leases[event.lease] = lease

    def _pop(
        self, part: Part, group: int, positions: list[int], lease: bytes, attempt: Attempt, auto: bool
    ) -> list[int]:
        """What the reference gives to such a pop must be just that. Returns the retry counts."""
        demand(len(positions) <= attempt.asked["batch"], "O1", f"more than asked for by #{attempt.number}")
        name = part.store.groups[group].name
        demand(name == attempt.asked["group"], "G1", f"group {name} gets what #{attempt.number} asked for")
        demand(lease not in self.ledger.leases, "L4", "a lease id is given twice")
        expected = part.plain.pop(group, len(positions), lease, auto)
        if not isinstance(expected, list):
            raise Violation(
                "L1/O3", f"{part.store.name}/{part.name}: {positions} given to #{attempt.number}, but {expected[0]}"
            )
        found = [position for position, _ in expected]
        demand(found == positions, "order", f"{part.name} gives {positions} to #{attempt.number}, and not {found}")
        part.note(self._seq, self._at, [group], positions)
        return [count for _, count in expected]

    def _extended(self, part: Part, event: LeaseExtended, attempt: Attempt | None) -> None:
        asked = self._asked(attempt, "extend")
        try:
            until = part.plain.extend(event.lease, asked.asked["seconds"])
        except Refused:
            raise Violation("L6", f"a lease that has ended is extended by #{asked.number}") from None
        demand(until == event.expires_at, "L6", f"a lease is extended to {event.expires_at} and not to {until}")
        self.ledger.leases[event.lease].ends.append((self._seq, until))

    def _set_aside(self, part: Part, event: MessagesSetAside, attempt: Attempt | None) -> None:
        """The reference does it with the pop that follows."""
        for position, ready in zip(_positions(event), event.available_at, strict=True):
            message = part.plain._find(position)
            if message is None or event.group not in message.copies:
                raise Violation("L2", f"{part.name}:{position} is set aside, and does not exist")
            demand(part.plain._ready(message, event.group) == ready, "T2", f"{part.name}:{position} is ready at {ready}")

    def _settled(self, part: Part, event: MessagesSettled, attempt: Attempt | None) -> None:
        positions = _positions(event)
        if event.asked is None:
            for position in positions:
                copy = self._copy(part, event.group, position)
                if attempt is None:
                    self._give_up(part, event, position, copy)
                else:
                    demand(self._asked(attempt, "bury"), "R4", "")
                    self._operate(part, attempt, event.group, position, "bury")
        elif attempt is not None and attempt.what == "pop":
            demand(attempt.asked["auto_ack"] and event.asked == "completed", "O7", f"#{attempt.number} completes")
            lease = event.lease or b""
            counts = self._pop(part, event.group, positions, lease, attempt, auto=True)
            self.ledger.leases[lease] = Lease(
                lease, part, event.group, positions, self._seq, self._at, attempt.request, True, counts
            )
        else:
            for position in positions:
                self._ack(part, event.group, position, event.asked, event.outcome, attempt)
        for position in positions:
            copy = self._copy(part, event.group, position)
            said = event.outcome, event.retry_counts.get(position, 0)
            demand((copy.status, copy.retry_count) == said, "R2", f"{part.name}:{position} is {said}, not {copy.status}")
        part.note(self._seq, self._at, [event.group], positions)
        self._end_leases(part, event.asked or "over")

    def _give_up(self, part: Part, event: MessagesSettled, position: int, copy: Copy) -> None:
        """R2 by the end of a lease, or T1."""
        where = f"{part.store.name}/{part.name}:{position}"
        if copy.status == "processing":
            self._lease_over(part, copy, where)
            part.plain._fail(copy, None, delay=False)
        else:
            message = part.plain._find(position)
            ttl = part.store.options.ttl * SECOND
            over = message is not None and ttl and message.pushed_at + ttl <= self._at
            demand(copy.status == "pending" and over, "T1", f"{where} expires, though it is {copy.status}")
            part.plain._settle(copy, part.plain._given_up, None)
            copy.lease = None

    def _lease_over(self, part: Part, copy: Copy, where: str) -> None:
        end = part.plain.leases[copy.lease or b""]
        demand(end <= self._at, "L5", f"the lease of {where} is taken away at {self._at}, and ends at {end}")

    def _returned(self, part: Part, event: MessagesReturned, attempt: Attempt | None) -> None:
        for position, count in zip(event.positions, event.retry_counts, strict=True):
            copy = self._copy(part, event.group, position)
            where = f"{part.store.name}/{part.name}:{position}"
            if event.because == "expired":
                demand(attempt is None and copy.status == "processing", "L5", f"{where} is not leased")
                self._lease_over(part, copy, where)
                part.plain._fail(copy, None, delay=False)
            elif event.because == "released":
                demand(attempt is None and copy.status == "processing", "L8", f"{where} is not leased")
                part.plain._give_back(copy, "released", self._at)
            elif attempt is not None and attempt.what == "retry":
                self._operate(part, attempt, event.group, position, "retry")
            else:
                asked = "failed" if event.because == "failed" else "retry"
                self._ack(part, event.group, position, asked, "retry_scheduled", attempt)
            said = "pending", count, event.available_at
            is_now = copy.status, copy.retry_count, copy.ready_at
            demand(is_now == said, "R1", f"{where} is {said} in record {self._seq}, and not {is_now}")
        part.note(self._seq, self._at, [event.group], list(event.positions))
        self._end_leases(part, event.because)

    def _ack(
        self, part: Part, group: int, position: int, status: str, outcome: str, attempt: Attempt | None
    ) -> None:
        """Some entry of the request asked for that, and the reference allows it with that outcome."""
        asked = self._asked(attempt, "ack", "transact")
        entry, name = part.entries[position - 1], part.store.groups[group].name
        for wanted in asked.asked["entries"]:
            if (wanted.transaction_id, wanted.status, wanted.consumer_group) == (entry.name, status, name):
                lease = None if wanted.lease_id is None else bytes.fromhex(wanted.lease_id.replace("-", ""))
                found, _ = part.plain.ack(group, position, status, lease)
                demand(found == outcome, "A2", f"{entry.trace} is {outcome} by #{asked.number}, and not {found}")
                return
        raise Violation("A1", f"#{asked.number} did not ask for {status} of {entry.trace} in group {name}")

    def _operate(self, part: Part, attempt: Attempt, group: int, position: int, what: str) -> None:
        entry = part.entries[position - 1]
        named = entry.name == attempt.asked["name"]
        demand(named and part.store.groups[group].name == attempt.asked["group"], "R3", f"not asked: {what} {entry.trace}")
        try:
            getattr(part.plain, what)(group, position)
        except Refused:
            raise Violation("R3/R4", f"{what} of {entry.trace} by #{attempt.number} must be refused") from None

    def _revived(self, part: Part, event: MessagesRevived, attempt: Attempt | None) -> None:
        asked = self._asked(attempt, "retry", "bury")
        for position in _positions(event):
            copy = self._copy(part, event.group, position)
            demand(copy.status in ("failed", "dead_letter"), "R3", f"{part.name}:{position} is revived: {copy.status}")
            if asked.what == "retry":  # a burial says the rest with its next event
                self._operate(part, asked, event.group, position, "retry")
        part.note(self._seq, self._at, [event.group], _positions(event))

    def _deleted(self, part: Part, event: MessagesDeleted, attempt: Attempt | None) -> None:
        positions = [p for p in _positions(event) if part.plain._find(p) is not None]
        whole = all(part.plain._find(p) is not None for p in _positions(event))
        demand(whole, "R5", f"record {self._seq} deletes what is deleted")
        if attempt is None:
            self._retention(part, positions)
        elif self._asked(attempt, "delete", "clear").what == "delete":
            named = [part.entries[position - 1].name for position in positions]
            demand(named == [attempt.asked["name"]], "R5", f"#{attempt.number} deletes {named}")
        said = {count.group: tuple(count[1:]) for count in event.settled}
        for group in part.plain.groups:
            copies = [part.plain._find(position) for position in positions]
            words = [m.copies[group].status for m in copies if m is not None and group in m.copies]
            counts = tuple(words.count(word) for word in ("completed", "failed", "dead_letter"))
            demand(counts == said.get(group, (0, 0, 0)), "S1", f"deleted for group {group}: {counts}, not {said}")
        self._delete(part, positions)
        self._end_leases(part, "deleted")

    def _retention(self, part: Part, positions: list[int]) -> None:
        """T4: each was due."""
        options, now = part.store.options, self._at
        demand(options.retention_enabled or not positions, "T4", f"retention is off, and {positions} go")
        for position in positions:
            message = part.plain._find(position)
            assert message is not None
            age = now - message.pushed_at
            first, limit = message.copies[0], options.retention_seconds * SECOND
            pending = first.status == "pending" and limit and age >= limit
            span = options.completed_retention_seconds * SECOND
            copies = message.copies.values()
            settled = span and all(copy.final and copy.settled_at + span <= now for copy in copies)
            demand(pending or settled, "T4", f"{part.name}:{position} is deleted before its time")

    def _delete(self, part: Part, positions: list[int]) -> None:
        for position in positions:
            entry = part.entries[position - 1]
            groups = list(entry.versions)
            part.plain.delete(position)
            entry.deleted_seq = self._seq
            part.note(self._seq, self._at, groups, [position])

    def _moved(self, part: Part, events: list[Any], attempt: Attempt) -> None:
        """G3, Z15: the events of a seek belong together."""
        moved = events[-1]
        for event in events[:-1]:
            if isinstance(event, GroupJoined):
                self._joined(part, event, attempt)
        group, to = moved.group, attempt.asked["to"]
        demand(part.store.groups[group].name == attempt.asked["group"], "G3", f"#{attempt.number} moves another group")
        for entry in part.entries:
            if entry.deleted_seq is None:
                behind = to is None or entry.shown_at < to
                demand(behind == (entry.position < moved.cursor), "G3", f"{entry.trace}: cursor {moved.cursor}, {to}")
        part.plain.seek(group, moved.cursor)
        words = [m.copies[group].status for m in part.plain.messages if m.position < moved.cursor and group in m.copies]
        counts = tuple(words.count(word) for word in ("completed", "failed", "dead_letter"))
        said = moved.completed, moved.failed, moved.dead_letter
        demand(counts == said, "S1", f"a seek of {part.name} counts {said}, and not {counts}")
        positions = [message.position for message in part.plain.messages if group in message.copies]
        part.note(self._seq, self._at, [group], positions)
        self._end_leases(part, "sought")

    def _copy(self, part: Part, group: int, position: int) -> Copy:
        message = part.plain._find(position)
        copy = message.copies.get(group) if message is not None else None
        if copy is None:
            raise Violation("R5", f"record {self._seq} speaks of {part.name}:{position}, which group {group} has not")
        return copy

    def _end_leases(self, part: Part, why: str) -> None:
        """Note which leases have lost their last message."""
        held = {
            copy.lease for _, copy in part.plain._all() if copy.status == "processing" and copy.lease is not None
        }
        for lease in self.ledger.leases.values():
            if lease.place is part and lease.ended is None and lease.id not in held:
                lease.ended = self._seq, self._at, why


def _positions(event: Any) -> list[int]:
    return [position for run in event.runs for position in range(run.first, run.first + run.length)]


_CATALOGUE: dict[type, Callable[..., None]] = {
    QueueCreated: Audit._created,
    QueueConfigured: Audit._configured,
    QueueDeleted: Audit._queue_deleted,
    GroupStarted: Audit._group_started,
    GroupDeleted: Audit._group_deleted,
    PartitionCreated: Audit._partition_created,
    ClockShifted: Audit._shifted,
}
_PARTITION: dict[type, Callable[..., None]] = {
    GroupJoined: Audit._joined,
    MessagesLeased: Audit._leased,
    LeaseExtended: Audit._extended,
    MessagesSetAside: Audit._set_aside,
    MessagesSettled: Audit._settled,
    MessagesReturned: Audit._returned,
    MessagesRevived: Audit._revived,
    MessagesDeleted: Audit._deleted,
}
