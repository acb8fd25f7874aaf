"""Which partitions are awake: woken by their first command, put to sleep when idle and safely in a snapshot.

A partition is a row of PARTITIONS and the records behind it. States that are newer than their rows are kept here
also while nobody is awake for them, until the keeper has written them.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

import trio

from queen.actors.availability import blocked, next_deadline, next_sweep, offer
from queen.actors.catalogue_state import Queue, Slot
from queen.actors.core import Core
from queen.actors.mailbox import Part, Work
from queen.actors.partition import PartitionActor, first_position, forget_groups
from queen.actors.partition_state import Partition, evolve
from queen.actors.snapshots import pack_partition, unpack_partition
from queen.commands import Release
from queen.errors import QueenError
from queen.events import GroupJoined
from queen.messages import Caller
from queen.names import SECOND
from queen.store.format import partition_of, unpack
from queen.store.journal import Change, Table
from queen.store.keys import u64

if TYPE_CHECKING:
    from queen.actors.router import Router
    from queen.actors.ticker import Ticker

IDLE = 60 * SECOND
"""How long an awake partition may have nothing to do before it is put to sleep, in µs."""
AWAKE = 10_000
"""Partitions that may be awake, some 8 kB each; with more of them, `BRIEF` is what they may have nothing to do."""
BRIEF = 1 * SECOND
LOOKED_AT = 64
"""Partitions that may be put to sleep before others may run, some 30 µs each; more only where as many wake."""
ROUND_S = 1.0
"""How often all that are awake are looked at, in seconds."""

GROUP_IDLE = 600 * SECOND
"""How long nobody may have asked for a consumer group before what is offered to it is forgotten, in µs."""
HEAVY = 2_000
"""Open messages (leased, or returned) from which on a snapshot is dear, some 2 µs each."""

_SERVER = Caller("server")


class Residents:
    """Awake actors by slot, and states without an actor that are newer than their snapshots.

    `leases` says where each running lease is; `checkpoint` is the record up to which the tables are complete."""

    def __init__(self, core: Core, nursery: trio.Nursery) -> None:
        self._core = core
        self._nursery = nursery
        self.router: Router
        self.ticker: Ticker
        self._awake: dict[Slot, tuple[PartitionActor, trio.CancelScope]] = {}
        self.asleep: dict[int, tuple[Partition, int]] = {}
        self._round: Iterator[Slot] = iter(())
        self._woken = 0
        self._crowded = trio.Event()
        self._dirty: set[Slot] = set()
        self._writing: set[Slot] = set()
        self._heavy = 0
        self._written: dict[Slot, int] = {}
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
        for lease in forget_groups(state, slot.queue):
            self.leases.pop(lease, None)
        try:
            actor.meet_all()
        except Exception as error:
            actor.crashed(error)  # whoever asks is not to blame: its task folds the state anew, and goes on
        scope = trio.CancelScope()
        self._awake[slot] = actor, scope
        self._woken += 1
        if len(self._awake) > AWAKE:
            self._crowded.set()
        self._nursery.start_soon(_live, actor, scope, name=f"partition {slot.number}")
        return actor

    def evict(self, queue: Queue) -> None:
        """A queue is gone, with its partitions, their leases and what waits for them. Shared work that one of them
        holds still for is refused when it is carried out."""
        for slot in queue.slots.values():
            self.asleep.pop(slot.number, None)
            self._dirty.discard(slot)
            self._written.pop(slot, None)
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
        return None if slot in self._awake else self._at_rest(slot)

    def _at_rest(self, slot: Slot) -> Partition:
        kept = self.asleep.get(slot.number)
        return kept[0] if kept is not None else self.load(slot.number)[0]

    def load(self, number: int) -> tuple[Partition, int]:
        """The state and last record's number of a partition whose row is complete."""
        row = self._core.journal.get(Table.PARTITIONS, u64(number))
        if row is None:
            return Partition(number), 0
        seq, _, _, _, _, state = unpack_partition(number, row)
        return state, seq

    def refold(self, number: int) -> tuple[Partition, int]:
        """The same for any partition of which nothing waits to be written: its row and what the journal has since."""
        state, seq = self.load(number)
        for at, frame in self._core.journal.frames(max(seq, self.checkpoint)):
            if partition_of(frame) == number:
                seq = fold(state, at, frame)
        return state, seq

    def relearn_leases(self, slot: Slot, state: Partition) -> None:
        """The partition's state was folded anew: what a half-done change said of its leases is not so."""
        self.leases = {lease: holder for lease, holder in self.leases.items() if holder is not slot}
        self.leases.update((lease, slot) for view in state.groups.values() for lease in view.leases)

    def changed(self, actor: PartitionActor) -> None:
        """The actor has recorded something."""
        self._dirty.add(actor.slot)

    def keep(self, slot: Slot, state: Partition, seq: int) -> None:
        """Keep a state that nobody is awake for and that no snapshot holds yet."""
        self.asleep[slot.number] = state, seq
        self._dirty.add(slot)

    @property
    def dirty(self) -> int:
        """How many partitions have changed since their snapshots, but for those that have been left out."""
        return len(self._dirty) - self._heavy

    @property
    def complete(self) -> bool:
        """Whether no partition has been left out, see `take_dirty`."""
        return not self._heavy

    @property
    def quarantined(self) -> list[Slot]:
        """Partitions that are out of service."""
        return [slot for slot, (actor, _) in self._awake.items() if actor.quarantined]

    def is_quarantined(self, slot: Slot) -> bool:
        """Whether the partition is out of service."""
        found = self._awake.get(slot)
        return found is not None and found[0].quarantined

    def take_dirty(self, *, everything: bool) -> list[Slot]:
        """The slots to write snapshots of; they count as clean from now on. `retire` or `still_dirty` follows.

        Unless `everything` is wanted, states with very many open messages are left out until so many records have been
        written since their last snapshots: so these cost no more than what they spare the next start."""
        taken = [slot for slot in self._dirty if slot.number in self._core.catalogue.slots]
        if not everything:
            taken = [slot for slot in taken if not self._too_soon(slot)]
        self._dirty.difference_update(taken)
        self._heavy = len(self._dirty)
        self._writing.update(taken)
        return taken

    def _too_soon(self, slot: Slot) -> bool:
        found = self._awake.get(slot)
        state = self.asleep[slot.number][0] if found is None else found[0].state
        size = sum(len(view.open) for view in state.groups.values())
        if size < HEAVY:
            return False
        seq = self._core.writer.seq
        if seq - self._written.get(slot, 0) < size:
            return True
        self._written[slot] = seq
        return False

    def still_dirty(self, slots: list[Slot]) -> None:
        """Their snapshots were not written after all."""
        self._dirty.update(slots)
        self._writing.difference_update(slots)

    def snapshot(self, slot: Slot) -> Change | None:
        """The row of the partition as it is now, None where its state can't be trusted."""
        found = self._awake.get(slot)
        if found is None:
            state, seq = self.asleep[slot.number]
            unrecorded: set[int] = set()
        elif found[0].broken:
            self._dirty.add(slot)
            return None
        else:
            actor = found[0]
            state, seq, unrecorded = actor.state, actor.recorded_seq, set(actor.unrecorded)
        history = self._core.projections.history(slot.number)
        return Change(Table.PARTITIONS, u64(slot.number), pack_partition(slot, state, seq, unrecorded, history))

    def retire(self, slots: list[Slot]) -> None:
        """These have durable snapshots: forget states that nobody is awake for."""
        self._writing.difference_update(slots)
        for slot in slots:
            if slot not in self._dirty and self.asleep.pop(slot.number, None) is not None:
                slot.rest()

    async def run(self) -> None:
        """Put partitions to sleep, and let go of groups that only asked, until cancelled."""
        forgotten_at = self._core.clock.now()
        while True:
            if self._core.clock.now() - forgotten_at >= GROUP_IDLE:
                forgotten_at = self._core.clock.now()
                self.router.forget_unasked()
            with trio.move_on_after(ROUND_S):
                await self._crowded.wait()
            self._crowded = trio.Event()
            while self.put_to_sleep():
                await trio.lowlevel.checkpoint()

    def put_to_sleep(self) -> bool:
        """Look at some of the actors, twice as many as were woken since the last time, and end those that have been
        idle for long, or, where very many are awake, for a moment. What no snapshot holds of them yet is kept. Says
        whether there are more to be looked at in this round."""
        before = self._core.clock.now() - (IDLE if len(self._awake) <= AWAKE else BRIEF)
        count, self._woken = max(LOOKED_AT, 2 * self._woken), 0
        looked_at = list(islice(self._round, count))
        for slot in looked_at:
            actor, scope = self._awake.get(slot, (None, None))
            if actor is None or scope is None or actor.idle_since >= before:
                continue
            if actor.free and not actor.quarantined:
                if slot in self._dirty or slot in self._writing:
                    self.asleep[slot.number] = actor.at_rest(), actor.recorded_seq
                del self._awake[slot]
                scope.cancel()
                slot.rest()
        if len(looked_at) < count:
            self._round = iter(list(self._awake))
            return False
        return True

    def awake_in(self, queue: Queue) -> list[Slot]:
        """The slots of a queue that are awake now."""
        return [slot for slot in self._awake if slot.queue is queue]

    def introduce(self, slot: Slot, group: int) -> None:
        """The partition is to say what it has for a group that has not been asked for since the start. One that sleeps
        is not woken for it."""
        found = self._awake.get(slot)
        if found is not None:
            actor = found[0]
            if not actor.broken:  # else it meets all groups when it has been rebuilt
                if group not in actor.state.groups:
                    actor.meet(group)
                actor.announce()
        elif slot.number in self._core.catalogue.slots:
            state = self._at_rest(slot)
            # Not kept: the partition meets the group when it wakes, and then as here (G2).
            state = replace(state, groups=dict(state.groups))
            forget_groups(state, slot.queue)
            known = slot.queue.groups.numbered(group)
            if known is not None:
                if group not in state.groups:
                    first = first_position(state, self._core.projections.history(slot.number), known)
                    evolve(state, GroupJoined(group, first), 0)
                self.speak_for(slot, state, group)

    def speak_for(self, slot: Slot, state: Partition, group: int) -> None:
        """Tell what the partition has for a group, and when time matters in it, while nobody is awake for it."""
        options, history = slot.queue.options, self._core.projections.history(slot.number)
        found = offer(state, group, options, history)
        held = None
        if found is None or found.ready_at > self._core.clock.now():
            held = blocked(state, group, options, history)
        if found is not None or held is not None:
            self.router.offer(slot, group, found, held)
        self.ticker.expect(slot, next_deadline(state, options, history), next_sweep(state, options, history))

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
