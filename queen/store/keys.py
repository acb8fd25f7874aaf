"""The keys and rows of the projection tables, as bytes. Pure; see docs/architecture.md for the tables.

All numbers are big-endian, so that the order of bytes is the order of numbers.
"""

from hashlib import sha256
from struct import Struct
from typing import Final

from queen.events import Outcome
from queen.history import PushedRun

CELLS: Final = 120
"""Positions per row of SETTLED: four rows fill a page of 4 KiB."""

GIVEN_UP: Final[tuple[Outcome, ...]] = ("failed", "dead_letter")
"""The outcomes that are listed by themselves: few messages among many."""

_PAIR = Struct(">QQ")
_RUN = Struct(">QIQqB")
_HASHED = Struct(">8sQH")
_SETTLED = Struct(">QIQ")
_GIVEN_UP = Struct(">QIBQ")
_U64 = Struct(">Q")
_BASE = Struct(">QI")

_GENERATED = b"g"
_NAMED = b"n"

MORE: Final = 1
"""Flag of a RUNS row: the record holds delays or a key, which the row does not."""


def u64(number: int) -> bytes:
    """A number as a key or value."""
    return _U64.pack(number)


def number(row: bytes) -> int:
    """Undo `u64`."""
    value: int = _U64.unpack(row)[0]
    return value


def run_key(partition: int, first: int) -> bytes:
    """RUNS: where the record that starts at position `first` lies."""
    return _PAIR.pack(partition, first)


def run_value(run: PushedRun) -> bytes:
    """What RUNS holds of a record."""
    more = MORE if run.delays_s or run.key is not None else 0
    return _RUN.pack(run.seq, run.length, run.pushed_at, run.shown_at - run.pushed_at, more)


def read_run(key: bytes, value: bytes) -> tuple[int, PushedRun, bool]:
    """The partition, the run, and whether its record says more than the row."""
    partition, first = _PAIR.unpack(key)
    seq, length, at, shift, more = _RUN.unpack(value)
    return partition, PushedRun(first, length, at, seq, at + shift), bool(more & MORE)


def generated_key(base: int) -> bytes:
    """IDS: the record whose messages' ids and generated transactionIds count up from `base`."""
    return _GENERATED + base.to_bytes(16)


def generated_value(seq: int, length: int) -> bytes:
    """The record's number and how many messages it holds."""
    return _BASE.pack(seq, length)


def read_generated(row: tuple[bytes, bytes] | None) -> tuple[int, int, int] | None:
    """(base, seq, length) of a row of generated ids, None for any other row."""
    if row is None or not row[0].startswith(_GENERATED):
        return None
    seq, length = _BASE.unpack(row[1])
    return int.from_bytes(row[0][1:]), seq, length


def named_prefix(transaction_id: str) -> bytes:
    """IDS: what the keys of this transactionId (and of few others) start with."""
    return _NAMED + sha256(transaction_id.encode()).digest()[:8]


def named_key(transaction_id: str, seq: int, index: int) -> bytes:
    """IDS: the `index`-th message of record `seq` has this transactionId. The value is empty."""
    return _NAMED + _HASHED.pack(sha256(transaction_id.encode()).digest()[:8], seq, index)


def read_named(key: bytes) -> tuple[int, int]:
    """(seq, index) of a key."""
    _, seq, index = _HASHED.unpack(key[1:])
    return seq, index


def settled_key(partition: int, group: int, position: int) -> bytes:
    """SETTLED: the row with the cell of this position."""
    return _SETTLED.pack(partition, group, position // CELLS)


def given_up_key(partition: int, group: int, outcome: Outcome, position: int) -> bytes:
    """GIVEN_UP: the message ended as `outcome`, "failed" or "dead_letter". The value is empty."""
    return _GIVEN_UP.pack(partition, group, GIVEN_UP.index(outcome), position)


def read_given_up(key: bytes) -> int:
    """The position of a key."""
    position: int = _GIVEN_UP.unpack(key)[3]
    return position


def settlement_key(partition: int, seq: int) -> bytes:
    """SETTLEMENTS: record `seq` settled messages of the partition; the value is when."""
    return _PAIR.pack(partition, seq)


def read_settlement(row: tuple[bytes, bytes]) -> tuple[int, int, int]:
    """(partition, seq, at) of a row."""
    partition, seq = _PAIR.unpack(row[0])
    return partition, seq, number(row[1])


def erasure_key(partition: int, first: int) -> bytes:
    """ERASURES: the payloads of deleted messages from position `first` on are to go."""
    return _PAIR.pack(partition, first)


def erasure_value(length: int) -> bytes:
    """How many of them."""
    return _U64.pack(length)


def read_erasure(key: bytes, value: bytes) -> tuple[int, int, int]:
    """(partition, first position, the position behind the last) of a row."""
    partition, first = _PAIR.unpack(key)
    return partition, first, first + number(value)
