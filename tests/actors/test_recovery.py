"""A restart gives back the state that was committed, from whatever the tables hold (L7, P4, A3, T5, T6, N4, X1)."""

import random
from typing import Any

import pytest
import trio

from queen import Acknowledgement, Broker, Delivery, NewMessage
from queen.actors import keeper as keeper_module
from queen.actors.snapshots import CHECKPOINT
from queen.clock import TrioClock
from queen.errors import NotFound
from queen.store import chain
from queen.store.format import pack_row
from queen.store.journal import Change, Table
from queen.store.memory_journal import MemoryJournal
from tests.actors.world import doomed, engine_of, opened, payloads, picture, steps


class Load:
    """A random workload, and what a client could know of it."""

    def __init__(self, queen: Broker, chance: random.Random) -> None:
        self.queen = queen
        self.chance = chance
        self.receipts: dict[str, str] = {}
        self.settled: dict[tuple[str, str | None], tuple[Acknowledgement, Any]] = {}
        self.held: list[Any] = []
        self.number = 0

    async def run(self, count: int) -> None:
        for _ in range(count):
            await self.chance.choice([self.push, self.push, self.pop, self.pop, self.ack, self.ack, self.other])()

    async def push(self) -> None:
        items = []
        for _ in range(self.chance.choice([1, 1, 3, 8])):
            self.number += 1
            items.append(
                NewMessage(
                    queue=self.chance.choice("qrs"),
                    partition=self.chance.choice("abcd"),
                    payload=self.number,
                    transaction_id=self.chance.choice([None, f"t{self.number}", f"t{self.chance.randint(1, 30)}"]),
                    delay_seconds=self.chance.choice([None, None, None, 5, 500]),
                    trace_id=self.chance.choice([None, "trace"]),
                )
            )
        for receipt in await self.queen.push_many(items):
            self.receipts[receipt.transaction_id] = receipt.id

    async def pop(self) -> None:
        got = await self.queen.pop(
            self.chance.choice("qrs"),
            batch=self.chance.choice([1, 2, 10]),
            partitions=self.chance.choice([1, 3]),
            group=self.chance.choice([None, None, "g", "h"]),
            auto_ack=self.chance.random() < 0.2,
            subscription_mode=self.chance.choice([None, "new"]),
            worker=self.chance.choice([None, "w"]),
        )
        self.held.extend(got)

    async def ack(self) -> None:
        self.chance.shuffle(self.held)
        taken, self.held = self.held[:4], self.held[4:]
        if not taken:
            return
        entries = [
            Acknowledgement(
                transaction_id=message.transaction_id,
                status=self.chance.choice(["completed", "completed", "failed", "retry", "dead_letter"]),
                lease_id=message.lease_id,
                consumer_group=message.consumer_group,
            )
            for message in taken
        ]
        for entry, result in zip(entries, await self.queen.ack_many(entries), strict=True):
            key = entry.transaction_id, entry.consumer_group
            if result.accepted and result.status != "retry_scheduled":
                self.settled[key] = entry, result

    async def other(self) -> None:
        what = self.chance.randrange(6)
        if what == 0:
            await trio.sleep(self.chance.choice([0.1, 1.5, 40]))
        elif what == 1 and self.held:
            try:
                await self.queen.extend(self.held[0].lease_id, self.chance.choice([None, 900]))
            except NotFound:
                pass
        elif what == 2:
            options = {
                "leaseTime": self.chance.choice([30, 300]),
                "retryDelay": self.chance.choice([0, 9000]),
                "retryLimit": self.chance.choice([0, 1, 3]),
                "dlqAfterMaxRetries": self.chance.random() < 0.5,
                "ordering": self.chance.choice(["strict", "relaxed"]),
                "ttl": self.chance.choice([0, 0, 100]),
                "retentionEnabled": self.chance.random() < 0.3,
                "completedRetentionSeconds": self.chance.choice([0, 20]),
            }
            some = dict(self.chance.sample(sorted(options.items()), 3))
            await self.queen.configure(self.chance.choice("qrs"), some, namespace=self.chance.choice([None, "n"]))
        elif what == 3 and self.held:
            self.queen.release_nowait(Delivery((self.held.pop(),)))
            await steps()

    async def check(self, queen: Broker) -> None:
        """P4, A3: repeated now, each request gets the answer it got."""
        known = 0
        for name, id in self.receipts.items():
            receipt = await queen.push("q", transaction_id=name)
            if receipt.status == "duplicate":
                assert receipt.id == id
                known += 1
        assert known
        for entry, result in self.settled.values():
            again = (await queen.ack_many([entry]))[0]
            assert again == result or again.status == "not_found"


async def _reopened_equals(journal: MemoryJournal, before: dict[str, Any]) -> None:
    async with doomed(journal.reopened()) as queen:
        assert picture(queen) == before


@pytest.mark.parametrize("seed", range(10))
async def test_after_a_crash_the_state_is_what_it_was(seed: int, autojump_clock: Any) -> None:
    """X1, L7, G2: partitions, queues, depths, leases and groups; once more from nothing but the records."""
    chance = random.Random(seed)
    journal = MemoryJournal()
    async with doomed(journal) as queen:
        load = Load(queen, chance)
        await load.run(120)
        before = picture(queen)
    await _reopened_equals(journal, before)
    # And a crash after the next snapshots, then a good end.
    journal = journal.reopened()
    async with doomed(journal) as queen:
        load.queen = queen
        await load.run(40)
        before = picture(queen)
    journal = journal.reopened()
    async with opened(journal) as queen:
        assert picture(queen) == before
    journal = journal.reopened()
    async with doomed(journal) as queen:
        after_close = picture(queen)
    assert after_close["leases"].keys() == before["leases"].keys()
    for table in Table:
        journal = journal.reopened()
        journal.clear(table)
    await _reopened_equals(journal, after_close)
    async with doomed(journal.reopened()) as queen:
        await load.check(queen)
    chain.verify(journal.frames(0))


@pytest.mark.parametrize("how", ["beyond", "other", "cleared rows are not believed"])
async def test_a_checkpoint_that_does_not_fit_is_no_evidence(how: str, autojump_clock: Any) -> None:
    """The tables are made anew, and said."""
    journal = MemoryJournal()
    async with opened(journal) as queen:
        load = Load(queen, random.Random(1))
        await load.run(60)
        before = picture(queen)
    journal = journal.reopened()
    if how == "cleared rows are not believed":
        for table in (Table.PARTITIONS, Table.QUEUES, Table.RUNS, Table.IDS, Table.SETTLED, Table.SETTLEMENTS):
            journal.clear(table)
    seq = journal.head + 5 if how == "beyond" else 3
    journal.commit(journal.head, (), [Change(Table.META, CHECKPOINT, pack_row([seq, b"x" * 32]))])
    async with doomed(journal.reopened()) as queen:
        assert picture(queen) == before
        await load.check(queen)


class Mortal(MemoryJournal):
    """A journal whose process dies after so many more commits: nothing is written from then on."""

    left = 1 << 30

    def commit(self, *args: Any, **options: Any) -> None:
        self.left -= 1
        if self.left >= 0:
            super().commit(*args, **options)


@pytest.mark.parametrize("stop", range(30))
async def test_a_stop_between_two_slices_of_a_snapshot(
    stop: int, monkeypatch: pytest.MonkeyPatch, autojump_clock: Any
) -> None:
    """The tables may be newer than their checkpoint in any part; the records say what is true."""
    monkeypatch.setattr(keeper_module, "SLICE", 3)
    journal = Mortal()
    async with doomed(journal) as queen:
        load = Load(queen, random.Random(stop))
        await load.run(60)
        await trio.sleep(2.5)
        await load.run(40)
        await engine_of(queen).core.writer.flushed()
        before = picture(queen)
        journal.left = stop
        await trio.sleep(1.5)
        assert engine_of(queen).core.journal is journal
    async with doomed(journal.reopened()) as queen:
        assert picture(queen) == before
        await load.check(queen)


@pytest.mark.parametrize("after", [0.0, 0.001, 0.011, 0.021, 0.031, 0.041, 0.051, 0.071, 0.1])
async def test_closing_in_the_middle_of_a_snapshot_writes_all_of_it(
    after: float, monkeypatch: pytest.MonkeyPatch, autojump_clock: Any
) -> None:
    """A flush that was cut off is made good by the last one: nothing behind the checkpoint is missing."""
    monkeypatch.setattr(keeper_module, "SLICE", 4)

    async def runner(call: Any) -> None:
        await trio.sleep(0.01)
        call()

    journal = MemoryJournal()
    async with opened(journal, runner=runner) as queen:
        for number in range(12):
            await queen.push_many(
                [
                    NewMessage(
                        queue=f"q{number % 3}", payload=number, transaction_id=f"t{number}", partition=f"p{number}"
                    )
                ]
            )
        (message,) = await queen.pop("q0", "p0")
        await queen.ack(message)
        flush = keeper_module.Keeper._write_tails
        started = trio.Event()

        async def write_tails(self: Any) -> None:
            started.set()
            await flush(self)

        monkeypatch.setattr(keeper_module.Keeper, "_write_tails", write_tails)
        await queen.push("q0", 12, partition="p0", transaction_id="t12")
        await started.wait()
        await trio.sleep(after)
        before = picture(queen)
    async with opened(journal.reopened(), runner=runner) as queen:
        assert picture(queen) == before
        found: list[int] = []
        for number in range(3):
            found += payloads(await queen.pop(f"q{number}", batch=99, partitions=99, auto_ack=True))
        assert sorted(found) == list(range(1, 13))
        for number in range(13):
            assert (await queen.push("q", transaction_id=f"t{number}")).status == "duplicate"
        assert (await queen.ack("t0")).status == "completed"


async def test_leases_keep_their_deadlines_over_a_restart(autojump_clock: Any) -> None:
    """L7, T6: the time that the server was down counts."""
    journal = MemoryJournal()
    clock = TrioClock()
    async with doomed(journal, clock=clock) as queen:
        await queen.push("q", 1)
        start = trio.current_time()
        (message,) = await queen.pop("q")
    await trio.sleep(100)
    async with doomed(journal.reopened(), clock=TrioClock()) as queen:
        assert (await queen.pop("q")).messages == ()
        assert (await queen.pop("q", wait=True, timeout=60)).messages == ()
        await trio.sleep(120)
        (again,) = await queen.pop("q", wait=True, timeout=60)
        assert trio.current_time() - start == pytest.approx(300, abs=0.1)
        assert (again.data, again.retry_count) == (1, 1)
        assert again.id == message.id


@pytest.mark.parametrize("jump", [3600, -3600, 86_400 * 400, -86_400 * 400])
async def test_a_jump_of_the_wall_clock_ends_nothing_early_or_late(jump: int, autojump_clock: Any) -> None:
    """T6, N4: and createdAt does not run backwards in a partition, also over a restart."""
    journal = MemoryJournal()
    clock = TrioClock()
    async with doomed(journal, clock=clock) as queen:
        await queen.push_many([NewMessage(queue="q", payload=n) for n in range(2)])
        await queen.push("q", "delayed", partition="d", delay_seconds=200)
        (first,) = await queen.pop("q", "Default")
        start = trio.current_time()
        clock.wall_shift = jump * 1_000_000
        await queen.push("q", 2)
        await queen.push("q", 3, partition="other")
        (other,) = await queen.pop("q", "other")
        assert other.created_at == clock.now() + clock.shift()
        await queen.push("q", 4)  # the last record is one whose createdAt may be held back
    again = TrioClock()
    async with doomed(journal.reopened(), clock=again) as queen:
        assert again.shift() == jump * 1_000_000
        await queen.push("q", 5)
        delayed = await _patiently(queen, "d")
        assert trio.current_time() - start == pytest.approx(200, abs=0.1)
        assert payloads(delayed) == ["delayed"]
        got = await _patiently(queen, "Default")
        assert trio.current_time() - start == pytest.approx(300, abs=0.1)
        assert payloads(got) == [0, 1, 2, 4, 5]
        shown = [message.created_at for message in got]
        assert shown == sorted(shown)
        assert shown[0] == first.created_at


async def _patiently(queen: Broker, partition: str) -> Delivery:
    while not (got := await queen.pop("q", partition, batch=9, wait=True, timeout=60)):
        pass
    return got


async def test_options_changed_in_the_last_second_count_for_partitions_at_rest(autojump_clock: Any) -> None:
    """T5: they lie behind the checkpoint, the partitions before it."""
    journal = MemoryJournal()
    async with doomed(journal) as queen:
        await queen.configure("q", {"delayedProcessing": 1000})
        await queen.push("q", 1)
        await trio.sleep(5)
        await queen.configure("q", {"delayedProcessing": 20})
    async with doomed(journal.reopened()) as queen:
        start = trio.current_time()
        assert payloads(await queen.pop("q", wait=True)) == [1]
        assert trio.current_time() - start == pytest.approx(15, abs=0.1)


async def test_an_empty_journal_opens_and_closes(autojump_clock: Any) -> None:
    """And leaves nothing behind that the next opening trips over."""
    journal = MemoryJournal()
    for _ in range(3):
        async with opened(journal) as queen:
            assert not await queen.pop("q")
        journal = journal.reopened()
    assert journal.head == 0
