"""Backups: a journal's records as one file, from beside its server, and a data folder made of such a file.

What a backup holds: every record up to number H, the last one there was when the copy got to the end. Records are never
changed but for the erasure of deleted payloads, and what erases one is recorded in front of H. So all that a backup
lacks it lacks by its own account, and a payload that was deleted while the copy was made is erased after a restore.
Projections are left out: a start makes them from the records.
"""

from pathlib import Path
from typing import BinaryIO, NamedTuple

from queen.audit.lost import Lost
from queen.audit.reading import Past, shown
from queen.audit.times import When
from queen.audit.world import World
from queen.store.archive import EVERY, Archived, Progress, Reader, write
from queen.store.data_dir import restoring
from queen.store.format import ORIGIN, Record, digest_of, pack
from queen.store.journal import Journal

WHO = "restore"
"""Who has deleted again what was lost, in the records that say so."""
_GROUP_BYTES = 4 << 20
_GROUP_FRAMES = 4096


class Restored(NamedTuple):
    """What a new folder holds: records 1 to `seq` of the archive, of which the last has `digest` and was made at
    `latest_at` (µs); and behind them `records` that delete the `lost` messages whose payloads are gone."""

    archived: Archived
    seq: int
    digest: bytes
    latest_at: int
    lost: int = 0
    records: int = 0


def back_up(past: Past, stream: BinaryIO, now: int, progress: Progress) -> Archived:
    """Copy every record, each checked on its way. Reads are short, one after another, so the writer's freed
    pages are not held back. `now` in µs. Raises `ChainBroken` at a damaged record, `FormatUnknown`, `OSError`."""
    return write(stream, past.frames(0), now, lambda seq: progress(seq, max(seq, past.head)))


def restore(stream: BinaryIO, folder: Path, until: When | None, progress: Progress) -> Restored:
    """Make the data folder `folder` of an archive, of its records up to `until` (None: of all), and sync it.

    The whole archive is read and checked in any case; if it is damaged no folder is made. Raises `FormatUnknown`,
    `ChainBroken`, `Conflict` (the folder holds something), `FolderLocked`, `StoreFull`, `OSError`.
    """
    reader = Reader(stream)
    with restoring(folder) as journal:
        target = _Target(journal)
        world, lost, whole = World(), Lost(), True
        last: Record | None = None
        for record, frame in reader.records():
            whole = whole and _is_in(record, until)
            if whole:
                last = record
                target.add(frame)
                if until is not None:  # a whole archive has lost nothing
                    world.apply(record)
                    lost.take(record)
            if record.seq % EVERY == 0:
                progress(record.seq, record.seq)
        archived = reader.archived
        assert archived is not None, "it has been read to its end"
        target.flush()
        digest = ORIGIN if last is None else digest_of(last)
        restored = Restored(archived, target.seq, digest, 0 if last is None else shown(last))
        return restored if until is None else _delete_again(target, world, lost, restored)


def _is_in(record: Record, until: When | None) -> bool:
    if until is None:
        return True
    return record.seq <= until.seq if until.seq is not None else shown(record) <= until.at


def _delete_again(target: "_Target", world: World, lost: Lost, restored: Restored) -> Restored:
    """Messages without a payload would be passed over by every pop for ever: their deletion comes first."""
    world.sum_up()
    digest, count, records = restored.digest, 0, 0
    for partition, event in lost.deletions(world):
        seq = restored.seq + records + 1
        frame, digest = pack(seq, digest, world.at, partition, world.shift, WHO, b"", (event,))
        target.add(frame)
        count += sum(run.length for run in event.runs)
        records += 1
    target.flush()
    return restored._replace(lost=count, records=records)


class _Target:
    """A journal that is filled, many frames to a commit."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._frames: list[bytes] = []
        self._size = 0
        self.seq = 0

    def add(self, frame: bytes) -> None:
        """The next frame."""
        self._frames.append(frame)
        self._size += len(frame)
        if self._size >= _GROUP_BYTES or len(self._frames) >= _GROUP_FRAMES:
            self.flush()

    def flush(self) -> None:
        """Commit, synced, what was added."""
        self._journal.commit(self.seq, self._frames)
        self.seq += len(self._frames)
        self._frames, self._size = [], 0
