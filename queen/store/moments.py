"""Snapshots that are kept: how partitions were at moments of the past, so that an instant is near one of them. Pure.

A moment is written now and then. It holds the rows of the partitions that have changed since the one before, each under
the number of its last record then; and, under partition 0, a row of its own that is written last: up to which record
the rows go. The state at record S is that of the last moment whose rows all end by S, and the records since.
"""

from struct import Struct
from typing import Final, NamedTuple

from queen.store.journal import Change, Table
from queen.store.keys import number, u64

EVERY: Final = 50_000
"""Records between two moments: about as many as are folded in a second."""

_KEY = Struct(">QQ")


class Kept(NamedTuple):
    """A moment: its rows hold everything up to record `seq`, and nothing behind record `last`."""

    seq: int
    last: int


def row_key(partition: int, seq: int) -> bytes:
    """MOMENTS: how the partition was behind its record `seq`; the value is a row of PARTITIONS without its summary."""
    return _KEY.pack(partition, seq)


def read_row_key(key: bytes) -> tuple[int, int]:
    """(partition, seq) of a key; partition 0 is a moment's own row."""
    partition, seq = _KEY.unpack(key)
    return partition, seq


def moment_row(moment: Kept) -> Change:
    """The row that completes a moment."""
    return Change(Table.MOMENTS, row_key(0, moment.seq), u64(moment.last))


def read_moment(row: tuple[bytes, bytes] | None) -> Kept | None:
    """The moment of a row, None where the row is none of a moment's own."""
    if row is None:
        return None
    partition, seq = read_row_key(row[0])
    return None if partition else Kept(seq, number(row[1]))
