"""The work that power.py records: some lanes beside each other, each with a queue of its own, and compactions.

    python -m tests.campaigns.power_work FOLDER SEED STEPS [FAULT]

A lane does one thing at a time and notes it in the file `notes` beside the data folder, which the recorder sees as it
sees all else: that it begins, that it was answered, and how the whole queue then stood. So for each moment it is known
how a queue must be: as after the last answer, or as after the one that was on its way.
"""

import os
import random
import sys
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, Literal

import lmdb
import msgspec
import trio

from queen import Acknowledgement, Broker, ChainBroken, Message, NewMessage, QueenError, open_broker
from queen.store import lmdb_compact, writer

LANES: Final = 6
RUNS: Final = 3
"""How often the folder is opened and closed in good order."""
PARTITIONS: Final = ("a", "b", "c")


class Note(msgspec.Struct):
    """What a lane says: its `step` begins, was answered, has left the queue in this `state`."""

    lane: int
    step: int
    what: Literal["begins", "answered", "state"]
    text: str
    state: list[Any] = []
    lease: tuple[str, str] | None = None
    """A transactionId and the lease that it is under."""


def queue_of(lane: int) -> str:
    """The queue that is this lane's alone."""
    return f"lane-{lane}"


async def state_of(broker: Broker, queue: str) -> list[Any]:
    """All that must outlive a loss of power: each message, newest first, and how far each group has got."""
    messages = [
        [m.partition, m.transaction_id, m.id, m.status, m.retry_count, m.error, zlib.crc32(m.payload or b"")]
        for m in await broker.messages.list(queue, limit=1000)
    ]
    groups = [
        [group.name, place.position, place.end, place.pending, place.processing]
        for group in await broker.groups.list(queue)
        for place in group.queues
        # A group that has met a queue and got nothing has left nothing (W5).
        if place.position or place.processing
    ]
    return [messages, groups]


class Lane:
    """One client, in the course of whose steps everything happens that can happen to a message."""

    def __init__(self, number: int, seed: int, notes: int) -> None:
        self._number = number
        self._queue = queue_of(number)
        self._chance = random.Random(f"{seed} {number}")
        self._notes = notes
        self._step = 0
        self._pushed = 0
        self._held: list[Message] = []
        self._known: list[str] = []

    async def run(self, broker: Broker, steps: int) -> None:
        """Take so many steps."""
        if self._step == 0:
            await self._take(broker, "configure", self._configure)
        doings = (
            *[(self._push, "push")] * 4,
            *[(self._pop, "pop")] * 4,
            *[(self._ack, "ack")] * 5,
            *[(self._transaction, "transaction")] * 2,
            *((self._audit, "audit"), (self._delete, "delete"), (self._retry, "retry"), (self._extend, "extend")),
            (self._clear, "clear"),
        )
        for _ in range(steps):
            doing, name = self._chance.choice(doings)
            await self._take(broker, name, doing)
            await trio.sleep(self._chance.uniform(0, 0.02))

    async def _take(self, broker: Broker, what: str, doing: Callable[[Broker], Awaitable[None]]) -> None:
        self._step += 1
        self._note(Note(self._number, self._step, "begins", what))
        try:
            await doing(broker)
        except QueenError as error:
            what = f"{what}: {error}"
        self._note(Note(self._number, self._step, "answered", what))
        # The queue is nobody else's, so this is how the answered step has left it.
        state = await state_of(broker, self._queue)
        self._note(Note(self._number, self._step, "state", what, state, self._lease()))

    def _note(self, note: Note) -> None:
        os.write(self._notes, msgspec.json.encode(note) + b"\n")

    def _lease(self) -> tuple[str, str] | None:
        held = next((m for m in self._held if m.consumer_group is None), None)
        return (held.transaction_id, held.lease_id) if held else None

    def _messages(self, most: int) -> list[NewMessage]:
        made = []
        for _ in range(self._chance.randint(1, most)):
            self._pushed += 1
            name = f"{self._number}-{self._pushed}"
            self._known.append(name)
            payload = {"n": self._pushed, "filler": "x" * self._chance.choice((10, 250, 900, 5000))}
            partition = self._chance.choice(PARTITIONS)
            made.append(NewMessage(queue=self._queue, payload=payload, partition=partition, transaction_id=name))
        return made

    async def _configure(self, broker: Broker) -> None:
        options = {"leaseTime": 100_000, "retryLimit": 1, "dlqAfterMaxRetries": True}
        await broker.configure(self._queue, options | {"ordering": "relaxed" if self._number % 2 else "strict"})

    async def _push(self, broker: Broker) -> None:
        await broker.push_many(self._messages(12))

    async def _pop(self, broker: Broker) -> None:
        auto = self._chance.random() < 0.2
        delivery = await broker.pop(self._queue, batch=self._chance.randint(1, 8), auto_ack=auto)
        if not auto:
            self._held += delivery

    async def _audit(self, broker: Broker) -> None:
        self._held += await broker.pop(self._queue, group="audit", batch=8)

    async def _ack(self, broker: Broker) -> None:
        entries = [self._settled(m, self._status()) for m in self._taken()]
        if len(entries) > 1:
            await broker.ack_many(entries)
        elif entries:
            await broker.ack(
                entries[0].transaction_id, entries[0].status, error=entries[0].error, lease_id=entries[0].lease_id
            )

    async def _transaction(self, broker: Broker) -> None:
        await broker.transaction([*(self._settled(m, "completed") for m in self._taken()), self._messages(5)])

    async def _extend(self, broker: Broker) -> None:
        if self._held:
            await broker.extend(self._held[0].lease_id, 200_000)

    async def _delete(self, broker: Broker) -> None:
        if self._known:
            await broker.messages.delete(self._chance.choice(self._known))

    async def _retry(self, broker: Broker) -> None:
        dead, _ = await broker.messages.dead_letters(self._queue)
        if dead:
            await broker.messages.retry(dead[-1].transaction_id)

    async def _clear(self, broker: Broker) -> None:
        partition = self._chance.choice(PARTITIONS)
        if self._chance.random() < 0.3:
            await broker.messages.clear(self._queue, partition)
            self._held = [message for message in self._held if message.partition != partition]

    def _taken(self) -> list[Message]:
        self._chance.shuffle(self._held)
        taken = self._held[: self._chance.randint(1, 6)]
        self._held = self._held[len(taken) :]
        return taken

    def _status(self) -> Any:
        return self._chance.choice(("completed", "completed", "completed", "failed", "retry", "dead_letter"))

    def _settled(self, message: Message, status: Any) -> Acknowledgement:
        return Acknowledgement(
            transaction_id=message.transaction_id,
            status=status,
            error="not today" if status == "failed" else None,
            lease_id=message.lease_id,
            consumer_group=message.consumer_group,
        )


async def work(folder: Path, seed: int, steps: int) -> None:
    """All lanes, and compactions meanwhile, over several openings of one data folder."""
    notes = os.open(folder / "notes", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    lanes = [Lane(number, seed, notes) for number in range(LANES)]
    for _ in range(RUNS):
        async with open_broker(folder / "data") as broker, trio.open_nursery() as all_of_it:
            all_of_it.start_soon(_compact_again_and_again, broker)
            async with trio.open_nursery() as nursery:
                for lane in lanes:
                    nursery.start_soon(lane.run, broker, steps // RUNS)
            all_of_it.cancel_scope.cancel()


async def _compact_again_and_again(broker: Broker) -> None:
    while True:
        await trio.sleep(0.1)
        await broker.compact()
        await trio.sleep(0.6)


def _without(**settings: bool) -> Callable[[], None]:
    def plant() -> None:
        real: Any = lmdb.open
        vars(lmdb)["open"] = lambda *args, **named: real(*args, **named | settings)

    return plant


def _forget_names() -> None:
    lmdb_compact.sync_folder = lambda folder: None


def _tell_early() -> None:
    real = state_of

    async def later(broker: Broker, queue: str) -> list[Any]:
        while True:
            try:
                return await real(broker, queue)
            except ChainBroken:
                await trio.sleep(0.01)  # what was told early must be written before it can be read

    globals()["state_of"] = later

    def then(self: writer.Writer, callback: Callable[[None], None]) -> None:
        callback(None)

    writer.Writer.then = then  # type: ignore[method-assign]


FAULTS: Final[dict[str, Callable[[], None]]] = {
    "sync": _without(sync=False),
    "metasync": _without(metasync=False),
    "names": _forget_names,
    "early": _tell_early,
}
"""Planted: commits that aren't synced; whose meta page is not; a compaction whose renaming is not; answers that don't
wait for the commit."""


if __name__ == "__main__":
    if len(sys.argv) > 4:
        FAULTS[sys.argv[4]]()
    trio.run(work, Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
