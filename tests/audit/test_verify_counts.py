"""`queen verify` of the statistics and of what is still to be erased: sound at any instant of a busy broker, and each
wrong row found and named (R5, S3, S4, X3)."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner
from trio.testing import MockClock

from queen import open_broker
from queen.actors.statistics import HOUR, MINUTES
from queen.audit.reading import records
from queen.audit.verifying import verify
from queen.cli import main
from queen.clock import TrioClock
from queen.errors import QueenError
from queen.messages import NewMessage
from queen.names import SECOND
from queen.store import keys
from queen.store.beside import Beside
from queen.store.format import Record, erase, pack_row, unpack_row
from queen.store.journal import Change, Reading, Replacement, Table
from queen.store.lmdb_journal import LmdbJournal
from queen.store.memory_journal import MemoryJournal
from tests.actors.test_figures import Workload
from tests.actors.world import doomed, opened, slow


def _told(past: Reading) -> list[str]:
    return [str(finding) for finding in verify(past).findings]


def _told_of(folder: Path) -> list[str]:
    with Beside(folder) as past:
        return _told(past)


def _change(folder: Path, *edits: Change | Replacement) -> None:
    journal = LmdbJournal.open(folder / "journal")
    journal.commit(journal.head, (), edits)
    journal.close()


def _records(folder: Path) -> list[Record]:
    with Beside(folder) as past:
        return list(records(past))


# -- sound ---------------------------------------------------------------------------------------------


AHEAD = 4_000_000_000 * SECOND
"""Ahead of the machine's clock: so the time of the last record says which hours must be there."""


class Leaping(TrioClock):
    """A server's time that can be moved on without every second of it being lived through."""

    def leap(self, hours: int) -> None:
        self._base += hours * HOUR


async def _busy(journal: MemoryJournal, work: Workload, clock: Leaping) -> set[Table]:
    """Look at everything after every step, whatever is being written then. Returns which tables had rows."""
    seen: set[Table] = set()
    for step in range(60):
        await work.run(1)
        await trio.sleep(0.3)
        if step % 20 == 11:
            clock.leap(9)
            await work.push()  # the records tell what time it is
        if step % 20 == 17:
            await _delete_queue(work)
        assert _told(journal) == []
        seen |= {table for table in (Table.STATISTICS, Table.ERASURES) if journal.scan(table, b"")}
    return seen


async def _delete_queue(work: Workload) -> None:
    queue = work.chance.choice("abc")
    try:
        await work.queen.delete_queue(queue)
    except QueenError:
        pass
    await work.configure()


@pytest.mark.parametrize("seed", range(3))
async def test_a_busy_journal_is_sound_at_any_instant(seed: int, autojump_clock: MockClock) -> None:
    """With deletions, retention and erasures under way, hours that leave the window, a crash, and tables made anew."""
    journal, clock = MemoryJournal(), Leaping(AHEAD)
    async with doomed(journal, clock=clock) as queen:
        work = Workload(queen, seed, (0.1, 1, 45, 200))
        await work.configure()
        assert await _busy(journal, work, clock) == {Table.STATISTICS, Table.ERASURES}
    journal = journal.reopened()
    assert _told(journal) == []
    async with opened(journal, runner=slow(), clock=clock, limit_s=10**6) as queen:
        await _busy(journal, Workload(queen, seed + 100, (0.1, 1, 45)), clock)
    assert _told(journal) == []
    journal.clear(Table.META)
    async with opened(journal, clock=clock, limit_s=10**6) as queen:
        await _busy(journal, Workload(queen, seed + 200, (0.1, 1)), clock)


class Interrupted:
    """A journal for reading that is `later` from the `stop`th record of a walk on: what a server did meanwhile."""

    def __init__(self, earlier: MemoryJournal, later: MemoryJournal, stop: int) -> None:
        self._now, self._later, self._stop = earlier, later, stop

    @property
    def head(self) -> int:
        return self._now.head

    def frame(self, seq: int) -> bytes | None:
        return self._now.frame(seq)

    def frames(self, after: int) -> Iterator[tuple[int, bytes]]:
        while after < self.head:
            if after >= self._stop:
                self._now = self._later
            after += 1
            yield after, self._now.frame(after) or b""

    def get(self, table: Table, key: bytes) -> bytes | None:
        return self._now.get(table, key)

    def floor(self, table: Table, key: bytes) -> tuple[bytes, bytes] | None:
        return self._now.floor(table, key)

    def scan(
        self, table: Table, start: bytes, stop: bytes | None = None, limit: int = 1000
    ) -> list[tuple[bytes, bytes]]:
        return self._now.scan(table, start, stop, limit)


async def test_what_a_server_does_while_the_journal_is_walked_is_no_fault(autojump_clock: MockClock) -> None:
    """Rows written anew, messages that are deleted and erased, and a queue that goes, all behind the walk's end."""
    journal = MemoryJournal()
    async with opened(journal, limit_s=10**6) as queen:
        work = Workload(queen, 5, (0.1, 1))
        await work.configure()
        await work.run(60)
        await trio.sleep(1.2)
        earlier = _copied(journal)
        await work.run(60)
        await _delete_queue(work)
        await trio.sleep(20)
        later = _copied(journal)
    erased = [seq for seq, frame in later.frames(0) if seq <= earlier.head and frame != earlier.frame(seq)]
    assert erased
    for stop in range(0, earlier.head + 1, 7):
        found = _told(Interrupted(earlier, later, stop))
        assert found == [], "\n".join(found)


def _copied(journal: MemoryJournal) -> MemoryJournal:
    """The same content, and from now on another's."""
    copied = MemoryJournal()
    rows = [Change(table, *row) for table in Table for row in journal.scan(table, b"", None, 10**6)]
    copied.commit(0, [frame for _, frame in journal.frames(0)], rows)
    return copied


# -- damaged -------------------------------------------------------------------------------------------


@pytest.fixture
def deleting(tmp_path: Path) -> Path:
    """A folder with ten messages in one record, of which 3 to 5 are deleted and still to be erased."""

    async def record() -> None:
        async with open_broker(tmp_path / "data") as queen:
            await queen.push_many([NewMessage(queue="q", payload=n, transaction_id=f"m{n}") for n in range(1, 11)])
            await queen.pop("q", batch=2, auto_ack=True)
            for number in (3, 4, 5):
                await queen.messages.delete(f"m{number}")
            await queen._running().keeper.flush()

    trio.run(record)
    return tmp_path / "data"


def _hour_rows(folder: Path) -> Iterator[tuple[bytes, bytes]]:
    with Beside(folder) as past:
        yield from (row for row in past.scan(Table.STATISTICS, b"") if row[0] != MINUTES)


def test_a_damaged_counter_is_found(copy: Path) -> None:
    with Beside(copy) as past:
        row = unpack_row(past.get(Table.STATISTICS, MINUTES) or b"")
    row[3][0][2] += 1
    _change(copy, Change(Table.STATISTICS, MINUTES, pack_row(row)))
    (told,) = _told_of(copy)
    assert told.startswith("projection: the table statistics counts in the minute 20")
    assert f"Z {row[3][0][2]} completed messages, where the records say {row[3][0][2] - 1} (record {row[1]}" in told


def test_minutes_that_are_gone_or_behind_are_found(copy: Path) -> None:
    with Beside(copy) as past:
        row = unpack_row(past.get(Table.STATISTICS, MINUTES) or b"")
    _change(copy, Change(Table.STATISTICS, MINUTES, None))
    assert _told_of(copy) == ["projection: the table statistics lacks the row of the minutes"]
    _change(copy, Change(Table.STATISTICS, MINUTES, pack_row([row[0], row[1] + 9, *row[2:]])))
    assert _told_of(copy) == [
        f"projection: the table statistics counts minutes up to record {row[1] + 9}, which there is not"
    ]
    _change(copy, Change(Table.STATISTICS, MINUTES, pack_row([row[0], row[1] - 1, *row[2:]])))
    assert any(
        f"counts minutes only up to record {row[1] - 1}, and not up to the check" in line for line in _told_of(copy)
    )


def test_a_damaged_hour_is_found(copy: Path) -> None:
    key, value = next(_hour_rows(copy))
    row = unpack_row(value)
    _change(copy, Change(Table.STATISTICS, key, pack_row([*row[:2], row[2] + 1, *row[3:]])))
    (told,) = _told_of(copy)
    assert told.startswith("projection: the table statistics counts of the hour 20")
    assert f" {row[2] + 1} messages that took {row[3]} µs, where records say {row[2]} that took {row[3]} µs" in told
    assert f"(record {row[1]}, " in told
    _change(copy, Change(Table.STATISTICS, key, pack_row([*row[:4], row[4] + 1, *row[5:]])))
    (told,) = _told_of(copy)
    assert " other durations than the records say" in told


def test_an_hour_that_is_gone_or_of_another_record_is_found(copy: Path) -> None:
    key, value = next(_hour_rows(copy))
    row = unpack_row(value)
    _change(copy, Change(Table.STATISTICS, key, None))
    (told,) = _told_of(copy)
    assert "the table statistics lacks the row of the hour 20" in told
    _change(copy, Change(Table.STATISTICS, key, pack_row([row[0], 1, *row[2:]])))
    told, more = _told_of(copy)
    assert f" only up to record 1, and not up to {row[1]}" in told
    assert " up to record 1, which completed nothing of it" in more
    _change(copy, Change(Table.STATISTICS, key, pack_row([row[0], 10**6, *row[2:]])))
    (told,) = _told_of(copy)
    assert f" up to record {10**6}, which completed nothing of it" in told


def test_tables_made_anew_are_sound(copy: Path) -> None:
    """Whatever was wrong with them."""
    with Beside(copy) as past:
        keys_found = [key for key, _ in past.scan(Table.STATISTICS, b"")]
    _change(copy, *[Change(Table.STATISTICS, key, None) for key in keys_found])
    assert _told_of(copy)
    assert CliRunner().invoke(main, ["verify", "--rebuild", "--data", str(copy)]).exit_code == 0
    assert _told_of(copy) == []


def test_payloads_that_nobody_would_erase_are_found(deleting: Path) -> None:
    with Beside(deleting) as past:
        rows = past.scan(Table.ERASURES, b"")
    assert _told_of(deleting) == []
    assert [keys.read_erasure(*row)[1:] for row in rows] == [(3, 4), (4, 5), (5, 6)]
    pushed = next(record for record in _records(deleting) if record.pushed is not None)
    _change(deleting, *[Change(Table.ERASURES, key, None) for key, _ in rows[:2]])
    (told,) = _told_of(deleting)
    assert told == (
        "projection: the table erasures lacks the payloads of deleted messages, which are not erased, "
        f"at positions 3 to 4 (record {pushed.seq}, q/Default)"
    )


def test_payloads_that_are_to_be_erased_of_messages_that_live_are_found(deleting: Path) -> None:
    partition = next(record.partition for record in _records(deleting) if record.pushed is not None)
    _change(deleting, Change(Table.ERASURES, keys.erasure_key(partition, 4), keys.erasure_value(3)))
    (told,) = _told_of(deleting)
    assert "the table erasures would have payloads erased of messages that are not deleted, at position 6 (" in told
    assert told.endswith("q/Default)")


def test_an_erased_payload_of_a_message_that_lives_is_found(deleting: Path) -> None:
    pushed = next(record for record in _records(deleting) if record.pushed is not None)
    with Beside(deleting) as past:
        frame = past.frame(pushed.seq) or b""
    _change(deleting, Replacement(pushed.seq, erase(pushed.seq, frame, [2, 6, 7])))
    (told,) = _told_of(deleting)
    assert told == (
        "state: the payload at positions 7 to 8 was erased, though the message is not deleted "
        f"(record {pushed.seq}, q/Default)"
    )
