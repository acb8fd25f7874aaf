"""`queen backup` and `queen restore`: all up to a record in one file, and a folder as it was at an instant."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import CliRunner, Result

from queen.audit.reading import read as record_of
from queen.audit.verifying import verify
from queen.cli import main
from queen.commands import AckStatus
from queen.errors import Conflict, FormatUnknown
from queen.events import MessagesDeleted
from queen.opening import open_broker
from queen.store import data_dir
from queen.store.beside import Beside
from queen.store.format import Record
from queen.store.journal import Replacement
from queen.store.lmdb_journal import LmdbJournal


def _command(*arguments: str, exit_code: int = 0, stdin: bytes | None = None) -> Result:
    done = CliRunner().invoke(main, [*arguments], catch_exceptions=False, input=stdin)
    assert done.exit_code == exit_code, done.output
    return done


def _state(folder: Path, at: str = "now") -> Any:
    found = json.loads(_command("state", "--data", str(folder), "--at", at, "--json").output)
    del found["overview"]["timestamp"]
    return found


def _frames(folder: Path) -> list[tuple[int, bytes]]:
    with Beside(folder) as past:
        return list(past.frames(0))


def _deleted(again: Record) -> int:
    (event,) = again.events
    assert isinstance(event, MessagesDeleted)
    return sum(run.length for run in event.runs)


@pytest.fixture(scope="session")
def archive(recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("backup") / "all.queen"
    _command("backup", str(file), "--data", str(recorded))
    return file


def test_a_restored_folder_is_the_original(recorded: Path, archive: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    _command("restore", str(archive), "--data", str(new))
    assert _frames(new) == _frames(recorded)
    assert _state(new) == _state(recorded)
    with Beside(new) as past:
        assert verify(past).fine
    assert not [path for path in archive.parent.iterdir() if path != archive]
    assert archive.stat().st_mode & 0o777 == 0o600


def test_at_twenty_instants_a_restore_is_the_state_that_was(recorded: Path, archive: Path, tmp_path: Path) -> None:
    """Up to what was deleted afterwards and is erased by now: that is deleted again, and counted."""
    head = len(_frames(recorded))
    for seq in random.Random(3).sample(range(1, head), 20):
        new = tmp_path / str(seq)
        said = _command("restore", str(archive), "--data", str(new), "--at", f"#{seq}").output
        assert f"everything up to record {seq} " in said
        assert _frames(new)[:seq] == _frames(recorded)[:seq]
        assert _state(new, f"#{seq}")["queues"] == _state(recorded, f"#{seq}")["queues"]
        with Beside(new) as past:
            assert verify(past).fine
            again = [record_of(past, behind) for behind in range(seq + 1, past.head + 1)]
        assert all(record.who == "restore" for record in again)
        lost = sum(map(_deleted, again))
        counted = "1 message was" if lost == 1 else f"{lost:,} messages were"
        assert (f"{counted} deleted later" in said) == bool(lost)
        before, after = _state(recorded, f"#{seq}")["overview"], _state(new)["overview"]
        assert after["messages"]["total"] == before["messages"]["total"] - lost


def test_a_time_names_the_last_record_up_to_it(recorded: Path, archive: Path, tmp_path: Path) -> None:
    at = json.loads(_command("replay", "--data", str(recorded), "--format", "ndjson").output.splitlines()[200])["at"]
    _command("restore", str(archive), "--data", str(tmp_path / "new"), "--at", at)
    then = _state(recorded, at)
    assert _state(tmp_path / "new", f"#{then['record']}")["queues"] == then["queues"]


def test_what_was_erased_since_is_deleted_again_in_every_status(tmp_path: Path) -> None:
    """R5: counts stay right for messages that a group had completed, failed, or not met."""
    folder = tmp_path / "data"
    trio.run(_deletions, folder)
    _command("backup", str(tmp_path / "all"), "--data", str(folder))
    seq = next(number for number, _ in reversed(_frames(folder)) if _type(folder, number) == "completed")
    said = _command("restore", str(tmp_path / "all"), "--data", str(tmp_path / "new"), "--at", f"#{seq}").output
    assert "5 messages were deleted later" in said
    (queue,) = _state(tmp_path / "new")["queues"]
    assert queue["totals"] == {
        "total": 1, "pending": 0, "processing": 0, "completed": 0, "failed": 1, "deadLetter": 0
    }  # fmt: skip
    with Beside(tmp_path / "new") as past:
        assert verify(past).fine


async def _deletions(folder: Path) -> None:
    async with open_broker(folder) as broker:
        await broker.configure("q", {"retryLimit": 0})
        for number in range(6):
            await broker.push("q", number, transaction_id=f"m{number}")
        first = await broker.pop("q", batch=3)
        outcomes: tuple[AckStatus, ...] = ("completed", "failed", "failed")
        for message, status in zip(first, outcomes, strict=True):
            await broker.ack(message.transaction_id, status, lease_id=message.lease_id)
        (other,) = await broker.pop("q", group="books")
        await broker.ack(other.transaction_id, "completed", lease_id=other.lease_id, group="books")
        for number in (0, 1, 3, 4, 5):
            await broker.messages.delete(f"m{number}")
        engine = broker._running()
        await engine.keeper.flush()
        await engine.eraser.sweep()


def _type(folder: Path, seq: int) -> str:
    done = _command("replay", "--data", str(folder), "--format", "ndjson", "--from", f"#{seq}", "--to", f"#{seq}")
    return str(json.loads(done.output.splitlines()[0])["type"])


async def test_a_server_starts_on_a_restored_folder(recorded: Path, archive: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    _command("restore", str(archive), "--data", str(new))
    async with open_broker(new) as broker:
        assert (await broker.push("orders", 1, transaction_id="behind")).status == "queued"
        assert (await broker.push("orders", 1, transaction_id="behind")).status == "duplicate"
    with Beside(new) as past:
        assert verify(past).fine


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_backup_is_refused_and_nothing_is_made(archive: Path, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    whole = archive.read_bytes()
    place = chance.randrange(len(whole))
    changed = (
        whole[:place]
        if seed % 2
        else whole[:place] + bytes([whole[place] ^ 1 << chance.randrange(8)]) + whole[place + 1 :]
    )
    (tmp_path / "bad").write_bytes(changed)
    # Whatever is left out of the restore is looked at as well.
    for arguments in ((), ("--at", "#3")):
        done = _command("restore", str(tmp_path / "bad"), "--data", str(tmp_path / "new"), *arguments, exit_code=3)
        assert "Nothing was restored" in done.output
        assert [path.name for path in (tmp_path / "new").glob("*")] in ([], ["lock"])


def test_something_behind_the_end_is_no_backup_of_ours(tmp_path: Path) -> None:
    (tmp_path / "letters").write_text("Dear Queen, how are you?")
    done = _command("restore", str(tmp_path / "letters"), "--data", str(tmp_path / "new"), exit_code=3)
    assert "no backup of Queen's" in done.output


def test_a_folder_that_holds_something_is_left_alone(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "letter").write_text("mine")
    done = _command("restore", str(archive), "--data", str(tmp_path), exit_code=1)
    assert "not empty" in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["letter"]


def test_a_restore_that_was_killed_is_no_data_folder_and_can_be_repeated(archive: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    command = [sys.executable, "-m", "queen", "restore", "-", "--data", str(new)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(archive.read_bytes()[:2000])
        process.stdin.flush()
        while not (new / "restoring").exists():
            assert process.poll() is None
        process.kill()
    done = _command("state", "--data", str(new), exit_code=3)
    assert "not a Queen data folder" in done.output
    with pytest.raises(FormatUnknown, match="restoring"):
        data_dir.DataFolder.open(new)
    _command("restore", str(archive), "--data", str(new))
    with pytest.raises(Conflict), data_dir.restoring(new):
        pass


def test_an_existing_file_is_not_written_over(archive: Path, recorded: Path) -> None:
    before = archive.read_bytes()
    assert "exists" in _command("backup", str(archive), "--data", str(recorded), exit_code=2).output
    assert archive.read_bytes() == before


def test_a_damaged_journal_is_not_backed_up(copy: Path, tmp_path: Path) -> None:

    journal = LmdbJournal.open(copy / "journal")
    journal.commit(journal.head, (), [Replacement(50, b"not a record")])
    journal.close()
    done = _command("backup", str(tmp_path / "file"), "--data", str(copy), exit_code=3)
    assert "Record 50" in done.output
    assert list(tmp_path.glob("file*")) == []


def test_through_pipes(recorded: Path, tmp_path: Path) -> None:
    queen = f"{sys.executable} -m queen"
    pipe = f"{queen} backup - --data {recorded} 2>{tmp_path}/said | gzip | gunzip"
    pipe += f" | {queen} restore - --data {tmp_path}/new"
    subprocess.run(pipe, shell=True, check=True, timeout=60, capture_output=True)
    assert _frames(tmp_path / "new") == _frames(recorded)
    assert "records, the last one of" in (tmp_path / "said").read_text()


async def test_a_hot_backup_is_one_instant(tmp_path: Path) -> None:
    """Each of several backups beside a broker at work is a prefix of what the journal holds in the end."""
    folder = tmp_path / "data"
    started = trio.Event()

    async def work() -> None:
        async with open_broker(folder) as broker:
            for number in range(400):
                await broker.push("q", {"number": number}, transaction_id=f"m{number}")
                if number % 3 == 0:
                    await broker.messages.delete(f"m{number}")
                if number % 50 == 49:
                    started.set()
                    engine = broker._running()
                    await engine.keeper.flush()
                    await engine.eraser.sweep()

    async def back_up(number: int) -> None:
        command = [sys.executable, "-m", "queen", "backup", str(tmp_path / f"{number}.queen"), "--data", str(folder)]
        await trio.run_process(command, capture_stdout=True)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(work)
        await started.wait()
        for number in range(3):
            await back_up(number)
    for number in range(3):
        new = tmp_path / f"new{number}"
        _command("restore", str(tmp_path / f"{number}.queen"), "--data", str(new))
        with Beside(new) as past, Beside(folder) as original:
            verdict = verify(past)
            assert verdict.fine, verdict.findings
            assert record_of(past, past.head).facts == record_of(original, past.head).facts
