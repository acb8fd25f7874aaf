"""Groups that are counted, moved and deleted while partitions sleep, restart and crash (G1-G3)."""

from typing import Any

import pytest
import trio

from queen import Broker, NewMessage
from queen.actors import partition, partition_state
from queen.actors.residents import IDLE
from queen.actors.settling import lease_bytes
from queen.errors import NotFound, Unavailable
from queen.events import MessagesLeased
from queen.names import SECOND
from queen.store.memory_journal import MemoryJournal
from tests.actors.world import Waiters, doomed, engine_of, opened, payloads, picture


async def _places(queen: Broker) -> dict[Any, tuple[int, int, int, int]]:
    found = await queen.groups.list()
    return {
        (status.name, place.queue): (place.position, place.end, place.pending, place.processing)
        for status in found
        for place in status.queues
    }


async def test_counting_wakes_nobody_and_counts_the_same(autojump_clock: Any) -> None:
    """G1, G2: awake, asleep, and after a restart; also groups that a partition has not met."""
    journal = MemoryJournal()
    async with opened(journal) as queen:
        await queen.push_many([NewMessage(queue="q", partition=f"p{n}", payload=n) for n in range(6)])
        await queen.pop("q", batch=2, partitions=2, group="g", auto_ack=True)
        await queen.pop("q", group="late", subscription_mode="new")
        await queen.push_many([NewMessage(queue="q", partition=f"p{n}", payload=n) for n in range(3, 9)])
        await queen.pop("q", group="late", auto_ack=True)
        await queen.pop("q", group="late")
        before = await _places(queen)
        assert before == {
            (None, "q"): (0, 12, 12, 0),
            ("g", "q"): (2, 12, 10, 0),
            ("late", "q"): (8, 12, 4, 1),
        }
        await trio.sleep(3 * IDLE / SECOND)
        assert engine_of(queen).house.awake_count == 0
        assert await _places(queen) == before
        lags = [place.lag_seconds for status in await queen.groups.list() for place in status.queues]
        assert lags == pytest.approx([3 * IDLE / SECOND] * 3, abs=1)
        assert engine_of(queen).house.awake_count == 0
    async with opened(journal.reopened()) as queen:
        assert await _places(queen) == before
        assert engine_of(queen).house.awake_count == 0
        await queen.push("q", 1, partition="p0")
        assert (await _places(queen))[None, "q"] == (0, 13, 13, 0)


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("asleep", [False, True])
async def test_a_deleted_group_is_forgotten_by_all(flushed: bool, asleep: bool, autojump_clock: Any) -> None:
    """G2: also by partitions that sleep, by rows, and after a crash; its lease ends, its number is not given again."""
    journal = MemoryJournal()
    async with doomed(journal) as queen:
        await queen.push_many([NewMessage(queue="q", partition=f"p{n}", payload=n) for n in range(3)])
        await queen.pop("q", group="g", auto_ack=True)
        await queen.pop("q", group="g")
        if flushed:
            await trio.sleep(3)
        if asleep:
            await trio.sleep(3 * IDLE / SECOND)
        await queen.groups.delete("g")
        if flushed:
            await trio.sleep(3)
        assert (None, "q") in await _places(queen)
        assert ("g", "q") not in await _places(queen)
    async with opened(journal.reopened()) as queen:
        assert engine_of(queen).house.leases == {}
        assert ("g", "q") not in await _places(queen)
        for slot in engine_of(queen).core.catalogue.slots.values():
            assert list(engine_of(queen).house.awake(slot).state.groups) == [0]
        assert sorted(payloads(await queen.pop("q", group="g", batch=9, partitions=9))) == [0, 1, 2]
        assert [group.number for group in engine_of(queen).core.catalogue.queues["q"].groups.values()] == [0, 2]
        await trio.sleep(3)
        before = picture(queen)
    async with opened(journal.reopened()) as queen:
        assert picture(queen) == before


async def test_leases_of_a_deleted_group_go_with_it_where_nobody_is_awake(autojump_clock: Any) -> None:
    """After a restart nobody is awake: the partition forgets the group when it wakes, and the house its leases."""
    journal = MemoryJournal()
    async with opened(journal) as queen:
        await queen.push("q", 1)
        (message,) = await queen.pop("q", group="g")
    async with opened(journal.reopened()) as queen:
        assert len(engine_of(queen).house.leases) == 1
        await queen.groups.delete("g")
        assert await queen.pop("q", auto_ack=True)
        assert not engine_of(queen).house.leases
        with pytest.raises(NotFound):
            await queen.extend(message.lease_id)


async def test_a_seek_ends_leases_for_everybody(autojump_clock: Any) -> None:
    """G3: also in the table of running leases."""
    async with opened() as queen:
        await queen.push("q", 1)
        (message,) = await queen.pop("q", group="g")
        await queen.groups.seek("g", "q")
        assert not engine_of(queen).house.leases
        with pytest.raises(NotFound):
            await queen.extend(message.lease_id)


async def test_a_lease_that_a_crash_has_cut_off_is_none(monkeypatch: pytest.MonkeyPatch, autojump_clock: Any) -> None:
    """What a half-done change said of leases is forgotten with it."""
    right = partition_state.evolve

    def wrong(*given: Any) -> None:
        right(*given)
        if isinstance(given[1], MessagesLeased):
            monkeypatch.setattr(partition, "evolve", right)
            engine_of(queen).house.leases[given[1].lease] = next(iter(engine_of(queen).core.catalogue.slots.values()))
            raise RuntimeError("planted")

    async with opened() as queen:
        await queen.push("q", 1)
        monkeypatch.setattr(partition, "evolve", wrong)
        with pytest.raises(Unavailable):
            await queen.pop("q")
        (message,) = await queen.pop("q")
        assert list(engine_of(queen).house.leases) == [lease_bytes(message.lease_id)]


async def test_a_crash_on_waking_loses_nothing(monkeypatch: pytest.MonkeyPatch, autojump_clock: Any) -> None:
    """A partition that fails as it meets a group is folded anew; who woke it up is not to blame, and gets an answer."""
    journal = MemoryJournal()
    async with doomed(journal) as queen:
        await queen.push_many([NewMessage(queue="q", partition=name, payload=name) for name in ("a", "b")])
        await queen.pop("q", "a", group="g")
    right = partition_state.evolve

    def wrong(state: Any, event: Any, at: int, shift: int = 0) -> None:
        monkeypatch.setattr(partition, "evolve", right)
        raise RuntimeError("planted")

    async with opened(journal.reopened()) as queen:
        monkeypatch.setattr(partition, "evolve", wrong)
        await queen.push("q", "c", partition="b")
        assert payloads(await queen.pop("q", "b", group="g", batch=5)) == ["b", "c"]


async def test_parked_pops_of_a_deleted_group_go_on(autojump_clock: Any) -> None:
    """O2, G2: they are the next contact."""
    async with opened() as queen, trio.open_nursery() as nursery:
        await queen.push("q", 1)
        await queen.pop("q", group="g", auto_ack=True)
        waiters = Waiters(queen, nursery)
        await waiters.add("g", "q", group="g")
        await queen.groups.delete("g")
        await queen.push("q", 2)
        await trio.sleep(0.1)
        assert [payloads(delivery) for _, delivery, _ in waiters.served] == [[1]]


async def test_a_seek_is_one_commit_and_survives(autojump_clock: Any) -> None:
    """G3"""
    journal = MemoryJournal()
    async with doomed(journal) as queen:
        for number in range(4):
            await queen.push_many([NewMessage(queue="q", partition=f"p{n}", payload=number) for n in range(3)])
            await trio.sleep(10)
        clock = engine_of(queen).core.clock
        await queen.pop("q", group="g", auto_ack=True)
        moment = clock.now() - 25 * SECOND
        commits = queen.meter.commit_records.count
        assert await queen.groups.seek("g", "q", moment) == 6
        assert queen.meter.commit_records.count == commits + 1
        assert await queen.groups.seek(None, "q") == 12
    async with opened(journal.reopened()) as queen:
        assert (await _places(queen))["g", "q"] == (6, 12, 6, 0)
        assert (await _places(queen))[None, "q"] == (12, 12, 0, 0)
        assert sorted(payloads(await queen.pop("q", group="g", batch=99, partitions=9))) == [2, 2, 2, 3, 3, 3]
        assert (await queen.statistics.queue("q")).counts.completed == 12
