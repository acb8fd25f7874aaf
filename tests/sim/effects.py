"""What records do to messages: each event is carried out on the plain reference queue as well, and must say what that
does. So every event is legal where it stands, asked for by somebody, and has the outcome that the rules give it.
"""

from collections.abc import Callable
from typing import Any

from queen.actors.settling import lease_bytes
from queen.events import (
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
)
from queen.names import SECOND, generated_transaction_id, message_id, uuid_text
from queen.store.format import Record
from tests.model.reference import Copy, Refused
from tests.sim.history import Attempt
from tests.sim.ledger import Entry, Lease, Ledger, Part
from tests.sim.violation import Violation, demand


class Effects:
    """See the module. Fills the ledger; raises the first violation."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._seq = 0
        self._at = 0

    def begin(self, record: Record) -> None:
        """What follows is of this record."""
        self._seq, self._at = record.seq, record.at

    def carry_out(self, record: Record, part: Part, attempt: Attempt | None) -> None:
        """All events of a partition's record, which comes from `attempt`, or from the server itself."""
        events = list(record.events)
        if any(isinstance(event, GroupMoved) for event in events):
            self._moved(part, events, _asked(self._seq, attempt, "seek"))
            return
        for event in events:
            if isinstance(event, MessagesPushed):
                self._pushed(part, record, event, _asked(self._seq, attempt, "push", "transact"))
            elif not isinstance(event, PartitionCreated):
                _EFFECTS[type(event)](self, part, event, attempt)

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
            demand(self._ledger.stored(name) is None, "P4", f"transactionId {name} is stored twice")
            demand(trace not in self._ledger.traces, "P4", f"{trace} is stored twice")
            sealed = event.key is not None
            demand(sealed == part.store.options.encryption_enabled, "C4", f"{trace} is sealed: {sealed}")
            id = uuid_text(message_id(base, index))
            position = event.first + index
            entry = Entry(name, id, trace, part, position, record.seq, record.at, shown, event.key)
            part.entries.append(entry)
            self._ledger.names.setdefault(name, []).append(entry)
            self._ledger.traces[str(trace)] = entry
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
        asked = _asked(self._seq, attempt, "pop")
        positions = _positions(event)
        counts = self._pop(part, event.group, positions, event.lease, asked, auto=False)
        expires_at = part.plain.leases[event.lease]
        demand(event.expires_at == expires_at, "L5", f"a lease of {part.name} ends at {event.expires_at}")
        lease = Lease(event.lease, part, event.group, positions, self._seq, self._at, asked.request, False, counts)
        lease.ends.append((self._seq, expires_at))
        self._ledger.leases[event.lease] = lease

    def _pop(
        self, part: Part, group: int, positions: list[int], lease: bytes, attempt: Attempt, auto: bool
    ) -> list[int]:
        """What the reference gives to such a pop must be just that. Returns the retry counts."""
        demand(len(positions) <= attempt.asked["batch"], "O1", f"more than asked for by #{attempt.number}")
        name = part.store.groups[group].name
        demand(name == attempt.asked["group"], "G1", f"group {name} gets what #{attempt.number} asked for")
        demand(lease not in self._ledger.leases, "L4", "a lease id is given twice")
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
        asked = _asked(self._seq, attempt, "extend")
        try:
            until = part.plain.extend(event.lease, asked.asked["seconds"])
        except Refused:
            raise Violation("L6", f"a lease that has ended is extended by #{asked.number}") from None
        demand(until == event.expires_at, "L6", f"a lease is extended to {event.expires_at} and not to {until}")
        self._ledger.leases[event.lease].ends.append((self._seq, until))

    def _set_aside(self, part: Part, event: MessagesSetAside, attempt: Attempt | None) -> None:
        """The reference does it with the pop that follows."""
        for position, ready in zip(_positions(event), event.available_at, strict=True):
            message = part.plain._find(position)
            if message is None or event.group not in message.copies:
                raise Violation("L2", f"{part.name}:{position} is set aside, and does not exist")
            due = part.plain._ready(message, event.group)
            demand(due == ready, "T2", f"{part.name}:{position} is ready at {ready}, and not {due}")

    def _settled(self, part: Part, event: MessagesSettled, attempt: Attempt | None) -> None:
        positions = _positions(event)
        if event.asked is None:
            for position in positions:
                copy = self._copy(part, event.group, position)
                if attempt is None:
                    self._give_up(part, event, position, copy)
                else:
                    demand(_asked(self._seq, attempt, "bury"), "R4", "")
                    self._operate(part, attempt, event.group, position, "bury")
        elif attempt is not None and attempt.what == "pop":
            demand(attempt.asked["auto_ack"] and event.asked == "completed", "O7", f"#{attempt.number} completes")
            lease = event.lease or b""
            counts = self._pop(part, event.group, positions, lease, attempt, auto=True)
            self._ledger.leases[lease] = Lease(
                lease, part, event.group, positions, self._seq, self._at, attempt.request, True, counts
            )
        else:
            for position in positions:
                self._ack(part, event.group, position, event.asked, event.outcome, attempt)
        for position in positions:
            copy = self._copy(part, event.group, position)
            said = event.outcome, event.retry_counts.get(position, 0)
            self._ledger.completed += not event.group and event.outcome == "completed" and event.asked is not None
            found = copy.status, copy.retry_count
            demand(found == said, "R2", f"{part.name}:{position} is {said}, and not {found}")
        part.note(self._seq, self._at, [event.group], positions)
        self.end_leases(part, event.asked or "over")

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
        self.end_leases(part, event.because)

    def _ack(self, part: Part, group: int, position: int, status: str, outcome: str, attempt: Attempt | None) -> None:
        """Some entry of the request asked for that, and the reference allows it with that outcome."""
        asked = _asked(self._seq, attempt, "ack", "transact")
        entry, name = part.entries[position - 1], part.store.groups[group].name
        for wanted in asked.asked["entries"]:
            if (wanted.transaction_id, wanted.status, wanted.consumer_group) == (entry.name, status, name):
                lease = None if wanted.lease_id is None else lease_bytes(wanted.lease_id)
                found, _ = part.plain.ack(group, position, status, lease)
                demand(found == outcome, "A2", f"{entry.trace} is {outcome} by #{asked.number}, and not {found}")
                return
        raise Violation("A1", f"#{asked.number} did not ask for {status} of {entry.trace} in group {name}")

    def _operate(self, part: Part, attempt: Attempt, group: int, position: int, what: str) -> None:
        entry = part.entries[position - 1]
        named = entry.name == attempt.asked["name"]
        demand(
            named and part.store.groups[group].name == attempt.asked["group"], "R3", f"not asked: {what} {entry.trace}"
        )
        try:
            getattr(part.plain, what)(group, position)
        except Refused:
            raise Violation("R3/R4", f"{what} of {entry.trace} by #{attempt.number} must be refused") from None

    def _revived(self, part: Part, event: MessagesRevived, attempt: Attempt | None) -> None:
        asked = _asked(self._seq, attempt, "retry", "bury")
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
        elif _asked(self._seq, attempt, "delete", "clear").what == "delete":
            named = [part.entries[position - 1].name for position in positions]
            demand(named == [attempt.asked["name"]], "R5", f"#{attempt.number} deletes {named}")
        said = {count.group: tuple(count[1:]) for count in event.settled}
        for group in part.plain.groups:
            copies = [part.plain._find(position) for position in positions]
            words = [m.copies[group].status for m in copies if m is not None and group in m.copies]
            counts = tuple(words.count(word) for word in ("completed", "failed", "dead_letter"))
            demand(counts == said.get(group, (0, 0, 0)), "S1", f"deleted for group {group}: {counts}, not {said}")
        self.delete(part, positions)
        self.end_leases(part, "deleted")

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

    def delete(self, part: Part, positions: list[int]) -> None:
        """These messages are gone."""
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
        self.end_leases(part, "sought")

    def _copy(self, part: Part, group: int, position: int) -> Copy:
        message = part.plain._find(position)
        copy = message.copies.get(group) if message is not None else None
        if copy is None:
            raise Violation("R5", f"record {self._seq} speaks of {part.name}:{position}, which group {group} has not")
        return copy

    def end_leases(self, part: Part, why: str) -> None:
        """Note which leases have lost their last message."""
        held = {copy.lease for _, copy in part.plain._all() if copy.status == "processing" and copy.lease is not None}
        for lease in self._ledger.leases.values():
            if lease.place is part and lease.ended is None and lease.id not in held:
                lease.ended = self._seq, self._at, why


def _asked(seq: int, attempt: Attempt | None, *kinds: str) -> Attempt:
    """The attempt that the event comes from, which must be of one of these kinds."""
    if attempt is None or attempt.what not in kinds:
        what = "the server" if attempt is None else f"#{attempt.number}, a {attempt.what},"
        raise Violation("X1", f"record {seq} was made by {what} and not by a {' or '.join(kinds)}")
    return attempt


def _positions(event: Any) -> list[int]:
    return [position for run in event.runs for position in range(run.first, run.first + run.length)]


_EFFECTS: dict[type, Callable[..., None]] = {
    GroupJoined: Effects._joined,
    MessagesLeased: Effects._leased,
    LeaseExtended: Effects._extended,
    MessagesSetAside: Effects._set_aside,
    MessagesSettled: Effects._settled,
    MessagesReturned: Effects._returned,
    MessagesRevived: Effects._revived,
    MessagesDeleted: Effects._deleted,
}
