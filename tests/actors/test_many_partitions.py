"""Very many partitions: few are awake, a start looks at few, and nothing shows of either."""

from typing import Any

import pytest
import trio

from queen import Broker, NewMessage
from queen.actors import recovery, residents, snapshots
from queen.actors.ranges import NO_RANGES
from queen.actors.snapshots import read_summary, unpack_partition
from queen.store.journal import Table
from queen.store.memory_journal import MemoryJournal
from tests.actors.world import doomed, engine_of, opened, payloads, picture

PARTITIONS = 200


async def filled(queen: Broker) -> None:
    for start in range(0, PARTITIONS, 50):
        await queen.push_many([NewMessage(queue="q", partition=str(n), payload=n) for n in range(start, start + 50)])
        await trio.sleep(0.01)


async def test_where_many_are_awake_those_that_pause_sleep(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: Any
) -> None:
    """No more than so many are awake for long, and what sleeps shares what it can."""
    monkeypatch.setattr(residents, "AWAKE", 20)
    async with opened() as queen:
        await filled(queen)
        assert queen.health().awake == PARTITIONS
        await trio.sleep(5)
        assert queen.health().awake <= 20
        slots = engine_of(queen).core.catalogue.queues["q"].slots
        asleep = [slot for slot in slots.values() if engine_of(queen).house.resting(slot) is not None]
        assert len(asleep) >= PARTITIONS - 20
        assert all(slot.deleted is NO_RANGES for slot in asleep)
        assert len({id(slot.counts) for slot in asleep}) == 2, "an empty one and those with one message"
        assert payloads(await queen.pop("q", batch=1000, partitions=1000)) == list(range(PARTITIONS))


async def test_a_start_reads_summaries_alone(monkeypatch: pytest.MonkeyPatch, autojump_clock: Any) -> None:
    """Of partitions with which something is going on, the state as well. Offers, order and figures are the same."""
    journal = MemoryJournal()
    async with opened(journal) as queen:
        await filled(queen)
        await queen.configure("timed", {"delayedProcessing": 10})
        await queen.push("timed", 1)
        (leased,) = await queen.pop("q", "3")
        (gone,) = await queen.pop("q", "4")
        await queen.messages.delete(gone.transaction_id)
        (done,) = await queen.pop("q", "5", auto_ack=True)
        await queen.pop("q", "6", group="g")
        before = picture(queen)
        counts = [slot.counts for slot in engine_of(queen).core.catalogue.queues["q"].slots.values()]
    read: list[int] = []

    def reading(number: int, row: bytes) -> Any:
        read.append(number)
        return unpack_partition(number, row)

    monkeypatch.setattr(recovery, "unpack_partition", reading)
    async with opened(journal) as queen:
        slots = engine_of(queen).core.catalogue.queues["q"].slots
        special = {slots[name].number for name in "346"}
        assert special <= set(read), "leased, deleted, another group"
        assert len(read) <= len(special) + 4, "beside the partitions of the other queue, and those of the last records"
        assert [slot.counts for slot in slots.values()] == counts
        assert queen.health().awake == 0
        rest = [n for n in range(PARTITIONS) if n not in (3, 4, 5)]
        assert payloads(await queen.pop("q", batch=1000, partitions=1000)) == rest
        await trio.sleep(10)
        assert payloads(await queen.pop("timed")) == [1]
    monkeypatch.undo()
    async with opened(journal) as queen:
        assert picture(queen)["queues"].keys() == before["queues"].keys()
        assert (await queen.ack(leased)).status == "completed"
        assert (await queen.ack(done)).status == "completed"


async def test_summaries_say_what_the_rows_say(autojump_clock: Any) -> None:
    """They are made of the same state."""
    journal = MemoryJournal()
    async with opened(journal) as queen:
        await filled(queen)
        await queen.pop("q", "1")
        await queen.pop("q", "2", auto_ack=True)
        await trio.sleep(2)
        for key, row in journal.scan(Table.PARTITIONS, b""):
            summary, number = read_summary(row), int.from_bytes(key)
            seq, queue, id, name, created_at, state = unpack_partition(number, row)
            view = state.groups[0]
            assert summary[1:] == (seq, queue, created_at, id, view.cursor, view.counts, name)
            run = next(engine_of(queen).core.projections.runs(number, view.cursor), None)
            expected = 0 if run is None else run.pushed_at
            assert summary.head_at == (None if name == "1" else expected)


async def test_states_that_are_dear_to_write_are_written_seldom(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: Any
) -> None:
    """As often as so many records have come; a start folds what is missing, and where nothing happens, nothing is."""
    monkeypatch.setattr(residents, "HEAVY", 50)
    written: list[int] = []
    real = snapshots.pack_partition

    def counting(slot: Any, *args: Any) -> bytes:
        written.append(slot.number)
        return real(slot, *args)

    monkeypatch.setattr(residents, "pack_partition", counting)
    journal = MemoryJournal()
    async with doomed(journal) as queen:
        await queen.configure("q", {"ordering": "relaxed"})
        await queen.push_many([NewMessage(queue="q", payload=n) for n in range(400)])
        number = engine_of(queen).core.catalogue.queues["q"].slots["Default"].number
        await queen.pop("q", batch=100)
        await trio.sleep(5)
        written.clear()
        for _ in range(150):
            await queen.pop("q")
            await trio.sleep(0.7)
            await queen.push("other", 1)
            await trio.sleep(0.7)
        assert 1 <= written.count(number) <= 3, "in 210 s and 300 records, with 100 to 250 open messages"
        before = picture(queen)
    async with opened(journal) as queen:
        assert picture(queen) == before
        await queen.pop("q")
        await trio.sleep(5)
        written.clear()
        await trio.sleep(5)
        assert not written
