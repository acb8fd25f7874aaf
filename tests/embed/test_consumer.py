"""Consuming in a trio program: what becomes of a message whose block ends, fails or is cancelled (L8, R1)."""

from typing import Any

import pytest
import trio

from queen import Broker, Delivery, NewMessage
from queen.errors import Conflict, Invalid
from tests.actors.world import engine_of, opened, parked, payloads, steps


async def _fill(queen: Broker, count: int, **more: Any) -> None:
    await queen.push_many([NewMessage(queue="q", payload=number, **more) for number in range(count)])


async def test_leaving_a_block_completes_its_message(autojump_clock: Any) -> None:
    """In order, and as they come; the loop ends with the broker."""
    seen: list[Any] = []
    async with opened() as queen, trio.open_nursery() as nursery:

        async def work() -> None:
            async for message in queen.consume("q"):
                async with message as same:
                    assert same is message
                    seen.append(message.data)
            seen.append("end")

        nursery.start_soon(work)
        for number in range(5):
            await queen.push("q", number)
            await trio.sleep(0.1)
        await trio.sleep(100)
        assert seen == [0, 1, 2, 3, 4]
        assert engine_of(queen).core.catalogue.queues["q"].depth == 0
        await queen.drain()
        await steps()
        assert seen[-1] == "end"


@pytest.mark.parametrize("batch", [1, 4])
async def test_an_exception_fails_that_message_and_gives_the_rest_back_in_order(
    batch: int, autojump_clock: Any
) -> None:
    """R1: it is raised as it is; nothing but the failed one has been counted."""
    async with opened() as queen:
        await _fill(queen, 5)
        seen: list[Any] = []
        with pytest.raises(ZeroDivisionError, match="ouch"):  # noqa: PT012
            async for message in queen.consume("q", batch=batch):
                async with message:
                    seen.append(message.data)
                    if message.data == 1:
                        raise ZeroDivisionError("ouch")
        assert seen == [0, 1]
        got = await queen.pop("q", batch=9)
        assert payloads(got) == [1, 2, 3, 4]
        assert [message.retry_count for message in got] == [1, 0, 0, 0]
        state = engine_of(queen).house.awake(engine_of(queen).core.catalogue.queues["q"].slots["Default"]).state
        assert state.groups[0].open[2].error == "ZeroDivisionError: ouch"


async def test_a_loop_that_goes_on_after_a_failure_gets_the_same_message_next(autojump_clock: Any) -> None:
    """R1: in strict order it blocks what is behind it, until its retries are used up."""
    async with opened() as queen:
        await queen.configure("q", {"retryLimit": 2, "retryDelay": 1000})
        await _fill(queen, 3)
        seen: list[Any] = []
        async with queen.consume("q", batch=3) as messages:
            while len(seen) < 5:
                message = await anext(messages)
                try:
                    async with message:
                        seen.append((message.data, message.retry_count))
                        if message.data == 0:
                            raise ValueError
                except ValueError:
                    pass
        assert seen == [(0, 0), (0, 1), (0, 2), (1, 0), (2, 0)]


async def test_cancellation_gives_everything_back_uncounted(autojump_clock: Any) -> None:
    """L8: the message of the block and the rest of its batch, at once."""
    async with opened() as queen:
        await _fill(queen, 4)
        seen: list[Any] = []
        with trio.move_on_after(1) as scope:
            async for message in queen.consume("q", batch=4):
                async with message:
                    seen.append(message.data)
                    if message.data == 1:
                        await trio.sleep_forever()
        assert scope.cancelled_caught
        assert seen == [0, 1]
        await steps()
        got = await queen.pop("q", batch=9)
        assert payloads(got) == [1, 2, 3]
        assert {message.retry_count for message in got} == {0}


async def test_cancelled_while_waiting_it_takes_nothing(autojump_clock: Any) -> None:
    """L8"""
    async with opened() as queen, trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        async def work() -> None:
            with scope:
                async for _ in queen.consume("q"):
                    raise AssertionError

        nursery.start_soon(work)
        await parked(queen, 1)
        scope.cancel()
        await _fill(queen, 1)
        assert payloads(await queen.pop("q")) == [0]


async def test_break_inside_a_block_settles_it_and_leaving_gives_the_rest_back(autojump_clock: Any) -> None:
    """`async with queen.consume(...)`: what was fetched and not handed out does not wait for the lease's end."""
    async with opened() as queen:
        await _fill(queen, 5)
        async with queen.consume("q", batch=5) as messages:
            async for message in messages:
                async with message:
                    if message.data == 1:
                        break
        await steps()
        assert payloads(await queen.pop("q", batch=9)) == [2, 3, 4]


async def test_a_block_whose_lease_was_lost_says_so(autojump_clock: Any) -> None:
    """A4: somebody else has the message by now."""
    others = Delivery()
    async with opened() as queen:
        await queen.configure("q", {"leaseTime": 10})
        await _fill(queen, 1)
        with pytest.raises(Conflict):  # noqa: PT012
            async for message in queen.consume("q"):
                async with message:
                    await trio.sleep(11)
                    others = await queen.pop("q")
        assert (await queen.ack(others.messages[0])).status == "completed"


async def test_a_block_that_fails_after_the_broker_closed_keeps_its_own_error(autojump_clock: Any) -> None:
    """What can't be told ends with the lease."""
    async with opened() as queen:
        await _fill(queen, 1)
        with pytest.raises(ZeroDivisionError):  # noqa: PT012
            async for message in queen.consume("q"):
                async with message:
                    await queen.drain()
                    raise ZeroDivisionError


@pytest.mark.parametrize(
    "scope", [{"queue": "q", "partition": "p"}, {"namespace": "n"}, {"namespace": "n", "task": "t"}]
)
async def test_every_scope_and_group(scope: dict[str, Any], autojump_clock: Any) -> None:
    """G1: a group's messages are completed for that group."""
    async with opened() as queen:
        await _fill(queen, 2, partition="p", namespace="n", task="t")
        for group in (None, "g"):
            async with queen.consume(**scope, group=group, worker="w") as messages:
                for number in range(2):
                    async with await anext(messages) as message:
                        assert (message.data, message.consumer_group) == (number, group)
        for group in (None, "g"):
            assert not await queen.pop("q", group=group)


async def test_several_consumers_share_a_queue(autojump_clock: Any) -> None:
    """Each message once; in each partition one after another (L1)."""
    async with opened() as queen:
        await queen.push_many([NewMessage(queue="q", payload=n, partition=f"p{n % 3}") for n in range(30)])
        seen: list[int] = []
        async with trio.open_nursery() as nursery:

            async def work() -> None:
                async for message in queen.consume("q", batch=2):
                    async with message:
                        await trio.sleep(0.01)
                        seen.append(message.data)
                        if len(seen) == 30:
                            nursery.cancel_scope.cancel()

            for _ in range(4):
                nursery.start_soon(work)
        assert sorted(seen) == list(range(30))
        for partition in range(3):
            assert [n for n in seen if n % 3 == partition] == list(range(partition, 30, 3))


async def test_a_consumer_is_checked_when_it_is_made(autojump_clock: Any) -> None:
    """N1, O4"""
    async with opened() as queen:
        wrongs: list[dict[str, Any]] = [{}, {"queue": ""}, {"queue": "q", "task": "t"}, {"queue": "q", "batch": 0}]
        for wrong in wrongs:
            with pytest.raises(Invalid):
                queen.consume(**wrong)
