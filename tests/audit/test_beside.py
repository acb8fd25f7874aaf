"""Reading beside a server that goes on: from another process by the command line, from another thread by the broker."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from queen import Broker, open_broker
from queen.audit.reading import moment_at, records, seq_at, shown
from queen.audit.restoring import world_at
from queen.audit.times import When
from queen.errors import Unavailable
from queen.messages import NewMessage
from queen.store.beside import Beside
from queen.store.journal import Table
from queen.store.lmdb_journal import LmdbJournal

QUEEN = [sys.executable, "-m", "queen"]
ROOT = Path(__file__).parents[2]


async def _command(*arguments: str) -> str:
    done = await trio.run_process([*QUEEN, *arguments], cwd=ROOT, capture_stdout=True, capture_stderr=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


async def _push(broker: Broker, count: int, start: int = 0) -> None:
    items = [NewMessage(queue="q", payload=[n], transaction_id=f"m{n}") for n in range(start, start + count)]
    await broker.push_many(items)


async def test_the_tool_beside_a_server(tmp_path: Path) -> None:
    """A process of its own, while the folder is locked: what is durable is told, also what no table holds yet."""
    data = str(tmp_path / "data")
    async with open_broker(tmp_path / "data") as broker:
        await _push(broker, 5)
        await broker.pop("q", batch=2, worker="w")
        (life,) = json.loads(await _command("history", "m1", "--data", data, "--json"))
        assert [step["type"] for step in life["steps"]] == ["pushed", "leased"]
        verdict = json.loads(await _command("verify", "--data", data, "--json"))
        assert verdict["count"] == 0
        done = await trio.run_process(
            [*QUEEN, "verify", "--rebuild", "--data", data], cwd=ROOT, capture_stderr=True, check=False
        )
        assert done.returncode == 3
        assert b"is in use by process" in done.stderr


async def test_following(tmp_path: Path) -> None:
    """`--follow` tells of what happens from then on, also when a compaction has exchanged the file meanwhile."""
    data = str(tmp_path / "data")
    lines: list[Any] = []
    async with open_broker(tmp_path / "data") as broker:
        await _push(broker, 1)
        command = [*QUEEN, "replay", "--data", data, "--follow", "--format", "ndjson", "--type", "pushed"]
        process = await trio.lowlevel.open_process(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout is not None
        with trio.fail_after(60):
            lines += await _lines(process.stdout, 1)
            await broker.compact()
            await _push(broker, 1, 1)
            lines += await _lines(process.stdout, 1)
            await broker.compact()
            await _push(broker, 2, 2)
            lines += await _lines(process.stdout, 1)
        process.send_signal(signal.SIGINT)
        with trio.fail_after(10):
            assert await process.wait() == 0  # Ctrl-C is how it is meant to end
        assert process.stderr is not None
        assert await process.stderr.receive_some() == b""
        await process.stderr.aclose()
        await process.stdout.aclose()
    assert [line["transactionIds"] for line in lines] == [["m0"], ["m1"], ["m2", "m3"]]


async def _lines(stream: Any, count: int) -> list[Any]:
    found = b""
    while found.count(b"\n") < count:
        found += await stream.receive_some()
    return [json.loads(line) for line in found.splitlines()]


async def test_a_pipe_that_is_closed_ends_the_command_quietly(recorded: Path) -> None:
    command = " ".join([*QUEEN, "replay", "--data", str(recorded), "|", "head", "-1"])
    done = await trio.run_process(["sh", "-c", command], cwd=ROOT, capture_stdout=True, capture_stderr=True)
    assert done.stderr == b""
    assert done.stdout.startswith(b"   record")


def test_reading_takes_no_lock_and_writes_nothing(copy: Path) -> None:
    before = {path.name: path.read_bytes() for path in copy.rglob("*") if path.is_file() and path.name != "lock.mdb"}
    with Beside(copy) as past:
        assert not past.served
        assert sum(1 for _ in records(past, checked=True)) == past.head
        world_at(past, moment_at(past, When(seq=past.head)))
    after = {path.name: path.read_bytes() for path in copy.rglob("*") if path.is_file() and path.name != "lock.mdb"}
    assert after == before


def test_a_time_is_the_last_record_made_by_then(recorded: Path) -> None:
    with Beside(recorded) as past:
        all_of_them = list(records(past))
        for record in all_of_them[::7]:
            at = shown(record)
            assert seq_at(past, at) == max(each.seq for each in all_of_them if shown(each) <= at)
            assert seq_at(past, at - 1) == max((each.seq for each in all_of_them if shown(each) < at), default=0)


def test_a_store_without_the_newest_tables_is_read(copy: Path) -> None:
    """It was made by an older Queen, and that one may still serve it."""
    import lmdb

    env = lmdb.open(str(copy / "journal"), max_dbs=20, map_size=1 << 30, lib_version=0)
    with env.begin(write=True) as txn:
        for table in (Table.TOUCHES, Table.MOMENTS, Table.META):
            txn.drop(env.open_db(table.encode(), txn, create=False))
    env.close()
    with Beside(copy) as past:
        assert past.scan(Table.TOUCHES, b"") == []
        assert world_at(past, moment_at(past, When(seq=50))).records == 50


async def test_the_past_is_asked_beside_everything_else(tmp_path: Path) -> None:
    """While one thread reads, others push, and a compaction exchanges the file."""
    async with open_broker(tmp_path / "data") as broker, trio.open_nursery() as nursery:
        await _push(broker, 10)

        async def ask(name: str) -> None:
            while not done:
                lives = await broker.messages.history(name)
                assert lives[0].steps[0].type == "pushed"
                figures = await broker.statistics.queue("q", at="now")
                assert figures.counts.total >= 10

        done = False
        for name in ("m1", "m2", "m3"):
            nursery.start_soon(ask, name)
        for start in range(10, 200, 10):
            await _push(broker, 10, start)
            if start % 50 == 0:
                await broker.compact()
        done = True


async def test_a_question_whose_asker_has_gone_is_dropped(tmp_path: Path) -> None:
    async with open_broker(tmp_path / "data") as broker:
        await _push(broker, 10)
        with trio.move_on_after(0):
            await broker.statistics.overview(at="now")
        assert (await broker.statistics.overview(at="now")).counts.pending == 10


def test_a_closed_journal_says_so(copy: Path) -> None:
    journal = LmdbJournal.open(copy / "journal")
    aside = journal.aside()
    assert aside.head == journal.head
    assert next(aside.frames(0))[0] == 1
    journal.close()
    with pytest.raises(Unavailable):
        aside.frame(1)
