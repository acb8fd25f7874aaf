"""Reading the journal as a record of the past: by number, by time, from one instant to another. No writes, no tasks.

Whatever has the reading half of a `Journal` will do: a folder beside its server (`store/beside.py`), or the journal of
this process. Reads are short each; nothing here holds one open while its caller works on what came of it.
"""

from collections.abc import Iterator
from typing import NamedTuple

from queen.audit.times import When
from queen.errors import ChainBroken, Invalid
from queen.store.chain import follow
from queen.store.format import ORIGIN, Record, digest_of, partition_of, unpack
from queen.store.journal import Reading

Past = Reading


TOGETHER = 64
"""Records that may be out of order by the microseconds that their work took."""


class Moment(NamedTuple):
    """The state behind record `seq`; `at` is what the wall clock showed then, or the time that was asked for."""

    seq: int
    at: int


def read(past: Past, seq: int) -> Record:
    """One record. Raises `ChainBroken` where it is missing or damaged, `FormatUnknown`."""
    frame = past.frame(seq)
    if frame is None:
        raise ChainBroken(f"Record {seq} is missing.")
    return unpack(seq, frame)


def shown(record: Record) -> int:
    """What the wall clock showed when the record was made, in µs."""
    return record.at + record.shift


def records(past: Past, after: int = 0, until: int | None = None, *, checked: bool = False) -> Iterator[Record]:
    """The records behind number `after`, up to number `until` (None: the last one there is), in order. Each one's
    checksum is looked at; with `checked` the chain as well.

    Raises `ChainBroken` and `FormatUnknown`."""
    frames = past.frames(after)
    if checked:
        digest = digest_of(read(past, after)) if after else ORIGIN
        unpacked = (record for record, _ in follow(frames, after, digest))
    else:
        unpacked = (unpack(seq, frame) for seq, frame in frames)
    for record in unpacked:
        if until is not None and record.seq > until:
            return
        yield record


def records_of(past: Past, partition: int, after: int = 0, until: int | None = None) -> Iterator[Record]:
    """The same for one partition: what concerns others is passed over without being taken apart."""
    for seq, frame in past.frames(after):
        if until is not None and seq > until:
            return
        if partition_of(frame) == partition:
            yield unpack(seq, frame)


def seq_at(past: Past, at: int) -> int:
    """The number of the last record that was made by the time that the wall clock showed `at` (µs), 0 before the first.

    By bisection, so some 25 reads, and a look at the next few: what is decided together need not be recorded in order,
    by microseconds. Where the wall clock was set back, there is more than one such place, and any of them may be the
    answer; a record's number is never ambiguous."""
    low, high = 0, past.head
    while low < high:
        middle = (low + high + 1) // 2
        if shown(read(past, middle)) <= at:
            low = middle
        else:
            high = middle - 1
    last = low
    for record in records(past, low, low + TOGETHER):
        if shown(record) <= at:
            last = record.seq
    return last


def check_there(past: Past, when: When, where: str) -> None:
    """Raise `Invalid` naming `where` for a record that is yet to come."""
    if when.seq is not None and when.seq > past.head:
        raise Invalid(where, f"there is no record {when.seq}; the last one is {past.head}")


def moment_at(past: Past, when: When) -> Moment:
    """The moment that was asked for; a record that is yet to come is the last one there is, see `check_there`."""
    if when.seq is None:
        return Moment(seq_at(past, when.at), when.at)
    seq = min(when.seq, past.head)
    return Moment(seq, shown(read(past, seq)) if seq else 0)
