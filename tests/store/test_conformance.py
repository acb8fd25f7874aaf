"""What the port promises, asked of both journals through the port alone."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from queen.errors import Conflict, StoreFailed
from queen.store.journal import Change, Journal, Replacement, Table
from queen.store.lmdb_journal import LmdbJournal
from queen.store.memory_journal import MemoryJournal

BIG = bytes(range(256)) * 40960  # 10 MiB, and no page of it like its neighbour's end

Reopen = Callable[[Journal], Journal]


@pytest.fixture(params=["lmdb", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Journal, Reopen]]:
    """A fresh journal, and how to end an opening and begin the next on the same content."""
    opened: list[Journal] = []

    def reopen(journal: Journal) -> Journal:
        journal.close()
        if isinstance(journal, MemoryJournal):
            opened.append(journal.reopened())
        else:
            opened.append(LmdbJournal.open(tmp_path))
        return opened[-1]

    opened.append(LmdbJournal.open(tmp_path) if request.param == "lmdb" else MemoryJournal())
    yield opened[0], reopen
    for journal in opened:
        journal.close()


@pytest.fixture
def journal(store: tuple[Journal, Reopen]) -> Journal:
    return store[0]


def put(table: Table, *rows: tuple[bytes, bytes | None]) -> list[Change]:
    return [Change(table, key, value) for key, value in rows]


def test_an_empty_journal(journal: Journal) -> None:
    assert journal.head == 0
    assert journal.epoch >= 1
    assert list(journal.frames(0)) == []
    assert journal.frame(0) is None
    assert journal.frame(1) is None
    assert journal.floor(Table.RUNS, b"z") is None
    assert journal.scan(Table.RUNS, b"") == []


def test_frames_are_numbered_without_gaps(journal: Journal) -> None:
    journal.commit(0, [b"one", b"two"])
    journal.commit(2, [])
    journal.commit(2, [b"three"])
    assert journal.head == 3
    assert list(journal.frames(0)) == [(1, b"one"), (2, b"two"), (3, b"three")]
    assert list(journal.frames(2)) == [(3, b"three")]
    assert list(journal.frames(3)) == []
    assert [journal.frame(seq) for seq in (1, 2, 3, 4)] == [b"one", b"two", b"three", None]


@pytest.mark.parametrize("expected", [0, 1, 3])
def test_a_commit_behind_another_head_is_refused_and_writes_nothing(journal: Journal, expected: int) -> None:
    journal.commit(0, [b"one", b"two"])
    with pytest.raises(Conflict):
        journal.commit(expected, [b"x"], put(Table.META, (b"k", b"v")))
    assert journal.head == 2
    assert journal.get(Table.META, b"k") is None
    journal.commit(2, [b"three"])


def test_a_later_opening_claims_a_greater_epoch_and_finds_everything(store: tuple[Journal, Reopen]) -> None:
    first, reopen = store
    first.commit(0, [b"one", BIG], put(Table.QUEUES, (b"q", b"1")))
    second = reopen(first)
    assert second.epoch > first.epoch
    assert second.head == 2
    assert list(second.frames(0)) == [(1, b"one"), (2, BIG)]
    assert second.get(Table.QUEUES, b"q") == b"1"
    second.commit(2, [b"three"])
    third = reopen(second)
    assert third.epoch > second.epoch
    assert third.head == 3


# Around the size of a chunk, where one page ends and the next begins.
@pytest.mark.parametrize("size", [0, 1, 2000, 4079, 4080, 4081, 8159, 8160, 8161, 100_000, len(BIG)])
def test_frames_of_every_size_come_back(journal: Journal, size: int) -> None:
    frames = [b"before", BIG[:size], b"behind"]
    journal.commit(0, frames)
    assert [journal.frame(seq) for seq in (1, 2, 3)] == frames
    assert list(journal.frames(0)) == list(enumerate(frames, 1))
    assert list(journal.frames(1)) == list(enumerate(frames, 1))[1:]


def test_frames_are_read_while_others_are_appended(journal: Journal) -> None:
    frames = [b"%05d" % seq + b"." * (5000 if seq % 7 == 0 else 90) for seq in range(1, 1001)]
    journal.commit(0, frames[:600])
    reading = journal.frames(0)
    seen = [next(reading) for _ in range(10)]
    journal.commit(600, frames[600:])
    seen.extend(reading)
    assert seen == list(enumerate(frames, 1))


# Records of one page each, of many, and several to a page; what takes their place may be shorter or longer.
@pytest.mark.parametrize("size", [100, 2000, 4081, 30_000])
@pytest.mark.parametrize("other", [1, 100, 4080, 9000, 50_000])
def test_frames_are_replaced_in_their_places(store: tuple[Journal, Reopen], size: int, other: int) -> None:
    journal, reopen = store
    frames = [bytes([seq]) * size for seq in range(1, 31)]
    journal.commit(0, frames)
    for seq in (1, 7, 8, 9, 30):
        frames[seq - 1] = bytes([seq + 100]) * other
    journal.commit(30, [b"new"], [Replacement(seq, frames[seq - 1]) for seq in (30, 8, 1, 9, 7)])
    assert journal.head == 31
    assert list(journal.frames(0)) == list(enumerate([*frames, b"new"], 1))
    again = reopen(journal)
    assert [again.frame(seq) for seq in range(1, 32)] == [*frames, b"new"]
    again.commit(31, [b"newer"])


def test_a_replacement_goes_with_the_changes_beside_it(journal: Journal) -> None:
    journal.commit(0, [b"one"], put(Table.ERASURES, (b"k", b"v")))
    with pytest.raises(Conflict):
        journal.commit(0, [], [Replacement(1, b"x"), Change(Table.ERASURES, b"k", None)])
    assert (journal.frame(1), journal.get(Table.ERASURES, b"k")) == (b"one", b"v")
    journal.commit(1, [], [Replacement(1, b"x"), Change(Table.ERASURES, b"k", None), Replacement(1, b"y")])
    assert (journal.frame(1), journal.get(Table.ERASURES, b"k")) == (b"y", None)


@pytest.mark.parametrize("seq", [0, 2, 3])
def test_only_a_frame_that_is_there_is_replaced(journal: Journal, seq: int) -> None:
    journal.commit(0, [b"one"])
    with pytest.raises(AssertionError):
        journal.commit(1, [b"two"], [Replacement(seq, b"x")])
    assert journal.head == 1
    assert list(journal.frames(0)) == [(1, b"one")]


def test_changes_put_and_remove_rows(journal: Journal) -> None:
    journal.commit(0, [], put(Table.IDS, (b"b", b"2"), (b"a", b"1"), (b"c", b"3")))
    journal.commit(0, [], put(Table.IDS, (b"b", b"two"), (b"a", None), (b"missing", None)))
    assert journal.scan(Table.IDS, b"") == [(b"b", b"two"), (b"c", b"3")]
    assert journal.get(Table.IDS, b"a") is None
    assert journal.scan(Table.RUNS, b"") == []


def test_the_last_change_of_a_key_wins(journal: Journal) -> None:
    journal.commit(
        0, [], put(Table.IDS, (b"a", b"1"), (b"a", None), (b"b", b"1"), (b"b", b"2"), (b"c", None), (b"c", b"1"))
    )
    assert journal.scan(Table.IDS, b"") == [(b"b", b"2"), (b"c", b"1")]


def test_empty_values_are_values(journal: Journal) -> None:
    journal.commit(0, [], put(Table.IDS, (b"a", b"")))
    assert journal.get(Table.IDS, b"a") == b""


def test_floor_is_the_greatest_key_not_above(journal: Journal) -> None:
    journal.commit(0, [], put(Table.RUNS, (b"b", b"1"), (b"d", b"2"), (b"d\0", b"3")))
    assert journal.floor(Table.RUNS, b"a") is None
    assert journal.floor(Table.RUNS, b"") is None
    assert journal.floor(Table.RUNS, b"b") == (b"b", b"1")
    assert journal.floor(Table.RUNS, b"c") == (b"b", b"1")
    assert journal.floor(Table.RUNS, b"d") == (b"d", b"2")
    assert journal.floor(Table.RUNS, b"z") == (b"d\0", b"3")


def test_scan_is_bounded_by_start_stop_and_limit(journal: Journal) -> None:
    rows = [(b"%04d" % number, b"v") for number in range(1500)]
    journal.commit(0, [], put(Table.RUNS, *rows))
    assert journal.scan(Table.RUNS, b"") == rows[:1000]
    assert journal.scan(Table.RUNS, b"1490", limit=2000) == rows[1490:]
    assert journal.scan(Table.RUNS, b"0010", b"0012") == rows[10:12]
    assert journal.scan(Table.RUNS, b"0010", b"0020", limit=3) == rows[10:13]
    assert journal.scan(Table.RUNS, b"00105", b"0011\0") == rows[11:12]
    assert journal.scan(Table.RUNS, b"0012", b"0010") == []
    assert journal.scan(Table.RUNS, b"2") == []
    assert journal.scan(Table.RUNS, b"", limit=0) == []


def test_clear_empties_one_table(store: tuple[Journal, Reopen]) -> None:
    journal, reopen = store
    rows = [(b"%04d" % number, b"v" * 100) for number in range(300)]
    journal.commit(0, [b"one"], put(Table.RUNS, *rows) + put(Table.IDS, (b"k", b"v")))
    journal.clear(Table.RUNS)
    assert journal.scan(Table.RUNS, b"") == []
    journal.commit(1, [b"two"], put(Table.RUNS, rows[0]))
    again = reopen(journal)
    assert again.scan(Table.RUNS, b"") == rows[:1]
    assert again.get(Table.IDS, b"k") == b"v"
    assert again.head == 2


def test_clearing_every_table_leaves_the_journal_and_the_fence(store: tuple[Journal, Reopen]) -> None:
    journal, reopen = store
    journal.commit(0, [b"one"])
    for table in Table:
        journal.clear(table)
    journal.commit(1, [b"two"])
    assert reopen(journal).epoch > journal.epoch


@pytest.mark.parametrize("key", [b"", b"k" * 512])
def test_a_key_that_no_journal_takes_is_a_bug_and_writes_nothing(journal: Journal, key: bytes) -> None:
    with pytest.raises(AssertionError):
        journal.commit(0, [b"one"], put(Table.META, (b"a", b"1"), (key, b"v")))
    assert journal.head == 0
    assert list(journal.frames(0)) == []
    assert journal.get(Table.META, b"a") is None
    journal.commit(0, [b"one"], put(Table.META, (b"k" * 511, b"v")))


def test_reading_goes_on_beside_a_committing_thread(journal: Journal) -> None:
    """A commit is seen whole or not at all: its frames and its changes come together."""
    faults: list[str] = []
    count = 150

    def commit_all() -> None:
        for number in range(count):
            changes = put(Table.META, (b"a", b"%d" % number)) + put(Table.RUNS, (b"%05d" % number, b"x" * 500))
            journal.commit(2 * number, [b"f" * 300, b"g" * 9000], changes)

    thread = threading.Thread(target=commit_all)
    thread.start()
    while thread.is_alive():
        rows = len(journal.scan(Table.RUNS, b""))
        value = journal.get(Table.META, b"a")
        seen = sum(1 for _ in journal.frames(0))
        if value is not None and int(value) + 1 < rows:
            faults.append(f"{rows} rows, but the mark says {value!r}")
        if seen < 2 * rows or journal.room().free < 0:
            faults.append(f"{seen} frames, {rows} rows")
        journal.maintain()
    thread.join()
    assert faults == []
    assert journal.head == 2 * count


def test_room_shrinks_as_frames_are_written(journal: Journal) -> None:
    before = journal.room()
    journal.commit(0, [BIG])
    after = journal.room()
    assert after.used >= before.used + len(BIG)
    assert after.free < before.free


def test_close_is_idempotent(journal: Journal) -> None:
    journal.close()
    journal.close()


# -- faults on order: only the memory journal has them ------------------------------------------------------


def test_an_older_opening_is_fenced_off() -> None:
    old = MemoryJournal()
    old.commit(0, [b"one"])
    new = old.reopened()
    with pytest.raises(Conflict):
        old.commit(1, [b"two"])
    new.commit(1, [b"two"])
    assert new.head == 2


@pytest.mark.parametrize("written", [False, True])
def test_after_a_failed_commit_the_memory_journal_takes_no_more(written: bool) -> None:
    journal = MemoryJournal()
    journal.fail_next(StoreFailed("The disk is sick."), written=written)
    with pytest.raises(StoreFailed):
        journal.commit(0, [b"one"], put(Table.META, (b"k", b"v")))
    with pytest.raises(StoreFailed):
        journal.commit(journal.head, [b"two"])
    again = journal.reopened()
    assert again.head == (1 if written else 0)
    assert again.get(Table.META, b"k") == (b"v" if written else None)
    again.commit(again.head, [b"two"])
