"""A group's first pop of a queue (G2): partitions are asked a few at a time, and what it gets is as if all had been."""

from typing import Any

import pytest
import trio

from queen import Broker, NewMessage
from queen.actors import introduction
from queen.actors.residents import GROUP_IDLE, IDLE
from queen.names import SECOND
from tests.actors.world import Waiters, engine_of, opened, payloads, steps

PARTITIONS = 300


async def filled(queen: Broker) -> None:
    """One message in each partition, the oldest in the last one."""
    for start in range(PARTITIONS - 50, -1, -50):
        await queen.push_many(
            [NewMessage(queue="q", partition=str(n), payload=n) for n in range(start + 49, start - 1, -1)]
        )
        await trio.sleep(0.01)


async def asleep(queen: Broker) -> None:
    await trio.sleep(IDLE / SECOND + 3)
    assert queen.health().awake == 0


@pytest.mark.parametrize("sleeping", [False, True])
async def test_the_first_pop_gets_the_oldest_of_all_partitions(sleeping: bool, autojump_clock: Any) -> None:
    """O3, G2: it waits for all of them, and sleeping ones are not woken for it."""
    async with opened() as queen:
        await filled(queen)
        if sleeping:
            await asleep(queen)
        (first,) = await queen.pop("q", group="g")
        assert first.partition == str(PARTITIONS - 1)
        assert queen.health().awake == (1 if sleeping else PARTITIONS)
        assert payloads(await queen.pop("q", "7", group="g")) == [7]
        got = [first, *await queen.pop("q", group="g", batch=1000, partitions=1000)]
        assert sorted(message.data for message in got) == [n for n in range(PARTITIONS) if n != 7]


async def test_no_step_asks_more_than_a_few_partitions(monkeypatch: pytest.MonkeyPatch, autojump_clock: Any) -> None:
    """However many there are, others get their turn."""
    async with opened() as queen:
        await filled(queen)
        await asleep(queen)
        house = engine_of(queen).house
        step = 0
        asked: list[int] = []
        real = house.speak_for

        def counting(*args: Any) -> None:
            asked.append(step)
            real(*args)

        monkeypatch.setattr(house, "speak_for", counting)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(queen.pop, "q", None)
            await steps()
            waiters = Waiters(queen, nursery)
            nursery.start_soon(_wait, waiters, queen)
            while not waiters.served:
                step += 1
                await trio.lowlevel.checkpoint()
        assert len(asked) >= PARTITIONS
        # Two of the loop's rounds, at worst, fall between two steps of this test.
        assert max(asked.count(one) for one in asked) <= 2 * introduction.AT_ONCE


async def _wait(waiters: Waiters, queen: Broker) -> None:
    waiters.served.append(("g", await queen.pop("q", group="g"), 0))


async def test_messages_that_come_meanwhile_are_not_missed(autojump_clock: Any) -> None:
    """O5: for a group that begins now, nothing is there but what is pushed while it is introduced."""
    async with opened() as queen, trio.open_nursery() as nursery:
        await filled(queen)
        await asleep(queen)
        waiters = Waiters(queen, nursery)
        for name in range(3):
            nursery.start_soon(waiters._run, name, ("q",), {"group": "g", "subscription_mode": "new"})
        waiters.scopes = {name: trio.CancelScope() for name in range(3)}
        await steps(4)
        for partition in ("299", "0", "new"):
            await queen.push("q", partition, partition=partition)
        await steps()
        assert sorted(payloads(got)[0] for _, got, _ in waiters.served) == ["0", "299", "new"]


async def test_of_very_many_partitions_some_do(monkeypatch: pytest.MonkeyPatch, autojump_clock: Any) -> None:
    """A pop is served from those asked first, where all would take too long; one that finds nothing waits for all."""
    monkeypatch.setattr(introduction, "WHOLE", 64)
    async with opened() as queen, trio.open_nursery() as nursery:
        await filled(queen)
        await asleep(queen)
        (first,) = await queen.pop("q", group="g")
        assert first.data in range(150, 300), "the first ones to be asked"
        assert len(await queen.pop("q", group="g", batch=1000, partitions=1000)) == PARTITIONS - 1
        assert not await queen.pop("q", group="h", subscription_mode="new")
        waiters = Waiters(queen, nursery)
        await waiters.add("w", "q", group="i", subscription_mode="new")
        await queen.push("q", "late", partition="5")
        await steps()
        assert payloads(waiters.served[0][1]) == ["late"]


@pytest.mark.parametrize("wait", [False, True])
async def test_closing_answers_those_that_wait_for_it(wait: bool, autojump_clock: Any) -> None:
    async with opened() as queen, trio.open_nursery() as nursery:
        await filled(queen)
        await asleep(queen)
        answers: list[Any] = []

        async def pop() -> None:
            answers.append(await queen.pop("q", group="g", wait=wait))

        nursery.start_soon(pop)
        await steps(3)
        await queen.drain()
        await steps()
        assert len(answers) == 1


async def test_groups_that_only_asked_are_forgotten(autojump_clock: Any) -> None:
    """W5: nothing shows of it but that they are listed no more. A group that got something keeps its place."""
    async with opened(limit_s=20_000) as queen, trio.open_nursery() as nursery:
        await queen.push_many([NewMessage(queue="q", payload=n) for n in range(3)])
        await queen.pop("empty", group="x")
        await queen.configure("empty")
        for number in range(20):
            assert not await queen.pop("empty", group=f"g{number}")
        assert payloads(await queen.pop("q", group="kept", auto_ack=True)) == [0]
        queues, offers = engine_of(queen).core.catalogue.queues, engine_of(queen).router._offers
        assert len(queues["empty"].groups) == 21
        nursery.start_soon(_ask_on, queen)
        await trio.sleep(2 * GROUP_IDLE / SECOND + 5)
        assert set(queues["empty"].groups) == {None, "g7"}
        assert set(queues["q"].groups) == {None, "kept"}
        assert [key[1] for key in offers._lines if key[1]] == [queues["empty"].groups["g7"].number]
        await queen.push("empty", "late")
        assert payloads(await queen.pop("empty", group="g3")) == ["late"]
        assert payloads(await queen.pop("q", group="kept", batch=9)) == [1, 2]
        nursery.cancel_scope.cancel()


async def _ask_on(queen: Broker) -> None:
    while True:
        await queen.pop("empty", group="g7", wait=True, timeout=30)
