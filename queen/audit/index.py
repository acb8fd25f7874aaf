"""Finding the records that concern one message or partition, through the projections where they are fit to be used.

What is newer than their checkpoint is looked for in the journal itself, which is never much: the keeper writes every
second. Where the projections are missing or another Queen's, that is the whole journal: slower, and just as right.
"""

from collections.abc import Iterator
from typing import NamedTuple

from queen.actors.snapshots import CHECKPOINT, VERSION, Checkpoint
from queen.audit.reading import Past, read
from queen.audit.spans import concerns
from queen.errors import Corrupt
from queen.events import MessagesPushed
from queen.history import PushedRun
from queen.names import generated_transaction_id, uuid_number
from queen.store import keys
from queen.store.format import Record, digest_of, partition_of, unpack, unpack_row
from queen.store.journal import Table
from queen.store.tail import is_generated
from queen.store.touches import EXTENSIONS, PAGE, WHOLE, Touch, read_touch, touch_key

_SCAN = 256


class Pushed(NamedTuple):
    """The push of one message: its record, and its place among that record's messages."""

    record: Record
    place: int

    @property
    def event(self) -> MessagesPushed:
        """The event that pushed it."""
        event = self.record.pushed
        assert event is not None, "a push has its event"
        return event

    @property
    def position(self) -> int:
        """Where it stands in its partition."""
        return self.event.first + self.place


def checkpoint(past: Past) -> int:
    """Up to which record the projections can be trusted; 0 where they can't be at all."""
    try:
        row = past.get(Table.META, CHECKPOINT)
        if row is None:
            return 0
        found = Checkpoint(*unpack_row(row))
        if found.version == VERSION and found.seq and digest_of(read(past, found.seq)) == found.digest:
            return found.seq
    except (Corrupt, TypeError):
        pass  # `queen verify` says more of it
    return 0


def pushes_of(past: Past, transaction_id: str, until: int | None = None) -> list[Pushed]:
    """Every message that was ever pushed under that transactionId, oldest first, deleted ones included."""
    known = checkpoint(past)
    found: dict[tuple[int, int], Pushed] = {}
    for seq, index in [*_named(past, transaction_id), *_generated(past, transaction_id)] if known else ():
        push = Pushed(read(past, seq), index)
        if _is(push, transaction_id):
            found[seq, index] = push
    for seq, frame in past.frames(known):
        if until is not None and seq > until:
            break
        event = unpack(seq, frame)
        for index in _indexes(event.pushed, transaction_id):
            found[seq, index] = Pushed(event, index)
    return [found[place] for place in sorted(found) if until is None or place[0] <= until]


def records_touching(past: Past, partition: int, position: int, after: int, until: int | None = None) -> list[Record]:
    """The records behind number `after` that concern the message at that position: in order, those of its partition as
    a whole and the extensions of leases included."""
    known = checkpoint(past)
    seqs: set[int] = set()
    if known > after:
        page, offset = divmod(position, PAGE)
        for touch in _entries(past, partition, page, after):
            if touch.first <= offset <= touch.last:
                seqs.add(touch.seq)
        for whole in (WHOLE, EXTENSIONS):
            seqs.update(touch.seq for touch in _entries(past, partition, whole, after))
    records = [read(past, seq) for seq in sorted(seqs) if after < seq <= known and (until is None or seq <= until)]
    for seq, frame in past.frames(max(known, after)):
        if until is not None and seq > until:
            break
        if partition_of(frame) == partition:
            records.append(unpack(seq, frame))
    return [record for record in records if any(concerns(event, position) for event in record.events)]


def whole_records(past: Past, partition: int, after: int = 0, until: int | None = None) -> list[Record]:
    """The records behind number `after` that concern a partition as a whole. Those of the projections' tail are all
    records of the partition."""
    return _under(past, partition, WHOLE, after, until)


def queue_records(past: Past, queue: int, until: int | None = None) -> list[Record]:
    """The catalogue's records of one queue, and some of others'."""
    return _under(past, 0, queue, 0, until)


def catalogue_records(past: Past, until: int) -> list[Record]:
    """All records of the catalogue up to number `until`, but for the creations of partitions."""
    start, stop = touch_key(0, 0, 0), touch_key(1, 0, 0)
    seqs: set[int] = set()
    while rows := past.scan(Table.TOUCHES, start, stop, _SCAN):
        seqs.update(read_touch(key).seq for key, _ in rows)
        start = rows[-1][0] + b"\0"
    return [read(past, seq) for seq in sorted(seqs) if seq <= until]


def pushed_run(past: Past, partition: int, position: int) -> PushedRun | None:
    """Which record pushed that message, of those that the projections hold."""
    row = past.floor(Table.RUNS, keys.run_key(partition, position))
    if row is None:
        return None
    owner, run, _ = keys.read_run(*row)
    return run if owner == partition and position < run.first + run.length else None


def first_record(past: Past, partition: int) -> Record | None:
    """The record that created the partition, by one lookup; None where the projections don't tell."""
    if not checkpoint(past):
        return None
    touch = next(iter(_entries(past, partition, WHOLE, 0)), None)
    return None if touch is None else read(past, touch.seq)


def _under(past: Past, partition: int, page: int, after: int, until: int | None) -> list[Record]:
    known = checkpoint(past)
    seqs = {touch.seq for touch in _entries(past, partition, page, after)} if known > after else set()
    records = [read(past, seq) for seq in sorted(seqs) if seq <= known and (until is None or seq <= until)]
    for seq, frame in past.frames(max(known, after)):
        if until is not None and seq > until:
            break
        if partition_of(frame) == partition:
            records.append(unpack(seq, frame))
    return records


def _entries(past: Past, partition: int, page: int, after: int) -> Iterator[Touch]:
    start, stop = touch_key(partition, page, after + 1), touch_key(partition, page, 2**64 - 1)
    while rows := past.scan(Table.TOUCHES, start, stop, _SCAN):
        for key, _ in rows:
            yield read_touch(key)
        start = rows[-1][0] + b"\0"


def _named(past: Past, transaction_id: str) -> Iterator[tuple[int, int]]:
    start = keys.named_prefix(transaction_id)
    while rows := past.scan(Table.IDS, start, keys.named_prefix(transaction_id) + b"\xff" * 11, _SCAN):
        yield from (keys.read_named(key) for key, _ in rows)
        start = rows[-1][0] + b"\0"


def _generated(past: Past, transaction_id: str) -> Iterator[tuple[int, int]]:
    number = uuid_number(transaction_id)
    found = None if number is None else keys.read_generated(past.floor(Table.IDS, keys.generated_key(number)))
    if number is not None and found is not None:
        base, seq, length = found
        index = (number - base) // 2
        if index < length:
            yield seq, index


def _is(push: Pushed, transaction_id: str) -> bool:
    return push.record.pushed is not None and push.place in _indexes(push.record.pushed, transaction_id)


def _indexes(event: MessagesPushed | None, transaction_id: str) -> list[int]:
    """Which messages of a push have that transactionId: one at most, but nobody else need know."""
    if event is None:
        return []
    given = [index for index, name in enumerate(event.transaction_ids) if name == transaction_id]
    number = uuid_number(transaction_id)
    if number is None:
        return given
    base = int.from_bytes(event.base)
    index = (number - base) // 2
    own = 0 <= index < len(event.sizes) and is_generated(event, index)
    return [*given, index] if own and generated_transaction_id(base, index) == number else given
