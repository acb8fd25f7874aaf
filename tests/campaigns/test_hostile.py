"""A short form of the campaign against hostile input, and each fault that the long form has found."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from queen import open_broker
from queen.errors import ChainBroken, QueenError
from queen.store import data_dir
from queen.store.data_dir import DataFolder
from queen.store.journal import Change, Table
from queen.store.lmdb_journal import LmdbJournal
from queen.store.lmdb_rows import seal, unseal
from queen.web.head import read_head
from tests.campaigns import hostile_decoding
from tests.campaigns.hostile_sockets import SUBSCRIBE, shake
from tests.contract.conftest import running

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("part", ["http", "sockets", "files"])
def test_the_short_campaign(part: str) -> None:
    command = [sys.executable, "-m", "tests.campaigns.hostile", part, "--small"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def test_nothing_that_decodes_fails() -> None:
    hostile_decoding.by_chance(3000, seed=random.Random(os.environ.get("QUEEN_SEED", "1")).randrange(2**32))


# -- WebSockets ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", ["", "Sec-WebSocket-Protocol: \xe9\r\n", "Connection: x\r\n"])
async def test_frames_before_the_handshake_is_answered_end_this_connection_alone(tmp_path: Path, more: str) -> None:
    """Both sides' answers met in h11, whose error ended the server."""
    async with running(tmp_path) as server:
        for _ in range(30):
            client = await server.connect()
            await client.stream.send_all(shake(more) + SUBSCRIBE * 3)
            with trio.fail_after(5):
                try:
                    while await client.stream.receive_some(4096):
                        pass
                except trio.BrokenResourceError:
                    pass
        assert (await (await server.connect()).request("GET", "/health")).status == 200


async def test_a_handshake_that_is_refused_ends_the_connection(tmp_path: Path) -> None:
    """It stayed open as long as the client wanted."""
    async with running(tmp_path) as server:
        client = await server.connect()
        await client.stream.send_all(shake().replace(b"Sec-WebSocket-Key", b"X"))
        assert (await client.reply()).status == 400
        assert await client.at_end()


async def test_a_connection_that_fails_is_the_only_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path, fast_lane=False) as server:
        other = await server.connect()
        assert (await other.request("GET", "/health")).status == 200

        def fail(*_: object) -> None:
            raise RuntimeError("planted")

        monkeypatch.setattr("queen.web.connection.Protocol.limit", fail)
        client = await server.connect()
        assert await client.at_end()
        assert (await other.request("GET", "/health")).status == 200


# -- the fast lane ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        b"GET /api/v1/pop/queue/q HTTP/1.1\r\nHost: a\n\r\nPOST /api/v1/push HTTP/1.1\r\nHost: b\r\n\r\n",
        b"GET /api/v1/pop/queue/q HTTP/1.1\nHost: a\r\n\r\n",
        b"GET /api/v1/pop/queue/q HTTP/1.1\r\nHost: a\r\nX: y\nContent-Length: 5\r\n\r\n",
    ],
)
def test_a_head_with_a_bare_line_feed_is_not_the_lanes(text: bytes) -> None:
    """Others may see the head end there."""
    assert read_head(text) is None
    assert read_head(b"GET /api/v1/pop/queue/q HTTP/1.1\r\nHost: a\r\n\r\n") is not None


async def test_a_head_that_ends_in_a_bare_line_feed_is_answered(tmp_path: Path) -> None:
    """The lane waited for more of it."""
    async with running(tmp_path) as server:
        client = await server.connect()
        await client.stream.send_all(b"GET /api/v1/pop/queue/q HTTP/1.1\r\nHost: a\n\r\n")
        with trio.fail_after(2):
            assert (await client.reply()).status == 204


# -- files --------------------------------------------------------------------------------------------------


def test_a_row_is_what_was_stored_under_its_key() -> None:
    """Rows of the projections are in no record's checksum; a changed one gave wrong answers."""
    stored = seal(Table.RUNS, b"key", b"value")
    assert unseal(Table.RUNS, b"key", stored) == b"value"
    changed = [bytes([*stored[:at], stored[at] ^ 1, *stored[at + 1 :]]) for at in range(len(stored))]
    for table, key, value in (
        *((Table.RUNS, b"key", one) for one in changed),
        (Table.RUNS, b"kez", stored),
        (Table.IDS, b"key", stored),
        (Table.RUNS, b"key", b""),
    ):
        with pytest.raises(ChainBroken):
            unseal(table, key, value)


def test_a_damaged_row_is_told_as_damage(tmp_path: Path) -> None:
    """Whatever way it is read in."""
    journal = LmdbJournal.open(tmp_path)
    journal.commit(0, [], [Change(Table.META, b"key", b"a value that is found")])
    journal.close()
    flip(tmp_path / "data.mdb", b"a value that is found")
    journal = LmdbJournal.open(tmp_path)
    for read in (
        lambda: journal.get(Table.META, b"key"),
        lambda: journal.floor(Table.META, b"kez"),
        lambda: journal.scan(Table.META, b""),
    ):
        with pytest.raises(ChainBroken):
            read()
    journal.close()


def flip(file: Path, where: bytes, by: int = 1) -> None:
    content = bytearray(file.read_bytes())
    at = content.find(where)
    assert at >= 0
    while at >= 0:
        content[at] ^= by
        at = content.find(where, at + 1)
    file.write_bytes(content)


async def test_a_lost_meta_page_does_not_lose_the_last_commit(tmp_path: Path) -> None:
    """LMDB falls back on the older one, as if there had been no newer; then the last answer would be forgotten."""
    async with open_broker(tmp_path / "data") as broker:
        await broker.push("q", 1)
    file = tmp_path / "data" / "journal" / "data.mdb"
    content = bytearray(file.read_bytes())
    transaction = data_dir._META.size - 8
    newer = max(
        (0, 4096), key=lambda page: int.from_bytes(content[page + transaction : page + transaction + 8], "little")
    )
    content[newer + transaction] ^= 0x40
    file.write_bytes(content)
    with pytest.raises(ChainBroken):
        DataFolder.open(tmp_path / "data")


async def test_rows_that_vanish_are_missed_at_the_start(tmp_path: Path) -> None:
    """A page that says that it holds fewer rows than it does."""
    async with open_broker(tmp_path / "data") as broker:
        for number in range(50):
            await broker.push("q", number, transaction_id=f"t{number}")
    file = tmp_path / "data" / "journal" / "data.mdb"
    content = bytearray(file.read_bytes())
    leaves = [page for page in range(8192, len(content), 4096) if content[page + 10] & 2]
    refused = 0
    for page in leaves:
        damaged = bytearray(content)
        lower = int.from_bytes(damaged[page + 12 : page + 14], sys.byteorder)
        damaged[page + 12 : page + 14] = max(lower - 2, 16).to_bytes(2, sys.byteorder)
        file.write_bytes(damaged)
        try:
            DataFolder.open(tmp_path / "data").close()
        except QueenError:
            refused += 1
    assert refused >= len(leaves) // 2
    file.write_bytes(content)
    DataFolder.open(tmp_path / "data").close()
