"""A whole world from a seed: clients that push, pop, vanish and die, a slow disk, restarts. Then the books are made up.

Checked: every push that was answered is there, whole; every message ends exactly once for each group; none is with
two consumers within a lease; in a strict partition none overtakes another (P1, O8, L1, L5, L8).
"""

import random
from collections import Counter, defaultdict
from typing import Any

import msgspec
import pytest
import trio

from queen import Broker, Delivery, Message, NewMessage
from queen.store.memory_journal import MemoryJournal
from tests.actors.world import doomed, engine_of, opened

LEASE_S = 20
PARTITIONS = 4
GROUPS = (None, "g")
LIVES = 3


class Books:
    """What the clients know, over all incarnations."""

    def __init__(self) -> None:
        self.pushed: dict[int, int] = {}
        self.attempted: dict[int, int] = {}
        self.number = 0
        self.held: dict[tuple[str | None, str], float] = {}
        self.done: defaultdict[str | None, list[tuple[int, str]]] = defaultdict(list)
        self.last: dict[tuple[str | None, str], int] = {}

    def take(self, message: Message, group: str | None) -> None:
        """A consumer has got it: nobody else may have it, nor have finished with it, nor with a later one."""
        key = group, message.transaction_id
        now = trio.current_time()
        assert self.held.get(key, 0.0) <= now, "the message is with two consumers"
        self.held[key] = now + LEASE_S
        place = group, message.partition
        assert self.last.get(place, 0) < message.data, "a later message was done with before"

    def complete(self, message: Message, group: str | None) -> None:
        self.done[group].append((message.data, message.partition))
        self.last[group, message.partition] = message.data


async def _producer(queen: Broker, books: Books, chance: random.Random) -> None:
    while True:
        await trio.sleep(chance.random())
        books.number += 1
        number = books.number
        partitions = chance.sample(range(PARTITIONS), chance.randint(1, PARTITIONS))
        items = [NewMessage(queue="q", partition=f"p{partition}", payload=number) for partition in partitions]
        books.attempted[number] = len(items)
        with trio.move_on_after(chance.choice([0.01, 5, 5, 5])) as scope:
            await queen.push_many(items)
            books.pushed[number] = len(items)
        assert scope.cancelled_caught or number in books.pushed


async def _consumer(queen: Broker, books: Books, chance: random.Random, group: str | None) -> None:
    while True:
        batch, partitions = chance.choice([(1, 1), (3, 1), (5, 3)])
        got: tuple[Message, ...] = ()
        with trio.move_on_after(chance.choice([0.01, 0.3, 30])):
            wait = chance.random() < 0.7
            got = (await queen.pop("q", group=group, batch=batch, partitions=partitions, wait=wait)).messages
        for message in got:
            books.take(message, group)
        fate = chance.random()
        if fate < 0.1:
            await trio.sleep(LEASE_S + 1)  # the consumer hangs
            continue
        if fate < 0.2:
            for message in got:
                books.held.pop((group, message.transaction_id))
            queen.release_nowait(Delivery(got))
            continue
        for message in got:
            await trio.sleep(chance.random() / 20)
            key = group, message.transaction_id
            if chance.random() < 0.1:
                books.held.pop(key)  # from the moment of asking on, another may get it
                await queen.ack(message, "failed")
                rest = got[got.index(message) + 1 :]  # would be out of order
                for other in rest:
                    books.held.pop((group, other.transaction_id))
                queen.release_nowait(Delivery(rest))
                break
            await queen.ack(message)
            books.complete(message, group)
            books.held.pop(key)
        await trio.sleep(chance.random() / 10)


@pytest.mark.parametrize("seed", range(6))
async def test_a_world_keeps_its_promises(seed: int, autojump_clock: Any) -> None:
    """Three incarnations, each killed at any moment; then all is consumed."""
    chance = random.Random(seed)
    books = Books()
    journal = MemoryJournal()

    async def runner(call: Any) -> None:
        await trio.sleep(chance.choice([0.0005, 0.002, 0.05]))
        call()

    for _ in range(LIVES):
        journal = journal.reopened()
        with trio.move_on_after(chance.uniform(2, 10)):
            async with doomed(journal, runner=runner) as queen, trio.open_nursery() as nursery:
                await queen.configure("q", {"leaseTime": LEASE_S, "retryLimit": 1000})
                for _ in range(3):
                    nursery.start_soon(_producer, queen, books, chance)
                for group in GROUPS:
                    nursery.start_soon(_consumer, queen, books, chance, group)
                    nursery.start_soon(_consumer, queen, books, chance, group)
        await trio.sleep(LEASE_S + 1)  # what a killed consumer held is free, whoever remembers it
        books.held.clear()
    async with opened(journal.reopened()) as queen:
        for group in GROUPS:
            while got := await queen.pop("q", group=group, batch=100, partitions=PARTITIONS):
                for message in got:
                    books.take(message, group)
                    await queen.ack(message)
                    books.complete(message, group)
        _make_up(queen, books)


def _make_up(queen: Broker, books: Books) -> None:
    """What is stored, counted from the records, against what the clients know."""
    core = engine_of(queen).core
    stored: Counter[int] = Counter()
    for slot in core.catalogue.queues["q"].slots.values():
        state = engine_of(queen).house.awake(slot).state
        for run in core.projections.runs(slot.number, 1):
            record = core.records.read(run.seq)
            stored.update(msgspec.json.decode(record.payload(index) or b"") for index in range(run.length))
        for view in state.groups.values():
            assert (view.pending, view.processing) == (0, 0)
            assert view.completed == state.next_position - 1
    assert stored == {number: books.attempted[number] for number in stored}, "a push was torn"
    assert books.pushed.keys() <= stored.keys(), "a push was lost"
    assert len(books.pushed) > 10
    for group in GROUPS:
        done = Counter((number, partition) for number, partition in books.done[group])
        assert max(done.values()) == 1, "a message was done twice"
        # A kill between an ack's commit and its answer: the message has ended, and its consumer doesn't know.
        assert sum(stored.values()) - 2 * LIVES <= len(done) <= sum(stored.values())
