"""Consumers in a trio program: deadlines and leases, many at once, typed payloads, and a step to the next queue."""

from dataclasses import dataclass
from typing import Any, assert_type

import msgspec
import pytest
import trio

from queen import Broker, Consumer, LeasedMessage, NewMessage, StoredMessage, open_broker
from queen.errors import Busy, Conflict, Invalid, QueueFull, StoreFull, TooLarge, TransactionRefused, Unavailable
from queen.store.memory_journal import MemoryJournal
from tests.actors.world import opened, payloads, steps


@dataclass
class Order:
    id: int
    note: str = ""


async def _fill(queen: Broker, count: int, **more: Any) -> None:
    await queen.push_many([NewMessage(queue="q", payload=number, **more) for number in range(count)])


async def _stored(queen: Broker, transaction_id: str) -> StoredMessage:
    return (await queen.messages.get(transaction_id))[0]


# -- deadlines -----------------------------------------------------------------------------------------------


async def test_a_lease_lives_as_long_as_its_block_may(autojump_clock: Any) -> None:
    """L5, L6: ten leaseTimes pass, nobody else gets it, no attempt is counted, and extending ends with the block."""
    async with opened() as queen:
        await queen.configure("q", {"leaseTime": 10})
        await _fill(queen, 1, transaction_id="t")
        async with queen.consume("q", deadline=200) as messages, await anext(messages) as message:
            for _ in range(10):
                await trio.sleep(10)
                assert not await queen.pop("q")
            assert message.retry_count == 0
        assert (await _stored(queen, "t")).status == "completed"
        before = (await _stored(queen, "t")).lease_expires_at
        await trio.sleep(100)
        assert (await _stored(queen, "t")).lease_expires_at == before


async def test_the_rest_of_a_batch_is_held_while_the_first_is_worked_on(autojump_clock: Any) -> None:
    """L4: one lease for the whole delivery, extended from block to block."""
    async with opened() as queen:
        await queen.configure("q", {"leaseTime": 10})
        await _fill(queen, 3)
        seen: list[int] = []
        async with queen.consume("q", batch=3, deadline=60) as messages:
            while len(seen) < 3:
                async with await anext(messages) as message:
                    await trio.sleep(25)
                    seen.append(message.data)
                    assert message.retry_count == 0
        assert seen == [0, 1, 2]


async def test_a_block_that_outlasts_its_deadline_has_failed(autojump_clock: Any) -> None:
    """R1: it is cancelled, counted, and says why."""
    async with opened() as queen:
        await _fill(queen, 1, transaction_id="t")
        start = trio.current_time()
        with pytest.raises(trio.TooSlowError, match="the deadline of 7 s passed"):
            async with queen.consume("q", deadline=7) as messages, await anext(messages):
                await trio.sleep_forever()
        assert trio.current_time() - start == pytest.approx(7)
        stored = await _stored(queen, "t")
        assert (stored.status, stored.retry_count) == ("pending", 1)
        assert stored.error == "TooSlowError: the deadline of 7 s passed"


async def test_a_deadline_inside_a_nursery_of_the_block(autojump_clock: Any) -> None:
    """The cancellation comes as a group; what else is in it is what the block failed with."""

    async def stubborn() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ZeroDivisionError("ouch")

    async with opened() as queen:
        await _fill(queen, 1, transaction_id="t")
        with pytest.RaisesGroup(ZeroDivisionError):
            async with (
                queen.consume("q", deadline=7) as messages,
                await anext(messages),
                trio.open_nursery() as nursery,
            ):
                nursery.start_soon(stubborn)
                await trio.sleep_forever()
        assert (await _stored(queen, "t")).retry_count == 1


async def test_a_block_whose_lease_is_taken_away_is_cancelled(autojump_clock: Any) -> None:
    """G3: a seek releases leases; the next extension finds out, and nobody works on in vain."""
    async with opened() as queen:
        await queen.configure("q", {"leaseTime": 10})
        await _fill(queen, 1)
        with pytest.raises(Conflict, match="was lost while its block ran"):  # noqa: PT012
            async with queen.consume("q", group="g", deadline=1000) as messages, await anext(messages):
                await queen.groups.seek("g", "q")
                await trio.sleep_forever()
        assert trio.current_time() < 10


async def test_a_cancellation_from_outside_is_no_deadline(autojump_clock: Any) -> None:
    """L8: given back uncounted."""
    async with opened() as queen:
        await _fill(queen, 1)
        with trio.move_on_after(3) as scope:
            async with queen.consume("q", deadline=7) as messages, await anext(messages):
                await trio.sleep_forever()
        assert scope.cancelled_caught
        await steps()
        assert [message.retry_count for message in await queen.pop("q")] == [0]


# -- many at once --------------------------------------------------------------------------------------------


async def test_run_works_on_no_more_than_it_may_and_takes_no_more_than_it_works_on(autojump_clock: Any) -> None:
    """Back-pressure: what nobody has time for stays in the queue."""
    now, most = 0, 0
    seen: list[Any] = []

    async def work(message: LeasedMessage[Any]) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        assert (await queen.statistics.overview()).counts.processing <= 4
        await trio.sleep(1)
        seen.append(message.data)
        now -= 1

    async with opened() as queen, trio.open_nursery() as nursery:
        await queen.push_many([NewMessage(queue="q", payload=n, partition=f"p{n % 10}") for n in range(40)])

        async def run() -> None:
            await queen.consume("q").run(work, concurrency=4)
            seen.append("end")

        nursery.start_soon(run)
        await trio.sleep(20)
        assert sorted(seen) == list(range(40))
        assert most == 4
        await queen.drain()
        await steps(20)
        assert seen[-1] == "end"


async def test_run_goes_on_after_a_failure(autojump_clock: Any, capsys: Any) -> None:
    """R1, R2: each attempt is counted; the log names the message and never its payload."""
    seen: list[tuple[int, int]] = []

    async def work(message: LeasedMessage[Any]) -> None:
        seen.append((message.data, message.retry_count))
        if message.data == 1:
            raise ZeroDivisionError("ouch")

    async with opened() as queen, trio.open_nursery() as nursery:
        await queen.configure("q", {"retryLimit": 1, "dlqAfterMaxRetries": True})
        await _fill(queen, 3)
        nursery.start_soon(queen.consume("q").run, work)
        await trio.sleep(10)
        assert seen == [(0, 0), (1, 0), (1, 1), (2, 0)]
        log = capsys.readouterr()
        assert log.out.count("ZeroDivisionError: ouch") == 2
        assert "payload" not in log.out + log.err
        assert (await queen.statistics.overview()).counts.dead_letter == 1
        nursery.cancel_scope.cancel()


async def test_run_cancelled_gives_everything_back(autojump_clock: Any) -> None:
    """L8"""

    async def work(message: LeasedMessage[Any]) -> None:
        await trio.sleep_forever()

    async with opened() as queen:
        await queen.push_many([NewMessage(queue="q", payload=n, partition=f"p{n % 3}") for n in range(9)])
        with trio.move_on_after(1):
            await queen.consume("q", batch=2).run(work, concurrency=3)
        await steps()
        got = await queen.pop("q", batch=9, partitions=3)
        assert sorted(payloads(got)) == list(range(9))
        assert {message.retry_count for message in got} == {0}


async def test_what_is_no_fault_of_the_message_is_not_counted(autojump_clock: Any) -> None:
    """P6: a full queue further on gives the message back and makes its worker wait; then it goes on."""
    done: list[int] = []

    async def step(message: LeasedMessage[Any]) -> None:
        await message.settle(push=[NewMessage(queue="next", payload=message.data)])
        done.append(message.data)

    async with opened() as queen, trio.open_nursery() as nursery:
        await queen.configure("next", {"maxSize": 2})
        await queen.configure("q", {"retryLimit": 0})
        await _fill(queen, 5)
        nursery.start_soon(queen.consume("q").run, step)
        await trio.sleep(30)
        assert done == [0, 1]
        async with queen.consume("next") as messages:
            for number in range(5):
                async with await anext(messages) as message:
                    assert message.data == number
        assert done == list(range(5))
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "error",
    [
        Busy("later"),
        QueueFull("full"),
        Unavailable("not now"),
        ExceptionGroup("from a nursery", [QueueFull("full"), ExceptionGroup("", [Unavailable("not now")])]),
    ],
)
async def test_the_loop_raises_it_all_the_same(error: Exception, autojump_clock: Any) -> None:
    async with opened() as queen:
        await _fill(queen, 2)
        with pytest.raises(type(error)):
            async with queen.consume("q", batch=2) as messages, await anext(messages):
                raise error
        await steps()
        got = await queen.pop("q", batch=9)
        assert [(message.data, message.retry_count) for message in got] == [(0, 0), (1, 0)]


async def test_a_consumer_outlives_a_broker_that_starts_anew(autojump_clock: Any) -> None:
    """Law 5: a commit that fails with nothing written restarts the engine; the loop waits and goes on."""
    journal = MemoryJournal()
    seen: list[int] = []
    async with opened(journal) as queen, trio.open_nursery() as nursery:
        await _fill(queen, 3)

        async def work(message: LeasedMessage[Any]) -> None:
            seen.append(message.data)

        journal.fail_next(StoreFull("no room"))
        nursery.start_soon(queen.consume("q").run, work)
        await trio.sleep(20)
        assert seen[-3:] == [0, 1, 2]
        assert (await queen.statistics.overview()).counts.completed == 3
        nursery.cancel_scope.cancel()


async def test_a_group_that_has_more_in_it_is_the_messages_fault_and_says_what(autojump_clock: Any) -> None:
    async with opened() as queen:
        await _fill(queen, 1, transaction_id="t")
        group = ExceptionGroup("from a nursery", [QueueFull("full"), ZeroDivisionError("ouch")])
        with pytest.RaisesGroup(QueueFull, ZeroDivisionError):
            async with queen.consume("q") as messages, await anext(messages):
                raise group
        stored = await _stored(queen, "t")
        assert (stored.retry_count, stored.error) == (1, "QueueFull: full; ZeroDivisionError: ouch")


@pytest.mark.parametrize("concurrency", [0, -1, 10_001, "8"])
async def test_concurrency_is_a_number_of_messages(concurrency: Any, autojump_clock: Any) -> None:
    async with opened() as queen:
        with pytest.raises(Invalid, match="concurrency"):
            await queen.consume("q").run(trio.sleep, concurrency=concurrency)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="a function of a message"):
            await queen.consume("q").run(None)  # type: ignore[arg-type]


async def test_too_much_for_one_commit_is_refused_and_harms_nobody(tmp_path: Any) -> None:
    """P2: a record has to fit into the journal and into memory."""
    big = "x" * 30_000_000
    async with open_broker(tmp_path / "data") as queen:
        with pytest.raises(TooLarge, match="items: the payloads have 90000006 bytes together"):
            await queen.push_many([NewMessage(queue="q", payload=big) for _ in range(3)])
        with pytest.raises(TooLarge, match="operations: the payloads have 90000006 bytes together"):
            await queen.transaction([[NewMessage(queue="q", payload=big)] for _ in range(3)])
        assert (await queen.push("q", big)).status == "queued"


# -- typed payloads ------------------------------------------------------------------------------------------


async def test_payloads_of_a_type(autojump_clock: Any) -> None:
    async with opened() as queen:
        await queen.push("q", Order(1, "x"))
        consumer = queen.consume("q", type=Order)
        assert_type(consumer, Consumer[Order])
        async with consumer as messages, await anext(messages) as message:
            assert_type(message.data, Order)
            assert message.data == Order(1, "x")


async def test_a_payload_of_another_type_fails_its_message_and_says_where(autojump_clock: Any) -> None:
    async with opened() as queen:
        await queen.push("q", {"id": "one"}, transaction_id="t")
        with pytest.raises(msgspec.ValidationError):
            async with queen.consume("q", type=Order) as messages, await anext(messages) as message:
                print(message.data)
        assert (await _stored(queen, "t")).error == "ValidationError: Expected `int`, got `str` - at `$.id`"


@pytest.mark.parametrize("deadline", [0, -1, float("nan"), float("inf"), "30"])
def test_a_deadline_is_a_number_of_seconds(deadline: Any) -> None:
    with pytest.raises(Invalid, match="deadline"):
        Broker.__new__(Broker).consume("q", deadline=deadline)


# -- settling by hand ----------------------------------------------------------------------------------------


async def test_settled_in_its_block_a_message_is_left_alone_on_leaving(autojump_clock: Any) -> None:
    """A1"""
    async with opened() as queen:
        await _fill(queen, 3)
        async with queen.consume("q", batch=3) as messages:
            async with await anext(messages) as first:
                assert (await first.settle("dead_letter", error="no such customer")).status == "dead_letter"
            async with await anext(messages) as second:
                assert (await second.settle("retry")).status == "retry_scheduled"
            async with await anext(messages) as again:
                assert (again.data, again.retry_count) == (1, 0)
        stored = await _stored(queen, first.transaction_id)
        assert (stored.status, stored.error) == ("dead_letter", "no such customer")


@pytest.mark.parametrize("status", ["failed", "retry", "dead_letter"])
async def test_nothing_is_pushed_for_a_message_that_is_not_done(status: Any, autojump_clock: Any) -> None:
    async with opened() as queen:
        await _fill(queen, 1)
        with pytest.raises(Invalid, match="push: goes with 'completed' alone"):
            async with queen.consume("q") as messages, await anext(messages) as message:
                await message.settle(status, push=[NewMessage(queue="next")])


async def test_a_step_is_in_one_commit_or_not_done(autojump_clock: Any) -> None:
    """Exactly once: a lost lease pushes nothing."""
    async with opened() as queen:
        await queen.configure("q", {"leaseTime": 10})
        await _fill(queen, 1)
        with pytest.raises(TransactionRefused):  # noqa: PT012
            async with queen.consume("q") as messages, await anext(messages) as message:
                await trio.sleep(11)
                other = (await queen.pop("q")).messages[0]
                await message.settle(push=[NewMessage(queue="next", payload=1)])
        assert not await queen.pop("next")
        await queen.ack(other)
