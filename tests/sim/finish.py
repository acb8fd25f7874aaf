"""The end of a simulated world: nothing breaks any more, everything is consumed, and the books are made up inside."""

from typing import TYPE_CHECKING, Any

import trio

from queen import Broker
from queen.actors.engine import Engine
from queen.actors.snapshots import partition_row, queue_row
from queen.clock import Ids, SystemClock
from queen.figures import Counts, sum_of
from queen.opening import inline, supervise
from queen.store.memory_journal import MemoryJournal
from tests.sim.clients import Client
from tests.sim.violation import demand

if TYPE_CHECKING:
    from tests.sim.world import Life, World

LIMIT_S = 400.0
"""After this time everything must have been consumed: longer than any lease (300 s by default), delay and window."""
STATUSES: tuple[Any, ...] = ("pending", "processing", "completed", "failed", "dead_letter")


class Finish:
    """See the module. `statuses` is how each message is in the end, by transactionId, as the broker lists them."""

    def __init__(self, world: "World") -> None:
        self._world = world

    async def run(self) -> None:
        """Consume everything, and check what only a living broker can tell."""
        world = self._world
        life = await world.heal()
        async with trio.open_nursery() as nursery:
            for queue in list(life.engine.core.catalogue.queues.values()):
                await Client(world, "d-").configure(queue.name, {"maxWaitTimeSeconds": None})
                for name in list(queue.groups):
                    nursery.start_soon(self._consume, queue.name, name)
        await trio.sleep(6)  # the keeper and the eraser have done their work
        world.history.all_told = world.stamp()
        await self._listings(life.broker)
        await same_after_restart(life)

    async def _consume(self, queue: str, group: str | None) -> None:
        client = Client(self._world, f"d-{queue}-{group or ''}")
        life = await self._world.alive()
        limit = trio.current_time() + LIMIT_S
        while True:
            status = await life.broker.groups.list(queue)
            left = sum(each.lag for each in status if each.name == group)
            if not left:
                return
            demand(trio.current_time() < limit, "O5", f"{left} messages of {queue} are left, and {group} gets none")
            delivery = await client.pop(
                scope={"queue": queue}, group=group, batch=100, partitions=9, wait=True, timeout=60.0
            )
            if delivery:
                await client.ack(client.entries(0, ["completed"] * len(delivery), True, 100))

    async def _listings(self, broker: Broker) -> None:
        """S1, S2, S5: counts are those of a full listing, on every level."""
        listed = await broker.messages.list(limit=1000)
        self._world.listed = {message.transaction_id: (message.status, message.retry_count) for message in listed}
        demand(len(self._world.listed) == len(listed), "N3", "two messages have one transactionId")
        for status in STATUSES:
            found = [message.transaction_id for message in await broker.messages.list(status=status, limit=1000)]
            expected = [message.transaction_id for message in listed if message.status == status]
            demand(found == expected, "S5", f"the list of {status} is not the part of the list that is {status}")
        figures = await broker.statistics.queues()
        for queue in figures:
            for partition in queue.partitions:
                counts = _count(m for m in listed if (m.queue, m.partition) == (queue.name, partition.name))
                demand(
                    counts == partition.counts, "S2", f"{queue.name}/{partition.name}: {partition.counts}, not {counts}"
                )
            demand(queue.counts == sum_of(p.counts for p in queue.partitions), "S2", f"sums of {queue.name}")
        self._world.minutes = await broker.statistics.throughput()
        overview = await broker.statistics.overview()
        demand(overview.counts == sum_of(queue.counts for queue in figures), "S2", f"overview: {overview}")


def _count(messages: Any) -> Counts:
    found = [message.status for message in messages]
    return Counts(*[found.count(status) for status in STATUSES])


async def same_after_restart(life: "Life") -> None:
    """Live state equals replayed state: with the tables as they are, and folded anew from the first record.

    Looked at in an instant at which nothing is on its way to the disk; without one, and where the engine ends, not."""
    engine = life.broker._engine
    if engine is None:
        return
    for queue in engine.core.catalogue.queues.values():
        for slot in queue.slots.values():
            engine.house.awake(slot)
    await trio.sleep(0.5)  # who was asleep has spoken
    for _ in range(50):
        if engine.core.writer.seq == life.journal.head and not engine.core.writer.busy:
            break
        await trio.sleep(0.01)
    else:
        return
    if life.broker._engine is not engine or any(actor.broken for actor, _ in engine.house._awake.values()):
        return
    live = picture(engine)
    frames = [frame for _, frame in life.journal.frames(0)]
    tables = {name: dict(rows.values) for name, rows in life.journal._content.tables.items()}
    for told, copy in (("as it is", _copy(frames, tables)), ("from the first record", _copy(frames, {}))):
        replayed = await _picture_of(copy)
        for part, value in live.items():
            demand(replayed[part] == value, "X1", f"{part} read {told}: {replayed[part]}, live: {value}")


def _copy(frames: list[bytes], tables: dict[Any, dict[bytes, bytes]]) -> MemoryJournal:
    journal = MemoryJournal()
    if frames:
        journal.commit(0, frames)
    for name, rows in tables.items():
        for key, value in rows.items():
            journal._content.tables[name].put(key, value)
    return journal


async def _picture_of(journal: MemoryJournal) -> dict[str, Any]:
    clock = SystemClock()
    broker = Broker(clock, Ids(clock))
    from tests.sim.world import KEYS

    def start() -> Engine:
        return Engine(journal, clock, Ids(clock), inline, inline, broker.feed, KEYS)

    async with trio.open_nursery() as nursery:
        await nursery.start(supervise, broker, start, journal)
        assert broker._engine is not None
        found = picture(broker._engine)
        nursery.cancel_scope.cancel()
    return found


def picture(engine: Engine) -> dict[str, Any]:
    """Everything that a restart must keep, as plain values."""
    core = engine.core
    found: dict[str, Any] = {}
    for name, queue in core.catalogue.queues.items():
        *rest, _, groups = queue_row(queue)
        found[f"queue {name}"] = rest, groups, queue.counts
        for slot in list(queue.slots.values()):
            actor = engine.house.awake(slot)
            row = partition_row(slot, actor.state, actor.recorded_seq, set(actor.unrecorded))
            found[f"partition {name}/{slot.name}"] = row
    found["leases"] = {lease: slot.number for lease, slot in engine.house.leases.items()}
    found["numbers"] = core.catalogue.next_queue, core.catalogue.next_partition
    found["minutes"] = core.statistics.minutes(core.clock.now() + core.clock.shift())
    return found
