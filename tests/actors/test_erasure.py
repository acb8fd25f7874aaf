"""Deleted payloads leave their records (R5, T4): in the background, in small steps, also after a crash."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import trio

from queen import Acknowledgement, NewMessage, StoreFull, open_broker
from queen.actors.eraser import BYTES, FULL_PAUSE_S, GATHER_S, RECORDS
from queen.actors.keeper import EVERY_S
from queen.clock import TrioClock
from queen.commands import Clear, Delete
from queen.opening import inline
from queen.store.chain import verify
from queen.store.format import unpack
from queen.store.journal import Edit, Replacement, Table
from queen.store.lmdb_journal import LmdbJournal
from queen.store.memory_journal import MemoryJournal
from tests.actors.world import carried, doomed, engine_of, opened, payloads

SOON_S = EVERY_S + 2 * GATHER_S + 1


class Counting(MemoryJournal):
    """Remembers what was replaced, commit by commit."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.steps: list[list[Replacement]] = []
        self.full = False
        self.enough = trio.Event()

    def commit(self, expected: int, frames: Sequence[bytes], edits: Sequence[Edit] = ()) -> None:
        step = [edit for edit in edits if isinstance(edit, Replacement)]
        if step and self.full:
            raise StoreFull("There is no room left in the journal.")
        super().commit(expected, frames, edits)
        self.steps += [step] if step else []
        if len(self.steps) == 2:
            self.enough.set()


def holds(journal: MemoryJournal, text: str) -> bool:
    return any(text.encode() in frame for _, frame in journal.frames(0))


async def test_a_deleted_payload_leaves_its_record_and_nothing_else_does(autojump_clock: Any) -> None:
    """R5: the digest of every record stays, so the chain is whole, and the others of the record are delivered."""
    journal = MemoryJournal()
    async with opened(journal) as queen:
        await queen.push_many([NewMessage(queue="q", payload=name) for name in ("first", "second", "third")])
        before = verify(journal.frames(0))
        await carried(queen, Delete(2))
        assert holds(journal, "second")
        await trio.sleep(SOON_S)
        assert not holds(journal, "second")
        assert journal.scan(Table.ERASURES, b"") == []
        seq, digest = verify(journal.frames(0))
        assert seq == before[0] + 1
        assert verify(list(journal.frames(0))[: before[0]]) == before
        assert payloads(await queen.pop("q", batch=9)) == ["first", "third"]
    assert verify(journal.reopened().frames(seq), seq, digest)[0] > seq


async def test_the_memory_of_this_process_forgets_it_too(autojump_clock: Any) -> None:
    """The cache of records held it since its delivery."""
    async with opened(MemoryJournal()) as queen:
        await queen.push("q", "secret")
        await queen.pop("q")
        records = engine_of(queen).core.records
        kept = [seq for seq in records._kept if records.read(seq).pushed is not None]
        assert len(kept) == 1
        await carried(queen, Delete(1))
        await trio.sleep(SOON_S)
        assert records.read(kept[0]).payload(0) is None


async def test_retention_erases_what_it_deletes(autojump_clock: Any) -> None:
    """T4, and off by default."""
    journal = MemoryJournal()
    async with opened(journal) as queen:
        for name in ("kept", "gone"):
            await queen.push(name, f"payload of {name}")
        await queen.configure("gone", {"retentionEnabled": True, "retentionSeconds": 60})
        await trio.sleep(60 + SOON_S)
        assert holds(journal, "payload of kept")
        assert not holds(journal, "payload of gone")


async def test_what_an_operator_deletes_is_erased(autojump_clock: Any) -> None:
    """R5, by message, by partition and by queue, also over a restart behind the checkpoint."""
    journal = MemoryJournal()
    async with opened(journal) as queen:
        await queen.push("q", "deleted one", transaction_id="t")
        await queen.push("q", "cleared one", partition="p")
        await queen.push("gone", "one of a queue")
        await queen.push("gone", "another of a queue", partition="p")
        await queen.push("q", "kept")
        await trio.sleep(SOON_S)
        await queen.messages.delete("t")
        await queen.messages.clear("q", "p")
        await queen.delete_queue("gone")
    async with opened(journal := journal.reopened()) as queen:
        await trio.sleep(SOON_S)
        assert not any(holds(journal, text) for text in ("deleted one", "cleared one", "of a queue"))
        assert payloads(await queen.pop("q", batch=9)) == ["kept"]


async def test_deletions_of_one_record_are_gathered(autojump_clock: Any) -> None:
    """A record of many messages is not written anew for each of them."""
    journal = Counting()
    async with opened(journal) as queen:
        await queen.push_many([NewMessage(queue="q", payload=number) for number in range(100)])
        await trio.sleep(SOON_S)
        for position in range(1, 101):
            await carried(queen, Delete(position))
            await trio.sleep(0.001)
        await trio.sleep(SOON_S)
        assert 1 <= sum(map(len, journal.steps)) <= 2
        (frame,) = {unpack(seq, frame) for seq, frame in journal.frames(0) if unpack(seq, frame).pushed is not None}
        assert [frame.payload(index) for index in range(100)] == [None] * 100


async def test_a_mass_goes_in_small_steps(autojump_clock: Any) -> None:
    """T4: no commit waits for more than a bounded part of it."""
    journal = Counting()
    total = 5 * RECORDS
    async with opened(journal) as queen:
        for number in range(total):
            await queen.push("q", f"{number:03}" + "x" * (2 * BYTES // RECORDS))
        await carried(queen, Clear())
        await trio.sleep(SOON_S)
        assert sorted(entry.seq for step in journal.steps for entry in step) == [
            seq for seq, frame in journal.frames(0) if unpack(seq, frame).pushed is not None
        ]
        assert len(journal.steps) >= 2 * total // RECORDS
        assert max(map(len, journal.steps)) <= RECORDS
        assert journal.scan(Table.ERASURES, b"") == []
        assert not holds(journal, "xxx")


@pytest.mark.parametrize("after", [0.0, 0.5, EVERY_S + 0.1, SOON_S])
async def test_a_crash_at_any_point_loses_no_erasure(after: float, autojump_clock: Any) -> None:
    """What is to be erased is derived from the journal, and kept until it is done."""
    journal = MemoryJournal()
    async with doomed(journal) as queen:
        await queen.push("q", "secret")
        await queen.push("q", "kept")
        await carried(queen, Delete(1))
        await trio.sleep(after)
    async with opened(journal := journal.reopened()) as queen:
        await trio.sleep(SOON_S)
        assert not holds(journal, "secret")
        assert payloads(await queen.pop("q", batch=9)) == ["kept"]


async def test_a_crash_half_way_goes_on_where_it_was(autojump_clock: Any) -> None:
    """Also where the tail with the deletion is folded again from behind the checkpoint."""
    journal = Counting()
    async with doomed(journal) as queen:
        for number in range(4 * RECORDS):
            await queen.push("q", f"secret {number}")
        await carried(queen, Clear())
        await journal.enough.wait()
    assert holds(journal, "secret")
    assert journal.scan(Table.ERASURES, b"")
    async with opened(again := journal.reopened()):
        await trio.sleep(SOON_S)
        assert not holds(again, "secret")
        assert again.scan(Table.ERASURES, b"") == []


async def test_tables_made_anew_erase_again_and_change_nothing(autojump_clock: Any) -> None:
    """Erasing what is erased is no change: the frames stay as they are."""
    journal = MemoryJournal()
    async with opened(journal) as queen:
        await queen.push_many([NewMessage(queue="q", payload=name) for name in ("first", "second")])
        await carried(queen, Delete(1))
        await trio.sleep(SOON_S)
    frames = list((journal := journal.reopened()).frames(0))
    for table in Table:
        journal.clear(table)
    async with opened(journal) as queen:
        await trio.sleep(SOON_S)
        assert list(journal.frames(0))[: len(frames)] == frames
        assert payloads(await queen.pop("q", batch=9)) == ["second"]


async def test_a_full_disk_holds_it_up_and_nothing_else(autojump_clock: Any) -> None:
    """W4: it is done when there is room again."""
    journal = Counting()
    async with opened(journal) as queen:
        await queen.push("q", "secret")
        await carried(queen, Delete(1))
        journal.full = True
        await trio.sleep(SOON_S)
        assert holds(journal, "secret")
        await queen.push("q", "next")
        journal.full = False
        await trio.sleep(FULL_PAUSE_S + 1)
        assert not holds(journal, "secret")
        assert payloads(await queen.pop("q")) == ["next"]


class Beside:
    """An LMDB journal for simulated time: not of the class that is given threads."""

    def __init__(self, journal: LmdbJournal) -> None:
        self._journal = journal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)


async def test_a_steady_flow_with_retention_does_not_grow_the_file(tmp_path: Path, autojump_clock: Any) -> None:
    """T4: the space of payloads is used again. What stays of a message is a tombstone of some 150 bytes."""
    journal = LmdbJournal.open(tmp_path)
    sizes = []
    beside = cast(LmdbJournal, Beside(journal))
    async with open_broker(None, journal=beside, runner=inline, clock=TrioClock()) as queen:
        await queen.configure("q", {"retentionEnabled": True, "completedRetentionSeconds": 10})
        for _ in range(5):
            for _ in range(30):
                await queen.push_many([NewMessage(queue="q", payload="x" * 4000) for _ in range(20)])
                delivery = await queen.pop("q", batch=20)
                await queen.ack_many([Acknowledgement(transaction_id=message.transaction_id) for message in delivery])
                await trio.sleep(1)
            sizes.append((tmp_path / "data.mdb").stat().st_size)
    journal.close()
    payload = 30 * 20 * 4000  # of each of the five parts
    assert sizes[0] > payload // 2
    assert sizes[-1] - sizes[1] < payload // 4
