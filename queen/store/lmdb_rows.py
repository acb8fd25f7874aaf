"""Frames and rows inside one LMDB transaction, which others begin and end: how frames lie in pages, edits."""

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias
from zlib import crc32

import lmdb

from queen.errors import ChainBroken
from queen.store.journal import Change, Edit, Table

# In quotes: they take parameters in the stubs alone.
Transaction: TypeAlias = "lmdb.Transaction[bytes]"
Database: TypeAlias = "lmdb._Database"

KEY: Final = struct.Struct(">QH")
"""Number of a frame and of a chunk. Every key names a chunk, also a lone one: one form of key, and a frame's length
need not be known to find its parts."""
# A value that doesn't fit a leaf gets pages of its own, with one header of 16 bytes. Values that span several pages
# need neighbouring free ones, which a worn file has not (100 kB values reused no page at all); so frames are cut into
# chunks that fill one page exactly, 4,080 bytes where a page is 4,096.
PAGE_HEADER: Final = 16
_MAX_CHUNKS = 1 << 16
_SEEDS: Final = {table: crc32(table.encode()) for table in Table}


class Databases(NamedTuple):
    """The named databases of an environment."""

    journal: Database
    fence: Database
    tables: dict[Table, Database]


def databases(env: lmdb.Environment, create: bool) -> Databases:
    """Open them, and make them where they are missing if `create`; else an older store may lack tables."""

    def named(name: str) -> Database:
        return env.open_db(name.encode(), create=create)

    tables: dict[Table, Database] = {}
    for table in Table:
        try:
            tables[table] = named(table)
        except lmdb.NotFoundError:
            if create:
                raise
    return Databases(named("journal"), named("fence"), tables)


def last_number(txn: Transaction, journal: Database) -> int:
    """The number of the last frame, 0 where there is none."""
    cursor = txn.cursor(journal)
    return int(KEY.unpack(cursor.key())[0]) if cursor.last() else 0


def append(txn: Transaction, journal: Database, chunk: int, expected: int, frames: Sequence[bytes]) -> bool:
    """Put the frames behind number `expected`; False where something stands there already."""
    items = [item for seq, frame in enumerate(frames, expected + 1) for item in _chunks(seq, frame, chunk)]
    if not items:
        return True
    # A key out of order is not refused but left out, and the transaction would still commit: count.
    _, added = txn.cursor(journal).putmulti(items, append=True)
    return bool(added == len(items))


def edit(
    txn: Transaction,
    journal: Database,
    tables: Mapping[Table, Database],
    chunk: int,
    edits: Sequence[Edit],
    head: int,
) -> None:
    """Make changes to tables, and replace frames up to number `head`."""
    # The last change of a key wins; in key order and in one call LMDB is quickest.
    latest: dict[Table, dict[bytes, bytes | None]] = {}
    replaced: dict[int, bytes] = {}
    for entry in edits:
        if isinstance(entry, Change):
            assert entry.key, "an empty key"
            value = entry.value
            latest.setdefault(entry.table, {})[entry.key] = (
                None if value is None else seal(entry.table, entry.key, value)
            )
        else:
            assert 0 < entry.seq <= head, f"there is no frame {entry.seq} to replace"
            replaced[entry.seq] = entry.frame
    for changed, rows in latest.items():
        change(txn, tables[changed], rows)
    if replaced:
        _replace(txn, journal, chunk, replaced)


def seal(table: Table, key: bytes, value: bytes) -> bytes:
    """The value as it is stored: with a checksum over table, key and value, since a row is in no record's checksum."""
    return value + crc32(value, crc32(key, _SEEDS[table])).to_bytes(4)


def unseal(table: Table, key: bytes, stored: bytes) -> bytes:
    """Undo `seal`; raises `ChainBroken` where this is not what was stored under that key."""
    value = stored[:-4]
    if crc32(value, crc32(key, _SEEDS[table])).to_bytes(4) != stored[-4:]:
        raise ChainBroken(f"A row of the table {table} fails its checksum.")
    return value


def change(txn: Transaction, db: Database, rows: Mapping[bytes, bytes | None]) -> None:
    """Put and remove rows of one table, as they are stored."""
    puts = sorted((key, value) for key, value in rows.items() if value is not None)
    if puts:
        txn.cursor(db).putmulti(puts)
    for key, value in rows.items():
        if value is None:
            txn.delete(key, db=db)


def _replace(txn: Transaction, journal: Database, chunk: int, replaced: Mapping[int, bytes]) -> None:
    # Out first and then in: written over, a page would keep its place in the tree however little is left in it.
    for seq in replaced:
        remove_frame(txn, journal, seq)
    for seq in sorted(replaced):
        txn.cursor(journal).putmulti(list(_chunks(seq, replaced[seq], chunk)))


def remove_frame(txn: Transaction, journal: Database, seq: int) -> None:
    """Remove every chunk of a frame that is there."""
    cursor = txn.cursor(journal)
    found = cursor.set_key(KEY.pack(seq, 0))
    assert found, f"frame {seq} is missing"
    prefix = KEY.pack(seq, 0)[:8]
    while cursor.key().startswith(prefix) and cursor.delete():
        pass


def _chunks(seq: int, frame: bytes, size: int) -> Iterator[tuple[bytes, bytes | memoryview]]:
    if len(frame) <= size:
        yield KEY.pack(seq, 0), frame
        return
    view = memoryview(frame)
    assert len(view) <= size * _MAX_CHUNKS, f"frame {seq} is too long: {len(view)} bytes"
    for chunk, start in enumerate(range(0, len(view), size)):
        yield KEY.pack(seq, chunk), view[start : start + size]
