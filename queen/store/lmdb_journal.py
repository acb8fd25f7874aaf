"""The journal on LMDB, 0.9 format. The only module that imports lmdb; it knows no trio, so that tools can use it.

Three kinds of named database in one environment: `journal` (number and chunk -> part of a frame), one for each
`Table`, and `fence`, which holds the epoch. The folder's lock is `data_dir`'s; the fence is for the case that it fails.
"""

import errno
import struct
import threading
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, Self

import lmdb

from queen.errors import Conflict, FormatUnknown, StoreFailed, StoreFull, Unavailable
from queen.store.aside import Aside
from queen.store.journal import Edit, Room, Table
from queen.store.lmdb_compact import LmdbCompaction, Watch, remove_unfinished
from queen.store.lmdb_file import disk_free, of_sound_pages, open_environment, unmap_pages
from queen.store.lmdb_rows import KEY, PAGE_HEADER, Databases, Transaction, append, databases, edit, last_number, unseal

MAP_SIZE: Final = 1 << 40
"""Address space, not disk: the file grows as it is written."""
RESERVE: Final = 64 << 20
"""Bytes that `room` keeps back, so that acknowledgements are still written when pushes are refused (W4)."""

_EPOCH = b"epoch"
_NUMBER = struct.Struct(">Q")
# One read transaction of `frames` brings at most this much.
_READ_FRAMES = 256
_READ_BYTES = 1 << 20
# Each commit makes some 64 KiB more of the file resident; this many together are no more than a few MiB.
_UNMAP_EVERY = 128
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class LmdbJournal:
    """A `Journal`. Commits come from one thread, everything else from one other; each call begins and ends its own
    transaction, as LMDB wants a writer's on one thread."""

    def __init__(self, env: lmdb.Environment, folder: Path, reserve: int, readonly: bool) -> None:
        self._env = env
        self._folder = folder
        self._reserve = reserve
        self._readonly = readonly
        # Held by a commit from begin to end, and by whoever moves the map: LMDB crashes if the two meet.
        self._turn = threading.Lock()
        # Held by whoever reads aside, and by whoever moves the map or takes over another environment.
        self._aside = threading.Lock()
        self._failed = False
        self._closed = False
        self._maintained = 0
        self._watch: Watch | None = None
        self._compacting: LmdbCompaction | None = None
        self._journal, self._fence, self._tables = databases(env, create=not readonly)
        stat = env.stat()
        self._page = stat["psize"]
        self._chunk = self._page - PAGE_HEADER
        self._epoch = 0
        self._head = 0

    @classmethod
    def open(cls, folder: Path, *, map_size: int = MAP_SIZE, reserve: int = RESERVE, readonly: bool = False) -> Self:
        """Open or create the environment in `folder`; for writing, claim the next epoch.

        Sizes are in bytes. Raises `FormatUnknown` where the file is not LMDB's or holds no journal, `StoreFull` and
        `StoreFailed` where it can't be written.
        """
        try:
            if not readonly:
                remove_unfinished(folder)
            env = open_environment(folder, map_size, readonly)
        except (lmdb.InvalidError, lmdb.VersionMismatchError, lmdb.CorruptedError) as error:
            raise FormatUnknown(f"{folder} holds no journal of ours: {error}.") from error
        try:
            journal = cls(env, folder, reserve, readonly)
            journal._start()
        except lmdb.NotFoundError as error:
            env.close()
            raise FormatUnknown(f"{folder} holds no journal of ours: {error}.") from error
        except lmdb.Error as error:
            env.close()
            raise StoreFailed(f"{folder} can't be opened: {error}.") from error
        except BaseException:
            env.close()
            raise
        return journal

    @property
    def head(self) -> int:
        """The number of the last frame, 0 for an empty journal. Read anew where somebody else is the writer."""
        return self._read_head() if self._readonly else self._head

    @of_sound_pages
    def _read_head(self) -> int:
        with self._reading() as txn:
            return last_number(txn, self._journal)

    @property
    def epoch(self) -> int:
        """The fencing epoch that this opening claimed; for one that only reads, the latest that it saw."""
        return self._epoch

    # -- writing ------------------------------------------------------------------------------------------

    def commit(self, expected: int, frames: Sequence[bytes], edits: Sequence[Edit] = ()) -> None:
        """Append the frames behind number `expected` and make the edits: all or nothing, synced on return."""
        with self._turn:
            self._check_usable()
            if expected != self._head:
                raise Conflict(f"The journal's head is {self._head}, not {expected}.")
            txn = self._begin()
            try:
                if txn.get(_EPOCH, db=self._fence) != _NUMBER.pack(self._epoch):
                    raise Conflict("Another opening has taken this journal over.")
                if not append(txn, self._journal, self._chunk, expected, frames):
                    self._failed = True
                    raise StoreFailed(f"The journal holds records behind its head, {expected}: it must not be written.")
                edit(txn, self._journal, self._tables, self._chunk, edits, expected)
            except lmdb.Error as error:
                # Nothing is visible before the commit, whatever pages were written early.
                txn.abort()
                raise self._before_commit(error) from error
            except BaseException:
                txn.abort()
                raise
            self._finish(txn, sum(map(len, frames)))
            self._head = expected + len(frames)
            if self._watch is not None:
                self._watch.note(edits)

    def clear(self, table: Table) -> None:
        """Remove every row of a table; durable on return. Only while nobody commits."""
        with self._turn:
            self._check_usable()
            txn = self._begin()
            try:
                txn.drop(self._tables[table], delete=False)
            except lmdb.Error as error:
                txn.abort()
                raise self._before_commit(error) from error
            self._finish(txn, 0)
            if self._watch is not None:
                self._watch.spoiled = True

    def _begin(self) -> Transaction:
        try:
            return self._env.begin(write=True)
        except lmdb.Error as error:
            self._failed = True
            raise StoreFailed(f"The journal can't be written: {error}.") from error

    def _before_commit(self, error: lmdb.Error) -> Exception:
        """What to raise for an error before the commit, whose outcome is known: nothing was written."""
        if isinstance(error, lmdb.MapFullError | lmdb.TxnFullError) or error.code in _NO_ROOM:
            return StoreFull("There is no room left in the journal.")
        if isinstance(error, lmdb.BadValsizeError):
            return AssertionError(f"a key that LMDB doesn't take: {error}")
        self._failed = True
        return StoreFailed(f"The journal can't be written: {error}.")

    def _finish(self, txn: Transaction, size: int) -> None:
        """Commit, or raise `StoreFull` where it is sure that nothing was committed, else `StoreFailed`.

        LMDB writes the pages, syncs them, and only then writes the meta page that makes them count. A failure up
        to there leaves the environment sound; one at the meta page makes every later `begin` fail. A full disk shows
        as ENOSPC or, where a write came out short, as EIO, which a sick disk says as well: an EIO counts as "full"
        only if the disk is. The pages of a transaction that failed are written anew by the next one that needs them,
        so a sync that failed over them can't lose anything later.
        """
        try:
            txn.commit()
        except lmdb.Error as error:
            full = isinstance(error, lmdb.MapFullError | lmdb.TxnFullError) or error.code in _NO_ROOM
            if error.code == errno.EIO:
                full = disk_free(self._folder) < 2 * size + (1 << 20)
            if full and self._unchanged():
                raise StoreFull("There is no room left for the journal.") from error
            self._failed = True
            raise StoreFailed(f"A commit failed, and its outcome is unknown: {error}.") from error

    def _unchanged(self) -> bool:
        try:
            txn = self._env.begin(write=True)
        except lmdb.Error:
            return False
        try:
            return last_number(txn, self._journal) == self._head
        finally:
            txn.abort()

    def _check_usable(self) -> None:
        assert not self._closed, "the journal is closed"
        assert not self._readonly, "the journal was opened for reading"
        if self._failed:
            raise StoreFailed("An earlier commit failed; this process must not write again.")

    # -- reading ------------------------------------------------------------------------------------------

    @of_sound_pages
    def frame(self, seq: int) -> bytes | None:
        """The frame of that number, or None."""
        with self._reading() as txn:
            first = txn.get(KEY.pack(seq, 0), db=self._journal)
            if first is None or len(first) < self._chunk:
                return first
            cursor = txn.cursor(self._journal)
            cursor.set_key(KEY.pack(seq, 0))
            prefix, parts = _NUMBER.pack(seq), []
            for key, part in cursor:
                if not key.startswith(prefix):
                    break
                parts.append(part)
            return b"".join(parts)

    def frames(self, after: int) -> Iterator[tuple[int, bytes]]:
        """Frames in order, those after number `after`. May be consumed slowly: no snapshot is pinned."""
        while page := self.page(after):
            yield from page
            after = page[-1][0]

    @of_sound_pages
    def page(self, after: int) -> list[tuple[int, bytes]]:
        """Some of the frames after number `after`, as many as one short read brings; none at the end."""
        page: list[tuple[int, bytes]] = []
        parts: list[bytes] = []
        latest = size = 0
        with self._reading() as txn:
            cursor = txn.cursor(self._journal)
            if not cursor.set_range(KEY.pack(after + 1, 0)):
                return page
            for key, part in cursor:
                seq = KEY.unpack(key)[0]
                if parts and seq != latest:
                    page.append((latest, b"".join(parts)))
                    parts = []
                    if len(page) >= _READ_FRAMES or size >= _READ_BYTES:
                        return page
                latest = seq
                parts.append(part)
                size += len(part)
        page.append((latest, b"".join(parts)))
        return page

    @of_sound_pages
    def get(self, table: Table, key: bytes) -> bytes | None:
        """The value under exactly this key, or None."""
        if not key or table not in self._tables:
            return None
        with self._reading() as txn:
            stored = txn.get(key, db=self._tables[table])
        return None if stored is None else unseal(table, key, stored)

    @of_sound_pages
    def floor(self, table: Table, key: bytes) -> tuple[bytes, bytes] | None:
        """The row with the greatest key that is at most `key`, or None."""
        if not key or table not in self._tables:
            return None
        with self._reading() as txn:
            cursor = txn.cursor(self._tables[table])
            found = cursor.set_range(key)
            if not found or cursor.key() != key:
                found = cursor.prev() if found else cursor.last()
            if not found:
                return None
            lower, stored = cursor.item()
        return lower, unseal(table, lower, stored)

    @of_sound_pages
    def scan(
        self, table: Table, start: bytes, stop: bytes | None = None, limit: int = 1000
    ) -> list[tuple[bytes, bytes]]:
        """Up to `limit` rows in key order with start <= key < stop (`stop` None: to the end)."""
        rows: list[tuple[bytes, bytes]] = []
        if table not in self._tables:
            return rows
        with self._reading() as txn:
            cursor = txn.cursor(self._tables[table])
            if not (cursor.set_range(start) if start else cursor.first()):
                return rows
            for key, stored in islice(cursor, limit):
                if stop is not None and key >= stop:
                    break
                rows.append((key, unseal(table, key, stored)))
        return rows

    def _reading(self) -> Transaction:
        if self._closed:
            raise Unavailable("The journal is closed.")
        try:
            return self._env.begin()
        except lmdb.MapResizedError:
            # The writer, another process, has grown the map; 0 takes over its size.
            self._env.set_mapsize(0)
            return self._env.begin()

    def aside(self) -> Aside:
        """See `Journal.aside`."""
        return Aside(self, self._aside)

    # -- housekeeping -------------------------------------------------------------------------------------

    @of_sound_pages
    def room(self) -> Room:
        """What is left on the disk and in the map; cheap enough to ask at every commit.

        `used` counts the pages that hold something. The others of the file are free to be used again, except for
        what their list takes (8 bytes a page), for those that the last commit freed, and for those that a reader still
        looks at.
        """
        info = self._env.info()
        with self._reading() as txn:
            stats = [txn.stat(db) for db in (self._journal, self._fence, *self._tables.values())]
        pages = sum(stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"] for stat in stats)
        used = pages * self._page
        high = (info["last_pgno"] + 1) * self._page
        again = max(high - used, 0) * 255 // 256
        free = min(disk_free(self._folder), info["map_size"] - high) + again - self._reserve
        return Room(max(free, 0), used)

    def maintain(self) -> None:
        """Housekeeping between commits, on the thread that reads: grow the map, drop dead readers.

        The map moves when it grows, and a transaction that is open meanwhile reads freed memory. The reader is this
        very thread and has none open; the writer is kept out by `_turn`. If it is at work, the next call will do it.
        """
        if not self._turn.acquire(blocking=False):
            return
        try:
            # What a killed process was reading would be kept for ever.
            self._env.reader_check()
            info = self._env.info()
            size = info["map_size"]
            # A compaction reads in a thread of its own.
            still = self._readonly or self._watch is not None
            if not still and (info["last_pgno"] + 1) * self._page > size * 4 // 5:
                with self._aside:
                    self._env.set_mapsize(2 * size)
            self._maintained += 1
            if self._maintained % _UNMAP_EVERY == 0:
                unmap_pages(self._folder)
        except lmdb.Error as error:
            self._failed = True
            raise StoreFailed(f"The journal's map can't grow: {error}.") from error
        finally:
            self._turn.release()

    def compaction(self) -> LmdbCompaction:
        """Make the file anew, see `Compaction`. Raises `Conflict` while another one is at work."""
        self._check_usable()
        if self._compacting is not None and not self._compacting.over:
            raise Conflict("a compaction is at work already")
        held = Databases(self._journal, self._fence, self._tables)
        self._compacting = LmdbCompaction(
            self._env, held, self._folder, self._turn, self._set_watch, self._adopt, self._fail
        )
        return self._compacting

    def _set_watch(self, watch: Watch | None) -> None:
        self._watch = watch

    def _adopt(self, env: lmdb.Environment, held: Databases) -> None:
        with self._aside:
            self._env = env
            self._journal, self._fence, self._tables = held

    def _fail(self) -> None:
        self._failed = True

    def close(self) -> None:
        """Release everything. Idempotent."""
        with self._turn, self._aside:
            if not self._closed:
                self._closed = True
                self._env.close()

    @of_sound_pages
    def _start(self) -> None:
        # A process that was killed leaves its readers behind, and with them the pages that they pinned.
        self._env.reader_check()
        with self._reading() as txn:
            self._head = last_number(txn, self._journal)
            latest = txn.get(_EPOCH, db=self._fence)
        self._epoch = _NUMBER.unpack(latest)[0] if latest else 0
        if self._readonly:
            return
        self._epoch += 1
        txn = self._begin()
        try:
            txn.put(_EPOCH, _NUMBER.pack(self._epoch), db=self._fence)
        except lmdb.Error as error:
            txn.abort()
            raise self._before_commit(error) from error
        self._finish(txn, 0)
