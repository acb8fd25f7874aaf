"""`explain_pop` says what a pop then does, for any state of a queue (L1, L3, T2, T3, R1, C4)."""

import random

import trio

from queen import Broker, open_broker
from queen.clock import SystemClock
from queen.figures import PopExplanation
from queen.options import RELAXED, STRICT
from queen.store.keyring import KeyRing, new_key
from queen.store.memory_journal import MemoryJournal
from tests.actors.world import opened


async def _verdicts(queen: Broker, queue: str, group: str | None = None) -> dict[str, PopExplanation]:
    return {told.partition: told for told in (await queen.explain_pop(queue, group=group)).partitions}


async def test_what_is_explained_is_what_a_pop_finds() -> None:
    """Random histories; each partition's explanation is held against a pop of it."""
    chance = random.Random(11)
    seen = set()
    async with opened() as queen:
        for number in range(10):
            queue = f"q{number}"
            await queen.configure(
                queue,
                {
                    "ordering": chance.choice([STRICT, RELAXED]),
                    "delayedProcessing": chance.choice([0, 0, 5]),
                    "windowBuffer": chance.choice([0, 0, 5]),
                    "retryDelay": chance.choice([0, 4000]),
                    "leaseTime": 3,
                },
            )
            for _ in range(chance.randrange(6)):
                await queen.push(queue, 1, partition=f"p{chance.randrange(2)}")
                await trio.sleep(chance.choice([0, 0, 0, 4]))
                delivery = await queen.pop(queue)
                if delivery and chance.random() < 0.6:
                    await queen.ack(delivery.messages[0], chance.choice(["failed", "completed", "retry"]))
            for name, told in (await _verdicts(queen, queue)).items():
                delivery = await queen.pop(queue, name)
                seen.add(told.verdict)
                assert bool(delivery) is (told.verdict == "ready"), (queue, told, delivery)
                if delivery.because is not None:
                    assert delivery.because == told.verdict
                    assert told.until is not None
    assert seen >= {"ready", "leased", "delayed", "empty"}


async def test_nobody_is_woken() -> None:
    """After a start, all of them sleep."""
    journal = MemoryJournal()
    async with opened(journal) as queen:
        for number in range(5):
            await queen.push("q", 1, partition=f"p{number}")
        await queen.pop("q", "p0", worker="w")
    async with opened(journal.reopened()) as queen:
        before = queen.health().awake
        told = await _verdicts(queen, "q")
        assert queen.health().awake == before
        assert {name: each.verdict for name, each in told.items()} == {
            **{f"p{number}": "ready" for number in range(1, 5)},
            "p0": "leased",
            "Default": "empty",
        }


async def test_groups_have_their_own_explanations() -> None:
    async with open_broker(None) as queen:
        await queen.push("q", 1)
        await queen.pop("q", group="books", worker="w 1")
        assert (await _verdicts(queen, "q"))["Default"].verdict == "ready"
        books = (await _verdicts(queen, "q", "books"))["Default"]
        assert books.verdict == "leased"
        assert [lease.worker for lease in books.leases] == ["w 1"]
        unmet = await queen.explain_pop("q", group="unmet")
        assert not unmet.met
        assert unmet.partitions[0].verdict == "ready"


async def test_a_missing_key_and_a_quarantine() -> None:
    """C4: a pop would be 503. A partition that crashes again and again is out of service."""
    journal = MemoryJournal()
    async with open_broker(None, journal=journal, keys=KeyRing.from_text(new_key(), "key")) as queen:
        await queen.configure("sealed", {"encryptionEnabled": True})
        await queen.push("sealed", "secret")
        await queen.push("plain", 1)
    async with open_broker(None, journal=journal.reopened(), clock=SystemClock()) as queen:
        told = (await _verdicts(queen, "sealed"))["Default"]
        assert told.verdict == "key_missing"
        assert told.key is not None
        slot = queen._running().core.catalogue.queues["plain"].slots["Default"]
        queen._running().house.awake(slot).quarantined = True
        assert (await _verdicts(queen, "plain"))["Default"].verdict == "quarantined"
