"""Figures are what a naive count gives (S1 to S4, Z6): after any workload, a restart, a crash, and made anew."""

import math
import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from queen import Broker, Conflict, NotFound, QueenError, StoreFull, Unavailable, open_broker
from queen.actors.catalogue_state import Slot
from queen.actors.mailbox import Part, Work
from queen.actors.statistics import HOUR, MINUTE, WINDOW_HOURS
from queen.clock import TrioClock
from queen.commands import AckStatus, Bury, Clear, Delete, PartitionCommand, Retry, Seek
from queen.events import MessagesLeased, MessagesPushed, MessagesSettled
from queen.figures import Counts, LagFigures, sum_of
from queen.messages import Acknowledgement, Caller, NewMessage
from queen.names import DEFAULT_GROUP, SECOND
from queen.reply import Reply
from queen.store.format import unpack
from queen.store.journal import Table
from queen.store.memory_journal import MemoryJournal
from tests.actors.world import Gate, doomed, engine_of, opened, steps

QUEUES = ("a", "b", "c")
PARTITIONS = ("Default", "p", "q")
SHORT = 0.1, 1, 45


async def told(queen: Broker, slot: Slot, command: PartitionCommand) -> Any:
    """What a partition answers to a command that has no method of the broker's yet."""
    reply: Reply[Any] = Reply()

    def answer(replies: list[Any] | None, error: BaseException | None) -> None:
        if error is None:
            reply.set(replies)
        else:
            reply.fail(error)

    engine_of(queen)._put(Work((Part(slot, command),), Caller(), told=answer))
    return await reply.wait()


class Workload:
    """Random use of everything, the same for the same seed."""

    def __init__(self, queen: Broker, seed: int, waits: tuple[float, ...] = (0.1, 1, 45, 200, 900)) -> None:
        self.waits = waits
        self.queen = queen
        self.chance = random.Random(seed)
        self.held: list[tuple[str, str]] = []

    async def run(self, count: int) -> None:
        moves = [self.push] * 6 + [self.pop] * 5 + [self.ack] * 6 + [self.wait] * 3 + [self.operate] * 3
        for _ in range(count):
            await self.chance.choice(moves)()

    async def configure(self) -> None:
        await self.queen.configure("a", {"retryLimit": 1, "leaseTime": 30, "dlqAfterMaxRetries": True}, namespace="n")
        await self.queen.configure("b", {"retryLimit": 0, "ttl": 400, "ordering": "relaxed"}, namespace="n", task="t")
        retention = {"retentionEnabled": True, "retentionSeconds": 600, "completedRetentionSeconds": 200}
        await self.queen.configure("c", {"retryLimit": 1, **retention}, task="u")

    async def push(self) -> None:
        places = [
            (self.chance.choice(QUEUES), self.chance.choice(PARTITIONS)) for _ in range(self.chance.randint(1, 8))
        ]
        await self.queen.push_many([NewMessage(queue=queue, partition=partition) for queue, partition in places])

    async def pop(self) -> None:
        auto_ack = self.chance.random() < 0.2
        group = "named" if self.chance.random() < 0.2 else None
        found = await self.queen.pop(
            self.chance.choice(QUEUES), group=group, batch=self.chance.randint(1, 9), auto_ack=auto_ack, partitions=2
        )
        if group is None and not auto_ack:
            self.held += [(message.transaction_id, message.lease_id) for message in found]

    async def ack(self) -> None:
        chosen = [self.held.pop(self.chance.randrange(len(self.held))) for _ in range(min(len(self.held), 4))]
        status: AckStatus = self.chance.choice(["completed", "completed", "failed", "retry", "dead_letter"])
        entries = [Acknowledgement(transaction_id=name, status=status, lease_id=lease) for name, lease in chosen]
        if entries:
            await self.queen.ack_many(entries)

    async def wait(self) -> None:
        await trio.sleep(self.chance.choice(self.waits))

    async def operate(self) -> None:
        slots = list(engine_of(self.queen).core.catalogue.slots.values())
        slot = self.chance.choice(slots)
        position = self.chance.randint(1, 30)
        single = [command(0, position) for command in (Retry, Bury, Seek)]
        kinds: list[PartitionCommand] = [Delete(position), *single, Clear()]
        try:
            await told(self.queen, slot, self.chance.choices(kinds, weights=[8, 4, 4, 1, 0.3])[0])
        except (Conflict, NotFound):
            pass


# -- naive counts -----------------------------------------------------------------------------------------


def naive_counts(queen: Broker, slot: Slot) -> Counts:
    """Every message looked at."""
    actor = engine_of(queen).house.awake(slot)
    view = actor.state.groups[DEFAULT_GROUP]
    found: Counter[str] = Counter()
    for position in range(1, actor.state.next_position):
        if position in actor.state.deleted:
            continue
        message = view.open.get(position)
        if message is not None:
            found["pending" if message.lease is None else "processing"] += 1
        elif position >= view.cursor:
            found["pending"] += 1
        else:
            ended = actor.history.settled(DEFAULT_GROUP, position)
            assert ended is not None
            found[ended.outcome] += 1
    return Counts(**found)


class Flows:
    """What the journal tells, added up record by record."""

    def __init__(self, journal: MemoryJournal) -> None:
        self.minutes: dict[int, Counter[str]] = defaultdict(Counter)
        self.durations: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for seq, frame in journal.frames(0):
            record = unpack(seq, frame)
            buried = any(type(event).__name__ == "MessagesRevived" for event in record.events)
            minute = self.minutes[record.at // MINUTE]
            for event in record.events:
                if isinstance(event, MessagesPushed):
                    minute["incoming"] += len(event.sizes)
                elif isinstance(event, MessagesLeased) and event.group == DEFAULT_GROUP:
                    minute["leased"] += sum(run.length for run in event.runs)
                elif isinstance(event, MessagesSettled) and event.group == DEFAULT_GROUP:
                    if event.outcome == "completed" and event.asked == "completed":
                        lags = [record.at - run.pushed_at for run in event.runs for _ in range(run.length)]
                        minute["completed"] += len(lags)
                        minute["lag"] += sum(lags)
                        self.durations[record.partition] += [(record.at, lag) for lag in lags]
                    elif event.outcome != "completed" and not buried:
                        minute["failed"] += sum(run.length for run in event.runs)

    def window(self, partition: int, now: int) -> list[int]:
        since = now // HOUR - WINDOW_HOURS
        return sorted(lag for at, lag in self.durations[partition] if at // HOUR >= since)


async def check(queen: Broker, journal: MemoryJournal) -> None:
    """All figures against naive ones, and against each other."""
    await engine_of(queen).core.writer.flushed()
    catalogue = engine_of(queen).core.catalogue
    queues = await queen.statistics.queues()
    assert [queue.name for queue in queues] == sorted(catalogue.queues, key=lambda name: catalogue.queues[name].number)
    for queue in queues:
        slots = sorted(catalogue.queues[queue.name].slots.values(), key=lambda slot: slot.number)
        assert [(line.name, line.counts) for line in queue.partitions] == [
            (slot.name, naive_counts(queen, slot)) for slot in slots
        ]
        assert queue.counts == sum_of(line.counts for line in queue.partitions)
        assert queue.partition_count == len(slots)
    overview = await queen.statistics.overview()
    assert overview.counts == sum_of(queue.counts for queue in queues)
    assert (overview.queues, overview.partitions) == (3, sum(len(queue.partitions) for queue in queues))
    for key, groups in (("namespace", queen.statistics.namespaces), ("task", queen.statistics.tasks)):
        for group in await groups():
            assert group.counts == sum_of(queue.counts for queue in queues if getattr(queue, key) == group.name)
    await check_flows(queen, Flows(journal))


async def check_flows(queen: Broker, flows: Flows) -> None:
    now = engine_of(queen).core.clock.now()
    minutes = await queen.statistics.throughput()
    assert [line.at for line in minutes] == [(now // MINUTE - ago) * MINUTE for ago in range(60)]
    for line in minutes:
        naive = flows.minutes[line.at // MINUTE]
        lag = round(naive["lag"] / naive["completed"]) if naive["completed"] else 0
        figures = line.incoming, line.completed, line.leased, line.failed, line.lag
        assert figures == (naive["incoming"], naive["completed"], naive["leased"], naive["failed"], lag)
    found = {queue.name: queue for queue in await queen.statistics.lag()}
    for queue in engine_of(queen).core.catalogue.queues.values():
        windows = {slot.name: flows.window(slot.number, now) for slot in queue.slots.values()}
        together = sorted(lag for window in windows.values() for lag in window)
        if len(together) < 5:
            assert queue.name not in found
            continue
        check_lag(found[queue.name].totals, together, queue.counts)
        assert {name for name, _ in found[queue.name].partitions} == {name for name, lags in windows.items() if lags}
        for name, of_partition in found[queue.name].partitions:
            check_lag(of_partition, windows[name], queue.slots[name].counts)


def check_lag(figures: LagFigures, lags: list[int], counts: Counts) -> None:
    assert (figures.pending, figures.processing) == (counts.pending, counts.processing)
    assert figures.completed == len(lags)
    assert figures.average == round(sum(lags) / len(lags))
    for share, value in ((0.5, figures.median), (0.95, figures.p95)):
        exact = max(1, lags[math.ceil(share * len(lags)) - 1])
        assert abs(value - exact) <= max(1, 0.01 * exact)


# -- the tests --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
async def test_figures_are_what_a_naive_count_gives(seed: int, autojump_clock: MockClock) -> None:
    """S1, S2, S3, S4: live, after a restart, after a crash, and after all tables were lost."""
    journal = MemoryJournal()
    async with opened(journal, limit_s=10**6) as queen:
        work = Workload(queen, seed)
        await work.configure()
        for _ in range(3):
            await work.run(60)
            await check(queen, journal)
    async with opened(journal, limit_s=10**6) as queen:
        await check(queen, journal)
        await Workload(queen, seed + 100).run(40)
        await check(queen, journal)
    async with doomed(journal) as queen:
        await Workload(queen, seed + 200, SHORT).run(40)
        await trio.sleep(0.5)
        await Workload(queen, seed + 300).push()
    async with opened(journal, limit_s=10**6) as queen:
        await check(queen, journal)
    journal.clear(Table.META)
    async with opened(journal, limit_s=10**6) as queen:
        await check(queen, journal)


async def test_rows_newer_than_the_checkpoint_count_once(autojump_clock: MockClock) -> None:
    """A crash between the rows of the statistics and the checkpoint: what they hold is not folded again."""
    journal = MemoryJournal()
    async with doomed(journal) as queen:
        await Workload(queen, 1).configure()
        await Workload(queen, 1, SHORT).run(80)
        core = engine_of(queen).core
        await core.writer.flushed()
        journal.commit(journal.head, (), core.statistics.rows())
    assert journal.get(Table.STATISTICS, b"minutes") is not None
    async with opened(journal) as queen:
        await check(queen, journal)


class Leaping(TrioClock):
    """A server's time that can be moved on without every second of it being lived through."""

    async def leap(self, hours: int) -> None:
        self._base += hours * HOUR
        await trio.sleep(2)  # the keeper looks at it


async def complete(queen: Broker, count: int, after_s: float) -> None:
    await queen.push_many([NewMessage(queue="a") for _ in range(count)])
    await trio.sleep(after_s)
    await queen.pop("a", batch=count, auto_ack=True)


async def completed(queen: Broker) -> tuple[int, float] | None:
    """How many within the window, and their average lag in seconds; percentiles are about that here."""
    found = await queen.statistics.lag()
    if not found:
        return None
    totals = found[0].totals
    assert 0.99 * totals.average <= totals.p95 <= 1.01 * totals.average or totals.completed == 14
    return totals.completed, totals.average / SECOND


async def test_a_day_later_nothing_of_it_counts(autojump_clock: MockClock) -> None:
    """S4: the window is 24 hours, and what has left it leaves the disk as well."""
    journal, clock = MemoryJournal(), Leaping()
    async with opened(journal, clock=clock) as queen:
        await complete(queen, 9, 100)
        await clock.leap(10)
        await complete(queen, 5, 7)
        assert (await completed(queen) or (0,))[0] == 14
        await clock.leap(15)
        assert await completed(queen) == (5, 7)
        await complete(queen, 5, 7)
        assert await completed(queen) == (10, 7)
        await clock.leap(11)
        assert await completed(queen) == (5, 7)
        await clock.leap(25)
        assert await completed(queen) is None
        assert journal.scan(Table.STATISTICS, b"h", b"i") == []


async def test_a_day_without_a_server_counts_as_well(autojump_clock: MockClock) -> None:
    """S4: what has left the window meanwhile is not seen after the start, and not taken out twice."""
    journal, clock = MemoryJournal(), Leaping()
    async with opened(journal, clock=clock) as queen:
        await complete(queen, 9, 100)
        await clock.leap(10)
        await complete(queen, 5, 7)
    clock = Leaping(1_750_000_000 * SECOND + 26 * HOUR)
    async with opened(journal, clock=clock) as queen:
        engine = engine_of(queen)
        assert await completed(queen) == (5, 7)
        await trio.sleep(2)
        assert engine_of(queen) is engine, "the keeper failed"
        assert await completed(queen) == (5, 7)
        await complete(queen, 5, 7)
        await clock.leap(10)
        assert await completed(queen) == (5, 7)
        assert len(journal.scan(Table.STATISTICS, b"h", b"i")) == 1


async def test_a_figure_waits_for_the_commit_of_what_it_counts(autojump_clock: MockClock) -> None:
    """Law 3: what the disk does not have yet is seen by nobody."""
    gate = Gate()
    gate.open()
    async with opened(runner=gate.run) as queen, trio.open_nursery() as nursery:
        await queen.push("a")
        gate.close()
        nursery.start_soon(queen.push, "a")
        await steps()
        answers: list[int] = []

        async def ask() -> None:
            answers.append((await queen.statistics.overview()).counts.pending)

        nursery.start_soon(ask)
        await steps()
        assert answers == []
        gate.open()
        await steps()
        assert answers == [2]


async def test_figures_of_a_failed_commit_are_nobodys(autojump_clock: MockClock) -> None:
    """Law 3, law 5: who asked meanwhile is told of the failure, and the next one gets the truth."""
    journal = MemoryJournal()
    gate = Gate()
    gate.open()
    async with opened(journal, runner=gate.run) as queen, trio.open_nursery() as nursery:
        await queen.push("a")
        await trio.sleep(2.5)  # the keeper looks every second, and would meet the fault first
        gate.close()
        outcomes: list[object] = []

        async def tried(call: Any) -> None:
            try:
                outcomes.append(await call())
            except Unavailable as error:
                outcomes.append(type(error))

        nursery.start_soon(tried, lambda: queen.push("a"))
        await steps()
        nursery.start_soon(tried, queen.statistics.overview)
        await steps()
        journal.fail_next(StoreFull("no room"))
        gate.open()
        await trio.sleep(1)
        assert all(isinstance(outcome, type) and issubclass(outcome, QueenError) for outcome in outcomes)
        assert len(outcomes) == 2
        assert (await queen.statistics.overview()).counts == Counts(pending=1)
        assert sum(line.incoming for line in await queen.statistics.throughput()) == 1


async def test_the_oldest_and_newest_message_that_still_exist(autojump_clock: MockClock) -> None:
    """8.2: deleted messages don't count, settled ones do."""
    journal = MemoryJournal()
    async with opened(journal) as queen:
        start = engine_of(queen).core.clock.now()
        for _ in range(4):
            await queen.push_many([NewMessage(queue="a", partition="p"), NewMessage(queue="a", partition="p")])
            await trio.sleep(10)
        slot = engine_of(queen).core.catalogue.queues["a"].slots["p"]

        async def ages() -> tuple[float | None, float | None]:
            empty, line = (await queen.statistics.queue("a")).partitions
            assert (empty.name, empty.oldest, empty.newest) == ("Default", None, None)
            if line.oldest is None or line.newest is None:
                return None, None
            return round((line.oldest - start) / SECOND), round((line.newest - start) / SECOND)

        assert await ages() == (0, 30)
        await queen.pop("a", "p", batch=8, auto_ack=True)
        assert await ages() == (0, 30)
        for position, expected in ((1, (0, 30)), (2, (10, 30)), (8, (10, 30)), (4, (10, 30)), (7, (10, 20))):
            await told(queen, slot, Delete(position))
            assert await ages() == expected
    async with opened(journal) as queen:
        slot = engine_of(queen).core.catalogue.queues["a"].slots["p"]
        _, line = (await queen.statistics.queue("a")).partitions
        assert line.oldest is not None
        assert line.newest is not None
        assert (round((line.oldest - start) / SECOND), round((line.newest - start) / SECOND)) == (10, 20)
        await told(queen, slot, Clear())
        _, line = (await queen.statistics.queue("a")).partitions
        assert (line.oldest, line.newest, line.counts) == (None, None, Counts())


async def test_minutes_are_those_of_the_wall_clock(autojump_clock: MockClock) -> None:
    """S3, T6: after a jump of the wall clock, what happens is shown at the time that it shows from then on."""
    clock = TrioClock()
    async with opened(clock=clock) as queen:
        await queen.push("a")
        before = (clock.now() + clock.shift()) // MINUTE
        clock.wall_shift = 10 * MINUTE
        await trio.sleep(2)  # the keeper takes note
        await queen.push("a")
        after = (clock.now() + clock.shift()) // MINUTE
        assert after - before == 10
        assert [line.at // MINUTE for line in await queen.statistics.throughput() if line.incoming] == [after, before]
        clock.wall_shift = 0
        await trio.sleep(2)
        await queen.push("a")
        found = {line.at // MINUTE: line.incoming for line in await queen.statistics.throughput()}
        assert found[before] == 2


async def test_filters_and_unknown_queues(autojump_clock: MockClock) -> None:
    """Z11: an unknown queue is not found where it is the subject; as a filter it matches nothing."""
    async with opened() as queen:
        await queen.configure("a", {}, namespace="n")
        await queen.configure("b", {}, namespace="n", task="t")
        await queen.configure("c", {}, task="t")

        async def names(**filters: str) -> list[str]:
            return [queue.name for queue in await queen.statistics.queues(**filters)]  # type: ignore[arg-type]

        assert await names() == ["a", "b", "c"]
        assert await names(namespace="n") == ["a", "b"]
        assert await names(task="t") == ["b", "c"]
        assert await names(namespace="n", task="t") == ["b"]
        assert await names(queue="c") == ["c"]
        assert await names(queue="c", namespace="n") == []
        assert await names(queue="nowhere") == []
        with pytest.raises(NotFound):
            await queen.statistics.queue("nowhere")
        namespaces = await queen.statistics.namespaces()
        assert [(group.name, group.queues, group.partitions) for group in namespaces] == [("n", 2, 2)]
        assert [(group.name, group.queues) for group in await queen.statistics.tasks()] == [("t", 2)]
        overview = await queen.statistics.overview()
        assert (overview.queues, overview.partitions, overview.namespaces, overview.tasks) == (3, 3, 1, 1)


async def test_a_queue_lag_needs_five_messages_over_all_partitions(autojump_clock: MockClock) -> None:
    """Z6: 5 in the queue are enough, and a partition that completed one is listed."""
    async with opened() as queen:
        for partition, count in (("p", 1), ("q", 3)):
            await queen.push_many([NewMessage(queue="a", partition=partition) for _ in range(count)])
            await queen.pop("a", partition, batch=count, auto_ack=True)
        await queen.push("a", partition="r")
        assert await queen.statistics.lag() == []
        await queen.push("a", partition="p")
        await queen.pop("a", "p", auto_ack=True)
        (queue,) = await queen.statistics.lag()
        assert [(name, figures.completed) for name, figures in queue.partitions] == [("p", 2), ("q", 3)]
        assert (queue.totals.completed, queue.totals.pending, queue.totals.backlog) == (5, 1, 1)


async def test_figures_on_a_disk(tmp_path: Path) -> None:
    """S2: the same after a restart, to the digit."""

    async def everything(queen: Broker) -> list[object]:
        figures = queen.statistics
        return [
            await figures.queues(),
            await figures.queue("a"),
            await figures.lag(),
            await figures.namespaces(),
            (await figures.overview()).counts,
            [line for line in await figures.throughput() if line.incoming],
        ]

    async with open_broker(tmp_path / "data") as queen:
        await queen.configure("a", namespace="n")
        await queen.push_many([NewMessage(queue="a", partition=partition) for partition in "pqr" for _ in range(9)])
        await queen.pop("a", batch=25, partitions=3, auto_ack=True)
        before = await everything(queen)
    async with open_broker(tmp_path / "data") as queen:
        assert await everything(queen) == before
        assert (await queen.statistics.lag())[0].totals.completed == 25
