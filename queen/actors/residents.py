"""Which partitions are awake: woken by their first command, put to sleep when idle and safely in a snapshot.

A partition is a row of PARTITIONS and the records behind it. States that are newer than their rows are kept here
also while nobody is awake for them, until the keeper has written them.
"""

from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from queen.actors.catalogue_state import Queue, Slot
from queen.actors.core import Core
from queen.actors.mailbox import Part, Work
from queen.actors.partition import PartitionActor, forget_groups
from queen.actors.partition_state import Partition, evolve
from queen.actors.snapshots import VERSION, partition_row, read_partition
from queen.commands import Release
from queen.errors import ChainBroken, QueenError
from queen.messages import Caller
from queen.names import SECOND
from queen.store.format import pack_row, partition_of, unpack, unpack_row
from queen.store.journal import Change, Table
from queen.store.keys import u64

if TYPE_CHECKING:
    from queen.actors.router import Router

IDLE = 60 * SECOND
"""How long an awake partition may have nothing to do before it is put to sleep, in µs."""

_SERVER = Caller("server")


class Residents:
    """Awake actors by slot, and states without an actor that are newer than their snapshots.

    `leases` says where each running lease is; `checkpoint` is the record up to which the tables are complete."""

    def __init__(self, core: Core, nursery: trio.Nursery) -> None:
        self._core = core
        self._nursery = nursery
        self.router: Router
        self._awake: dict[Slot, tuple[PartitionActor, trio.CancelScope]] = {}
        self.asleep: dict[int, tuple[Partition, int]] = {}
        self._dirty: set[Slot] = set()
        self.checkpoint = 0
        self.leases: dict[bytes, Slot] = {}

    def awake(self, slot: Slot) -> PartitionActor:
        """The partition's actor, woken if need be."""
        found = self._awake.get(slot)
        if found is not None:
            return found[0]
        kept = self.asleep.pop(slot.number) if slot.number in self.asleep else None
        state, seq = kept or self.load(slot.number)
        slot.deleted = state.deleted
        actor = PartitionActor(self._core, self, slot, state, seq)
        forget_groups(state, slot.queue)  # the actor knows their leases, and takes them off `leases`
        try:
            actor.meet_all()
        except Exception as error:
            actor.crashed(error)  # whoever asks is not to blame: its task folds the state anew, and goes on
        scope = trio.CancelScope()
        self._awake[slot] = actor, scope
        self._nursery.start_soon(_live, actor, scope, name=f"partition {slot.number}")
        return actor

    def evict(self, queue: Queue) -> None:
        """A queue is gone, with its partitions, their leases and what waits for them. Shared work that one of them
        holds still for is refused when it is carried out."""
        for slot in queue.slots.values():
            self.asleep.pop(slot.number, None)
            self._dirty.discard(slot)
            self._core.gone_partitions.add(slot.number)
            found = self._awake.pop(slot, None)
            if found is not None:
                found[0].dismiss()
                found[1].cancel()
        self.leases = {lease: slot for lease, slot in self.leases.items() if slot.queue is not queue}

    def dismiss(self, queue: Queue, group: int) -> None:
        """A group is gone: those that are awake forget it now, the others when they wake."""
        for slot, (actor, _) in list(self._awake.items()):
            if slot.queue is queue and not actor.broken and group in actor.state.groups:
                actor.part_from(group)

    def resting(self, slot: Slot) -> Partition | None:
        """The state of a partition that nobody is awake for, to be read and nothing else; None if somebody is."""
        if slot in self._awake:
            return None
        kept = self.asleep.get(slot.number)
        return kept[0] if kept is not None else self.load(slot.number)[0]

    def load(self, number: int) -> tuple[Partition, int]:
        """The state and last record's number of a partition whose row is complete."""
        row = self._core.journal.get(Table.PARTITIONS, u64(number))
        if row is None:
            return Partition(number), 0
        values = unpack_row(row)
        if values[0] != VERSION:
            raise ChainBroken(f"The snapshot of partition {number} has an unknown version.")
        seq, _, _, _, _, state = read_partition(number, values)
        return state, seq

    def refold(self, number: int) -> tuple[Partition, int]:
        """The same for any partition of which nothing waits to be written: its row and what the journal has since."""
        state, seq = self.load(number)
        for at, frame in self._core.journal.frames(max(seq, self.checkpoint)):
            if partition_of(frame) == number:
                seq = fold(state, at, frame)
        return state, seq

    def changed(self, actor: PartitionActor) -> None:
        """The actor has recorded something."""
        self._dirty.add(actor.slot)

    def keep(self, slot: Slot, state: Partition, seq: int) -> None:
        """Keep a state that nobody is awake for and that no snapshot holds yet."""
        self.asleep[slot.number] = state, seq
        self._dirty.add(slot)

    @property
    def dirty(self) -> int:
        """How many partitions have changed since their snapshots."""
        return len(self._dirty)

    @property
    def quarantined(self) -> list[Slot]:
        """Partitions that are out of service."""
        return [slot for slot, (actor, _) in self._awake.items() if actor.quarantined]

    def is_quarantined(self, slot: Slot) -> bool:
        """Whether the partition is out of service."""
        found = self._awake.get(slot)
        return found is not None and found[0].quarantined

    def take_dirty(self) -> list[Slot]:
        """The slots to write snapshots of; they count as clean from now on."""
        taken = [slot for slot in self._dirty if slot.number in self._core.catalogue.slots]
        self._dirty.clear()
        return taken

    def still_dirty(self, slots: list[Slot]) -> None:
        """Their snapshots were not written after all."""
        self._dirty.update(slots)

    def snapshot(self, slot: Slot) -> Change | None:
        """The row of the partition as it is now, None where its state can't be trusted."""
        found = self._awake.get(slot)
        if found is None:
            state, seq = self.asleep[slot.number]
            row = partition_row(slot, state, seq, set())
        elif found[0].broken:
            self._dirty.add(slot)
            return None
        else:
            actor = found[0]
            row = partition_row(slot, actor.state, actor.recorded_seq, set(actor.unrecorded))
        return Change(Table.PARTITIONS, u64(slot.number), pack_row(row))

    def retire(self, slots: list[Slot]) -> None:
        """These have durable snapshots: forget states that nobody is awake for."""
        for slot in slots:
            if slot not in self._dirty:
                self.asleep.pop(slot.number, None)

    def put_to_sleep(self) -> None:
        """End the actors that have been idle for long and are clean."""
        before = self._core.clock.now() - IDLE
        for slot, (actor, scope) in list(self._awake.items()):
            resting = actor.busy or actor.broken or actor.quarantined or slot in self._dirty
            if actor.idle_since < before and not resting:
                del self._awake[slot]
                scope.cancel()

    def awake_in(self, queue: Queue) -> set[Slot]:
        """The slots of a queue that are awake now."""
        return {slot for slot in self._awake if slot.queue is queue}

    def introduce(self, queue: Queue, group: int) -> None:
        """Every partition of the queue is to say what it has for a group that nobody has asked for before."""
        for slot in queue.slots.values():
            actor = self.awake(slot)
            if actor.broken:
                continue  # meets all groups when it has been rebuilt
            if group not in actor.state.groups:
                actor.meet(group)
            actor.announce()

    def release(self, leases: list[bytes]) -> None:
        """Give back, uncounted, what is left of leases whose asker is not there to get it (L8)."""
        for lease in leases:
            slot = self.leases.get(lease)
            if slot is not None and slot.number in self._core.catalogue.slots:
                with suppress(QueenError):  # a full mailbox: the lease ends by itself then
                    self.awake(slot).put(Work((Part(slot, Release(lease)),), _SERVER))

    @property
    def awake_count(self) -> int:
        """How many partitions are awake."""
        return len(self._awake)


def fold(state: Partition, seq: int, frame: bytes) -> int:
    """Apply one record of the partition; returns its number."""
    record = unpack(seq, frame)
    for event in record.events:
        if record.partition:
            evolve(state, event, record.at, record.shift)
    return seq


async def _live(actor: PartitionActor, scope: trio.CancelScope) -> None:
    with scope:
        await actor.run()
