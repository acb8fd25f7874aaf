"""A pop that is cancelled, wherever it is, leaves nothing leased, lost or counted (L8)."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from queen import Broker, Delivery, NewMessage
from queen.messages import Wanted
from tests.actors.world import cancelled_after, engine_of, opened, payloads, slow, steps


async def _all_back(queen: Broker, count: int, delivered: Delivery | None) -> None:
    """All messages are to be had at once and uncounted, but those that the pop has answered with."""
    await steps(100)
    if delivered:
        queen.release_nowait(delivered)
    await trio.sleep(1)
    got = await queen.pop("q", batch=100, partitions=100)
    assert sorted(payloads(got)) == list(range(count))
    assert {message.retry_count for message in got} == {0}
    assert queen.health().parked == 0
    assert not engine_of(queen)._asks


@pytest.mark.parametrize("after", range(24))
@pytest.mark.parametrize("pause", [0, 0.01])
async def test_a_pop_of_several_partitions(after: int, pause: float, autojump_clock: Any) -> None:
    """Each of its steps lies at another checkpoint."""
    async with opened(runner=slow(pause) if pause else None) as queen:
        await queen.push_many([NewMessage(queue="q", payload=n, partition=f"p{n}") for n in range(4)])
        got = await cancelled_after(after, lambda: queen.pop("q", batch=3, partitions=3))
        await _all_back(queen, 4, got)


@pytest.mark.parametrize("after", range(24))
async def test_a_waiting_pop_that_a_push_wakes(after: int, autojump_clock: Any) -> None:
    """The push comes while the cancellation is on its way."""
    async with opened(runner=slow()) as queen:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(queen.push, "q", 0)
            got = await cancelled_after(after, lambda: queen.pop("q", wait=True, batch=3))
        await _all_back(queen, 1, got)


async def test_a_pop_cancelled_while_its_lease_is_being_written(autojump_clock: Any) -> None:
    """The lease becomes durable and ends at once."""
    async with opened(runner=slow(1)) as queen:
        await queen.push("q", 0)
        with trio.move_on_after(0.5) as scope:
            await queen.pop("q")
        assert scope.cancelled_caught
        await _all_back(queen, 1, None)


async def test_what_a_pop_got_before_it_vanished_in_a_mailbox_goes_back(autojump_clock: Any) -> None:
    """Two partitions: one has given, the other has not been asked yet when the asker goes."""
    async with opened() as queen:
        await queen.push_many([NewMessage(queue="q", payload=n, partition=f"p{n}") for n in range(2)])
        engine = engine_of(queen)
        with trio.CancelScope() as scope:
            original = engine.router._send

            def send(request: Any, slot: Any) -> None:
                original(request, slot)
                if request.granted:
                    scope.cancel()
                    engine.router.leave(request)

            engine.router._send = send  # type: ignore[method-assign]
            await queen.pop("q", batch=2, partitions=2)
        engine.router._send = original  # type: ignore[method-assign]
        assert scope.cancelled_caught
        await _all_back(queen, 2, None)


@pytest.mark.parametrize("what", ["one", "settled", "twice", "expired", "closed"])
async def test_release_nowait_never_raises(what: str, autojump_clock: Any) -> None:
    """L8: what was settled stays so, what is gone is passed over."""
    async with opened() as queen:
        await queen.push_many([NewMessage(queue="q", payload=n) for n in range(3)])
        got = await queen.pop("q", batch=3)
        expected = [0, 1, 2]
        if what == "settled":
            await queen.ack(got.messages[0])
            expected = [1, 2]
        elif what == "twice":
            queen.release_nowait(got)
        elif what == "expired":
            await trio.sleep(301)
        queen.release_nowait(got)
        await steps()
        again = await queen.pop("q", batch=3)
        assert payloads(again) == expected
        assert {message.retry_count for message in again} == {int(what == "expired")}
        if what == "closed":
            await queen.drain()
            queen.stop()
            await trio.sleep(1)
            queen.release_nowait(again)


async def test_release_works_while_the_broker_drains(autojump_clock: Any) -> None:
    """L8: an answer that could not be written during the drain does not wait for the end of its lease."""
    async with opened() as queen:
        await queen.push("q", 0)
        got = await queen.pop("q")
        await queen.drain()
        queen.release_nowait(got)
        await steps()
        assert not engine_of(queen).house.leases


@pytest.mark.parametrize("act", ["push", "ack"])
@pytest.mark.parametrize("after", range(0, 16, 3))
async def test_other_requests_cancelled_happen_as_a_whole_or_not(act: str, after: int, autojump_clock: Any) -> None:
    """P1, A5: and the same again is harmless (P4, A3)."""
    async with opened(runner=slow()) as queen:
        items = [NewMessage(queue="q", payload=n, partition=f"p{n}", transaction_id=f"t{n}") for n in range(3)]
        call: Callable[[], Awaitable[Any]]
        if act == "push":
            await cancelled_after(after, lambda: queen.push_many(items))
            await trio.sleep(1)
            assert len({receipt.status for receipt in await queen.push_many(items)}) == 1
            assert len(await queen.pop("q", batch=9, partitions=9)) == 3
        else:
            await queen.push_many(items)
            got = await queen.pop("q", batch=9, partitions=9)
            entries = [_completed(message) for message in got]
            call = lambda: queen.ack_many(entries)  # noqa: E731
            await cancelled_after(after, call)
            await trio.sleep(1)
            again = await queen.ack_many(entries)
            assert [settlement.status for settlement in again] == ["completed"] * 3


def _completed(message: Any) -> Any:
    from queen import Acknowledgement

    return Acknowledgement(transaction_id=message.transaction_id, lease_id=message.lease_id)


async def test_patience_counts_each_pop_once(autojump_clock: Any) -> None:
    """Also one that is left between its grant and the commit, and is answered all the same."""
    async with opened(runner=slow()) as queen:
        await queen.push("q", 0)
        for name in ("q", "q", "none"):
            for pause in range(8):
                reply = queen.pop_soon(Wanted(queue=name), wait=True, timeout=1)
                await steps(pause)
                reply.leave()
                await trio.sleep(0.1)
        assert len(engine_of(queen).patience) == 0
        left = queen.pop_soon(Wanted(queue="none"), wait=True, timeout=1)
        await trio.sleep(0.1)
        assert len(engine_of(queen).patience) == 1
        await left
        assert len(engine_of(queen).patience) == 0
