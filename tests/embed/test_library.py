"""The library's API: what it refuses, what it answers, and how a broker opens and closes."""

from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

import queen as package
from queen import Acknowledgement, NewMessage, Wanted, open_broker
from queen.errors import Conflict, FolderLocked, Invalid, NotFound, ShuttingDown
from queen.store import chain
from queen.store.memory_journal import MemoryJournal
from tests.actors.world import Gate, opened, payloads, steps


async def test_the_package_offers_what_an_embedder_needs() -> None:
    """Names in `__all__` exist."""
    for name in package.__all__:
        assert hasattr(package, name), name


async def test_on_disk_and_back(tmp_path: Path) -> None:
    """The real journal in its thread: what was answered is there after closing and opening again."""
    folder = tmp_path / "data"
    async with open_broker(folder) as queen:
        receipt = await queen.push("jobs", {"n": 1}, transaction_id="t1")
        await queen.push("jobs", {"n": 2})
        (message,) = await queen.pop("jobs")
        await queen.ack(message)
    async with open_broker(folder) as queen:
        again = await queen.push("other", transaction_id="t1")
        assert (again.status, again.id) == ("duplicate", receipt.id)
        assert (await queen.ack("t1")).status == "completed"
        assert payloads(await queen.pop("jobs", batch=9)) == [{"n": 2}]
        with pytest.raises(FolderLocked):
            async with open_broker(folder):
                raise AssertionError


async def test_an_error_of_the_body_is_raised_as_it_is(autojump_clock: Any) -> None:
    """Not as part of a group; and what was under way is kept."""
    journal = MemoryJournal()
    with pytest.raises(ZeroDivisionError):  # noqa: PT012
        async with open_broker(None, journal=journal) as queen:
            await queen.push("q", 1)
            raise ZeroDivisionError
    async with open_broker(None, journal=journal.reopened()) as queen:
        assert payloads(await queen.pop("q")) == [1]


async def test_cancelling_the_body_closes_in_good_order(autojump_clock: Any) -> None:
    """The scope catches it as usual; the journal holds together."""
    journal = MemoryJournal()
    with trio.move_on_after(5) as scope:
        async with opened(journal) as queen:
            await queen.push("q", 1)
            await queen.pop("nowhere", wait=True)
    assert scope.cancelled_caught
    chain.verify(journal.frames(0))
    async with opened(journal.reopened()) as queen:
        assert payloads(await queen.pop("q")) == [1]


async def test_after_closing_everything_is_refused(autojump_clock: Any) -> None:
    """And nothing hangs."""
    async with opened() as queen:
        await queen.push("q")
        (message,) = delivery = await queen.pop("q")
    assert not queen.ready
    queen.release_nowait(delivery)
    for request in (
        queen.push("q"),
        queen.pop("q", wait=True),
        queen.ack(message),
        queen.configure("q"),
        queen.extend(message.lease_id),
    ):
        with pytest.raises(ShuttingDown):
            await request
    await queen.drain()
    queen.stop()
    await queen.wait_stopped()


async def test_a_message_comes_back_as_it_was_sent(autojump_clock: Any) -> None:
    """N5, L4, P7"""
    text = b'{"b": 1.0,  "a": [1e400, 12345678901234567890123456789012345678901], "b": null}'
    async with opened() as queen:
        await queen.configure("q", {"leaseTime": 7, "retryLimit": 2, "priority": 9})
        receipt = await queen.push("q", msgspec.Raw(text), partition="p/1", transaction_id="ä", trace_id="trace")
        assert (receipt.transaction_id, receipt.status) == ("ä", "queued")
        (message,) = await queen.pop("q", worker="w")
        assert message.payload == text
        assert (message.id, message.transaction_id, message.trace_id) == (receipt.id, "ä", "trace")
        assert (message.queue, message.partition, message.consumer_group) == ("q", "p/1", None)
        assert (message.lease_time, message.retry_limit, message.priority) == (7, 2, 9)
        assert message.lease_expires_at - message.locked_at == 7_000_000
        await queen.push("q", partition="p/2")
        (empty,) = await queen.pop("q")
        assert (empty.payload, empty.data) == (b"null", None)


@pytest.mark.parametrize(
    ("item", "where"),
    [
        ({"queue": ""}, "items\\[1\\].queue"),
        ({"queue": "q", "partition": "\n"}, "items\\[1\\].partition"),
        ({"queue": "q", "transaction_id": "x" * 256}, "items\\[1\\].transactionId"),
        ({"queue": "q", "payload": object()}, "items\\[1\\].payload"),
        ({"queue": "q", "payload": msgspec.Raw(b"{")}, "items\\[1\\].payload"),
        ({"queue": "q", "delay_seconds": -1}, "items\\[1\\].delaySeconds"),
    ],
)
async def test_a_wrong_item_refuses_the_whole_push(item: dict[str, Any], where: str, autojump_clock: Any) -> None:
    """P1"""
    async with opened() as queen:
        with pytest.raises(Invalid, match=where):
            await queen.push_many([NewMessage(queue="q"), NewMessage(**item)])
        assert not await queen.pop("q")


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"partition": "p"},
        {"queue": "q", "task": "t"},
        {"queue": "q", "batch": 0},
        {"queue": "q", "batch": 1001},
        {"queue": "q", "partitions": 0},
        {"queue": "q", "group": ""},
        {"queue": "q", "group": "g", "subscription_mode": "old"},
        {"queue": "q", "group": "g", "subscription_from": "yesterday"},
    ],
)
async def test_wrong_pops(wrong: dict[str, Any], autojump_clock: Any) -> None:
    """O1, O4, Z7, G2"""
    async with opened() as queen:
        with pytest.raises(Invalid):
            await queen.pop(**wrong)


async def test_refusals_of_other_requests(autojump_clock: Any) -> None:
    """P2, A4, A5, L6, C1"""
    async with opened() as queen:
        for count in (0, 1001):
            with pytest.raises(Invalid):
                await queen.push_many([NewMessage(queue="q")] * count)
            with pytest.raises(Invalid):
                await queen.ack_many([Acknowledgement(transaction_id="t")] * count)
        with pytest.raises(NotFound):
            await queen.ack("unknown")
        await queen.push("q", transaction_id="t")
        with pytest.raises(Conflict, match="not been leased"):
            await queen.ack("t")
        with pytest.raises(Conflict, match="group"):
            await queen.ack("t", group="nobody")
        with pytest.raises(Invalid):
            await queen.ack("t", "done")  # type: ignore[arg-type]
        for lease in ("none", "0" * 36, "00000000-0000-0000-0000-000000000000"):
            with pytest.raises(NotFound):
                await queen.extend(lease)
        with pytest.raises(Invalid):
            await queen.extend("none", 0)
        with pytest.raises(Invalid, match="nonsense"):
            await queen.configure("new", {"nonsense": 1})
        assert (await queen.configure("new")).options == package.QueueOptions()
        with pytest.raises(Invalid, match="key"):
            await queen.configure("secret", {"encryptionEnabled": True})


async def test_configure_keeps_what_is_left_out(autojump_clock: Any) -> None:
    """C1, C2: and writes nothing where nothing changes."""
    async with opened() as queen:
        await queen.configure("q", {"leaseTime": 7, "ttl": 9}, namespace="n", task="t")
        found = await queen.configure("q", {"ttl": None}, task=None)
        assert (found.options.lease_time, found.options.ttl, found.namespace, found.task) == (7, 0, "n", None)
        head = queen._engine.core.writer.seq  # type: ignore[union-attr]
        assert await queen.configure("q", {"leaseTime": 7}) == found
        assert queen._engine.core.writer.seq == head  # type: ignore[union-attr]


async def test_an_ack_by_name_is_fenced_by_its_lease(autojump_clock: Any) -> None:
    """A3, A4, Z2"""
    async with opened() as queen:
        await queen.configure("q", {"leaseTime": 10})
        await queen.push("q", transaction_id="t")
        (first,) = await queen.pop("q")
        await trio.sleep(11)
        (second,) = await queen.pop("q")
        with pytest.raises(Conflict):
            await queen.ack("t", lease_id=first.lease_id)
        assert await queen.extend(second.lease_id, 100) > second.lease_expires_at
        await trio.sleep(50)
        settlement = await queen.ack("t", lease_id=second.lease_id)
        assert (settlement.status, settlement.retry_count) == ("completed", 1)
        assert await queen.ack("t") == settlement
        with pytest.raises(Conflict):
            await queen.ack("t", "failed")


async def test_health_counts(autojump_clock: Any) -> None:
    """Pushed messages, over restarts of the engine too."""
    async with opened() as queen, trio.open_nursery() as nursery:
        await queen.push_many([NewMessage(queue="q", transaction_id=name) for name in ("a", "b", "a")])
        nursery.start_soon(lambda: queen.pop("nowhere", wait=True, timeout=1))
        await trio.sleep(0.5)
        health = queen.health()
        assert (health.status, health.messages, health.parked, health.partitions) == ("healthy", 2, 1, 1)


async def test_one_task_may_have_many_pushes_under_way(autojump_clock: Any) -> None:
    """P1, L1: in the order in which they were handed in, in one commit; the replies come when it is durable."""
    gate = Gate()
    async with opened(runner=gate.run) as queen, trio.open_nursery() as nursery:
        nursery.start_soon(queen.push, "q", "before")
        await steps()
        told: list[int] = []
        replies = [queen.push_soon([NewMessage(queue="q", payload=number)]) for number in range(20)]
        for number, reply in enumerate(replies):
            reply.then(partial(told.append, number))
        with pytest.raises(Invalid):
            queen.push_soon([NewMessage(queue="")])
        await steps()
        assert not told
        assert not any(reply.is_set for reply in replies)
        gate.open()
        assert [receipt.status for reply in replies for receipt in await reply] == ["queued"] * 20
        assert told == list(range(20))
        assert queen.meter.commit_records.count <= 3
        assert payloads(await queen.pop("q", batch=99)) == ["before", *range(20)]


async def test_a_pop_that_is_left_gives_everything_back(autojump_clock: Any) -> None:
    """L8: while it is parked, while its lease is on its way to the disk, and when its answer is there."""
    gate = Gate()
    async with opened(runner=gate.run) as queen:
        gate.open()
        parked = queen.pop_soon(Wanted(queue="q"), wait=True)
        await steps()
        parked.leave()
        await queen.push("q", 1)
        assert queen.health().parked == 0
        gate.close()
        under_way = queen.pop_soon(Wanted(queue="q"))
        await steps()
        assert not under_way.is_set
        under_way.leave()
        gate.open()
        await steps()
        answered = queen.pop_soon(Wanted(queue="q"))
        await steps()
        assert answered.is_set
        answered.leave()
        await steps()
        (message,) = await queen.pop("q")
        assert (message.data, message.retry_count) == (1, 0)
        assert not parked.is_set


async def test_what_a_pop_can_not_hand_on_is_given_back_whatever_the_reason(
    autojump_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L8: a fault of ours must not hold messages until their lease ends."""

    def broken(*_: Any) -> Any:
        raise ZeroDivisionError

    async with opened() as queen:
        await queen.push("q", 1)
        with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):  # noqa: PT012
            patch.setattr("queen.broker.read_granted", broken)
            await queen.pop("q")
        await steps()
        assert [(message.data, message.retry_count) for message in await queen.pop("q")] == [(1, 0)]
