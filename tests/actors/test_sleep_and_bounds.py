"""Idle partitions sleep and wake with everything intact; everything that queues up has a bound."""

from typing import Any

import pytest
import trio

from queen import NewMessage
from queen.actors import mailbox, partition
from queen.actors.residents import IDLE
from queen.errors import Busy
from queen.names import SECOND
from queen.store import writer as writer_module
from queen.store.memory_journal import MemoryJournal
from tests.actors.world import Gate, Waiters, engine_of, opened, payloads, picture, slow, steps

NAP_S = IDLE / SECOND + 3


async def test_idle_partitions_sleep_and_wake_with_everything(autojump_clock: Any) -> None:
    """Leases, retries, duplicates, groups: nothing shows that they slept."""
    async with opened(limit_s=20_000) as queen:
        await queen.configure("q", {"leaseTime": 5000, "retryDelay": 3_000_000})
        await queen.push_many(
            [NewMessage(queue="q", payload=n, partition=f"p{n % 5}", transaction_id=f"t{n}") for n in range(20)]
        )
        (leased,) = await queen.pop("q", "p0")
        (failed,) = await queen.pop("q", "p1")
        await queen.ack(failed, "failed", error="no")
        (done,) = await queen.pop("q", "p2", group="g")
        await queen.ack(done)
        before = picture(queen)
        assert queen.health().awake == 6
        await trio.sleep(NAP_S)
        assert queen.health().awake == 0
        assert queen.health().partitions == 6
        assert picture(queen) == before
        assert queen.health().awake == 6
        await trio.sleep(NAP_S)
        assert queen.health().awake == 0
        assert (await queen.push("q", transaction_id="t7", partition="p4")).status == "duplicate"
        assert (await queen.ack(leased)).status == "completed"
        assert (await queen.pop("q", "p1")).because == "retry"
        assert (await queen.ack(done)).status == "completed"
        assert payloads(await queen.pop("q", "p2", group="g", batch=9)) == [7, 12, 17]
        assert payloads(await queen.pop("q", "p0", batch=9)) == [5, 10, 15]


async def test_a_busy_partition_stays_awake(autojump_clock: Any) -> None:
    """Idle is what has had no command for so long."""
    async with opened() as queen:
        for _ in range(5):
            await queen.push("q", partition="busy")
            await trio.sleep(IDLE / SECOND / 2)
        assert queen.health().awake == 1


@pytest.mark.parametrize("what", ["lease", "delay", "window"])
async def test_timers_of_sleeping_partitions_fire(what: str, autojump_clock: Any) -> None:
    """O5: at their deadlines."""
    async with opened() as queen, trio.open_nursery() as nursery:
        options = {"lease": {"leaseTime": 200}, "window": {"windowBuffer": 200}, "delay": {}}[what]
        await queen.configure("q", options)
        start = trio.current_time()
        await queen.push("q", 1, delay_seconds=200 if what == "delay" else None)
        if what == "lease":
            await queen.pop("q")
        await trio.sleep(150)
        assert queen.health().awake == 0
        waiters = Waiters(queen, nursery)
        await waiters.add("w", "q")
        await trio.sleep(49.9)
        assert not waiters.served
        await trio.sleep(0.2)
        assert waiters.served[0][2] - start == pytest.approx(200, abs=0.1)
        assert waiters.served[0][1].messages[0].retry_count == int(what == "lease")


@pytest.mark.parametrize("option", ["ttl", "retentionSeconds"])
async def test_messages_of_sleeping_partitions_are_given_up_in_time(option: str, autojump_clock: Any) -> None:
    """T1, T4: no command has to come by."""
    async with opened() as queen:
        await queen.configure("q", {option: 200, "retentionEnabled": True})
        await queen.push("q", 1)
        await trio.sleep(199.9)
        assert queen.health().awake == 0
        assert engine_of(queen).core.catalogue.queues["q"].depth == 1
        await trio.sleep(0.2)
        assert engine_of(queen).core.catalogue.queues["q"].depth == 0


async def test_a_group_of_which_nothing_is_recorded_survives_its_partitions_sleep(autojump_clock: Any) -> None:
    """G2, W5: where it begins is kept by the queue."""
    async with opened() as queen, trio.open_nursery() as nursery:
        await queen.push("q", "old")
        head = engine_of(queen).core.writer.seq
        assert payloads(await queen.pop("q", group="all", batch=9, auto_ack=True)) == ["old"]
        assert not await queen.pop("q", group="new", subscription_mode="new")
        await trio.sleep(NAP_S)
        assert queen.health().awake == 0
        waiters = Waiters(queen, nursery)
        await waiters.add("new", "q", group="new")
        await waiters.add("all", "q", group="all")
        await waiters.add("newer", "q", group="newer", subscription_mode="new")
        await queen.push("q", "young")
        await steps()
        assert {name: payloads(got) for name, got, _ in waiters.served} == {
            "new": ["young"], "all": ["young"], "newer": ["young"],
        }  # fmt: skip
        assert engine_of(queen).core.writer.seq > head


async def test_a_pop_that_finds_nothing_writes_nothing(autojump_clock: Any) -> None:
    """W5: not even that of a group that begins at the beginning."""
    journal = MemoryJournal()
    async with opened(journal) as queen:
        await queen.configure("q")
        await trio.sleep(2)
        head = engine_of(queen).core.writer.seq
        for group in (None, "g", "h"):
            assert not await queen.pop("q", group=group, wait=True, timeout=1)
        assert engine_of(queen).core.writer.seq == head


async def test_a_full_mailbox_refuses(monkeypatch: pytest.MonkeyPatch, autojump_clock: Any) -> None:
    """Busy: what waits already (here for a partition that is rebuilt) is served, a joint push goes into no mailbox."""
    monkeypatch.setattr(partition, "MAILBOX_SIZE", 5)
    monkeypatch.setattr(mailbox, "MAILBOX_SIZE", 5)
    async with opened() as queen:
        await queen.push_many([NewMessage(queue="q", partition="a"), NewMessage(queue="q", partition="b")])
        engine_of(queen).house.awake(engine_of(queen).core.catalogue.queues["q"].slots["a"]).distrust()
        results: list[str] = []

        async def push(*partitions: str) -> None:
            try:
                await queen.push_many([NewMessage(queue="q", partition=name) for name in partitions])
                results.append("queued")
            except Busy as error:
                results.append(str(error))

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(push, "a")
            nursery.start_soon(push, "b", "a")
        assert set(results) == {"queued", "partition 'a' of queue 'q' has 5 commands waiting"}
        assert len(results) == 21
        assert results.count("queued") < 12
        stored = len(await queen.pop("q", batch=100, partitions=9)) - 2
        assert stored - results.count("queued") in (0, 1), "the push to both counts twice, or not at all"


async def test_a_pop_at_a_full_mailbox_is_told_to_come_back(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: Any
) -> None:
    """What it got elsewhere is handed on all the same."""
    async with opened() as queen:
        await queen.push_many([NewMessage(queue="q", payload=name, partition=name) for name in "ab"])
        actor = engine_of(queen).house.awake(engine_of(queen).core.catalogue.queues["q"].slots["b"])

        def put(work: Any) -> None:
            raise Busy("full")

        monkeypatch.setattr(actor, "put", put)
        assert payloads(await queen.pop("q", batch=2, partitions=2)) == ["a"]
        monkeypatch.undo()


async def test_a_crowded_writer_refuses_pushes(monkeypatch: pytest.MonkeyPatch, autojump_clock: Any) -> None:
    """Busy: acknowledgements go on."""
    monkeypatch.setattr(writer_module, "PENDING_BYTES", 10_000)
    gate = Gate()
    gate.open()
    async with opened(runner=gate.run) as queen, trio.open_nursery() as nursery:
        await queen.push("q", 0)
        (message,) = await queen.pop("q")
        gate.close()
        for _ in range(3):
            nursery.start_soon(queen.push, "q", "x" * 8_000)
            await steps()
        with pytest.raises(Busy):
            await queen.push("q", 1)
        nursery.start_soon(queen.ack, message)
        await steps()
        gate.open()
        await trio.sleep(1)
        assert (await queen.push("q", 1)).status == "queued"


async def test_a_partition_that_gets_work_as_it_falls_asleep(autojump_clock: Any) -> None:
    """Handed over in the same step in which it is put to sleep: carried out once, and answered."""
    async with opened(runner=slow()) as queen:
        await queen.push("q", 0)
        await trio.sleep(IDLE / SECOND - 1)
        house = engine_of(queen).house
        for number in range(1, 5):
            await trio.sleep(IDLE / SECOND + 1)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(queen.push, "q", number)
                for _ in range(8):
                    house.put_to_sleep()
                    await trio.lowlevel.checkpoint()
        assert payloads(await queen.pop("q", batch=9)) == [0, 1, 2, 3, 4]
