"""Compaction of a server that runs, over HTTP and from the command line; a raw read proves what is gone (R5)."""

from pathlib import Path

import pytest
import trio
from click.testing import CliRunner
from trio.testing import MockClock

from queen import Conflict, NewMessage, open_broker
from queen.cli import compact_every, main
from queen.commands import Delete
from queen.replies import Compacted
from queen.settings import Settings
from queen.store.lmdb_compact import LmdbCompaction
from tests.actors.world import carried, payloads
from tests.contract.conftest import Server, running

SECRET = "Ada's blood group is AB negative"


def in_files(folder: Path, text: str = SECRET) -> bool:
    return any(text.encode() in path.read_bytes() for path in folder.rglob("*") if path.is_file())


async def test_a_deleted_payload_is_physically_gone(server: Server, tmp_path: Path) -> None:
    """R5, read from the raw files. Pushed and delivered messages are what they were; a crash would find the same."""
    client = await server.connect()
    _, deleted, _ = await client.push("q", "before", SECRET, "behind")
    await client.push("q", *[{"filler": "x" * 3000}] * 20)
    assert (await client.request("DELETE", f"/api/v1/messages/{deleted}")).status == 200
    assert in_files(tmp_path)
    reply = await client.request("POST", "/api/v1/compact", {})
    assert reply.status == 200
    assert reply.json["compacted"] is True
    assert 0 < reply.json["bytesAfter"] <= reply.json["bytesBefore"]
    assert reply.json["bytesAfter"] == (tmp_path / "data" / "journal" / "data.mdb").stat().st_size
    assert not in_files(tmp_path)
    assert in_files(tmp_path, "before")
    await client.push("q", "later")
    messages = await client.pop("q", "batch=99")
    assert [message["data"] for message in messages if isinstance(message["data"], str)] == [
        "before",
        "behind",
        "later",
    ]
    assert (await client.request("POST", "/api/v1/compact")).status == 200
    assert (await client.request("GET", "/api/v1/compact")).status == 405


async def test_it_survives_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        client = await server.connect()
        await client.push("q", SECRET, "kept")
        await carried(server.broker, Delete(1))
        assert (await client.request("POST", "/api/v1/compact", {})).status == 200
        await client.push("q", "later")
    assert not in_files(tmp_path)
    async with running(tmp_path) as server:
        client = await server.connect()
        assert [message["data"] for message in await client.pop("q", "batch=9")] == ["kept", "later"]


async def test_work_goes_on_meanwhile(tmp_path: Path) -> None:
    """Everything that was answered before, during and behind the switch is there, in order."""
    async with open_broker(tmp_path / "data") as queen:
        await queen.push_many([NewMessage(queue="old", payload="x" * 3000) for _ in range(1000)])
        pushed: list[int] = []
        done = trio.Event()

        async def pusher() -> None:
            while not done.is_set():
                await queen.push("q", len(pushed))
                pushed.append(len(pushed))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(pusher)
            for _ in range(3):
                before = len(pushed)
                await queen.compact()
                assert len(pushed) > before
            done.set()
    async with open_broker(tmp_path / "data") as queen:
        got: list[int] = []
        while delivery := await queen.pop("q", batch=1000, auto_ack=True):
            got += payloads(delivery)
        assert got == pushed


async def test_only_one_at_a_time(tmp_path: Path) -> None:
    outcomes: list[str] = []
    async with open_broker(tmp_path / "data") as queen:
        await queen.push("q", 1)

        async def compact() -> None:
            try:
                await queen.compact()
                outcomes.append("done")
            except Conflict:
                outcomes.append("refused")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(compact)
            nursery.start_soon(compact)
        assert sorted(outcomes) == ["done", "refused"]
        await queen.compact()


async def test_a_cancelled_compaction_ends_soon_and_leaves_all_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = LmdbCompaction._copy_database
    begun = trio.Event()

    def endless(self: LmdbCompaction, *pair: object) -> None:
        copied(self, *pair)  # type: ignore[arg-type]
        trio.from_thread.run_sync(begun.set)
        while True:
            self._check_stopped()

    async with open_broker(tmp_path / "data") as queen:
        await queen.push("q", 1)
        with monkeypatch.context() as patch, trio.fail_after(10):
            patch.setattr(LmdbCompaction, "_copy_database", endless)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(queen.compact)
                await begun.wait()
                nursery.cancel_scope.cancel()
        assert [path.name for path in (tmp_path / "data" / "journal").iterdir() if path.is_dir()] == []
        await queen.push("q", 2)
        await queen.compact()
        assert payloads(await queen.pop("q", batch=9)) == [1, 2]


async def test_an_embedder_without_a_folder_may_ask_for_it() -> None:
    async with open_broker(None) as queen:
        await queen.push("q", 1)
        done = await queen.compact()
        assert done.before == done.after


# -- the command line ---------------------------------------------------------------------------------------


async def test_queen_compact_asks_a_server(server: Server, tmp_path: Path) -> None:
    client = await server.connect()
    await client.push("q", SECRET)
    await carried(server.broker, Delete(1))
    arguments = ["compact", "--url", f"http://127.0.0.1:{server.port}/"]
    result = await trio.to_thread.run_sync(lambda: CliRunner().invoke(main, arguments))
    assert result.exit_code == 0, result.output
    assert "bytes after" in result.output
    assert not in_files(tmp_path)


async def test_queen_compact_says_whose_folder_it_is(server: Server, tmp_path: Path) -> None:
    arguments = ["compact", "--data", str(tmp_path / "data")]
    result = await trio.to_thread.run_sync(lambda: CliRunner().invoke(main, arguments))
    assert result.exit_code == 3
    assert "--url" in result.output


async def test_queen_compact_without_a_server(tmp_path: Path) -> None:
    async with open_broker(tmp_path / "data") as queen:
        await queen.push("q", SECRET)
        await queen.push("q", "kept")
        await carried(queen, Delete(1))
    result = await trio.to_thread.run_sync(
        lambda: CliRunner().invoke(main, ["compact", "--data", str(tmp_path / "data")])
    )
    assert result.exit_code == 0, result.output
    assert not in_files(tmp_path)
    assert in_files(tmp_path, "kept")


def test_queen_compact_makes_no_folder(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["compact", "--data", str(tmp_path / "nothing")])
    assert result.exit_code == 3
    assert not (tmp_path / "nothing").exists()


def test_queen_compact_says_that_nobody_listens() -> None:
    result = CliRunner().invoke(main, ["compact", "--url", "http://127.0.0.1:9"])
    assert result.exit_code == 1
    assert "can't be reached" in result.output


async def test_it_goes_on_a_schedule(tmp_path: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--compact-every`, in hours, by a clock that jumps: not earlier, and again after one that failed."""
    mock_clock.rate = 1
    done = trio.Event()
    async with open_broker(tmp_path / "data") as queen, trio.open_nursery() as nursery:
        real, outcomes = queen.compact, ["compacted", "refused", "compacted"]

        async def compact() -> Compacted:
            try:
                if outcomes.pop(0) == "refused":
                    raise Conflict("a compaction is under way")
                return await real()
            finally:
                done.set()

        monkeypatch.setattr(queen, "compact", compact)
        (receipt,) = await queen.push_many([NewMessage(queue="q", payload=SECRET)])
        await queen.messages.delete(receipt.transaction_id)
        nursery.start_soon(compact_every, queen, 2)
        for left in (2, 1, 0):
            await trio.testing.wait_all_tasks_blocked(0.01)
            mock_clock.jump(2 * 3600 - 60)
            await trio.sleep(0.1)
            assert not done.is_set()
            mock_clock.jump(60)
            await done.wait()
            done = trio.Event()
            assert len(outcomes) == left
        assert not in_files(tmp_path)
        nursery.cancel_scope.cancel()


async def test_it_is_off_by_default(tmp_path: Path, mock_clock: MockClock) -> None:
    async with open_broker(tmp_path / "data") as queen:
        with trio.fail_after(1):
            await compact_every(queen, Settings().compact_every)
