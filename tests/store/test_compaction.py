"""Compaction of the file beside commits, and after crashes at every point; what was erased is physically gone (R5)."""

import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from queen.errors import Busy, Conflict, StoreFull
from queen.replies import Compacted
from queen.store import lmdb_compact
from queen.store.journal import Change, Edit, Replacement, Table
from queen.store.lmdb_compact import FOLDER, LmdbCompaction
from queen.store.lmdb_file import check_pages
from queen.store.lmdb_journal import LmdbJournal

SECRET = b"Ada's blood group is AB negative"
Content = tuple[list[tuple[int, bytes]], dict[Table, list[tuple[bytes, bytes]]]]


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[LmdbJournal]:
    journal = LmdbJournal.open(tmp_path)
    yield journal
    journal.close()


def content(journal: LmdbJournal) -> Content:
    return list(journal.frames(0)), {table: journal.scan(table, b"", limit=10**6) for table in Table}


def compact(journal: LmdbJournal) -> Compacted:
    compaction = journal.compaction()
    try:
        compaction.prepare()
    finally:
        done = compaction.finish()
        compaction.dispose()
    return done


def filled(journal: LmdbJournal, frames: int = 300) -> None:
    """Frames of many sizes, and some rows in every table."""
    chance = random.Random(1)
    for _ in range(frames // 10):
        rows = [
            Change(table, b"%06d" % chance.randrange(10**6), b"v" * chance.randrange(300))
            for table in Table
            for _ in range(5)
        ]
        sizes = [chance.choice((100, 900, 5000, 30_000)) for _ in range(10)]
        journal.commit(journal.head, [chance.randbytes(size) for size in sizes], rows)


def raw(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def test_everything_is_there_afterwards(journal: LmdbJournal, tmp_path: Path) -> None:
    filled(journal)
    before, epoch, head = content(journal), journal.epoch, journal.head
    for _ in range(3):
        compact(journal)
        assert content(journal) == before
        assert (journal.epoch, journal.head) == (epoch, head)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["data.mdb", "lock.mdb"]
    journal.commit(head, [b"next"], [Change(Table.META, b"k", b"v")])
    now = content(journal)
    journal.close()
    check_pages(tmp_path)
    again = LmdbJournal.open(tmp_path)
    assert content(again) == now
    assert again.epoch == epoch + 1
    again.close()


def test_an_empty_journal_can_be_compacted(journal: LmdbJournal) -> None:
    compact(journal)
    journal.commit(0, [b"one"])
    assert journal.frame(1) == b"one"


def test_what_was_erased_is_gone_from_the_raw_file(journal: LmdbJournal, tmp_path: Path) -> None:
    """R5. Before, it still stands in pages that are free: LMDB writes nothing over in place."""
    filled(journal)
    journal.commit(journal.head, [SECRET * 3, b"behind"])
    seq = journal.head - 1
    journal.commit(journal.head, [], [Replacement(seq, b"erased")])
    assert journal.frame(seq) == b"erased"
    assert SECRET in raw(tmp_path)
    compact(journal)
    assert SECRET not in raw(tmp_path)
    assert journal.frame(seq) == b"erased"


def test_the_file_gets_smaller(journal: LmdbJournal, tmp_path: Path) -> None:
    filled(journal)
    journal.commit(journal.head, [], [Replacement(seq, b"tombstone") for seq in range(1, journal.head + 1)])
    done = compact(journal)
    assert done.after == (tmp_path / "data.mdb").stat().st_size
    assert done.after < done.before // 4


def test_commits_go_on_meanwhile_and_none_is_missed(journal: LmdbJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows put and removed, frames appended and replaced, before and behind what has been copied already."""
    monkeypatch.setattr(lmdb_compact, "SLICE_ROWS", 40)
    filled(journal)
    chance = random.Random(2)
    compaction = journal.compaction()
    preparing = threading.Thread(target=compaction.prepare)
    preparing.start()
    commits = 0
    committing = threading.Thread()
    while preparing.is_alive():
        edits: list[Edit] = []
        for table in Table:
            for _ in range(3):
                key = b"%06d" % chance.randrange(10**6)
                edits.append(Change(table, key, None if chance.random() < 0.3 else b"new" * chance.randrange(90)))
            rows = journal.scan(table, b"%06d" % chance.randrange(10**6), limit=2)
            edits += [Change(table, key, chance.choice((None, b"other"))) for key, _ in rows]
        for seq in chance.sample(range(1, journal.head + 1), 3):
            edits.append(Replacement(seq, chance.randbytes(chance.choice((50, 4080, 9000)))))
        frames = [chance.randbytes(chance.choice((100, 9000))) for _ in range(3)]
        # In a thread of its own: once the copy is ready, a commit waits for `finish`.
        committing = threading.Thread(target=journal.commit, args=(journal.head, frames, edits))
        committing.start()
        while committing.is_alive() and preparing.is_alive():
            committing.join(0.001)
        commits += 1
    compaction.finish()
    compaction.dispose()
    committing.join()
    assert commits > 1
    seen = content(journal)
    journal.commit(journal.head, [b"last"])
    folder = journal._folder
    journal.close()
    again = LmdbJournal.open(folder)
    frames_now, tables = content(again)
    assert frames_now[:-1] == seen[0]
    assert tables == seen[1]
    again.close()


def test_reads_go_on_until_the_switch(journal: LmdbJournal) -> None:
    """`prepare` leaves the old file in use; a reading that began before goes on behind it."""
    filled(journal)
    before = content(journal)
    reading = journal.frames(0)
    first = [next(reading) for _ in range(3)]
    compaction = journal.compaction()
    compaction.prepare()
    assert content(journal) == before
    first.append(next(reading))
    compaction.finish()
    compaction.dispose()
    assert [*first, *reading] == before[0]


def test_another_process_that_reads_keeps_what_it_sees(journal: LmdbJournal, tmp_path: Path) -> None:
    """The replay tool beside the server."""
    filled(journal)
    program = (
        "import sys; from pathlib import Path; from queen.store.lmdb_journal import LmdbJournal\n"
        "journal = LmdbJournal.open(Path(sys.argv[1]), readonly=True)\n"
        "print(len(list(journal.frames(0))), flush=True); input(); print(len(list(journal.frames(0))), flush=True)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as tool:
        assert tool.stdout is not None
        assert tool.stdin is not None
        count = int(tool.stdout.readline())
        compact(journal)
        for _ in range(20):
            journal.commit(journal.head, [b"x" * 9000])
        tool.stdin.write("\n")
        tool.stdin.flush()
        assert int(tool.stdout.readline()) == count == 300
    assert len(list(journal.frames(0))) == 320


def test_a_stopped_compaction_changes_nothing(journal: LmdbJournal, tmp_path: Path) -> None:
    filled(journal)
    before = content(journal)
    compaction = journal.compaction()
    with pytest.raises(Conflict, match="already"):
        journal.compaction()
    compaction.stop()
    with pytest.raises(Conflict, match="stopped"):
        compaction.prepare()
    done = compaction.finish()
    compaction.dispose()
    assert done.before == done.after
    assert content(journal) == before
    assert not (tmp_path / FOLDER).exists()
    journal.commit(journal.head, [b"next"])
    compact(journal)


def test_too_many_changes_meanwhile_give_it_up(journal: LmdbJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is remembered of them is bounded."""
    monkeypatch.setattr(lmdb_compact, "NOTED", 10)
    filled(journal)
    copy = LmdbCompaction._copy_database

    def slowly(self: LmdbCompaction, *pair: object) -> None:
        journal.commit(journal.head, [], [Change(Table.META, b"%d" % number, b"v") for number in range(11)])
        copy(self, *pair)  # type: ignore[arg-type]

    monkeypatch.setattr(LmdbCompaction, "_copy_database", slowly)
    compaction = journal.compaction()
    with pytest.raises(Busy):
        compaction.prepare()
    compaction.finish()
    compaction.dispose()
    journal.commit(journal.head, [b"next"])


def test_a_table_that_is_cleared_meanwhile_gives_it_up(journal: LmdbJournal) -> None:
    """An engine that starts anew drops tables that don't fit."""
    filled(journal)
    compaction = journal.compaction()
    copied = compaction._copy

    def copy() -> None:
        journal.clear(Table.RUNS)
        copied()

    compaction._copy = copy  # type: ignore[method-assign]
    with pytest.raises(Busy):
        compaction.prepare()
    compaction.finish()
    compaction.dispose()
    assert journal.scan(Table.RUNS, b"") == []


def test_without_room_nothing_happens(journal: LmdbJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(journal)
    before = content(journal)

    class Full:
        f_bavail, f_frsize = 1, 4096

    monkeypatch.setattr("queen.store.lmdb_compact.os.statvfs", lambda path: Full())
    compaction = journal.compaction()
    with pytest.raises(StoreFull):
        compaction.prepare()
    compaction.finish()
    compaction.dispose()
    monkeypatch.undo()
    assert content(journal) == before
    journal.commit(journal.head, [b"next"])


# -- crashes ------------------------------------------------------------------------------------------------

CRASHING = """
import os, sys
from pathlib import Path
from queen.store import lmdb_compact
from queen.store.lmdb_compact import LmdbCompaction
from queen.store.lmdb_journal import LmdbJournal

place = sys.argv[2]
renamed = Path.rename

def rename(self, target):
    if place == f"before {self.name}":
        os._exit(9)
    renamed(self, target)
    if place == f"behind {self.name}":
        os._exit(9)

def dies(self, *_):
    os._exit(9)

Path.rename = rename
if place.startswith("_"):
    setattr(LmdbCompaction, place, dies)
if place == "sync":
    lmdb_compact.sync_folder = dies
journal = LmdbJournal.open(Path(sys.argv[1]))
journal.commit(journal.head, [b"one more"])
compaction = journal.compaction()
compaction.prepare()
if place == "prepared":
    os._exit(9)
compaction.finish()
compaction.dispose()
if place == "finished":
    os._exit(9)
journal.commit(journal.head, [b"one more"])
os._exit(9)
"""
PLACES = (
    "_catch_up",
    "_compare",
    "before data.mdb",
    "behind data.mdb",
    "before lock.mdb",
    "behind lock.mdb",
    "sync",
    "prepared",
    "finished",
    "behind a commit",
)


@pytest.mark.parametrize("place", PLACES)
def test_a_crash_leaves_one_whole_file(tmp_path: Path, place: str) -> None:
    """The old one or the new one, and nothing of the other; a committed record is in either."""
    journal = LmdbJournal.open(tmp_path)
    filled(journal)
    frames, tables = content(journal)
    journal.close()
    assert subprocess.run([sys.executable, "-c", CRASHING, str(tmp_path), place], check=False).returncode == 9
    check_pages(tmp_path)
    again = LmdbJournal.open(tmp_path)
    more = 2 if place == "behind a commit" else 1
    assert content(again) == (frames + [(300 + number, b"one more") for number in range(1, more + 1)], tables)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.mdb", "lock.mdb"]
    again.commit(again.head, [b"next"])
    compact(again)
    assert again.frame(again.head) == b"next"
    again.close()
