"""The feed as embedders use it (W1, W2): in commit order, after the commit, bounded, of no weight to anybody else."""

import random
from collections.abc import Callable
from typing import Any

import pytest
import trio

from queen import Acknowledgement, Broker, NewMessage, StoreFull
from queen.actors.feed import Subscription
from queen.actors.telling import told_of
from queen.events import MessagesLeased
from queen.notices import (
    MessageCompleted,
    MessageFailed,
    MessageProcessing,
    MessagePushed,
    Notice,
    NoticesDropped,
    PartitionDepth,
    QueueAdded,
    QueueDepth,
    SystemStatistics,
)
from queen.store.format import unpack
from queen.store.memory_journal import MemoryJournal
from tests.actors.world import Gate, engine_of, opened, slow, steps


async def taken(notices: Subscription, count: int) -> list[Notice]:
    """The next notices; no simulated time may pass."""
    found: list[Notice] = []
    with trio.fail_after(0.5):
        while len(found) < count:
            found.append(await notices.__anext__())
    return found


async def at_rest(notices: Subscription) -> list[Notice]:
    """What there is until nothing more comes."""
    found: list[Notice] = []
    with trio.move_on_after(0.5):
        async for notice in notices:
            found.append(notice)  # noqa: PERF401  (a comprehension would lose everything when time is up)
    return found


def told(notice: Notice) -> tuple[Any, ...]:
    """The notice without what time and chance put in it."""
    match notice:
        case MessagePushed():
            return "pushed", notice.queue, notice.partition, notice.transaction_id
        case MessageProcessing():
            return "processing", notice.transaction_id, notice.worker, notice.group
        case MessageCompleted():
            return "completed", notice.transaction_id, notice.group
        case MessageFailed():
            return "failed", notice.transaction_id, notice.error, notice.outcome, notice.group
        case QueueAdded():
            return "queue", notice.queue, notice.partition
        case NoticesDropped():
            return "dropped", notice.count
    return (type(notice).__name__,)


async def test_a_message_is_told_from_push_to_completion(autojump_clock: trio.testing.MockClock) -> None:
    """W1."""
    async with opened() as queen, queen.feed.subscribe() as notices:
        await queen.push("q", 1, partition="p", transaction_id="t")
        (message,) = await queen.pop("q", worker="w")
        await queen.ack(message)
        assert [told(notice) for notice in await at_rest(notices)] == [
            ("queue", "q", "Default"),
            ("pushed", "q", "p", "t"),
            ("processing", "t", "w", None),
            ("completed", "t", None),
        ]


async def test_failures_are_told_with_what_became_of_the_message(autojump_clock: trio.testing.MockClock) -> None:
    """W1, R1, R2: an attempt that failed, a final failure, a dead letter."""
    async with opened() as queen:
        await queen.configure("q", {"retryLimit": 1, "dlqAfterMaxRetries": True})
        await queen.configure("final", {"retryLimit": 0})
        for queue in ("q", "final"):
            await queen.push(queue, transaction_id=queue)
        async with queen.feed.subscribe() as notices:
            for queue, error in (("q", "one"), ("q", "two"), ("final", "three")):
                (message,) = await queen.pop(queue)
                await queen.ack(message, "failed", error=error)
            failed = [told(notice) for notice in await at_rest(notices) if isinstance(notice, MessageFailed)]
        assert failed == [
            ("failed", "q", "one", "retry", None),
            ("failed", "q", "two", "dead_letter", None),
            ("failed", "final", "three", "failed", None),
        ]


async def test_a_forgotten_group_is_told_no_more(autojump_clock: trio.testing.MockClock) -> None:
    """G1: its events must not be taken for those of the default group."""
    async with opened() as queen:
        await queen.push("q")
        (message,) = await queen.pop("q", group="g")
        core = engine_of(queen).core
        slot = core.catalogue.slots[1]
        events = [event for seq in range(1, core.writer.seq + 1) for event in core.records.read(seq).events]
        leased = next(event for event in events if isinstance(event, MessagesLeased))
        assert told_of(core, slot.number, leased, 0) is not None
        del slot.queue.groups["g"]
        assert told_of(core, slot.number, leased, 0) is None
        assert message.consumer_group == "g"


async def test_the_end_of_a_lease_is_a_failed_attempt(autojump_clock: trio.testing.MockClock) -> None:
    """L5."""
    async with opened() as queen:
        await queen.configure("q", {"leaseTime": 1})
        await queen.push("q", transaction_id="t")
        async with queen.feed.subscribe() as notices:
            await queen.pop("q")
            await trio.sleep(2)
            found = [told(notice) for notice in await at_rest(notices)]
        assert found == [("processing", "t", None, None), ("failed", "t", "lease expired", "retry", None)]


async def test_groups_are_named(autojump_clock: trio.testing.MockClock) -> None:
    """G1."""
    async with opened() as queen:
        await queen.push("q", transaction_id="t")
        async with queen.feed.subscribe() as notices:
            (message,) = await queen.pop("q", group="g")
            await queen.ack(message)
            found = [told(notice) for notice in await at_rest(notices)]
        assert found == [("processing", "t", None, "g"), ("completed", "t", "g")]


async def test_generated_ids_are_those_of_the_receipts(autojump_clock: trio.testing.MockClock) -> None:
    async with opened() as queen, queen.feed.subscribe() as notices:
        items = [NewMessage(queue="q", payload=n, transaction_id="given" if n == 2 else None) for n in range(5)]
        names = [receipt.transaction_id for receipt in await queen.push_many(items)]
        delivery = await queen.pop("q", batch=3)
        await queen.ack_many(
            [Acknowledgement(transaction_id=message.transaction_id, status="completed") for message in delivery]
        )
        found = [told(notice) for notice in await at_rest(notices)][1:]
    assert [notice[3] for notice in found[:5]] == names
    assert [notice[1] for notice in found[5:]] == names[:3] * 2


async def test_nothing_is_told_before_its_commit(autojump_clock: trio.testing.MockClock) -> None:
    """W1, law 3."""
    gate = Gate()
    gate.open()
    async with opened(runner=gate.run) as queen, queen.feed.subscribe() as notices, trio.open_nursery() as nursery:
        gate.close()
        nursery.start_soon(queen.push, "q")
        assert await at_rest(notices) == []
        gate.open()
        assert len(await at_rest(notices)) == 2


async def test_a_failed_commit_is_never_told(autojump_clock: trio.testing.MockClock) -> None:
    """W1. The subscription goes on with the next engine."""
    journal = MemoryJournal()
    async with opened(journal) as queen, queen.feed.subscribe() as notices:
        journal.fail_next(StoreFull("no room"))
        with pytest.raises(StoreFull):
            await queen.push("q", transaction_id="lost")
        await trio.sleep(1)
        await queen.push("q", transaction_id="kept")
        assert [told(notice)[-1] for notice in await at_rest(notices)] == ["Default", "kept"]


async def test_commits_are_told_in_order_while_others_run(autojump_clock: trio.testing.MockClock) -> None:
    """W1: what is recorded while a commit runs is told with the next one, not with that one."""
    allowed = trio.Semaphore(1000)

    async def run(call: Callable[[], Any]) -> None:
        await allowed.acquire()
        call()

    async with opened(runner=run) as queen:
        await queen.push("q", transaction_id="made")
        await trio.sleep(3)  # the keeper has nothing to write any more
        async with queen.feed.subscribe() as notices, trio.open_nursery() as nursery:
            commits = allowed.value
            for _ in range(commits):
                allowed.acquire_nowait()
            nursery.start_soon(lambda: queen.push("q", transaction_id="a"))
            await steps()
            nursery.start_soon(lambda: queen.push("q", transaction_id="b"))
            await steps()
            writer = engine_of(queen).core.writer
            try:
                assert writer.busy
                allowed.release()
                found = [told(notice)[3] for notice in await at_rest(notices)]
                assert writer.durable == writer.seq - 1
            finally:
                for _ in range(commits):
                    allowed.release()
            assert found == ["a"]
            assert [told(notice)[3] for notice in await at_rest(notices)] == ["b"]


async def test_the_oldest_are_dropped_and_the_next_says_how_many(autojump_clock: trio.testing.MockClock) -> None:
    """W2."""
    async with opened() as queen:
        await queen.push("q")
        async with queen.feed.subscribe(buffer=3) as notices:
            for number in range(10):
                await queen.push("q", transaction_id=str(number))
            assert [told(notice) for notice in await at_rest(notices)] == [
                ("dropped", 7),
                *(("pushed", "q", "Default", str(number)) for number in (7, 8, 9)),
            ]
            assert queen.meter.dropped == 7


async def test_what_is_half_read_is_dropped_first(autojump_clock: trio.testing.MockClock) -> None:
    """W2: the rest of a record that a subscriber has begun to read is the oldest there is."""
    async with opened() as queen:
        await queen.push("q")
        async with queen.feed.subscribe(buffer=5) as notices:
            await queen.push_many([NewMessage(queue="q", transaction_id=f"a{n}") for n in range(5)])
            await taken(notices, 2)
            await queen.push_many([NewMessage(queue="q", transaction_id=f"b{n}") for n in range(4)])
            assert [told(notice)[-1] for notice in await at_rest(notices)] == [3, "b0", "b1", "b2", "b3"]


async def test_a_filter_lets_other_queues_out(autojump_clock: trio.testing.MockClock) -> None:
    """W1: completed and failed messages are events of their queue too."""
    async with opened() as queen, queen.feed.subscribe(["a"]) as notices:
        for queue in ("a", "b"):
            await queen.push(queue, transaction_id=queue)
            await queen.ack((await queen.pop(queue)).messages[0])
        found = await at_rest(notices)
        assert {getattr(notice, "queue", None) for notice in found} == {"a"}
        assert len(found) == 4


async def test_a_new_filter_holds_for_what_waits_already(autojump_clock: trio.testing.MockClock) -> None:
    async with opened() as queen:
        await queen.push("a")
        await queen.push("b")
        async with queen.feed.subscribe() as notices:
            await queen.push("a", transaction_id="a")
            await queen.push("b", transaction_id="b")
            notices.restrict(["b"])
            assert [told(notice)[3] for notice in await at_rest(notices)] == ["b"]


async def test_depths_come_every_five_seconds_and_statistics_every_ten(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """W1."""
    async with opened() as queen:
        await queen.push_many([NewMessage(queue="q", partition=str(n % 2)) for n in range(5)])
        began = trio.current_time()
        async with queen.feed.subscribe() as notices:
            found: list[tuple[float, Notice]] = []
            with trio.move_on_after(20.5):
                async for notice in notices:
                    found.append((trio.current_time() - began, notice))  # noqa: PERF401  (as above)
        at = [(round(when), type(notice).__name__) for when, notice in found]
        depths = [QueueDepth.__name__, *[PartitionDepth.__name__] * 3]
        expected = []
        for beat in (5, 10, 15, 20):
            expected += [(beat, name) for name in depths] + [(beat, SystemStatistics.__name__)] * (beat % 10 == 0)
        assert at == expected
        depth = found[0][1]
        assert isinstance(depth, QueueDepth)
        assert depth.counts.pending == 5
        assert [partition.counts.pending for partition in depth.partitions] == [0, 3, 2]
        system = next(notice for _, notice in found if isinstance(notice, SystemStatistics))
        assert (system.pending, system.processing, system.created, system.completed) == (5, 0, 5, 0)


async def test_figures_never_crowd_out_messages(autojump_clock: trio.testing.MockClock) -> None:
    """W2: of depths, only the newest wait, however long nobody reads."""
    async with opened() as queen:
        await queen.push("q")
        async with queen.feed.subscribe(buffer=10) as notices:
            await queen.push("q", transaction_id="t")
            await trio.sleep(1000)
            names = [type(notice).__name__ for notice in await at_rest(notices)]
        assert names == ["MessagePushed", "QueueDepth", "PartitionDepth", "SystemStatistics"]


async def test_while_nobody_subscribes_nothing_is_kept(autojump_clock: trio.testing.MockClock) -> None:
    async with opened() as queen:
        async with queen.feed.subscribe():
            await queen.push("q")
        await queen.push("q")
        assert not queen.feed.subscribers
        assert not queen.feed._undurable


async def test_a_subscription_ends_with_the_broker(autojump_clock: trio.testing.MockClock) -> None:
    ended: list[Broker] = []

    async def listen(queen: Broker, task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
        async with queen.feed.subscribe() as notices:
            task_status.started()
            async for _ in notices:
                pass
        ended.append(queen)

    async with trio.open_nursery() as nursery:
        async with opened() as queen:
            await nursery.start(listen, queen)
        with trio.fail_after(1):
            while not ended:
                await trio.lowlevel.checkpoint()


async def test_the_figures_of_what_was_done(autojump_clock: trio.testing.MockClock) -> None:
    """What `Meter` promises."""
    async with opened() as queen:
        meter = queen.meter
        await queen.push("q", transaction_id="a")
        await queen.push("q", transaction_id="a")
        await queen.push("q", transaction_id="b")
        await trio.sleep(3)
        delivery = await queen.pop("q", batch=2)
        await queen.ack_many(
            [Acknowledgement(transaction_id=message.transaction_id, status="completed") for message in delivery]
        )
        assert (meter.pushed, meter.duplicates, meter.delivered) == (2, 1, 2)
        assert meter.acknowledged == {"completed": 2}
        assert (meter.lag_s.count, round(meter.lag_s.sum)) == (2, 6)
        assert meter.pop_wait_s.count == 1
        assert meter.commit_s.count >= meter.commit_records.count > 2
        now = engine_of(queen).core.clock.now()
        assert meter.recent.minute(now) == (2, 2)
        assert meter.recent.minute(now + 62_000_000) == (0, 0)


async def test_the_feed_is_the_journal(autojump_clock: trio.testing.MockClock) -> None:
    """W1: whatever happens at once over a slow disk, what is told is what the journal has, in its order."""
    journal = MemoryJournal()
    chance = random.Random(7)

    async def live(queen: Broker, queue: str) -> None:
        for number in range(30):
            await queen.push_many([NewMessage(queue=queue, partition=str(n % 2)) for n in range(chance.randint(1, 4))])
            delivery = await queen.pop(queue, batch=chance.randint(1, 5), auto_ack=number % 7 == 0)
            for message in delivery:
                if number % 7:
                    await queen.ack(message, chance.choice(["completed", "failed", "dead_letter", "retry"]))

    heard: list[tuple[Any, ...]] = []
    async with opened(journal, runner=slow(0.003)) as queen, queen.feed.subscribe() as notices:
        async with trio.open_nursery() as nursery:
            for queue in "abc":
                nursery.start_soon(live, queen, queue)
        heard = [told(notice) for notice in await at_rest(notices) if not isinstance(notice, PartitionDepth)]
        core = engine_of(queen).core
        written: list[tuple[Any, ...]] = []
        for seq, frame in journal.frames(0):
            record = unpack(seq, frame)
            for event in record.events:
                part = told_of(core, record.partition, event, record.at + record.shift)
                written += [told(notice) for notice in part.notices()] if part is not None else []
    heard = [notice for notice in heard if notice[0] not in ("QueueDepth", "SystemStatistics")]
    assert len(heard) > 300
    assert heard == written


async def test_figures_keep_their_place_among_events(autojump_clock: trio.testing.MockClock) -> None:
    """W1."""
    async with opened() as queen:
        await queen.push("q")
        async with queen.feed.subscribe() as notices:
            await trio.sleep(5.1)
            await queen.push("q", transaction_id="later")
            names = [type(notice).__name__ for notice in await at_rest(notices)]
            assert names == ["QueueDepth", "PartitionDepth", "MessagePushed"]
            assert notices._size == 0


async def test_a_new_filter_holds_for_what_is_half_read(autojump_clock: trio.testing.MockClock) -> None:
    async with opened() as queen:
        await queen.push("q")
        async with queen.feed.subscribe() as notices:
            await queen.push_many([NewMessage(queue="q")] * 3)
            await taken(notices, 1)
            notices.restrict(["other"])
            assert await at_rest(notices) == []
            assert notices._size == 0
