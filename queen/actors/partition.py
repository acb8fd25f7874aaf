"""The actor of one partition: it owns the partition's state; a task of its own carries out what has to wait.

It holds no rules: those are in `partition_rules`, nor the order of a command's steps: that is in `carrying`.
"""

from collections import deque
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
from queen.actors.partition_state import Partition, evolve, leases_touched
from queen.actors.sealing import opener, readable, sealed
from queen.commands import PartitionCommand, Pop, Push, Tick
from queen.errors import Busy, Quarantined, QueueGone, Unavailable, traced
from queen.events import Event, GroupJoined, MessagesPushed
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
"""Ticks before each command; what time has brought beyond that is left to the ticker."""

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
        self._untold = True  # whether there is more to announce than how many messages there are
        self.idle_since = core.clock.now()
        self._crash: tuple[str, int] = ("", 0)
        self._mailbox: deque[Work] = deque()
        self._mail = trio.Event()
        self._holding = False

    def put(self, work: Work) -> None:
        """Hand in work: it is carried out now if nothing is in front of it. Raises `Busy` where too much waits."""
        if self.free:
            self._start_on(work)
        elif self.full:
            self._untold = True  # a pop that is refused has been counted on: the router is to hear of this partition
            raise Busy(retry_later(self.slot))
        else:
            self.line_up(work)

    def line_up(self, work: Work) -> None:
        """Let work wait for its turn, and for the other partitions that it concerns."""
        self._mailbox.append(work)
        self._mail.set()

    @property
    def free(self) -> bool:
        """Whether nothing is in front of new work: no other waits, and the partition is neither still, nor broken, nor
        out of service: its task refuses then whatever comes, shared work too."""
        return not (self._mailbox or self._holding or self.broken or self.quarantined)

    @property
    def full(self) -> bool:
        """Whether `put` would refuse."""
        return len(self._mailbox) >= MAILBOX_SIZE

    def dismiss(self) -> None:
        """The partition is gone: whatever waits for it is told so, for all whom shared work concerns."""
        while self._mailbox:
            self._mailbox.popleft().fail(QueueGone(GONE))

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
        if not self._mailbox:
            self._mail = trio.Event()
            await self._mail.wait()
            return  # what came may be gone again, or the partition with it
        work = self._mailbox.popleft()
        self._start_on(work)
        if work.arrivals and work.done is not None:
            self._holding = True
            await work.done.wait()
            self._holding = False
        elif self._mailbox:
            await trio.lowlevel.checkpoint()

    def _start_on(self, work: Work) -> None:
        """Carry out the work, or count this partition as one that has arrived at it."""
        try:
            self._take(work)
        except Fatal:
            pass  # the writer has been stopped, and the engine ends with it
        except Exception as error:  # the supervisor of this one partition
            self.crashed(error)
            work.fail(Unavailable(FAILED))

    def _take(self, work: Work) -> None:
        if self.quarantined and not work.abandoned:
            work.fail(Quarantined(f"partition '{self.slot.name}' is quarantined: {self._crash[0]}"))
        if work.abandoned:
            self.announce()  # nobody else may have been sent here in the meantime
            return
        work.arrivals -= 1
        if not work.arrivals:
            carry_out(self._core, self._house, work)

    # -- the steps of a command, called by `carry_out` ----------------------------------------------------

    def catch_up(self, now: int) -> None:
        """Decide first what time has brought. Retention has time (T4), and is left to the ticker."""
        self.idle_since = now
        for _ in range(TICKS):
            if self.deadline is None or self.deadline > now:
                return
            self._untold = True
            decision = self.decide(Tick(), now)
            if decision.events:
                self.apply(decision, now, self._core.clock.shift())
                self.record(decision, _SERVER, now, self._core.clock.shift())
            self.deadline = availability.next_deadline(self.state, self.slot.queue.options, self.history)

    def decide(self, command: PartitionCommand, now: int) -> Decision:
        """What the rules say. Raises their refusal."""
        options = self.slot.queue.options
        if isinstance(command, Push):
            decision = decide(self.state, command, now, options, self.history)
            if options.encryption_enabled and decision.payloads:
                return sealed(decision, self._core.ring, self._core.keys_used)
            return decision
        self._untold = True  # whatever comes of it: the router may count on hearing of this partition
        if isinstance(command, Pop) and command.group not in self.state.groups:
            self.meet(command.group)
        decision = decide(self.state, command, now, options, self.history)
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
            if not self._untold:
                self._untold = not (
                    isinstance(event, MessagesPushed)
                    and not self.unrecorded
                    and availability.stands_behind(self.state, event, self.slot.queue.options)
                )
            touched = leases_touched(self.state, event)
            evolve(self.state, event, now, self._shown(event, now, shift))
            for group, lease in touched:
                self._note_lease(lease, runs=lease in self.state.groups[group].leases)

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

    def tell(self) -> None:
        """Announce what a command has changed."""
        if self._untold:
            self.announce()
        else:
            view = self.state.groups[DEFAULT_GROUP]
            self.slot.tell(view.counts, view.cursor)

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
        self._untold = False
        self.deadline = availability.next_deadline(self.state, options, self.history)
        now = self._core.clock.now()
        for group in self.state.groups:
            offer = availability.offer(self.state, group, options, self.history)
            held = None
            if offer is None or offer.ready_at > now:
                held = availability.blocked(self.state, group, options, self.history)
            self._house.router.offer(self.slot, group, offer, held)
        self._house.ticker.expect(self.slot, self.deadline, availability.next_sweep(self.state, options, self.history))

    def _note_lease(self, lease: bytes, *, runs: bool) -> None:
        if runs:
            self._house.leases[lease] = self.slot
        else:
            self._house.leases.pop(lease, None)

    def meet(self, group: int) -> None:
        """Let a group begin here, in memory; it is recorded with the first thing that the group gets (W5)."""
        self._untold = True
        found = _group(self.slot, group)
        first = first_position(self.state, self.history, found)
        evolve(self.state, GroupJoined(group, first), 0)
        self.unrecorded[group] = first

    def crashed(self, error: BaseException) -> None:
        """Note that the state can't be trusted any more."""
        name = f"{type(error).__name__}: {error}"
        before, times = self._crash
        self._crash = name, times + 1 if name == before else 1
        self.distrust()
        self.quarantined = self.quarantined or self._crash[1] >= CRASHES
        log.error(
            "partition actor crashed",
            partition=self.slot.name,
            queue=self.slot.queue.name,
            times=self._crash[1],
            quarantined=self.quarantined,
            exception=traced(error),
        )
        if self.quarantined:
            self.announce()

    def distrust(self) -> None:
        """Have the state folded anew before anything else."""
        self.broken = self._untold = True
        self._mail.set()

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
            self._house.relearn_leases(self.slot, self.state)
            self.announce()
        except Exception as error:
            self.crashed(error)

    def at_rest(self) -> Partition:
        """The state for nobody to be awake for, without groups of which nothing is recorded: they are met again."""
        for group in self.unrecorded:
            self.state.groups.pop(group, None)
        self.unrecorded.clear()
        return self.state

    def part_from(self, group: int) -> None:
        """A group of the queue is gone, and with it all that the partition knows of it."""
        view = self.state.groups.pop(group, None)
        for lease in view.leases if view is not None else ():
            self._note_lease(lease, runs=False)
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


def forget_groups(state: Partition, queue: Queue) -> list[bytes]:
    """Drop what a state holds of groups that its queue does not know any more: deleting a group is one event of the
    catalogue, and each partition draws the consequence when it is next looked at. Returns the leases that go."""
    known = {group.number for group in queue.groups.values()}
    gone = [state.groups.pop(number) for number in list(state.groups) if number not in known]
    return [lease for view in gone for lease in view.leases]


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


def _group(slot: Slot, number: int) -> Group:
    group = slot.queue.groups.numbered(number)
    if group is None:
        raise QueueGone("the consumer group was deleted meanwhile; nothing was done")
    return group
