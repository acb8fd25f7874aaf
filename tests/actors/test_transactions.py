"""Transactions are one commit or nothing, whatever fails and whoever else is at work (P1, A5)."""

import random
from typing import Any

import pytest
import trio

from queen import Acknowledgement, NewMessage
from queen.errors import QueenError, StoreFull, TransactionRefused
from queen.store.memory_journal import MemoryJournal
from tests.actors.world import doomed, engine_of, opened, payloads, slow


async def test_a_transaction_is_one_commit(autojump_clock: Any) -> None:
    """Also where it acknowledges and pushes in one partition."""
    async with opened(runner=slow(0.01)) as queen:
        await queen.push_many([NewMessage(queue="q", partition=f"p{n % 3}", payload=n) for n in range(9)])
        got = await queen.pop("q", batch=9, partitions=3)
        await trio.sleep(2.5)
        writer = engine_of(queen).core.writer
        commits, seq = writer.commits, writer.seq
        acks = [Acknowledgement(transaction_id=message.transaction_id) for message in got]
        results = await queen.transaction(
            [*acks, [NewMessage(queue="q", partition=f"p{n % 3}", payload="new") for n in range(6)]]
        )
        assert len(results) == 10
        assert (writer.commits, writer.seq) == (commits + 1, seq + 6)
        assert payloads(await queen.pop("q", batch=9, partitions=3)) == ["new"] * 6


async def test_a_transaction_whose_commit_fails_left_nothing(autojump_clock: Any) -> None:
    journal = MemoryJournal()
    async with opened(journal) as queen:
        await queen.push("q", 1, transaction_id="t")
        await queen.pop("q")
        await trio.sleep(2.5)
        operations: Any = [Acknowledgement(transaction_id="t"), [NewMessage(queue="out", transaction_id="o")]]
        journal.fail_next(StoreFull("full"))
        with pytest.raises(StoreFull):
            await queen.transaction(operations)
        await trio.sleep(1)
        assert (await queen.messages.get("t"))[0].status == "processing"
        assert await queen.messages.list("out") == []
        await queen.transaction(operations)
        assert (await queen.messages.get("t"))[0].status == "completed"
        assert len(await queen.messages.list("out")) == 1


@pytest.mark.parametrize("seed", range(5))
async def test_consume_process_produce_is_exactly_once(seed: int, autojump_clock: Any) -> None:
    """Workers that are cancelled at any point, whose leases end, and a server that is killed: every message of the
    input leads to one of the output."""
    chance = random.Random(seed)
    journal = MemoryJournal()
    count = 30

    async def work(queen: Any, until: trio.Event) -> None:
        while not until.is_set():
            with trio.move_on_after(chance.uniform(0.001, 0.5)):
                try:
                    delivery = await queen.pop("in", batch=chance.randint(1, 3), wait=True, timeout=0.05)
                    await trio.sleep(chance.choice([0, 0.01, 2]))
                    acks = [
                        Acknowledgement(transaction_id=message.transaction_id, lease_id=message.lease_id)
                        for message in delivery
                    ]
                    made = [
                        NewMessage(queue="out", payload=message.data, transaction_id=f"out-{message.data}")
                        for message in delivery
                    ]
                    if acks:
                        await queen.transaction([*acks, made])
                except TransactionRefused:
                    pass  # somebody else has it by now
                except QueenError:
                    await trio.sleep(0.1)

    async with doomed(journal, runner=slow(0.005)) as queen:
        await queen.configure("in", {"leaseTime": 1, "retryLimit": 1000})
        await queen.push_many([NewMessage(queue="in", payload=n, partition=f"p{n % 4}") for n in range(count)])
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(work, queen, trio.Event())
            await trio.sleep(1 + chance.random())
            nursery.cancel_scope.cancel()
    async with opened(journal.reopened(), runner=slow(0.005)) as queen:
        for message in await queen.messages.list("in", status="completed", limit=1000):
            assert (await queen.messages.get(f"out-{message.data}"))[0].data == message.data
        until = trio.Event()
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(work, queen, until)
            for _ in range(200):
                await trio.sleep(1)
                if (await queen.statistics.queue("in")).counts.completed == count:
                    break
            until.set()
        assert sorted(message.data for message in await queen.messages.list("out")) == list(range(count))
