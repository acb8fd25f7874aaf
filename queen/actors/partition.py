"""The actor of one partition: a task that owns the partition's state and consumes a channel of work.

It holds no rules: those are in `partition_rules`, nor the order of a command's steps: that is in `carrying`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import structlog
import trio
from msgspec.structs import replace

from queen.actors import availability
from queen.actors.carrying import FAILED, GONE, Fatal, carry_out
from queen.actors.catalogue_rules import group_started
from queen.actors.catalogue_state import Group, Queue, Slot
from queen.actors.core import Core
from queen.actors.decision import Decision
from queen.actors.mailbox import MAILBOX_SIZE, Work, retry_later
from queen.actors.partition_rules import decide
from queen.actors.partition_state import Partition, evolve
from queen.actors.sealing import opener, readable, sealed
from queen.commands import PartitionCommand, Pop, Tick
from queen.errors import Busy, Quarantined, QueueGone, Unavailable
from queen.events import Event, GroupJoined, MessagesDeleted, MessagesPushed
from queen.history import History, PushedRun
from queen.messages import Caller
from queen.names import DEFAULT_GROUP
from queen.replies import Grant

if TYPE_CHECKING:
    from queen.actors.residents import Residents

log = structlog.get_logger()

CRASHES = 3
"""The same crash this often in a row quarantines a partition."""
TICKS = 4
"""Ticks before each command; what time has brought beyond that is left to the router's own ticks."""

_SERVER = Caller("server")


class PartitionActor:
    """One awake partition. `recorded_seq` is the last record of it, `snapshot_seq` the last that is in a durable
    snapshot; `unrecorded` are groups that have met it, of which nothing is recorded yet, and where they begin."""

    def __init__(self, core: Core, house: "Residents", slot: Slot, state: Partition, recorded_seq: int) -> None:
        self._core = core
        self._house = house
        self.slot = slot
        self.state = state
        self.history: History = core.projections.history(slot.number)
        self.recorded_seq = recorded_seq
        self.unrecorded: dict[int, int] = {}
        self.broken = False
        self.quarantined = False
        self.deadline: int | None = None
        self._leases = _leases(state)
        self.idle_since = core.clock.now()
        self._crash: tuple[str, int] = ("", 0)
        self._send, self._receive = trio.open_memory_channel[Work](MAILBOX_SIZE)

    def put(self, work: Work) -> None:
        """Hand in work; raises `Busy` where too much waits."""
        try:
            self._send.send_nowait(work)
        except trio.WouldBlock:
            raise Busy(retry_later(self.slot)) from None

    @property
    def full(self) -> bool:
        """Whether `put` would refuse."""
        return self._send.statistics().current_buffer_used >= MAILBOX_SIZE

    @property
    def busy(self) -> bool:
        """Whether work waits."""
        return self._send.statistics().current_buffer_used > 0

    def dismiss(self) -> None:
        """The partition is gone: whatever waits for it is told so, for all whom shared work concerns."""
        while True:
            try:
                self._receive.receive_nowait().fail(QueueGone(GONE))
            except trio.WouldBlock:
                return

    async def run(self) -> None:
        """Carry out work until cancelled."""
        self._start()
        while True:
            while self.broken:
                await self._rebuild()
                if self.quarantined:
                    break  # a state that can't be folded either is asked for nothing any more
            await self._next()

    def _start(self) -> None:
        try:
            self.announce()
        except Exception as error:
            self.crashed(error)

    async def _next(self) -> None:
        # A function of its own, so that a partition that waits holds no work, which holds payloads.
        work = await self._receive.receive()
        try:
            await self._take(work)
        except Fatal:
            raise
        except Exception as error:  # the supervisor of this one partition
            self.crashed(error)
            work.fail(Unavailable(FAILED))

    async def _take(self, work: Work) -> None:
        if self.quarantined and not work.abandoned:
            work.fail(Quarantined(f"partition '{self.slot.name}' is quarantined: {self._crash[0]}"))
        if work.abandoned:
            self.announce()  # nobody else may have been sent here in the meantime
            return
        self.idle_since = self._core.clock.now()
        work.arrivals -= 1
        if not work.arrivals:
            carry_out(self._core, self._house, work)
        elif work.done is not None:
            await work.done.wait()

    # -- the steps of a command, called by `carry_out` ----------------------------------------------------

    def catch_up(self, now: int) -> None:
        """Decide first what time has brought."""
        for _ in range(TICKS):
            if self.deadline is None or self.deadline > now:
                return
            decision = self.decide(Tick(), now)
            if decision.events:
                self.apply(decision, now, self._core.clock.shift())
                self.record(decision, _SERVER, now, self._core.clock.shift())
            self.deadline = availability.next_deadline(self.state, self.slot.queue.options, self.history)
            if any(isinstance(event, MessagesDeleted) for event in decision.events):
                return  # T4: retention has time, and nobody waits for it; the router ticks on

    def decide(self, command: PartitionCommand, now: int) -> Decision:
        """What the rules say. Raises their refusal."""
        group = getattr(command, "group", None)
        if group is not None and group not in self.state.groups and isinstance(command, Pop):
            self.meet(group)
        options = self.slot.queue.options
        decision = decide(self.state, command, now, options, self.history)
        if options.encryption_enabled and decision.payloads:
            return sealed(decision, self._core.ring, self._core.keys_used)
        if self._core.keys_used and isinstance(command, Pop) and isinstance(decision.reply, Grant):
            count = self._readable(command, decision.reply)
            if count < len(decision.reply.taken):
                return decide(self.state, replace(command, batch=count), now, options, self.history)
        return decision

    def _readable(self, command: Pop, grant: Grant) -> int:
        """How many messages of a grant may be given away. What is completed at delivery is opened before that: it could
        not be given back if it turned out to be damaged, as what is leased is (C4)."""
        core = self._core
        if not command.auto_ack and not core.keys_lost:
            return len(grant.taken)
        opens = opener(core.records, core.writer.durable, core.ring) if command.auto_ack else None
        return readable(grant, self.history, core.keys_lost, opens)

    def apply(self, decision: Decision, now: int, shift: int) -> None:
        """Change the state."""
        for event in decision.events:
            evolve(self.state, event, now, self._shown(event, now, shift))

    def record(self, decision: Decision, caller: Caller, now: int, shift: int) -> int:
        """Hand the events to the writer, those of a group behind the event that it has joined. Returns the shift that
        the record carries: for a push, what keeps createdAt from running backwards (N4)."""
        if not decision.events:
            return shift
        events = self._with_joins(decision.events)
        for event in decision.events:
            if isinstance(event, MessagesPushed):
                shift = self.state.latest_shown - now
        self.recorded_seq = self._core.record(self.slot.number, events, caller, now, shift, decision.payloads)
        self._house.changed(self)
        for group in list(self.unrecorded):
            if _group(self.slot, group).from_at > self.state.latest_shown:
                self.meet(group)  # G2: it begins at an instant still to come, and passes by what is pushed before
        return shift

    def announce(self) -> None:
        """Tell the router what there is and when time matters next, and the queue what it holds."""
        if self.quarantined:
            # Nothing to be had and nothing to wait for: other partitions and whole queues go on.
            for group in self.state.groups:
                self._house.router.offer(self.slot, group, None, None)
            return
        if self.broken:
            return  # it speaks when it has been rebuilt
        options = self.slot.queue.options
        view = self.state.groups[DEFAULT_GROUP]
        self.slot.tell(view.counts, view.cursor)
        self._note_leases()
        self.deadline = availability.next_deadline(self.state, options, self.history)
        now = self._core.clock.now()
        for group in self.state.groups:
            offer = availability.offer(self.state, group, options, self.history)
            held = None
            if offer is None or offer.ready_at > now:
                held = availability.blocked(self.state, group, options, self.history)
            self._house.router.offer(self.slot, group, offer, held)
        self._house.router.deadline(self.slot, self.deadline)

    def _note_leases(self) -> None:
        leases = _leases(self.state)
        if leases != self._leases:
            for lease in self._leases - leases:
                self._house.leases.pop(lease, None)
            for lease in leases - self._leases:
                self._house.leases[lease] = self.slot
            self._leases = leases

    def meet(self, group: int) -> None:
        """Let a group begin here, in memory; it is recorded with the first thing that the group gets (W5)."""
        found = _group(self.slot, group)
        first = first_position(self.state, self.history, found)
        evolve(self.state, GroupJoined(group, first), 0)
        self.unrecorded[group] = first

    def crashed(self, error: BaseException) -> None:
        """Note that the state can't be trusted any more."""
        name = f"{type(error).__name__}: {error}"
        before, times = self._crash
        self._crash = name, times + 1 if name == before else 1
        self.broken = True
        self.quarantined = self.quarantined or self._crash[1] >= CRASHES
        log.error(
            "partition actor crashed",
            partition=self.slot.name,
            queue=self.slot.queue.name,
            times=self._crash[1],
            quarantined=self.quarantined,
            exc_info=error,
        )
        if self.quarantined:
            self.announce()

    def succeeded(self) -> None:
        """A command came through: crashes count from anew."""
        if self._crash[1]:
            self._crash = ("", 0)

    async def _rebuild(self) -> None:
        """Fold the state from its snapshot and the journal again. Cancelled, it is still broken."""
        await self._core.writer.flushed()
        try:
            self.state, self.recorded_seq = self._house.refold(self.slot.number)
            self.slot.deleted = self.state.deleted
            self.unrecorded.clear()
            self.broken = False
            forget_groups(self.state, self.slot.queue)
            self.meet_all()
            self.announce()
        except Exception as error:
            self.crashed(error)

    def part_from(self, group: int) -> None:
        """A group of the queue is gone, and with it all that the partition knows of it."""
        self.state.groups.pop(group, None)
        self.unrecorded.pop(group, None)
        self.announce()

    def meet_all(self) -> None:
        """Let the queue's groups begin that have not met this partition."""
        for group in self.slot.queue.groups.values():
            if group.number not in self.state.groups:
                self.meet(group.number)

    def _shown(self, event: Event, now: int, shift: int) -> int:
        """N4: what is shown as createdAt does not run backwards either."""
        if isinstance(event, MessagesPushed):
            return max(shift, self.state.latest_shown - now)
        return shift

    def _with_joins(self, events: tuple[Event, ...]) -> Sequence[Any]:
        if not self.unrecorded:
            return events
        result: list[Event] = []
        for event in events:
            group = getattr(event, "group", None)
            if group in self.unrecorded:
                found = _group(self.slot, group)
                if not found.recorded:
                    self._core.record_catalogue(group_started(self.slot.queue, found), _SERVER)
                result.append(GroupJoined(group, self.unrecorded.pop(group)))
            result.append(event)
        return result


def forget_groups(state: Partition, queue: Queue) -> None:
    """Drop what a state holds of groups that its queue does not know any more: deleting a group is one event of the
    catalogue, and each partition draws the consequence when it is next looked at."""
    known = {group.number for group in queue.groups.values()}
    for number in [number for number in state.groups if number not in known]:
        del state.groups[number]


def first_position(state: Partition, history: History, group: Group) -> int:
    """G2: the first position that a group gets, by bisection over the partition's records."""
    if not group.after_seq and not group.from_at:
        return 1
    low, high = 1, state.next_position
    while low < high:
        middle = (low + high) // 2
        run = next(history.runs(middle), None)
        if run is None or _belongs(run, group):
            high = middle
        else:
            low = run.first + run.length
    return low


def _belongs(run: PushedRun, group: Group) -> bool:
    return run.seq > group.after_seq and run.shown_at >= group.from_at


def _leases(state: Partition) -> set[bytes]:
    return {lease for view in state.groups.values() for lease in view.leases}


def _group(slot: Slot, number: int) -> Group:
    group = slot.queue.groups.numbered(number)
    if group is None:
        raise QueueGone("the consumer group was deleted meanwhile; nothing was done")
    return group
