"""What time brings to many at one instant goes through in small pieces: counted by what each commit holds."""

from collections.abc import Sequence
from typing import Any

import pytest
import trio

from queen import Broker, NewMessage
from queen.actors.keeper import SLICE
from queen.actors.ticker import AT_ONCE
from queen.store.journal import Edit
from queen.store.memory_journal import MemoryJournal
from tests.actors.world import engine_of, opened, slow

PARTITIONS = 100


class Counting(MemoryJournal):
    """Notes how many records and how many changes each commit brings."""

    def __init__(self) -> None:
        super().__init__()
        self.commits: list[tuple[int, int]] = []

    def commit(self, expected: int, frames: Sequence[bytes], edits: Sequence[Edit] = ()) -> None:
        super().commit(expected, frames, edits)
        self.commits.append((len(frames), len(edits)))


async def filled(queen: Broker) -> None:
    await queen.push_many(
        [NewMessage(queue="q", partition=str(number), payload=n) for number in range(PARTITIONS) for n in range(10)]
    )


def pending(queen: Broker) -> int:
    return engine_of(queen).core.catalogue.queues["q"].counts.pending


async def a_push_each_second(queen: Broker) -> None:
    while True:
        await queen.push("other", 0)
        await trio.sleep(1)


@pytest.mark.parametrize("what", ["retention", "ttl", "leases", "configured"])
async def test_what_is_due_together_fills_no_commit(what: str, autojump_clock: Any) -> None:
    """T4: a push waits for one turn of ticks at most, however much is due. All of it is done soon all the same."""
    journal = Counting()
    async with opened(journal, runner=slow(0.005)) as queen, trio.open_nursery() as nursery:
        due = {"ttl": {"ttl": 60}, "leases": {"leaseTime": 60}, "retention": {"retentionSeconds": 60}}.get(what, {})
        await queen.configure("q", {"retentionEnabled": True, "ordering": "relaxed", **due})
        await filled(queen)
        if what == "leases":
            await queen.pop("q", batch=1000, partitions=200)
            assert pending(queen) == 0
        nursery.start_soon(a_push_each_second, queen)
        await trio.sleep(59)
        journal.commits.clear()
        if what == "configured":
            await queen.configure("q", {"retentionSeconds": 1})
        await trio.sleep(2)
        assert pending(queen) == (10 * PARTITIONS if what == "leases" else 0)
        # Beside the turn's ticks: a push, and what is configured.
        assert max(frames for frames, _ in journal.commits) <= AT_ONCE + 2
        assert max(edits for _, edits in journal.commits) <= SLICE
        if what in ("retention", "configured"):
            shared = [frames for frames, edits in journal.commits if frames > 2 and edits]
            assert not shared, "sweeps and rows share a commit"
        nursery.cancel_scope.cancel()
