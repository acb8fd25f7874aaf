"""What is LMDB's own: growth, full maps, crashes, fencing across processes, damage, permissions."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import lmdb
import pytest

from queen.errors import ChainBroken, Conflict, FormatUnknown, StoreFailed, StoreFull
from queen.store.chain import follow, verify
from queen.store.data_dir import check_data_file
from queen.store.format import ORIGIN, pack
from queen.store.journal import Change, Table
from queen.store.lmdb_file import check_pages, unmap_pages
from queen.store.lmdb_journal import LmdbJournal

KIB = 1 << 10
MIB = 1 << 20


def run(script: str, *arguments: object) -> "subprocess.Popen[str]":
    """Run a script in a process of its own, with this one's import path."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    path = os.pathsep.join(filter(None, sys.path))
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path})


def output_of(script: str, *arguments: object) -> str:
    process = run(script, *arguments)
    output, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    return output


def test_the_format_is_that_of_lmdb_0_9(tmp_path: Path) -> None:
    journal = LmdbJournal.open(tmp_path)
    assert journal._env.lib_version()[:2] == (0, 9)
    flags = journal._env.flags()
    assert flags["sync"]
    assert flags["metasync"]
    assert not flags["writemap"]
    journal.close()


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        LmdbJournal.open(tmp_path / "new").close()
    finally:
        os.umask(old)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    for name in ("data.mdb", "lock.mdb"):
        assert (tmp_path / "new" / name).stat().st_mode & 0o777 == 0o600


def test_a_small_map_grows_past_its_size(tmp_path: Path) -> None:
    journal = LmdbJournal.open(tmp_path, map_size=512 * KIB)
    reading = None
    for seq in range(400):
        journal.commit(seq, [b"%05d" % seq + b"." * 20_000], [Change(Table.RUNS, b"%05d" % seq, b"r")])
        if seq == 10:
            reading = journal.frames(0)
            next(reading)
        journal.maintain()
    assert journal._env.info()["map_size"] >= 8 * MIB
    assert reading is not None
    assert sum(1 for _ in reading) == 399
    journal.close()
    again = LmdbJournal.open(tmp_path, map_size=512 * KIB)
    assert again.head == 400
    assert [frame[:5] for _, frame in again.frames(397)] == [b"00397", b"00398", b"00399"]
    again.close()


def test_a_full_map_refuses_and_writes_nothing(tmp_path: Path) -> None:
    journal = LmdbJournal.open(tmp_path, map_size=MIB)
    journal.commit(0, [b"first"])
    with pytest.raises(StoreFull):
        journal.commit(1, [b"x" * 2 * MIB], [Change(Table.META, b"k", b"v")])
    assert journal.head == 1
    assert journal.frame(2) is None
    assert journal.get(Table.META, b"k") is None
    journal.commit(1, [b"small"], [Change(Table.META, b"k", b"v")])
    assert list(journal.frames(0)) == [(1, b"first"), (2, b"small")]
    # Growing is all it takes.
    while journal._env.info()["map_size"] < 4 * MIB:
        journal._env.set_mapsize(2 * journal._env.info()["map_size"])
    journal.commit(2, [b"x" * 2 * MIB])
    journal.close()


def test_acknowledgements_go_on_from_the_reserve(tmp_path: Path) -> None:
    """W4: whoever pushes only while there is room leaves enough for many small commits."""
    journal = LmdbJournal.open(tmp_path, map_size=4 * MIB, reserve=MIB)
    push = b"p" * 50_000
    while journal.room().free >= 2 * len(push):
        journal.commit(journal.head, [push])
    assert journal.head > 30
    for number in range(100):
        changes = [Change(Table.SETTLED, os.urandom(16), b"v" * 50) for _ in range(10)]
        journal.commit(journal.head, [b"a" * 200], [*changes, Change(Table.META, b"mark", b"%d" % number)])
    journal.close()


def test_what_was_freed_counts_as_room(tmp_path: Path) -> None:
    """Else a full disk would stay full whatever was deleted: LMDB never makes its file smaller."""
    journal = LmdbJournal.open(tmp_path, map_size=8 * MIB, reserve=0)
    rows = [Change(Table.RUNS, b"%05d" % number, b"v" * 1000) for number in range(4000)]
    journal.commit(0, [], rows)
    full = journal.room()
    journal.clear(Table.RUNS)
    empty = journal.room()
    assert full.used > 4 * MIB > 100 * KIB > empty.used
    assert empty.free > full.free + 4 * MIB
    # What one commit frees is there for the next but one.
    journal.commit(0, [], [Change(Table.META, b"k", b"v")])
    journal.commit(0, [], rows)
    journal.close()


def test_records_behind_the_head_stop_the_journal(tmp_path: Path) -> None:
    """LMDB leaves a key out of order out, and says so by a count alone."""
    journal = LmdbJournal.open(tmp_path)
    journal.commit(0, [b"one", b"two"])
    journal._head = 1
    with pytest.raises(StoreFailed, match="behind its head"):
        journal.commit(1, [b"x", b"y"], [Change(Table.META, b"k", b"v")])
    assert list(journal.frames(0)) == [(1, b"one"), (2, b"two")]
    assert journal.get(Table.META, b"k") is None
    with pytest.raises(StoreFailed):
        journal.commit(1, [b"x"])
    journal.close()


def test_a_later_opening_elsewhere_fences_this_one_off(tmp_path: Path) -> None:
    script = """
import sys; from pathlib import Path; from queen.store.lmdb_journal import LmdbJournal
journal = LmdbJournal.open(Path(sys.argv[1])); journal.commit(journal.head, [b'theirs']); print(journal.epoch)
"""
    journal = LmdbJournal.open(tmp_path)
    journal.commit(0, [b"ours"])
    assert int(output_of(script, tmp_path)) == journal.epoch + 1
    with pytest.raises(Conflict, match="taken this journal over"):
        journal.commit(1, [b"ours too"])
    assert [frame for _, frame in journal.frames(0)] == [b"ours", b"theirs"]
    journal.close()


def test_a_reader_elsewhere_sees_what_is_committed(tmp_path: Path) -> None:
    script = """
import sys; from pathlib import Path; from queen.store.lmdb_journal import LmdbJournal
journal = LmdbJournal.open(Path(sys.argv[1]), readonly=True, map_size=65536)
print(journal.head, journal.epoch, len(list(journal.frames(0))), flush=True)
sys.stdin.readline()
print(journal.head, len(list(journal.frames(0))))
"""
    journal = LmdbJournal.open(tmp_path, map_size=512 * KIB)
    journal.commit(0, [b"one"])
    command = [sys.executable, "-c", script, str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as reader:
        assert reader.stdout is not None
        assert reader.stdin is not None
        assert reader.stdout.readline() == f"1 {journal.epoch} 1\n"
        for seq in range(1, 100):
            journal.commit(seq, [b"x" * 20_000])
            journal.maintain()
        reader.stdin.write("\n")
        reader.stdin.flush()
        assert reader.stdout.readline() == "100 100\n"
    journal.close()


KILLED = """
import sys
from pathlib import Path
from queen.store.chain import verify
from queen.store.format import pack
from queen.store.journal import Change, Table
from queen.store.lmdb_journal import LmdbJournal
journal = LmdbJournal.open(Path(sys.argv[1]))
head, digest = verify(journal.frames(0))
while True:
    frames = []
    for seq in range(head + 1, head + 4):
        frame, digest = pack(seq, digest, seq, 1, 0, "w" * (seq % 9000), b"", [])
        frames.append(frame)
    journal.commit(head, frames, [Change(Table.META, b"head", b"%d" % (head + 3))])
    head += 3
    print(head, flush=True)
"""


def test_a_killed_writer_loses_nothing_that_it_confirmed(tmp_path: Path) -> None:
    """O8, P1: SIGKILL in the middle of commits, five times on the same folder."""
    confirmed = 0
    for lines in (1, 40, 90, 20, 70):
        with run(KILLED, tmp_path) as process:
            assert process.stdout is not None
            for _ in range(lines):
                confirmed = int(process.stdout.readline())
            process.send_signal(signal.SIGKILL)
            confirmed = int((process.stdout.read().splitlines() or [str(confirmed)])[-1])
        check_data_file(tmp_path / "data.mdb")
        journal = LmdbJournal.open(tmp_path)
        assert journal.head in (confirmed, confirmed + 3)
        assert verify(journal.frames(0))[0] == journal.head
        assert journal.get(Table.META, b"head") == b"%d" % journal.head
        confirmed = journal.head
        journal.close()
    check_pages(tmp_path)


def test_a_write_that_fails_for_no_lack_of_room_is_the_last(tmp_path: Path) -> None:
    """A limit on the file's size makes LMDB's write come out short, which reads as EIO: like a sick disk."""
    script = """
import resource, sys; from pathlib import Path
from queen.errors import StoreFailed; from queen.store.lmdb_journal import LmdbJournal
journal = LmdbJournal.open(Path(sys.argv[1])); journal.commit(0, [b'one'])
limit = 100_000
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
for frame in (b'x' * 300_000, b'two'):
    try: journal.commit(1, [frame])
    except StoreFailed as error: print(error)
print(journal.head, journal.frame(1), journal.frame(2))
"""
    first, second, third = output_of(script, tmp_path).splitlines()
    assert "its outcome is unknown" in first
    assert "must not write again" in second
    assert third == "1 b'one' None"
    journal = LmdbJournal.open(tmp_path)
    assert journal.head == 1
    journal.commit(1, [b"two"])
    journal.close()


def test_a_reader_that_was_killed_pins_nothing_for_long(tmp_path: Path) -> None:
    script = """
import signal, sys, lmdb
env = lmdb.open(sys.argv[1], readonly=True, max_dbs=12)
txn = env.begin(); print("reading", flush=True); signal.pause()
"""
    journal = LmdbJournal.open(tmp_path)
    with run(script, tmp_path) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "reading\n"
        reader.kill()
    assert str(reader.pid) in journal._env.readers()
    journal.maintain()
    assert str(reader.pid) not in journal._env.readers()
    journal.close()


def test_other_files_are_not_taken_for_a_journal(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(b"not LMDB's" * 1000)
    with pytest.raises(FormatUnknown):
        LmdbJournal.open(tmp_path)


def test_another_lmdb_file_is_not_read_as_a_journal(tmp_path: Path) -> None:
    lmdb.open(str(tmp_path)).close()
    with pytest.raises(FormatUnknown):
        LmdbJournal.open(tmp_path, readonly=True)


def grown(tmp_path: Path) -> Path:
    journal = LmdbJournal.open(tmp_path)
    journal.commit(0, [b"x" * 100_000] * 5)
    journal.close()
    return tmp_path / "data.mdb"


@pytest.mark.parametrize("size", [0, 100, 5000, 8192, 100_000, -4096, -1])
def test_a_file_that_was_cut_off_is_refused_before_it_kills_the_process(tmp_path: Path, size: int) -> None:
    file = grown(tmp_path)
    check_data_file(file)
    os.truncate(file, size if size >= 0 else file.stat().st_size + size)
    with pytest.raises((ChainBroken, FormatUnknown)):
        check_data_file(file)


def test_a_file_that_is_short_of_unused_pages_alone_is_sound(tmp_path: Path) -> None:
    """What a transaction takes at the end of the file and frees again itself is never written."""
    file = grown(tmp_path)
    with lmdb.open(str(tmp_path), max_dbs=12, map_size=8 * MIB) as env:
        with env.begin(write=True) as txn:
            txn.put(b"k", b"v" * 500_000)
            txn.delete(b"k")
        claimed = (env.info()["last_pgno"] + 1) * env.stat()["psize"]
    assert file.stat().st_size < claimed
    check_data_file(file)
    journal = LmdbJournal.open(tmp_path)
    assert journal.head == 5
    journal.close()


def test_a_flipped_byte_in_a_frame_shows_in_the_chain(tmp_path: Path) -> None:
    """X3: LMDB 0.9 has no checksums of its own."""
    journal = LmdbJournal.open(tmp_path)
    digest = ORIGIN
    frames: list[bytes] = []
    for seq in range(1, 50):
        frame, digest = pack(seq, digest, seq, 1, 0, f"caller number {seq}", b"", [])
        frames.append(frame)
    journal.commit(0, frames)
    journal.close()
    file = tmp_path / "data.mdb"
    data = file.read_bytes()
    assert data.count(b"caller number 33") == 1
    file.write_bytes(data.replace(b"caller number 33", b"caller number 34"))
    check_pages(tmp_path)
    journal = LmdbJournal.open(tmp_path)
    seen: list[int] = []
    with pytest.raises(ChainBroken, match="Record 33 fails its checksum"):
        seen.extend(record.seq for record, _ in follow(journal.frames(0)))
    assert seen == list(range(1, 33))
    journal.close()


def _resident_kib(folder: Path) -> int:
    """How much of the data file counts as this process's memory."""
    name = str((folder / "data.mdb").resolve())
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    for line in lines:
        if line.endswith(name):
            return int(next(row for row in lines if row.startswith("Rss:")).split()[1])
    raise AssertionError("the file is not mapped")


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux's /proc")
def test_pages_that_were_read_stay_in_the_page_cache_alone(tmp_path: Path) -> None:
    journal = LmdbJournal.open(tmp_path)
    for seq in range(20):
        journal.commit(seq, [b"x" * 100_000])
    assert all(journal.frame(seq) == b"x" * 100_000 for seq in range(1, 21))
    assert _resident_kib(tmp_path) > 1000
    unmap_pages(tmp_path)
    assert _resident_kib(tmp_path) < 100
    assert journal.frame(7) == b"x" * 100_000
    journal.close()
