"""Waiting pops and how they are served (O1-O7, G2, L3): in simulated time, to the tenth of a second."""

from itertools import permutations
from typing import Any

import pytest
import trio

from queen import NewMessage
from queen.actors.availability import LOOK_AHEAD
from queen.actors.catalogue_state import Group, Groups
from queen.actors.router import LETS_PASS
from queen.names import instant_text
from queen.store.memory_journal import MemoryJournal
from tests.actors.world import Waiters, engine_of, opened, parked, payloads, steps

SCOPES: dict[str, dict[str, str]] = {
    "partition": {"queue": "q", "partition": "p"},
    "queue": {"queue": "q"},
    "namespace": {"namespace": "n"},
    "task": {"task": "t"},
    "both": {"namespace": "n", "task": "t"},
}


@pytest.mark.parametrize("order", list(permutations(SCOPES))[::17])
async def test_waiters_of_every_scope_are_served_first_come_first_served(
    order: tuple[str, ...], autojump_clock: Any
) -> None:
    """O5"""
    async with opened() as queen, trio.open_nursery() as nursery:
        await queen.configure("q", {"ordering": "relaxed"}, namespace="n", task="t")
        await queen.push("q", 0, partition="p")
        await queen.pop("q", auto_ack=True)
        waiters = Waiters(queen, nursery)
        for name in order:
            await waiters.add(name, **SCOPES[name])
        for number, name in enumerate(order):
            pushed_at = trio.current_time()
            await queen.push("q", number, partition="p")
            while len(waiters.served) <= number:
                await trio.lowlevel.checkpoint()
            assert waiters.served[number][0] == name
            assert payloads(waiters.served[number][1]) == [number]
            assert waiters.served[number][2] == pushed_at, "a push wakes a waiter at once"


async def test_a_pop_that_comes_later_does_not_overtake_those_that_wait(autojump_clock: Any) -> None:
    """O5: also where a relaxed partition has just got something."""
    async with opened() as queen, trio.open_nursery() as nursery:
        await queen.configure("q", {"ordering": "relaxed"})
        waiters = Waiters(queen, nursery)
        for name in range(3):
            await waiters.add(name, "q")
        nursery.start_soon(queen.push_many, [NewMessage(queue="q", payload=n) for n in range(3)])
        late = [await queen.pop("q") for _ in range(60)]
        assert {name: payloads(delivery) for name, delivery, _ in waiters.served} == {0: [0], 1: [1], 2: [2]}
        assert not any(late)


@pytest.mark.parametrize("ordering", ["strict", "relaxed"])
@pytest.mark.parametrize("scope", [{"queue": "q"}, {"queue": "q", "partition": "Default"}])
async def test_a_crowd_that_waits_is_not_sent_about(ordering: str, scope: dict[str, Any], autojump_clock: Any) -> None:
    """O5 has a price, and it is bounded: a message for one does not send everybody to the partition."""
    async with opened() as queen, trio.open_nursery() as nursery:
        await queen.configure("q", {"ordering": ordering})
        waiters = Waiters(queen, nursery)
        for name in range(300):
            await waiters.add(name, **scope)
        router, sent = engine_of(queen).router, []
        original = router._send

        def send(request: Any, slot: Any) -> None:
            sent.append(request)
            original(request, slot)

        router._send = send  # type: ignore[method-assign]
        nursery.start_soon(queen.push, "q", 0)
        answers = [await queen.pop(**scope) for _ in range(20)]
        nursery.start_soon(lambda: queen.pop(**scope, wait=True))
        await steps()
        assert waiters.names == [0]
        assert not any(answers)
        assert len(sent) <= 5 + 2 * LETS_PASS
        nursery.cancel_scope.cancel()


async def test_a_group_sees_a_better_queue_that_it_has_not_met_yet(autojump_clock: Any) -> None:
    """O4, G1: by priority also where the group knows the lesser queue alone."""
    async with opened() as queen:
        for priority, name in enumerate(("low", "high")):
            await queen.configure(name, {"priority": priority}, namespace="n")
            await queen.push(name, name)
        await queen.pop("low", group="g", auto_ack=True)
        await queen.push("low", "again")
        for expected in (["high"], ["again"]):
            assert payloads(await queen.pop(namespace="n", group="g")) == expected


async def test_a_pop_of_one_partition_gets_nothing_of_another_that_is_busy(autojump_clock: Any) -> None:
    """O3: also in the moment in which a pop is on its way to the other one."""
    async with opened() as queen:
        await queen.push_many([NewMessage(queue="q", partition="full", payload=n) for n in range(100)])
        found: list[Any] = []

        async def pop(partition: str) -> None:
            delivery = await queen.pop("q", partition, auto_ack=True)
            found.extend(message.partition for message in delivery if message.partition != partition)

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(pop, "full")
                nursery.start_soon(pop, "Default")
        assert not found


async def test_strict_waiters_keep_their_place_when_they_come_back_empty(autojump_clock: Any) -> None:
    """O5, L1: one message at a time; whoever finds it leased waits on at the old place."""
    async with opened() as queen, trio.open_nursery() as nursery:
        waiters = Waiters(queen, nursery)
        for name in range(4):
            await waiters.add(name, "q", partition=None if name % 2 else "Default")
        await queen.push_many([NewMessage(queue="q", payload=n) for n in range(4)])
        for number in range(4):
            await steps()
            assert waiters.names == list(range(number + 1))
            await queen.ack(waiters.served[-1][1].messages[0])
        assert [payloads(delivery) for _, delivery, _ in waiters.served] == [[0], [1], [2], [3]]


async def _delay(queen: Any) -> float:
    await queen.push("q", 1, delay_seconds=7)
    return 7


async def _window(queen: Any) -> float:
    await queen.configure("q", {"windowBuffer": 5})
    await queen.push("q", 0)
    await trio.sleep(2)
    await queen.push("q", 1)
    return 5


async def _lease(queen: Any) -> float:
    await queen.configure("q", {"leaseTime": 9})
    await queen.push_many([NewMessage(queue="q"), NewMessage(queue="q")])
    await queen.pop("q")
    return 9


async def _extended(queen: Any) -> float:
    await queen.configure("q", {"leaseTime": 9})
    await queen.push("q", 1)
    await queen.extend((await queen.pop("q")).messages[0].lease_id, 30)
    return 30


async def _retry(queen: Any) -> float:
    await queen.configure("q", {"retryDelay": 2500})
    await queen.push("q", 1)
    await queen.ack((await queen.pop("q")).messages[0], "failed")
    return 2.5


@pytest.mark.parametrize("cause", [_delay, _window, _lease, _extended, _retry])
@pytest.mark.parametrize("scope", [{"queue": "q"}, {"queue": "q", "partition": "Default"}])
async def test_time_wakes_a_waiter_at_the_deadline_and_not_before(cause: Any, scope: Any, autojump_clock: Any) -> None:
    """O5, T2, T3, L5, R1"""
    async with opened() as queen, trio.open_nursery() as nursery:
        due = trio.current_time() + await cause(queen)
        due += 2 if cause is _window else 0
        waiters = Waiters(queen, nursery)
        await waiters.add("w", **scope)
        await trio.sleep(due - trio.current_time() - 0.001)
        assert not waiters.served
        await trio.sleep(0.1)
        assert waiters.names == ["w"]
        assert due <= waiters.served[0][2] <= due + 0.1


@pytest.mark.parametrize("relaxed", [False, True])
async def test_what_vanished_waiters_would_have_got_reaches_the_others(relaxed: bool, autojump_clock: Any) -> None:
    """O5, L8: 100 wait, 50 are gone when 50 messages come."""
    async with opened() as queen, trio.open_nursery() as nursery:
        await queen.configure("q", {"ordering": "relaxed"} if relaxed else {})
        waiters = Waiters(queen, nursery)
        for name in range(100):
            await waiters.add(name, "q")
        for name in range(0, 100, 2):
            waiters.scopes[name].cancel()
        at = trio.current_time()
        items = [NewMessage(queue="q", payload=n, partition="x" if relaxed else f"p{n}") for n in range(50)]
        await queen.push_many(items)
        while len(waiters.served) < 50:
            await trio.lowlevel.checkpoint()
        assert sorted(waiters.names) == list(range(1, 100, 2))
        assert {when for _, _, when in waiters.served} == {at}
        assert sorted(payloads(delivery)[0] for _, delivery, _ in waiters.served) == list(range(50))
        assert not await queen.pop("q")
        for _, delivery, _ in waiters.served:
            await queen.ack(delivery.messages[0])
        assert queen.health().parked == 0


async def test_waiters_that_vanish_while_they_are_served_lose_nothing(autojump_clock: Any) -> None:
    """L8: half of them go in the very step in which the push is decided."""
    async with opened() as queen, trio.open_nursery() as nursery:
        waiters = Waiters(queen, nursery)
        for name in range(40):
            await waiters.add(name, "q")
        nursery.start_soon(queen.push_many, [NewMessage(queue="q", payload=n, partition=f"p{n}") for n in range(20)])
        for name in range(0, 40, 2):
            await steps(1)
            waiters.scopes[name].cancel()
        await trio.sleep(1)
        got = [message for _, delivery, _ in waiters.served for message in delivery]
        assert sorted(message.data for message in got) == list(range(20))
        assert {message.retry_count for message in got} == {0}


async def test_oldest_first_over_the_partitions_of_a_queue(autojump_clock: Any) -> None:
    """O3: the partition whose first available message is oldest, and from that one only."""
    async with opened() as queen:
        for number, partition in enumerate(["c", "a", "b", "a", "c"]):
            await queen.push("q", number, partition=partition)
            await trio.sleep(0.01)
        got = [await queen.pop("q", batch=10) for _ in range(3)]
        assert [payloads(delivery) for delivery in got] == [[0, 4], [1, 3], [2]]


async def test_priority_goes_before_age(autojump_clock: Any) -> None:
    """O4"""
    async with opened() as queen:
        for name, priority in (("low", -1), ("high", 5), ("also high", 5), ("middle", 0)):
            await queen.configure(name, {"priority": priority}, namespace="n")
        for name in ("low", "middle", "also high", "high"):
            await queen.push(name, name)
            await trio.sleep(0.01)
        await queen.push("elsewhere", "elsewhere")
        got = [payloads(await queen.pop(namespace="n")) for _ in range(5)]
        assert got == [["also high"], ["high"], ["middle"], ["low"], []]


async def test_namespace_and_task_must_both_match(autojump_clock: Any) -> None:
    """O4"""
    async with opened() as queen:
        for name, namespace, task in (("a", "n", "t"), ("b", "n", "u"), ("c", None, "t")):
            await queen.push_many([NewMessage(queue=name, payload=name, namespace=namespace, task=task)])
        assert payloads(await queen.pop(namespace="n", task="u")) == ["b"]
        assert payloads(await queen.pop(namespace="n", task="t")) == ["a"]
        assert payloads(await queen.pop(task="t")) == ["c"]


async def test_batch_is_the_total_over_partitions(autojump_clock: Any) -> None:
    """O3, Z7"""
    async with opened() as queen:
        await queen.push_many([NewMessage(queue="q", payload=n, partition=f"p{n % 4}") for n in range(12)])
        first = await queen.pop("q", batch=7, partitions=3)
        assert len(first) == 7
        assert len({message.partition for message in first}) == 3
        assert len({message.lease_id for message in first}) == 3
        assert len(await queen.pop("q", batch=7, partitions=3)) == 3, "one partition is left"


async def test_a_waiting_pop_sees_its_queue_appear(autojump_clock: Any) -> None:
    """O2"""
    async with opened() as queen, trio.open_nursery() as nursery:
        assert not await queen.pop("q")
        waiters = Waiters(queen, nursery)
        await waiters.add("queue", "q")
        await waiters.add("partition", "q", "p")
        await waiters.add("namespace", namespace="n")
        await queen.push_many([NewMessage(queue="q", payload=n, partition=p) for n, p in enumerate("rp")])
        await steps()
        assert sorted(waiters.names) == ["partition", "queue"]
        await queen.push_many([NewMessage(queue="r", namespace="n")])
        await steps()
        assert waiters.names[-1] == "namespace"


@pytest.mark.parametrize("how", [{}, {"subscription_mode": "new"}, {"subscription_from": "now"}])
@pytest.mark.parametrize("scope", [{"queue": "q"}, {"queue": "q", "partition": "p"}, {"namespace": "n"}])
async def test_a_group_that_waits_for_its_queue_gets_the_first_message(
    how: dict[str, Any], scope: dict[str, Any], autojump_clock: Any
) -> None:
    """O2, G2: what is pushed after it came is new to it."""
    async with opened() as queen, trio.open_nursery() as nursery:
        waiters = Waiters(queen, nursery)
        await waiters.add("g", group="g", **scope, **how)
        await queen.push_many([NewMessage(queue="q", payload=1, partition="p", namespace="n")])
        await steps()
        assert [payloads(delivery) for _, delivery, _ in waiters.served] == [[1]]


async def test_a_group_waits_for_a_queue_to_join_its_namespace(autojump_clock: Any) -> None:
    """C2, G2: met before in another way or not."""
    async with opened() as queen, trio.open_nursery() as nursery:
        await queen.push("q", 1)
        waiters = Waiters(queen, nursery)
        await waiters.add("new", namespace="n", group="new")
        await waiters.add("default", namespace="n")
        await queen.configure("q", namespace="n")
        await steps()
        assert sorted(waiters.names) == ["default", "new"]


async def test_where_a_group_begins(autojump_clock: Any) -> None:
    """G2: kept from the first contact on, also for partitions that appear later."""
    async with opened() as queen:
        await queen.push("q", "old")
        await trio.sleep(10)
        middle = (await queen.push("q", "middle"), queen._clock.now())[1]
        await trio.sleep(10)
        assert not await queen.pop("q", group="new", subscription_mode="new")
        assert not await queen.pop("q", group="now", subscription_from="now")
        await queen.push("q", "young", partition="later")
        for group, how, expected in (
            ("all", {}, ["old", "middle", "young"]),
            ("new", {}, ["young"]),
            ("now", {"subscription_mode": "all"}, ["young"]),
            ("instant", {"subscription_from": middle}, ["middle", "young"]),
            ("text", {"subscription_from": instant_text(middle)}, ["middle", "young"]),
        ):
            got = await queen.pop("q", group=group, batch=10, partitions=5, **how)
            assert payloads(got) == expected, group


async def test_a_group_that_begins_in_the_future_gets_nothing_from_before(autojump_clock: Any) -> None:
    """G2: the first message pushed at or after the instant, also over a restart of the partition."""
    async with opened() as queen:
        await queen.push("q", "before")
        start = queen._clock.now() + 100_000_000
        assert not await queen.pop("q", group="g", subscription_from=start)
        await queen.push("q", "still before")
        await queen.push("q", "before, elsewhere", partition="p")
        assert not await queen.pop("q", group="g")
        await trio.sleep(99)
        await queen.push("q", "just before")
        await trio.sleep(1)
        await queen.push("q", "then")
        assert payloads(await queen.pop("q", group="g", batch=10, partitions=5)) == ["then"]


@pytest.mark.parametrize(("timeout", "cap", "expected"), [(3, 0, 3), (0, 0, 0), (600, 0, 60), (30, 4, 4), (2, 4, 2)])
async def test_a_waiting_pop_ends_when_its_time_is_over(
    timeout: float, cap: int, expected: float, autojump_clock: Any
) -> None:
    """O1, O6"""
    async with opened() as queen:
        await queen.configure("q", {"maxWaitTimeSeconds": cap})
        start = trio.current_time()
        assert not await queen.pop("q", wait=True, timeout=timeout)
        assert trio.current_time() - start == pytest.approx(expected, abs=0.01)
        assert queen.health().parked == 0


@pytest.mark.parametrize(
    ("cause", "because"),
    [(_delay, "delayed"), (_window, "buffered"), (_lease, "leased"), (_retry, "retry")],
)
async def test_an_empty_answer_names_the_cause_that_ends_first(cause: Any, because: str, autojump_clock: Any) -> None:
    """L3, Z10: at once, and after a wait."""
    async with opened() as queen:
        left = await cause(queen)
        for partition in (None, "Default"):
            got = await queen.pop("q", partition)
            assert got.because == because
            assert got.retry_after == pytest.approx(left, abs=0.01)
        got = await queen.pop("q", wait=True, timeout=1)
        assert got.because == because
        assert got.retry_after == pytest.approx(left - 1, abs=0.01)
        await queen.push("q", 0, partition="sooner", delay_seconds=1)
        if because != "buffered":
            assert (await queen.pop("q")).because == "delayed"
        assert (await queen.pop("nowhere")).because is None


async def test_auto_ack_completes_at_delivery_and_holds_nobody_up(autojump_clock: Any) -> None:
    """O7: also those that ask while another one's delivery is under way."""
    async with opened() as queen:
        await queen.push_many([NewMessage(queue="q", payload=n) for n in range(10)])
        got: list[Any] = []

        async def pop() -> None:
            got.extend(payloads(await queen.pop("q", auto_ack=True)))

        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(pop)
        assert sorted(got) == [0, 1]
        for _ in range(8):
            await pop()
        assert sorted(got) == list(range(10))
        await trio.sleep(1000)
        assert not await queen.pop("q")


async def test_a_pop_beside_another_one_is_told_the_cause(autojump_clock: Any) -> None:
    """L3: the partition is leased by then, and the answer says so."""
    async with opened() as queen:
        await queen.push_many([NewMessage(queue="q"), NewMessage(queue="q")])
        answers = []

        async def pop() -> None:
            answers.append(await queen.pop("q"))

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(pop)
        assert sorted(len(answer) for answer in answers) == [0, 0, 0, 0, 1]
        assert [answer.because for answer in answers if not answer] == ["leased"] * 4


@pytest.mark.parametrize("aside", [0, 7])
@pytest.mark.parametrize("more", [-1, 0, 1, 2])
async def test_the_router_does_not_offer_what_no_pop_would_reach(aside: int, more: int, autojump_clock: Any) -> None:
    """L2, T2: past so many delayed messages nobody looks; whoever waits sleeps until something is due."""
    async with opened() as queen, trio.open_nursery() as nursery:
        await queen.configure("q", {"ordering": "relaxed"})
        if aside:
            await _push(queen, aside, delay=50)
            await queen.push("q", "first")
            assert payloads(await queen.pop("q")) == ["first"]
        await _push(queen, LOOK_AHEAD - aside + more, delay=70)
        await queen.push("q", "ready")
        waiters = Waiters(queen, nursery)
        if more <= 0:
            assert payloads(await queen.pop("q", wait=True)) == ["ready"]
        else:
            await waiters.add("w", "q")
            await trio.sleep(49)
            assert not waiters.served


async def _push(queen: Any, count: int, delay: int) -> None:
    while count:
        part = min(count, 1000)
        await queen.push_many([NewMessage(queue="q", delay_seconds=delay) for _ in range(part)])
        count -= part


async def test_closing_answers_those_that_wait(autojump_clock: Any) -> None:
    """Z10 too: with the cause."""
    async with opened() as queen, trio.open_nursery() as nursery:
        await queen.push("q", delay_seconds=100)
        waiters = Waiters(queen, nursery)
        await waiters.add("w", "q")
        await waiters.add("nowhere", "nowhere")
        await queen.drain()
        await parked(queen, 0) if queen.ready else None
        assert {name: delivery.because for name, delivery, _ in waiters.served} == {"w": "delayed", "nowhere": None}


async def test_a_pop_that_can_not_wait_finds_what_has_just_become_available(mock_clock: Any) -> None:
    """L5: at the very instant, before anybody had the time to look; the clock is moved by hand."""
    async with opened() as queen:
        await queen.configure("q", {"leaseTime": 5})
        await queen.push("q", 1)
        await queen.pop("q")
        for _ in range(3):
            mock_clock.jump(5)
            assert payloads(await queen.pop("q")) == [1]


async def test_what_a_lease_held_before_a_restart_is_there_for_the_first_pop(autojump_clock: Any) -> None:
    """L5, L7"""
    journal = MemoryJournal()
    async with opened(journal) as queen:
        await queen.configure("q", {"leaseTime": 5})
        await queen.push("q", 1)
        await queen.pop("q")
    await trio.sleep(6)
    async with opened(journal.reopened()) as queen:
        assert payloads(await queen.pop("q")) == [1]


def test_groups_are_known_by_name_and_number() -> None:
    """G1: also after one has come back under its name with another number."""
    groups = Groups()
    groups["a"] = Group(1, "a")
    groups["b"] = Group(2, "b")
    groups["a"] = Group(3, "a")
    del groups["b"]
    assert {number: group.name for number in range(4) if (group := groups.numbered(number))} == {0: None, 3: "a"}
