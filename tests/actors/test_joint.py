"""Work over several partitions is all or nothing, whatever fails, and never a deadlock (P1, P6, A5, Z5)."""

import random
from typing import Any

import pytest
import trio

from queen import Acknowledgement, Broker, NewMessage
from queen.actors import availability, partition, partition_rules, partition_state
from queen.actors.partition import CRASHES
from queen.commands import AckStatus, Push
from queen.errors import Busy, Quarantined, QueenError, QueueFull, StoreFull, Unavailable
from queen.events import MessagesPushed
from queen.store.memory_journal import MemoryJournal
from tests.actors.world import Waiters, engine_of, opened, payloads, scheduled_by, slow, steps


def _items(*places: tuple[str, str], name: str = "") -> list[NewMessage]:
    return [
        NewMessage(queue=queue, partition=partition, payload=index, transaction_id=f"{name}{index}" if name else None)
        for index, (queue, partition) in enumerate(places)
    ]


PLACES = (("q", "a"), ("q", "b"), ("r", "a"))


async def _count(queen: Broker, *queues: str) -> int:
    return sum([len(await queen.pop(queue, batch=1000, partitions=1000, auto_ack=True)) for queue in queues])


@pytest.mark.parametrize("known", [False, True])
async def test_a_push_whose_commit_fails_left_nothing(known: bool, autojump_clock: Any) -> None:
    """P1: queues and partitions that it would have made included; the same again goes through."""
    journal = MemoryJournal()
    async with opened(journal) as queen:
        if known:
            await queen.push_many(_items(*PLACES))
            await _count(queen, "q", "r")
            await trio.sleep(2.5)  # the keeper looks every second, and would meet the fault first
        journal.fail_next(StoreFull("full"))
        with pytest.raises(StoreFull):
            await queen.push_many(_items(*PLACES, name="t"))
        await trio.sleep(1)
        assert await _count(queen, "q", "r") == 0
        assert engine_of(queen).core.catalogue.queues.keys() == ({"q", "r"} if known else set())
        receipts = await queen.push_many(_items(*PLACES, name="t"))
        assert [receipt.status for receipt in receipts] == ["queued"] * 3
        assert await _count(queen, "q", "r") == 3


async def test_an_ack_batch_whose_commit_fails_left_nothing(autojump_clock: Any) -> None:
    """A5"""
    journal = MemoryJournal()
    async with opened(journal) as queen:
        await queen.push_many(_items(*PLACES, name="t"))
        got = [*await queen.pop("q", batch=9, partitions=9), *await queen.pop("r")]
        statuses: tuple[AckStatus, ...] = ("completed", "failed", "dead_letter")
        entries = [
            Acknowledgement(transaction_id=message.transaction_id, status=status, lease_id=message.lease_id)
            for message, status in zip(got, statuses, strict=True)
        ]
        await trio.sleep(2.5)  # the keeper looks every second, and would meet the fault first
        journal.fail_next(StoreFull("full"))
        with pytest.raises(StoreFull):
            await queen.ack_many(entries)
        await trio.sleep(1)
        results = await queen.ack_many(entries)
        assert [result.status for result in results] == ["completed", "retry_scheduled", "dead_letter"]


async def test_an_ack_batch_is_one_commit(autojump_clock: Any) -> None:
    """A5: over many partitions and groups, in the order asked for, refusals among them."""
    journal = MemoryJournal()
    async with opened(journal, runner=slow(0.01)) as queen:
        await queen.push_many([NewMessage(queue="q", partition=f"p{n}", transaction_id=f"t{n}") for n in range(30)])
        await queen.pop("q", batch=30, partitions=30)
        await queen.pop("q", batch=30, partitions=30, group="g")
        await trio.sleep(2)
        entries = [
            Acknowledgement(transaction_id=f"t{n}", consumer_group=group) for n in range(31) for group in (None, "g")
        ]
        commits, at = engine_of(queen).core.writer.commits, trio.current_time()
        results = await queen.ack_many(entries)
        assert engine_of(queen).core.writer.commits == commits + 1
        assert trio.current_time() - at == pytest.approx(0.01, abs=0.001)
        assert [result.status for result in results] == ["completed"] * 60 + ["not_found"] * 2


async def test_a_push_of_nothing_but_duplicates_makes_nothing(autojump_clock: Any) -> None:
    """P4, N3: nothing is stored, no queue or partition either, wherever the first message is."""
    journal = MemoryJournal()
    async with opened(journal) as queen:
        first = await queen.push_many(_items(("q", "a"), ("q", "a"), name="t"))
        head, catalogue = journal.head, engine_of(queen).core.catalogue
        elsewhere = [*_items(("r", "a"), ("q", "new"), name="t"), *_items(("s", "b"), name="t")]
        receipts = await queen.push_many(elsewhere)
        assert [(receipt.status, receipt.id) for receipt in receipts] == [
            ("duplicate", first[index].id) for index in (0, 1, 0)
        ]
        (result,) = await queen.transaction([elsewhere])
        assert result == receipts
        assert journal.head == head
        assert catalogue.queues.keys() == {"q"}
        assert list(catalogue.queues["q"].slots) == ["Default", "a"]
        # Where something is new, its place is made, and no other.
        receipts = await queen.push_many([*elsewhere, NewMessage(queue="s", partition="c", payload=1)])
        assert [receipt.status for receipt in receipts] == ["duplicate"] * 3 + ["queued"]
        assert catalogue.queues.keys() == {"q", "s"}
        assert list(catalogue.queues["s"].slots) == ["Default", "c"]
        # A deleted message's transactionId is free again (Z5).
        await queen.messages.delete("t0")
        receipts = await queen.push_many(elsewhere)
        assert [receipt.status for receipt in receipts] == ["queued", "duplicate", "duplicate"]
        assert list(catalogue.queues["r"].slots) == ["Default", "a"]


async def test_a_push_that_would_exceed_a_queue_is_refused_whole(autojump_clock: Any) -> None:
    """P6, Z5: wherever else it goes; duplicates don't count, also where they name a partition that isn't there."""
    async with opened() as queen:
        await queen.configure("q", {"maxSize": 3})
        await queen.push_many(_items(("q", "a"), ("q", "b"), name="t"))
        with pytest.raises(QueueFull, match=r"'q'.* 2 of at most 3"):
            await queen.push_many(_items(("r", "a"), ("q", "a"), ("q", "b")))
        with pytest.raises(QueueFull):
            await queen.push_many(_items(("r", "a"), ("q", "new"), ("q", "newer")))
        assert await _count(queen, "r") == 0
        receipts = await queen.push_many(
            [*_items(("q", "b"), ("q", "new"), name="t"), NewMessage(queue="q", transaction_id="x")]
        )
        assert [receipt.status for receipt in receipts] == ["duplicate", "duplicate", "queued"]
        with pytest.raises(QueueFull):
            await queen.push("q")
        (message,) = await queen.pop("q")
        with pytest.raises(QueueFull):
            await queen.push("q")
        await queen.ack(message)
        assert (await queen.push("q")).status == "queued"


async def test_a_full_queue_counts_pushes_that_are_still_on_their_way(autojump_clock: Any) -> None:
    """P6"""
    async with opened(runner=slow(0.1)) as queen:
        await queen.configure("q", {"maxSize": 5})
        results: list[str] = []

        async def push(number: int) -> None:
            try:
                await queen.push_many(_items(("q", f"p{number % 3}"), ("q", f"p{(number + 1) % 3}")))
                results.append("queued")
            except QueueFull:
                results.append("full")

        async with trio.open_nursery() as nursery:
            for number in range(6):
                nursery.start_soon(push, number)
        assert sorted(results) == ["full"] * 4 + ["queued"] * 2


class Faulty:
    """The rule for pushes, of which one partition can't take part."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
        self.partition = 0
        self.once = False
        rule = partition_rules._RULES[Push]
        fold = partition_state._EVOLVE[MessagesPushed]
        offer = availability.offer

        def decide(state: Any, *args: Any) -> Any:
            if where == "decide":
                self.check(state)
            return rule(state, *args)

        def evolve(state: Any, *args: Any) -> None:
            fold(state, *args)
            if where == "evolve" and state.next_position > 2:
                self.check(state)

        def announce(state: Any, *args: Any) -> Any:
            if where == "announce" and state.next_position > 2:
                self.check(state)
            return offer(state, *args)

        monkeypatch.setitem(partition_rules._RULES, Push, decide)
        monkeypatch.setitem(partition_state._EVOLVE, MessagesPushed, evolve)
        monkeypatch.setattr(availability, "offer", announce)

    def check(self, state: Any) -> None:
        if state.number == self.partition:
            if self.once:
                self.cure()
            raise ZeroDivisionError("planted")

    def at(self, queen: Broker, queue: str, partition: str) -> None:
        slot = engine_of(queen).core.catalogue.slot(queue, partition)
        assert slot is not None
        self.partition = slot.number

    def cure(self) -> None:
        self.partition = 0


@pytest.mark.parametrize("where", ["decide", "evolve"])
@pytest.mark.parametrize("victim", PLACES)
async def test_one_actor_that_crashes_breaks_the_push_for_all_and_nobody_else(
    where: str, victim: tuple[str, str], monkeypatch: pytest.MonkeyPatch, autojump_clock: Any
) -> None:
    """P1: nothing is stored, everybody is rebuilt, others go on."""
    async with opened(runner=slow()) as queen:
        await queen.push_many(_items(*PLACES, name="first"))
        faulty = Faulty(monkeypatch, where)
        faulty.at(queen, *victim)
        with pytest.raises(Unavailable, match="nothing was changed"):
            await queen.push_many(_items(*PLACES, name="t"))
        assert (await queen.push("q", partition="other")).status == "queued"
        faulty.cure()
        receipts = await queen.push_many(_items(*PLACES, name="t"))
        assert [receipt.status for receipt in receipts] == ["queued"] * 3
        assert await _count(queen, "q", "r") == 7
        assert queen.health().quarantined == 0


async def test_a_crash_while_announcing_loses_nothing(monkeypatch: pytest.MonkeyPatch, autojump_clock: Any) -> None:
    """What was recorded is answered, and delivered once the partition has been rebuilt."""
    async with opened() as queen:
        await queen.push_many(_items(*PLACES))
        faulty = Faulty(monkeypatch, "announce")
        faulty.at(queen, "q", "b")
        original = engine_of(queen).house.refold

        def refold(number: int) -> Any:
            faulty.cure()
            return original(number)

        monkeypatch.setattr(engine_of(queen).house, "refold", refold)
        assert len(await queen.push_many(_items(*PLACES))) == 3
        assert await _count(queen, "q", "r") == 6


async def _quarantine(queen: Broker, faulty: Faulty, *places: tuple[str, str]) -> None:
    for _ in range(CRASHES):
        with pytest.raises(Unavailable, match="failed"):
            await queen.push_many(_items(*places))
        await trio.sleep(0.1)
    faulty.cure()


async def test_three_equal_crashes_quarantine_that_partition_alone(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: Any
) -> None:
    """Its queue, and those that it shared the work with, go on; health shows it; rest does not wake it."""
    async with opened() as queen:
        await queen.push_many(_items(*PLACES))
        faulty = Faulty(monkeypatch, "evolve")
        faulty.at(queen, "q", "a")
        await _quarantine(queen, faulty, *PLACES)
        assert queen.health().quarantined == 1
        await trio.sleep(200)
        for _ in range(2):
            with pytest.raises(Quarantined, match=r"'a'.*planted"):
                await queen.push("q", partition="a")
            for places in (PLACES, PLACES[::-1]):  # whichever of them is asked first
                with pytest.raises(Quarantined):
                    await queen.push_many(_items(*places))
            with pytest.raises(Quarantined):
                await queen.pop("q", "a")
        assert await _count(queen, "q", "r") == 2, "what others hold is not held up"
        await queen.push("q", "b", partition="b")
        assert payloads(await queen.pop("q", wait=True)) == ["b"]


async def test_crashes_count_only_in_a_row(monkeypatch: pytest.MonkeyPatch, autojump_clock: Any) -> None:
    """A command that comes through in between starts the count anew."""
    async with opened() as queen:
        await queen.push_many(_items(*PLACES))
        faulty = Faulty(monkeypatch, "evolve")
        for _ in range(CRASHES + 1):
            faulty.at(queen, "q", "a")
            with pytest.raises(Unavailable):
                await queen.push("q", partition="a")
            faulty.cure()
            await queen.push("q", partition="a")
        assert queen.health().quarantined == 0


async def test_a_quarantined_partition_does_not_spin(monkeypatch: pytest.MonkeyPatch, autojump_clock: Any) -> None:
    """A lease of it ends unnoticed; its end comes with the next start."""
    journal = MemoryJournal()
    async with opened(journal) as queen:
        await queen.configure("q", {"leaseTime": 10})
        await queen.push_many(_items(*PLACES))
        await queen.pop("q", "a")
        faulty = Faulty(monkeypatch, "evolve")
        faulty.at(queen, "q", "a")
        await _quarantine(queen, faulty, ("q", "a"))
        await trio.sleep(100)
        assert queen.health().quarantined == 1
    async with opened(journal.reopened()) as queen:
        assert (await queen.pop("q", "a", wait=True)).messages[0].retry_count == 1


async def test_waiters_of_a_group_survive_a_rebuild(monkeypatch: pytest.MonkeyPatch, autojump_clock: Any) -> None:
    """G1, O5: a group of which nothing is recorded is met again."""
    async with opened() as queen, trio.open_nursery() as nursery:
        await queen.push("q", 0)
        faulty = Faulty(monkeypatch, "evolve")
        waiters = Waiters(queen, nursery)
        await waiters.add("g", "q", group="g", subscription_mode="new")
        await waiters.add("h", "q", group="h", subscription_mode="new")
        faulty.at(queen, "q", "Default")
        with pytest.raises(Unavailable):
            await queen.push("q", 1)
        faulty.cure()
        await queen.push("q", 2)
        await steps()
        assert sorted((name, *payloads(delivery)) for name, delivery, _ in waiters.served) == [("g", 2), ("h", 2)]


@pytest.mark.parametrize("seed", range(8))
async def test_overlapping_pushes_in_any_order_never_deadlock(
    seed: int, monkeypatch: pytest.MonkeyPatch, autojump_clock: Any
) -> None:
    """P1: every push is there as a whole or not at all; some crash, some vanish, some commits are slow."""
    chance = random.Random(seed)

    async def runner(call: Any) -> None:
        await trio.sleep(chance.choice([0.001, 0.01, 0.2]))
        call()

    with scheduled_by(seed):
        async with opened(runner=runner) as queen:
            places = [("q", f"p{n}") for n in range(4)] + [("r", f"p{n}") for n in range(3)]
            await queen.push_many(_items(*places))
            await _count(queen, "q", "r")
            faulty = Faulty(monkeypatch, chance.choice(["decide", "evolve"]))
            known: list[str] = []

            async def push(number: int) -> None:
                await trio.sleep(chance.random())
                chosen = chance.sample(places, chance.randint(1, 6))
                items = [
                    NewMessage(queue=queue, partition=partition, payload=[number, len(chosen)])
                    for queue, partition in chosen
                ]
                with trio.move_on_after(chance.choice([0.005, 0.05, 100, 100, 100])):
                    try:
                        await queen.push_many(items)
                        known.append(str(number))
                    except QueenError:
                        pass

            async def trouble() -> None:
                faulty.once = True
                for _ in range(6):
                    await trio.sleep(chance.random() / 4)
                    faulty.at(queen, *chance.choice(places))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(trouble)
                for number in range(60):
                    nursery.start_soon(push, number)
            await trio.sleep(2)
            found: dict[int, int] = {}
            sizes: dict[int, int] = {}
            for queue in ("q", "r"):
                while got := await queen.pop(queue, batch=1000, partitions=9, auto_ack=True):
                    for number, size in payloads(got):
                        found[number] = found.get(number, 0) + 1
                        sizes[number] = size
            assert found == sizes
            assert {int(number) for number in known} <= found.keys()
            assert len(known) > 20


async def test_a_pop_that_a_full_mailbox_refuses_leaves_nothing_taken(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: Any
) -> None:
    """L1: pushes that stand behind announce nothing, and the next pop that waits has to hear of the partition."""
    monkeypatch.setattr(partition, "MAILBOX_SIZE", 3)
    async with opened(runner=slow(1)) as queen:
        await queen.configure("q", {"ordering": "strict"})
        await queen.push_many(_items(("q", "a"), ("q", "b")))
        await queen.pop("q", "b", auto_ack=True)
        await trio.sleep(5)
        house = engine_of(queen).house
        slot = engine_of(queen).core.catalogue.slot("q", "b")
        assert slot is not None
        queen.push_soon(_items(("r", "a")))  # the disk is at work, so b's state takes a while
        house.awake(slot).crashed(RuntimeError("planted"))
        queen.push_soon(_items(("q", "a"), ("q", "b")))  # a holds still for it
        await trio.sleep(0.1)
        for _ in range(3):
            queen.push_soon(_items(("q", "a")))
        with pytest.raises(Busy):
            await queen.pop("q", "a")
        await trio.sleep(20)
        with trio.fail_after(5):
            assert payloads(await queen.pop("q", "a", wait=True)) == [0]
