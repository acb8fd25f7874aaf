"""Deleting queues while everything goes on: pops stay parked, pushes get told, a restart and a crash know of it."""

from typing import Any

import pytest
import trio

from queen import Broker, NewMessage
from queen.errors import NotFound, QueueGone, StoreFull
from queen.store.journal import Change, Table
from queen.store.keys import u64
from queen.store.memory_journal import MemoryJournal
from tests.actors.world import Waiters, doomed, engine_of, opened, payloads, picture, slow


async def test_parked_pops_stay_parked_by_name(autojump_clock: Any) -> None:
    """O2: of the default group and of others; what comes then is the new queue's."""
    async with opened() as queen, trio.open_nursery() as nursery:
        await queen.push("q", "old")
        await queen.pop("q", auto_ack=True)
        await queen.pop("q", auto_ack=True, group="g")
        waiters = Waiters(queen, nursery)
        await waiters.add("default", "q")
        await waiters.add("g", "q", group="g")
        await waiters.add("partition", "q", "p")
        await queen.delete_queue("q")
        await trio.sleep(1)
        assert waiters.names == []
        await queen.push("q", "new")
        await queen.push("q", "new", partition="p")
        await trio.sleep(0.1)
        assert sorted(waiters.names) == ["default", "g", "partition"]
        assert all(payloads(delivery) == ["new"] for _, delivery, _ in waiters.served)


async def test_a_pop_on_its_way_looks_again(autojump_clock: Any) -> None:
    """L8, O2: it is parked as if it had come after the deletion."""
    async with opened() as queen, trio.open_nursery() as nursery:
        await queen.push("q", 1)
        answers: list[Any] = []

        async def pop() -> None:
            answers.append(payloads(await queen.pop("q", wait=True, timeout=5)))

        nursery.start_soon(pop)
        nursery.start_soon(queen.delete_queue, "q")
        await trio.sleep(1)
        if not answers:  # the deletion came first
            await queen.push("q", 2)
            await trio.sleep(1)
            assert answers == [[2]]
        else:
            assert answers == [[1]]


async def test_work_that_meets_the_deletion_is_refused_whole(autojump_clock: Any) -> None:
    """P1: also its part in other queues; nobody is left waiting."""
    async with opened(runner=slow(0.01)) as queen:
        await queen.push_many([NewMessage(queue=queue, payload=0) for queue in ("q", "r")])
        outcomes: list[Any] = []

        async def push(number: int) -> None:
            items = [NewMessage(queue=queue, payload=number, partition="p") for queue in ("r", "q")]
            try:
                outcomes.append((number, bool(await queen.push_many(items))))
            except QueueGone:
                outcomes.append((number, False))

        async with trio.open_nursery() as nursery:
            for number in range(1, 30):
                nursery.start_soon(push, number)
                if number == 15:
                    nursery.start_soon(queen.delete_queue, "q")
        assert len(outcomes) == 29
        kept = [message.data for message in await queen.messages.list("r", "p")]
        assert sorted(kept) == sorted(number for number, stored in outcomes if stored)
        # A push is in both queues or in none; the deletion took those of `q` that came before it.
        left = [message.data for message in await queen.messages.list("q", "p")]
        assert set(left) <= set(kept)


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("clean", [False, True])
async def test_a_restart_has_no_memory_of_it(flushed: bool, clean: bool, autojump_clock: Any) -> None:
    """X1: rows of queue and partitions go; numbers are never given twice, whatever the tables know."""
    journal = MemoryJournal()
    async with (opened if clean else doomed)(journal) as queen:
        await queen.push_many([NewMessage(queue="q", payload="old", partition=f"p{n}") for n in range(5)])
        await queen.pop("q", "p1")
        if flushed:
            await trio.sleep(3)
        await queen.delete_queue("q")
        numbers = set(_numbers(queen))
        if flushed:
            await trio.sleep(3)
    async with doomed(journal.reopened()) as queen:
        assert engine_of(queen).core.catalogue.queues == {}
        assert engine_of(queen).house.leases == {}
        await queen.push("q", "new", partition="p1")
        assert not numbers & set(_numbers(queen))
        assert payloads(await queen.pop("q", batch=9, partitions=9)) == ["new"]
        before = picture(queen)
    async with opened(journal.reopened()) as queen:
        assert picture(queen) == before
        await queen.push("r", 1)
        await trio.sleep(3)
        assert len(journal.scan(Table.QUEUES, b"")) == 2
        assert len(journal.scan(Table.PARTITIONS, b"")) == 3


def _numbers(queen: Broker) -> list[int]:
    return [slot.number for slot in engine_of(queen).core.catalogue.slots.values()]


@pytest.mark.parametrize("rows", range(4))
async def test_a_flush_that_was_cut_off_while_the_rows_went(rows: int, autojump_clock: Any) -> None:
    """The queue's row is gone while the checkpoint still is before the making of a partition of it, which the replay
    passes over: its number is not given again, and what is left of its rows goes."""
    journal = MemoryJournal()
    async with doomed(journal) as queen:
        await queen.push("q", "old")
        await trio.sleep(3)
        (queue,) = engine_of(queen).core.catalogue.numbers
        await queen.push("q", "old", partition="p")
        numbers = sorted(_numbers(queen))
        await queen.delete_queue("q")
    again = journal.reopened()
    gone = [(Table.QUEUES, queue), *((Table.PARTITIONS, number) for number in numbers)]
    again.commit(again.head, (), [Change(table, u64(number), None) for table, number in gone[:rows]])
    async with opened(again.reopened()) as queen:
        await queen.push("q", "new", partition="p")
        assert not set(numbers) & set(_numbers(queen))
        assert payloads(await queen.pop("q", batch=9, partitions=9)) == ["new"]
        await trio.sleep(3)
        assert len(journal.scan(Table.PARTITIONS, b"")) == 2


async def test_a_deletion_whose_commit_fails_never_was(autojump_clock: Any) -> None:
    """W4"""
    journal = MemoryJournal()
    async with opened(journal) as queen:
        await queen.push("q", 1)
        await trio.sleep(2.5)
        journal.fail_next(StoreFull("full"))
        with pytest.raises(StoreFull):
            await queen.delete_queue("q")
        await trio.sleep(1)
        assert payloads(await queen.pop("q")) == [1]
        await queen.delete_queue("q")
        with pytest.raises(NotFound):
            await queen.delete_queue("q")


@pytest.mark.parametrize("crash", [False, True])
async def test_the_payloads_of_a_deleted_queue_are_erased(crash: bool, autojump_clock: Any) -> None:
    """R5: all of them, whatever had been deleted one by one before; also after a crash right behind the deletion."""
    journal = MemoryJournal()
    async with doomed(journal) as queen:
        await queen.push_many([NewMessage(queue="q", payload=f"secret {n}", partition=f"p{n % 3}") for n in range(9)])
        await queen.push("r", "harmless")
        names = [message.transaction_id for message in await queen.messages.list("q")]
        await queen.messages.delete(names[-1])
        await trio.sleep(20)
        await queen.push("q", "secret and late", partition="p9")
        await queen.delete_queue("q")
        if not crash:
            await trio.sleep(20)
    if crash:
        async with opened(journal.reopened()) as queen:
            await trio.sleep(20)
    frames = [frame for _, frame in journal.frames(0)]
    assert not any(b"secret" in frame for frame in frames)
    assert any(b"harmless" in frame for frame in frames)
