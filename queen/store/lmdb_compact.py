"""Compaction: the journal's file made anew without what it no longer holds, beside a server that goes on writing.

Rows are copied in order into a second file, in slices; what commits change meanwhile is noted by key and copied again.
Then commits wait while the last of it is copied and the new file takes the old one's name. A crash leaves the old
file or the new one, each whole and synced; an unfinished copy is removed by the next opening.

LMDB's own compacting copy would keep a reader open all the while, which pins pages, and leave half-empty pages so.
"""

import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from itertools import islice
from pathlib import Path

import lmdb

from queen.errors import Busy, Conflict, StoreFailed, StoreFull, Unavailable
from queen.replies import Compacted
from queen.store.journal import Edit, Replacement, Table
from queen.store.lmdb_file import DATA, open_environment
from queen.store.lmdb_rows import KEY, Database, Databases, Transaction, change, databases, remove_frame

FOLDER = "compacting"
"""The copy, inside the journal's folder until it is complete."""
SLICE_BYTES = 4 << 20
SLICE_ROWS = 4096
"""Rows per transaction of the copy."""
FEW, MANY = 2000, 20_000
"""Changes that had better be left when commits begin to wait for the rest, and that may be left at most."""
ROUNDS = 10
"""How often what has changed is copied before that."""
NOTED = 1_000_000
"""Changes that are remembered, about 100 MB; past it the compaction gives up."""


class Watch:
    """What commits have changed since it was looked at last: keys of rows, numbers of frames that were replaced."""

    def __init__(self) -> None:
        self.rows: dict[Table, set[bytes]] = {}
        self.frames: set[int] = set()
        self.spoiled = False

    def note(self, edits: Sequence[Edit]) -> None:
        """Remember what a commit has edited. Appended frames need no note: they are behind the copy's head."""
        for entry in edits:
            if isinstance(entry, Replacement):
                self.frames.add(entry.seq)
            else:
                self.rows.setdefault(entry.table, set()).add(entry.key)
        if len(self) > NOTED:
            self.spoiled = True

    def __len__(self) -> int:
        return len(self.frames) + sum(map(len, self.rows.values()))


class LmdbCompaction:
    """A `Compaction` of `env`. `turn` is held by every commit; `watch` lets the journal note to a `Watch`, or (None) no
    more; `adopt` lets it work with another environment, and `fail` with none."""

    def __init__(
        self,
        env: lmdb.Environment,
        held: Databases,
        folder: Path,
        turn: threading.Lock,
        watch: Callable[[Watch | None], None],
        adopt: Callable[[lmdb.Environment, Databases], None],
        fail: Callable[[], None],
    ) -> None:
        self._source, self._from = env, held
        self._folder = folder
        self._turn = turn
        self._set_watch = watch
        self._adopt = adopt
        self._fail = fail
        self._watch = Watch()
        self._stopped = False
        self._target: lmdb.Environment | None = None
        self._into: Databases
        self._ready = False
        self._before = 0
        self.over = False
        """Whether another one may begin."""

    def stop(self) -> None:
        """See `Compaction.stop`."""
        self._stopped = True

    def prepare(self) -> None:
        """See `Compaction.prepare`."""
        with self._turn:
            self._set_watch(self._watch)
        try:
            self._copy()
            self._turn.acquire()
            try:
                self._catch_up(held=True)
                self._switch_names()
            except BaseException:
                self._turn.release()
                raise
        except lmdb.Error as error:
            if isinstance(error, lmdb.MapFullError) or error.code in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
                raise StoreFull("There is no room for the compacted file.") from error
            raise Unavailable(f"The file can't be compacted: {error}.") from error

    def finish(self) -> Compacted:
        """See `Compaction.finish`."""
        if not self._ready:
            self._set_watch(None)
            return Compacted(self._before, self._before)
        assert self._target is not None, "what is ready has been opened"
        self._adopt(self._target, self._into)
        self._set_watch(None)
        self._turn.release()
        return Compacted(self._before, (self._folder / DATA).stat().st_size)

    def dispose(self) -> None:
        """See `Compaction.dispose`: giving back a large file's blocks takes a tenth of a second and more."""
        if self._ready:
            self._source.close()
        else:
            if self._target is not None:
                self._target.close()
            remove_unfinished(self._folder)
        self.over = True

    # -- copying ------------------------------------------------------------------------------------------

    def _copy(self) -> None:
        folder = self._folder / FOLDER
        remove_unfinished(self._folder)
        self._before = (self._folder / DATA).stat().st_size
        self._check_room()
        folder.mkdir(mode=0o700)
        self._target = open_environment(folder, self._source.info()["map_size"])
        self._into = databases(self._target, create=True)
        for old, new in self._pairs():
            self._copy_database(old, new)
        left = NOTED
        for _ in range(ROUNDS):
            changed = self._catch_up()
            if changed < FEW or changed > left // 2:
                break  # few enough, or it does not get fewer
            left = changed

    def _check_room(self) -> None:
        disk = os.statvfs(self._folder)
        free = disk.f_bavail * disk.f_frsize
        if free < self._before:
            raise StoreFull(
                f"A compaction needs {self._before} bytes of the disk, as the file has now; {free} are free."
            )

    def _pairs(self) -> Iterator[tuple[Database, Database]]:
        yield self._from.fence, self._into.fence
        yield self._from.journal, self._into.journal
        for table in Table:
            yield self._from.tables[table], self._into.tables[table]

    def _copy_database(self, old: Database, new: Database) -> None:
        after = b""
        while rows := self._read(old, after):
            self._check_stopped()
            assert self._target is not None, "opened by `_copy`"
            with self._target.begin(write=True) as txn:
                _, added = txn.cursor(new).putmulti(rows, append=True)
                assert added == len(rows), "rows come in order"
            after = rows[-1][0]

    def _read(self, db: Database, after: bytes) -> list[tuple[bytes, bytes]]:
        rows: list[tuple[bytes, bytes]] = []
        size = 0
        with self._source.begin() as txn:
            cursor = txn.cursor(db)
            if cursor.set_range(after + b"\0") if after else cursor.first():
                for row in islice(cursor, SLICE_ROWS):
                    rows.append(row)
                    size += len(row[1])
                    if size >= SLICE_BYTES:
                        break
        return rows

    def _catch_up(self, *, held: bool = False) -> int:
        """Copy again what has changed, and say how much it was. `held`: commits wait already."""
        with nullcontext() if held else self._turn:
            changed = self._take()
        if held and len(changed) > MANY:
            raise Busy("too much is being changed for a compaction; try again when less is going on")
        self._check_stopped()
        for table, keys in changed.rows.items():
            ordered = sorted(keys)
            for start in range(0, len(ordered), SLICE_ROWS):
                self._copy_rows(table, ordered[start : start + SLICE_ROWS])
        self._append()
        self._copy_frames(sorted(changed.frames))
        return len(changed)

    def _take(self) -> Watch:
        taken = self._watch
        if taken.spoiled:
            raise Busy("too much was changed during the compaction; try again when less is going on")
        self._watch = Watch()
        self._set_watch(self._watch)
        return taken

    def _copy_rows(self, table: Table, keys: list[bytes]) -> None:
        with self._source.begin() as txn:
            rows = {key: txn.get(key, db=self._from.tables[table]) for key in keys}
        assert self._target is not None, "opened by `_copy`"
        with self._target.begin(write=True) as txn:
            change(txn, self._into.tables[table], rows)

    def _copy_frames(self, seqs: list[int]) -> None:
        """Copy replaced frames again, as many at a time as a slice holds."""
        while seqs:
            frames: dict[int, list[tuple[bytes, bytes]]] = {}
            size = 0
            with self._source.begin() as txn:
                while seqs and size < SLICE_BYTES:
                    seq = seqs.pop()
                    frames[seq] = list(_chunks_of(txn, self._from.journal, seq))
                    size += sum(len(value) for _, value in frames[seq])
            assert self._target is not None, "opened by `_copy`"
            with self._target.begin(write=True) as txn:
                for seq in frames:
                    remove_frame(txn, self._into.journal, seq)
                for seq in sorted(frames):
                    txn.cursor(self._into.journal).putmulti(frames[seq])

    def _append(self) -> None:
        """What was appended since: behind the copy's last chunk."""
        assert self._target is not None, "opened by `_copy`"
        while True:
            with self._target.begin() as txn:
                cursor = txn.cursor(self._into.journal)
                after = cursor.key() if cursor.last() else b""
            rows = self._read(self._from.journal, after)
            if not rows:
                return
            with self._target.begin(write=True) as txn:
                txn.cursor(self._into.journal).putmulti(rows, append=True)

    def _check_stopped(self) -> None:
        if self._stopped:
            raise Conflict("The compaction was stopped; nothing has changed.")

    # -- the switch ---------------------------------------------------------------------------------------

    def _switch_names(self) -> None:
        """The copy is complete and nobody commits: it takes the file's name. Its lock file comes along, since the old
        one counts the old file's transactions."""
        self._compare()
        folder = self._folder / FOLDER
        (folder / DATA).rename(self._folder / DATA)
        try:
            (folder / "lock.mdb").rename(self._folder / "lock.mdb")
            folder.rmdir()
            sync_folder(self._folder)
        except OSError as error:
            # Which file a crash would leave is not known now, so nothing may be written to either.
            self._fail()
            raise StoreFailed(f"The compacted file could not be put in place: {error}.") from error
        self._ready = True

    def _compare(self) -> None:
        """Assert in the end what must be true all along: as many rows everywhere, and the same last record."""
        assert self._target is not None, "opened by `_copy`"
        with self._source.begin() as old, self._target.begin() as new:
            for source, target in self._pairs():
                entries = old.stat(source)["entries"], new.stat(target)["entries"]
                assert entries[0] == entries[1], f"the copy has {entries[1]} rows of {entries[0]}"
            last, copied = old.cursor(self._from.journal), new.cursor(self._into.journal)
            assert (last.last(), last.item()) == (copied.last(), copied.item()), "the copy ends otherwise"


def _chunks_of(txn: Transaction, journal: Database, seq: int) -> Iterator[tuple[bytes, bytes]]:
    cursor = txn.cursor(journal)
    cursor.set_range(KEY.pack(seq, 0))
    for key, value in cursor:
        if KEY.unpack(key)[0] != seq:
            return
        yield key, value


def remove_unfinished(folder: Path) -> None:
    """Remove what a compaction that was cut off has left: it was never in use."""
    shutil.rmtree(folder / FOLDER, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
