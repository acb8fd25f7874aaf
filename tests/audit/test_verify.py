"""`queen verify`: a sound record is found sound; whatever is changed is found, told and located (X2, X3)."""

from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest
from click.testing import CliRunner, Result

from queen.actors.snapshots import without_summary
from queen.audit.reading import read
from queen.audit.verifying import Verdict, verify
from queen.cli import main
from queen.events import AnyEvent, MessagesSettled
from queen.names import DEFAULT_GROUP
from queen.store.beside import Beside
from queen.store.format import Record, digest_of, erase, pack, pack_row, unpack, unpack_row
from queen.store.journal import Change, Replacement, Table
from queen.store.lmdb_journal import LmdbJournal
from queen.store.lmdb_rows import KEY


def _verdict(folder: Path) -> Verdict:
    with Beside(folder) as past:
        return verify(past)


def _told(folder: Path) -> list[str]:
    return [str(finding) for finding in _verdict(folder).findings]


def _command(*arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments], catch_exceptions=False)


def _some(folder: Path, fits: Callable[[Record], bool]) -> Record:
    """A record in the middle that fits."""
    with Beside(folder) as past:
        found = [record for seq, frame in past.frames(0) if fits(record := unpack(seq, frame))]
    return found[len(found) // 2]


def _frame(folder: Path, seq: int) -> bytes:
    with Beside(folder) as past:
        frame = past.frame(seq)
    assert frame is not None
    return frame


def _change(folder: Path, *edits: Change | Replacement) -> None:
    journal = LmdbJournal.open(folder / "journal")
    journal.commit(journal.head, (), edits)
    journal.close()


def test_a_recorded_run_is_sound(recorded: Path) -> None:
    verdict = _verdict(recorded)
    assert verdict.findings == []
    assert verdict.records == verdict.head == verdict.sound_until
    assert verdict.checkpoint == verdict.head
    assert verdict.messages > 100
    assert verdict.rows > verdict.records
    with Beside(recorded) as past:
        assert verdict.digest == digest_of(read(past, verdict.head)).hex()


def test_the_command_says_so(recorded: Path) -> None:
    done = _command("verify", "--data", str(recorded))
    assert done.exit_code == 0
    assert done.output.startswith("Nothing is wrong")


def test_a_flipped_bit_in_the_file_is_found_and_located(copy: Path) -> None:
    victim = _some(copy, lambda record: record.pushed is not None and not record.erased)
    payload = bytes(victim.facts)
    file = copy / "journal" / "data.mdb"
    data = bytearray(file.read_bytes())
    places = [place for place in range(len(data)) if data.startswith(payload, place)]
    assert places
    for place in places:  # LMDB keeps older pages
        data[place + len(payload) // 2] ^= 4
    file.write_bytes(data)
    assert [line for line in _told(copy) if "bytes were changed" in line] == [
        line for line in _told(copy) if f"record {victim.seq} fails its checksum" in line
    ]
    done = _command("verify", "--data", str(copy))
    assert done.exit_code == 1
    assert f"record {victim.seq} fails its checksum: some of its bytes were changed" in done.output


@pytest.mark.parametrize("erased", [False, True])
def test_every_byte_of_a_record_counts(copy: Path, erased: bool) -> None:
    victim = _some(copy, lambda record: record.pushed is not None and record.erased is erased)
    frame = _frame(copy, victim.seq)
    for place in range(0, len(frame), 7):
        changed = bytearray(frame)
        changed[place] ^= 1
        _change(copy, Replacement(victim.seq, bytes(changed)))
        found = _verdict(copy).findings
        assert [finding.seq for finding in found] == [victim.seq], place
        assert found[0].kind == "chain"


def test_a_payload_that_was_erased_without_a_deletion_is_found(copy: Path) -> None:
    victim = _some(copy, lambda record: record.pushed is not None and not record.erased)
    _change(copy, Replacement(victim.seq, erase(victim.seq, _frame(copy, victim.seq), [0])))
    assert any("was erased, though the message is not deleted" in line for line in _told(copy))


def test_a_removed_record_is_found_and_located(copy: Path) -> None:
    victim = _some(copy, lambda record: record.pushed is not None)
    env = lmdb.open(str(copy / "journal"), max_dbs=20, map_size=1 << 30, lib_version=0)
    with env.begin(write=True) as txn:
        assert txn.delete(KEY.pack(victim.seq, 0), db=env.open_db(b"journal", txn, create=False))
    env.close()
    (told,) = _told(copy)
    assert told.startswith(f"chain: record {victim.seq} is missing: removed, or lost")
    assert f"(record {victim.seq}, " in told


def test_the_missing_last_records_are_told_by_the_digest(recorded: Path, copy: Path) -> None:
    """A chain can't show what was cut off at its end; the digest that was kept elsewhere can."""
    head = _verdict(recorded).head
    env = lmdb.open(str(copy / "journal"), max_dbs=20, map_size=1 << 30, lib_version=0)
    with env.begin(write=True) as txn:
        assert txn.delete(KEY.pack(head, 0), db=env.open_db(b"journal", txn, create=False))
    env.close()
    assert _verdict(copy).head == head - 1
    assert _verdict(copy).digest != _verdict(recorded).digest


@pytest.mark.parametrize("apart", [1, 40, 100])
def test_two_swapped_records_are_found_and_located(copy: Path, apart: int) -> None:
    first = _verdict(copy).head // 3
    second = first + apart
    frames = _frame(copy, first), _frame(copy, second)
    _change(copy, Replacement(first, frames[1]), Replacement(second, frames[0]))
    told = _told(copy)
    assert [line.split(" (")[0] for line in told] == [f"chain: records {first} and {second} have changed places"]
    assert f"(record {first}, " in told[0]


def test_several_faults_are_all_found(copy: Path) -> None:
    head = _verdict(copy).head
    _change(copy, *[Replacement(seq, _frame(copy, seq)[:-1]) for seq in (10, 50, head)])
    assert sorted(finding.seq or 0 for finding in _verdict(copy).findings) == [10, 50, head]


def test_a_record_that_was_forged_breaks_the_chain(copy: Path) -> None:
    """Somebody who knows the format can make the checksum fit, and not the digest that the next record names."""
    victim = _some(copy, lambda record: record.who == "library")
    payloads = [
        bytes(victim.payload(index) or b"") for index in range(len(victim.pushed.sizes) if victim.pushed else 0)
    ]
    frame, _ = pack(
        victim.seq, victim.prev, victim.at, victim.partition, victim.shift, "me", b"", victim.events, payloads
    )
    _change(copy, Replacement(victim.seq, frame))
    (told,) = _told(copy)
    assert f"record {victim.seq + 1} names another predecessor than the record {victim.seq} that stands there" in told


def _completes(event: AnyEvent) -> bool:
    """For the default group: nothing makes that undone here."""
    return isinstance(event, MessagesSettled) and event.outcome == "completed" and event.group == DEFAULT_GROUP


def test_what_the_server_can_not_have_done_is_found(copy: Path) -> None:
    """A whole chain of records that fit one another, but not what was before: position 1 is settled a second time."""
    victim = _some(copy, lambda record: any(_completes(event) for event in record.events))
    with Beside(copy) as past:
        head = past.head
        last = read(past, head)
    event = next(event for event in victim.events if _completes(event))
    frame, _ = pack(head + 1, digest_of(last), last.at + 1, victim.partition, 0, "me", b"", (event,))
    journal = LmdbJournal.open(copy / "journal")
    journal.commit(head, [frame])
    journal.close()
    (finding,) = _verdict(copy).findings
    assert finding.kind == "state"
    assert finding.seq == head + 1
    assert " was settled before" in finding.what or "does not exist" in finding.what


@pytest.mark.parametrize(
    "table", [Table.RUNS, Table.IDS, Table.SETTLED, Table.SETTLEMENTS, Table.TOUCHES, Table.QUEUES]
)
def test_a_row_that_is_gone_is_found_and_made_anew(copy: Path, table: str) -> None:
    with Beside(copy) as past:
        key, _ = past.scan(Table(table), b"", None, 1)[0]
    _change(copy, Change(Table(table), key, None))
    told = _told(copy)
    assert [line for line in told if f"projection: the table {table} lacks" in line] == told != []
    assert _command("verify", "--data", str(copy)).exit_code == 1
    assert _command("verify", "--rebuild", "--data", str(copy)).exit_code == 0
    assert _told(copy) == []


def test_a_snapshot_that_says_something_else_is_found(copy: Path) -> None:
    with Beside(copy) as past:
        rows = past.scan(Table.PARTITIONS, b"", None, 1000)
    # Two partitions' states, exchanged: each row is a sound one.
    _change(copy, Change(Table.PARTITIONS, rows[0][0], rows[1][1]), Change(Table.PARTITIONS, rows[1][0], rows[0][1]))
    assert len([line for line in _told(copy) if "projection: the table partitions says of" in line]) == 2
    row = rows[0][1]
    state = unpack_row(without_summary(row))
    state[6] += 1
    changed = row.removesuffix(without_summary(row)) + pack_row(state)
    _change(copy, Change(Table.PARTITIONS, rows[0][0], changed), Change(Table.PARTITIONS, *rows[1]))
    (told,) = _told(copy)
    assert "the table partitions says something else of" in told
    _change(copy, Change(Table.PARTITIONS, rows[0][0], row[:60] + bytes([row[60] ^ 1]) + row[61:]))
    (told,) = _told(copy)
    assert "the table partitions sums up" in told


@pytest.mark.parametrize("table", ["runs", "ids", "settled", "touches", "partitions", "queues", "statistics", "meta"])
def test_a_flipped_bit_in_a_row_is_found_and_mended(copy: Path, table: str) -> None:
    env = lmdb.open(str(copy / "journal"), max_dbs=20, map_size=1 << 30, lib_version=0)
    with env.begin(write=True) as txn:
        db = env.open_db(table.encode(), txn, create=False)
        cursor = txn.cursor(db)
        assert cursor.first()
        key, value = cursor.item()
        txn.put(key, bytes([value[0] ^ 1]) + value[1:] if value else b"x", db=db)
    env.close()
    done = _command("verify", "--data", str(copy))
    assert done.exit_code == 1, done.output
    if table != "meta":
        assert f"projection: the table {table} has rows whose bytes were changed" in done.output
    assert _command("verify", "--rebuild", "--data", str(copy)).exit_code == 0


def test_a_row_too_many_is_found(copy: Path) -> None:
    _change(copy, Change(Table.TOUCHES, bytes(16) + (5).to_bytes(8) + bytes(4), b""))
    assert _told(copy) == ["projection: the table touches has 1 rows too many"]


def test_what_is_no_folder_of_ours_can_not_be_read(tmp_path: Path) -> None:
    done = _command("verify", "--data", str(tmp_path))
    assert done.exit_code == 3
    assert "is not a Queen data folder" in done.output
