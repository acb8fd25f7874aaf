"""Lists agree with each other, with single messages and with the figures, whatever has happened (S1, S2, S5)."""

import random
from typing import Any

import pytest
import trio

from queen import Acknowledgement, Broker, NewMessage, StoredMessage
from queen.commands import Status
from queen.errors import QueenError
from queen.store.memory_journal import MemoryJournal
from tests.actors.world import doomed, opened

STATUSES: tuple[Status, ...] = ("pending", "processing", "completed", "failed", "dead_letter")
QUEUES = ("q", "r")
ACTS = ["push", "push", "pop", "pop", "ack", "ack", "ack", "delete", "retry", "bury", "seek", "wait", "clear"]


async def _act(queen: Broker, chance: random.Random, names: list[str], number: int) -> None:
    """One thing that somebody does; a refusal is none."""
    queue = chance.choice(QUEUES)
    match chance.choice(ACTS):
        case "push":
            count = chance.choice([1, 2, 7])
            items = [
                NewMessage(queue=queue, partition=f"p{chance.randrange(4)}", payload=n, transaction_id=f"t{number}-{n}")
                for n in range(count)
            ]
            names += [receipt.transaction_id for receipt in await queen.push_many(items)]
        case "pop":
            group = chance.choice([None, None, "g"])
            await queen.pop(queue, batch=chance.choice([1, 5]), partitions=chance.choice([1, 3]), group=group)
        case "ack":
            status: Any = chance.choice(["completed", "completed", "failed", "dead_letter", "retry"])
            entries = [
                Acknowledgement(transaction_id=name, status=status, consumer_group=chance.choice([None, None, "g"]))
                for name in chance.sample(names, min(len(names), 8))
            ]
            await queen.ack_many(entries)
        case "delete":
            await queen.messages.delete(chance.choice(names))
        case "retry":
            await queen.messages.retry(chance.choice(names))
        case "bury":
            await queen.messages.bury(chance.choice(names))
        case "seek" if chance.random() < 0.2:
            await queen.groups.seek(chance.choice([None, "g"]), queue, chance.choice([None, 1]))
        case "wait":
            await trio.sleep(chance.choice([0.3, 1.2, 30]))
        case "clear" if chance.random() < 0.1:
            await queen.messages.clear(queue, f"p{chance.randrange(4)}")


async def _check(queen: Broker, chance: random.Random, names: list[str]) -> list[StoredMessage]:
    everything = list(await queen.messages.list(limit=1000))
    assert len({message.transaction_id for message in everything}) == len(everything)
    ages = [message.created_at for message in everything]
    assert ages == sorted(ages, reverse=True)
    for status in STATUSES:
        expected = [message for message in everything if message.status == status]
        limit, offset = chance.choice([1, 3, 10, 1000]), chance.choice([0, 1, 5, 30])
        assert list(await queen.messages.list(status=status, limit=limit, offset=offset)) == expected[offset:][:limit]
        for queue in QUEUES:
            figures = await queen.statistics.queue(queue)
            assert getattr(figures.counts, status) == sum(message.queue == queue for message in expected)
            for partition in figures.partitions:
                places = [(message.queue, message.partition) for message in expected]
                assert getattr(partition.counts, status) == places.count((queue, partition.name))
    dead, total = await queen.messages.dead_letters(limit=1000)
    assert list(dead) == [message for message in everything if message.status == "dead_letter"]
    assert total == len(dead)
    for message in chance.sample(everything, min(len(everything), 5)):
        assert (await queen.messages.get(message.transaction_id))[0] == message
    assert {message.transaction_id for message in everything} <= set(names)
    return everything


@pytest.mark.parametrize("seed", range(12))
async def test_lists_and_figures_agree(seed: int, autojump_clock: Any) -> None:
    """Live, after a crash and after a restart."""
    chance = random.Random(seed)
    journal = MemoryJournal()
    names: list[str] = []
    number = 0
    for round_ in range(3):
        async with (doomed if round_ < 2 else opened)(journal.reopened()) as queen:
            if not round_:
                for queue in QUEUES:
                    options = {"retryLimit": chance.choice([0, 1]), "dlqAfterMaxRetries": chance.random() < 0.5}
                    ordering = chance.choice(["strict", "relaxed"])
                    await queen.configure(queue, {**options, "ordering": ordering, "leaseTime": 20})
                await queen.push("q", 0, transaction_id="first")
                names.append("first")
            for _ in range(60):
                number += 1
                try:
                    await _act(queen, chance, names, number)
                except QueenError:
                    pass
                if chance.random() < 0.1:
                    await _check(queen, chance, names)
            before = await _check(queen, chance, names)
        async with opened(journal.reopened()) as queen:
            after = await _check(queen, chance, names)
            ended = {message.id: message for message in after}
            for message in before:
                if message.status not in ("processing", "pending"):  # time may have done something to the others
                    assert ended[message.id] == message
