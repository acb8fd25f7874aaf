"""Every option of `configure` from push to delivery, in simulated time: its effect, that it is off by default, and that
a change applies to messages that wait already (T1-T5, C3). Deadlines are kept to 100 ms, also over a restart and
jumps of the wall clock (T6). `encryptionEnabled` has a file of its own.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from queen import Broker, NotFound, QueueFull
from queen.clock import TrioClock
from queen.names import SECOND
from queen.options import OPTIONS
from queen.store.memory_journal import MemoryJournal
from tests.actors.world import Waiters, opened, payloads

EXACT_S = 0.1
LONG_S = 10_000


async def served(queen: Broker, queue: str = "q", **options: Any) -> tuple[list[Any], float]:
    """What a waiting pop gets, however long it takes, and when."""
    while trio.current_time() < LONG_S:
        delivery = await queen.pop(queue, wait=True, timeout=60, **options)
        if delivery:
            return payloads(delivery), trio.current_time()
    raise AssertionError("nothing was ever delivered")


async def until(at: float) -> None:
    await trio.sleep(at - trio.current_time())


async def status(queen: Broker, transaction_id: str) -> str | None:
    """The message's status, None where it is gone."""
    try:
        return (await queen.messages.get(transaction_id))[0].status
    except NotFound:
        return None


async def changes(queen: Broker, transaction_id: str, at: float, before: str | None, behind: str | None) -> None:
    """The status changes then, no more than 100 ms off."""
    await until(at - EXACT_S)
    assert await status(queen, transaction_id) == before
    await until(at + EXACT_S)
    assert await status(queen, transaction_id) == behind


def soon(at: float, wanted: float) -> bool:
    """Not before the deadline, and no more than 100 ms behind it."""
    return wanted - 0.001 <= at <= wanted + EXACT_S


@asynccontextmanager
async def world(**options: Any) -> AsyncIterator[Broker]:
    """A broker with a queue q of these options."""
    async with opened(limit_s=2 * LONG_S) as queen:
        await queen.configure("q", options)
        yield queen


async def fail(queen: Broker, times: int = 1) -> list[str]:
    """Take the first message and fail it, so often; what became of it each time."""
    outcomes: list[str] = []
    for _ in range(times):
        delivery = await queen.pop("q", wait=True, timeout=60)
        outcomes.append((await queen.ack(delivery.messages[0], "failed", error="no")).status)
    return outcomes


# -- leases and retries -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "seconds"), [({"leaseTime": 7}, 7), ({}, 300)])
async def test_lease_time(options: dict[str, Any], seconds: int, autojump_clock: Any) -> None:
    """L5, C3."""
    async with world(**options) as queen:
        await queen.push("q", 1)
        first = await queen.pop("q")
        got, at = await served(queen)
        assert got == [1]
        assert soon(at, seconds)
        assert first.messages[0].lease_time == seconds


async def test_lease_time_changed(autojump_clock: Any) -> None:
    """Z8: no running lease moves, the next one of a message that waits has the new length."""
    async with world(leaseTime=10) as queen:
        await queen.push("q", 1)
        await queen.pop("q")
        await queen.configure("q", {"leaseTime": 100})
        assert soon((await served(queen))[1], 10)
        assert soon((await served(queen))[1], 110)


@pytest.mark.parametrize(
    ("options", "outcomes"),
    [
        ({"retryLimit": 1}, ["retry_scheduled", "failed"]),
        ({"retryLimit": 0}, ["failed"]),
        ({}, ["retry_scheduled"] * 3 + ["failed"]),
    ],
)
async def test_retry_limit(options: dict[str, Any], outcomes: list[str], autojump_clock: Any) -> None:
    """R1, R2, R6, C3."""
    async with world(**options) as queen:
        await queen.push("q", 1)
        assert await fail(queen, len(outcomes)) == outcomes
        assert not await queen.pop("q")


async def test_retry_limit_changed(autojump_clock: Any) -> None:
    """T5: a message that has failed once already is at the new limit."""
    async with world() as queen:
        await queen.push("q", 1)
        await fail(queen)
        await queen.configure("q", {"retryLimit": 1})
        assert await fail(queen) == ["failed"]


@pytest.mark.parametrize(
    ("options", "waits"),
    [
        ({"retryDelay": 2500}, [2.5, 2.5, 2.5]),
        ({"retryDelay": 1000, "retryBackoff": 3}, [1, 3, 9]),
        ({"retryBackoff": 3}, [0, 0, 0]),
        ({}, [0, 0, 0]),
    ],
)
async def test_retry_delay_and_backoff(options: dict[str, Any], waits: list[float], autojump_clock: Any) -> None:
    """R1, C3."""
    async with world(**options) as queen:
        await queen.push("q", 1)
        for wait in waits:
            await fail(queen)
            failed = trio.current_time()
            async with trio.open_nursery() as nursery:
                waiters = Waiters(queen, nursery)
                if wait:
                    await waiters.add("next", "q", partition="Default")
                    await until(failed + wait + 1)
                    ((_, delivery, at),) = waiters.served
                else:
                    delivery, at = await queen.pop("q"), trio.current_time()
            assert soon(at, failed + wait)
            queen.release_nowait(delivery)
            await trio.sleep(0.001)


async def test_retry_delay_changed(autojump_clock: Any) -> None:
    """T5: what waits for its retry keeps its time (a fact by now); its next failure has the new delay."""
    async with world(retryDelay=5000) as queen:
        await queen.push("q", 1)
        await fail(queen)
        await queen.configure("q", {"retryDelay": 20_000})
        await fail(queen)
        assert soon(trio.current_time(), 5)
        assert soon((await served(queen))[1], 25)


@pytest.mark.parametrize(("options", "outcome"), [({"dlqAfterMaxRetries": True}, "dead_letter"), ({}, "failed")])
async def test_dlq_after_max_retries(options: dict[str, Any], outcome: str, autojump_clock: Any) -> None:
    """R2, T1, C3: for failures and for what is too old."""
    async with world(retryLimit=0, ttl=50, **options) as queen:
        await queen.push("q", 1)
        assert await fail(queen) == [outcome]
        await queen.push("q", 2, transaction_id="t")
        await changes(queen, "t", trio.current_time() + 50, "pending", outcome)


async def test_dlq_after_max_retries_changed(autojump_clock: Any) -> None:
    """T5."""
    async with world(retryLimit=1) as queen:
        await queen.push("q", 1)
        await fail(queen)
        await queen.configure("q", {"dlqAfterMaxRetries": True})
        assert await fail(queen) == ["dead_letter"]


# -- time ---------------------------------------------------------------------------------------------------


async def test_ttl(autojump_clock: Any) -> None:
    """T1: given up to the second, and not delivered any more; a younger one is."""
    async with world(ttl=10) as queen:
        await queen.push("q", 1, transaction_id="t")
        await trio.sleep(5)
        await queen.push("q", 2)
        await changes(queen, "t", 10, "pending", "failed")
        assert (await queen.messages.get("t"))[0].error == "expired"
        assert (await served(queen))[0] == [2]


async def test_without_a_ttl_messages_wait_for_ever(autojump_clock: Any) -> None:
    """C3."""
    async with world() as queen:
        await queen.push("q", 1)
        await trio.sleep(LONG_S / 2)
        assert (await served(queen))[0] == [1]


async def test_ttl_changed(autojump_clock: Any) -> None:
    """T5: counted from the push, whenever the option came; what is too old by then goes at once."""
    async with world() as queen:
        await queen.push("q", 1, transaction_id="old")
        await trio.sleep(20)
        await queen.push("q", 2, transaction_id="young")
        await trio.sleep(5)
        await queen.configure("q", {"ttl": 15})
        await trio.sleep(EXACT_S)
        assert await status(queen, "old") == "failed"
        await changes(queen, "young", 35, "pending", "failed")
        await queen.push("q", 3, transaction_id="spared")
        await queen.configure("q", {"ttl": None})
        await trio.sleep(100)
        assert await status(queen, "spared") == "pending"


@pytest.mark.parametrize(
    ("options", "own", "seconds"), [({"delayedProcessing": 7}, None, 7), ({}, None, 0), ({}, 3, 3)]
)
async def test_delayed_processing(options: dict[str, Any], own: int | None, seconds: int, autojump_clock: Any) -> None:
    """T2, C3: a waiting pop is woken by the end of the delay."""
    async with world(**options) as queen:
        await queen.push("q", 1, delay_seconds=own)
        early = await queen.pop("q", group="others", batch=1)
        assert bool(early) is (seconds == 0)
        if seconds:
            assert early.because == "delayed"
        got, at = await served(queen)
        assert got == [1]
        assert soon(at, seconds)


@pytest.mark.parametrize("ordering", ["strict", "relaxed"])
async def test_a_delay_of_its_own_wins(ordering: str, autojump_clock: Any) -> None:
    """T2, Z9: in strict order it holds up what is behind it, in relaxed order it doesn't."""
    async with world(delayedProcessing=20, ordering=ordering) as queen:
        await queen.push("q", "later", delay_seconds=40)
        await queen.push("q", "sooner", delay_seconds=0)
        first, at = await served(queen)
        assert (first, round(at)) == ((["later"], 40) if ordering == "strict" else (["sooner"], 0))


@pytest.mark.parametrize(("new", "at"), [(5, 5), (30, 30), (0, 2), (1, 2)])
async def test_delayed_processing_changed(new: int, at: float, autojump_clock: Any) -> None:
    """T5: counted from the push; a pop that waits already hears of it."""
    async with world(delayedProcessing=10) as queen, trio.open_nursery() as nursery:
        await queen.push("q", 1)
        waiters = Waiters(queen, nursery)
        await waiters.add("early", "q")
        await trio.sleep(2)
        await queen.configure("q", {"delayedProcessing": new})
        await until(40)
        ((_, delivery, when),) = waiters.served
        assert payloads(delivery) == [1]
        assert soon(when, at)


@pytest.mark.parametrize(("options", "seconds"), [({"windowBuffer": 5}, 8), ({}, 0)])
async def test_window_buffer(options: dict[str, Any], seconds: int, autojump_clock: Any) -> None:
    """T3, C3: held back until the newest is five seconds old, then all of it."""
    async with world(**options) as queen, trio.open_nursery() as nursery:
        waiters = Waiters(queen, nursery)
        await waiters.add("all", "q", batch=9)
        for number in range(4):
            await queen.push("q", number)
            await trio.sleep(1)
        await until(30)
        ((_, delivery, at),) = waiters.served
        assert soon(at, seconds)
        assert payloads(delivery) == ([0, 1, 2, 3] if seconds else [0])


async def test_a_partition_that_never_falls_silent_is_delivered(autojump_clock: Any) -> None:
    """T3: once its oldest message is ten windows old. Other partitions have windows of their own."""
    async with world(windowBuffer=3) as queen, trio.open_nursery() as nursery:

        async def chatter() -> None:
            while True:
                await queen.push("q", "noise", partition="busy")
                await trio.sleep(1)

        nursery.start_soon(chatter)
        await queen.push("q", "calm", partition="quiet")
        got, at = await served(queen, partition="quiet")
        assert got == ["calm"]
        assert soon(at, 3)
        got, at = await served(queen, partition="busy", batch=100)
        assert soon(at, 30)
        assert len(got) >= 30
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("new", "at"), [(0, 2), (4, 4), (20, 20)])
async def test_window_buffer_changed(new: int, at: float, autojump_clock: Any) -> None:
    """T5."""
    async with world(windowBuffer=10) as queen, trio.open_nursery() as nursery:
        await queen.push("q", 1)
        waiters = Waiters(queen, nursery)
        await waiters.add("early", "q")
        await trio.sleep(2)
        await queen.configure("q", {"windowBuffer": new})
        await until(40)
        assert soon(waiters.served[0][2], at)


@pytest.mark.parametrize("ordering", ["strict", "relaxed"])
async def test_retention_seconds(ordering: str, autojump_clock: Any) -> None:
    """T4: pending messages go when they are that old, delivered ones don't."""
    async with world(retentionEnabled=True, retentionSeconds=20, ordering=ordering) as queen:
        await queen.push("q", 1, transaction_id="done")
        await queen.ack((await queen.pop("q")).messages[0])
        await queen.push("q", 2, transaction_id="waits")
        await changes(queen, "waits", 20, "pending", None)
        assert await status(queen, "done") == "completed"
        assert not await queen.pop("q")


async def test_completed_retention_seconds(autojump_clock: Any) -> None:
    """T4: settled messages go that long after they were settled, in whatever way; pending ones don't."""
    async with world(retentionEnabled=True, completedRetentionSeconds=20) as queen:
        for name in ("completed", "failed", "dead_letter"):
            await queen.push("q", name, transaction_id=name, partition=name)
        await queen.push("q", "waits", transaction_id="waits", partition="waits")
        await queen.configure("q", {"retryLimit": 0})
        await until(5)
        for name in ("completed", "failed", "dead_letter"):
            delivery = await queen.pop("q", name)
            await queen.ack(delivery.messages[0], name)  # type: ignore[arg-type]
        for name in ("completed", "failed", "dead_letter"):
            assert await status(queen, name) == name
        await until(25 - EXACT_S)
        assert [await status(queen, name) for name in ("completed", "failed", "dead_letter")] == [
            "completed",
            "failed",
            "dead_letter",
        ]
        await until(25 + EXACT_S)
        assert [await status(queen, name) for name in ("completed", "failed", "dead_letter")] == [None] * 3
        assert await status(queen, "waits") == "pending"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"retentionSeconds": 5, "completedRetentionSeconds": 5},
        {"retentionEnabled": True},
        {"retentionEnabled": True, "retentionSeconds": 0, "completedRetentionSeconds": 0},
    ],
)
async def test_retention_is_off_unless_both_are_given(options: dict[str, Any], autojump_clock: Any) -> None:
    """T4, C3, Z8."""
    async with world(**options) as queen:
        await queen.push("q", 1, transaction_id="done")
        await queen.ack((await queen.pop("q")).messages[0])
        await queen.push("q", 2, transaction_id="waits")
        await trio.sleep(LONG_S / 2)
        assert [await status(queen, name) for name in ("done", "waits")] == ["completed", "pending"]


@pytest.mark.parametrize("change", [{"retentionEnabled": True}, {"retentionEnabled": True, "retentionSeconds": 30}])
async def test_retention_changed(change: dict[str, Any], autojump_clock: Any) -> None:
    """T5: turned on while messages wait; what is too old by then goes at once."""
    async with world(retentionSeconds=30, completedRetentionSeconds=15) as queen:
        await queen.push("q", 1, transaction_id="done")
        await queen.ack((await queen.pop("q")).messages[0])
        await queen.push("q", 2, transaction_id="waits")
        await trio.sleep(20)
        assert await status(queen, "done") == "completed"
        await queen.configure("q", change)
        await trio.sleep(EXACT_S)
        assert await status(queen, "done") is None
        await changes(queen, "waits", 30, "pending", None)


async def test_retention_turned_off_while_messages_wait(autojump_clock: Any) -> None:
    """T5."""
    async with world(retentionEnabled=True, retentionSeconds=30) as queen:
        await queen.push("q", 1, transaction_id="waits")
        await trio.sleep(29)
        await queen.configure("q", {"retentionEnabled": False})
        await trio.sleep(1000)
        assert await status(queen, "waits") == "pending"


@pytest.mark.parametrize(("options", "seconds"), [({"maxWaitTimeSeconds": 4}, 4), ({}, 20)])
async def test_max_wait_time_seconds(options: dict[str, Any], seconds: int, autojump_clock: Any) -> None:
    """O6, C3."""
    async with world(**options) as queen:
        assert not await queen.pop("q", wait=True, timeout=20)
        assert soon(trio.current_time(), seconds)


async def test_max_wait_time_seconds_changed(autojump_clock: Any) -> None:
    """T5: for pops that come from then on."""
    async with world() as queen:
        await queen.push("q", 1)
        await queen.pop("q")
        await queen.configure("q", {"maxWaitTimeSeconds": 4})
        assert not await queen.pop("q", wait=True, timeout=20)
        assert soon(trio.current_time(), 4)
        await queen.configure("q", {"maxWaitTimeSeconds": 0})
        assert not await queen.pop("q", wait=True, timeout=20)
        assert soon(trio.current_time(), 24)


async def test_a_change_of_many_partitions_is_heard_by_the_next_pop(autojump_clock: Any) -> None:
    """T5, W5: also where more is due at once than is met in one go, and whichever partition is asked."""
    async with world(delayedProcessing=100) as queen:
        for number in range(200):
            await queen.push("q", number, partition=str(number))
        await queen.configure("q", {"delayedProcessing": 0})
        assert payloads(await queen.pop("q", "150")) == [150]
        await queen.configure("q", {"delayedProcessing": 100})
        assert not await queen.pop("q", "160")
        await trio.sleep(100)
        assert payloads(await queen.pop("q", "170")) == [170]


# -- order and room -----------------------------------------------------------------------------------------


async def test_priority(autojump_clock: Any) -> None:
    """O4, C3: highest first, oldest first among equals; 0 by default, and a change counts for what waits."""
    async with opened() as queen:
        for name, options in (("plain", {}), ("low", {"priority": -1}), ("high", {"priority": 5})):
            await queen.configure(name, options, namespace="n")
            await trio.sleep(1)
            for _ in range(2):
                await queen.push(name, name)
        order = [payloads(await queen.pop(namespace="n", auto_ack=True))[0] for _ in range(3)]
        assert order == ["high", "high", "plain"]
        await queen.configure("low", {"priority": 1})
        order = [payloads(await queen.pop(namespace="n", auto_ack=True))[0] for _ in range(3)]
        assert order == ["low", "low", "plain"]


async def test_max_size(autojump_clock: Any) -> None:
    """P6, C3, T5: counts what waits and what is being processed, whenever it came."""
    async with world() as queen:
        for number in range(20):
            await queen.push("q", number)
        await queen.configure("q", {"maxSize": 20})
        delivery = await queen.pop("q")
        with pytest.raises(QueueFull):
            await queen.push("q", 20)
        await queen.ack(delivery.messages[0])
        await queen.push("q", 20)
        with pytest.raises(QueueFull):
            await queen.push("q", 21)
        await queen.configure("q", {"maxSize": None})
        await queen.push("q", 21)


async def test_ordering(autojump_clock: Any) -> None:
    """L1, L2, C3, T5: strict by default; made relaxed, a pop that waits behind a lease is served at once."""
    async with world() as queen, trio.open_nursery() as nursery:
        await queen.push("q", 1)
        await queen.push("q", 2)
        await queen.pop("q")
        held = await queen.pop("q")
        assert (held.messages, held.because) == ((), "leased")
        waiters = Waiters(queen, nursery)
        await waiters.add("second", "q")
        await trio.sleep(1)
        await queen.configure("q", {"ordering": "relaxed"})
        await trio.sleep(1)
        ((_, delivery, at),) = waiters.served
        assert payloads(delivery) == [2]
        assert soon(at, 1)
        await queen.push("q", 3)
        await queen.configure("q", {"ordering": "strict"})
        assert not await queen.pop("q")


# -- restarts and clocks ------------------------------------------------------------------------------------

DEADLINES: list[tuple[dict[str, Any], float]] = [
    ({"delayedProcessing": 30}, 30),
    ({"windowBuffer": 30}, 30),
    ({"leaseTime": 30}, 30),
    ({"retryDelay": 30_000}, 30),
]


@pytest.mark.parametrize(("options", "seconds"), DEADLINES)
@pytest.mark.parametrize("down", [0.0, 10.0, 100.0])
async def test_deadlines_outlive_a_restart(
    options: dict[str, Any], seconds: float, down: float, autojump_clock: Any
) -> None:
    """L7, T6: the time that the server is down counts."""
    journal = MemoryJournal()
    async with opened(journal) as queen:
        await queen.configure("q", options)
        await queen.push("q", 1)
        if "leaseTime" in options:
            await queen.pop("q")
        if "retryDelay" in options:
            await fail(queen)
        await trio.sleep(5)
    await trio.sleep(down)
    async with opened(journal.reopened()) as queen:
        got, at = await served(queen)
        assert got == [1]
        assert soon(at, max(seconds, 5 + down))


@pytest.mark.parametrize("down", [0.0, 100.0])
async def test_ends_outlive_a_restart(down: float, autojump_clock: Any) -> None:
    """T1, T4, T6: nobody needs to ask the queue first."""
    journal = MemoryJournal()
    async with opened(journal) as queen:
        await queen.configure("old", {"ttl": 30})
        await queen.configure("kept", {"retentionEnabled": True, "retentionSeconds": 30})
        await queen.push("old", 1, transaction_id="old")
        await queen.push("kept", 1, transaction_id="kept")
        await trio.sleep(5)
    await trio.sleep(down)
    async with opened(journal.reopened()) as queen:
        if not down:
            await until(30 - EXACT_S)
            assert [await status(queen, name) for name in ("old", "kept")] == ["pending", "pending"]
            await until(30)
        await trio.sleep(EXACT_S)
        assert [await status(queen, name) for name in ("old", "kept")] == ["failed", None]


@pytest.mark.parametrize(("options", "seconds"), DEADLINES)
@pytest.mark.parametrize("jump", [-3600, 3600])
async def test_a_jump_of_the_wall_clock_moves_no_deadline(
    options: dict[str, Any], seconds: float, jump: int, autojump_clock: Any
) -> None:
    """T6."""
    clock = TrioClock()
    async with opened(clock=clock) as queen:
        await queen.configure("q", options)
        await queen.push("q", 1)
        if "leaseTime" in options:
            await queen.pop("q")
        if "retryDelay" in options:
            await fail(queen)
        await trio.sleep(5)
        clock.wall_shift = jump * SECOND
        got, at = await served(queen)
        assert got == [1]
        assert soon(at, seconds)


def test_every_option_is_tested_here() -> None:
    """A new option needs its effect, its default and its change."""
    text = Path(__file__).read_text() + "encryptionEnabled"
    assert [name for name in OPTIONS if name not in text] == []
