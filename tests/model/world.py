"""A partition without a shell, for tests: its history folded in memory, and a harness that runs commands on it.

The harness does what the shell does, in the same order (tick while a deadline has passed, decide, evolve, feed
the history), and checks after every command what must hold for any command.
"""

from bisect import bisect_right
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, NamedTuple

import cbor2
import msgspec

from queen.actors.availability import Offer, blocked, next_deadline, next_sweep, offer, stands_behind
from queen.actors.catalogue_state import Queue, Slot
from queen.actors.partition_rules import decide
from queen.actors.partition_state import GroupView, Partition, ended_leases, evolve
from queen.actors.snapshots import partition_row, read_partition
from queen.commands import (
    Ack,
    AckEntry,
    AckStatus,
    Join,
    Look,
    PartitionCommand,
    Pop,
    Push,
    PushItem,
    Status,
    Survey,
    Tick,
)
from queen.events import (
    Event,
    MessagesDeleted,
    MessagesPushed,
    MessagesSettled,
    Outcome,
    PartitionCreated,
    PartitionEvent,
    Run,
)
from queen.history import Place, PushedRun, Settled, SettledRecord
from queen.names import SECOND, generated_transaction_id, message_id, uuid_text
from queen.options import DEFAULTS, QueueOptions
from queen.replies import Grant, Nothing

STATUSES: tuple[Status, ...] = ("pending", "processing", "completed", "failed", "dead_letter")
START = 1_700_000_000 * SECOND


class Recorded(NamedTuple):
    """One record of the journal: what one command led to."""

    seq: int
    at: int
    shift: int
    events: tuple[Event, ...]


class Folded:
    """A `History` that is nothing but the fold of records."""

    def __init__(self) -> None:
        self._runs: list[PushedRun] = []
        self._firsts: list[int] = []
        self._settled: dict[tuple[int, int], Settled] = {}
        self._settlements: list[SettledRecord] = []
        self._places: dict[str, Place] = {}
        self._names: dict[int, str] = {}

    def feed(self, record: Recorded) -> None:
        """Fold one record."""
        settled_runs: list[Run] = []
        for event in record.events:
            if isinstance(event, MessagesPushed):
                self._feed_pushed(record, event)
            elif isinstance(event, MessagesSettled):
                settled_runs += event.runs
                self._feed_settled(record, event)
            elif isinstance(event, MessagesDeleted):
                self._feed_deleted(event)
        if settled_runs:
            self._settlements.append(SettledRecord(record.seq, record.at, tuple(settled_runs)))

    def _feed_pushed(self, record: Recorded, event: MessagesPushed) -> None:
        shown_at = record.at + record.shift
        run = PushedRun(
            event.first, len(event.sizes), record.at, record.seq, shown_at, event.delays_s, event.key, event.sizes
        )
        self._runs.append(run)
        self._firsts.append(event.first)
        base = int.from_bytes(event.base)
        for index in range(len(event.sizes)):
            given = event.transaction_ids[index] if event.transaction_ids else None
            name = given if given is not None else uuid_text(generated_transaction_id(base, index))
            position = event.first + index
            self._places[name] = Place(1, position, message_id(base, index))
            self._names[position] = name

    def _feed_settled(self, record: Recorded, event: MessagesSettled) -> None:
        for first, length, _ in event.runs:
            for position in range(first, first + length):
                count = event.retry_counts.get(position, 0)
                ended = Settled(
                    event.outcome,
                    event.asked,
                    event.lease,
                    count,
                    event.error,
                    record.at,
                    event.leased_at,
                    event.worker,
                )
                self._settled[event.group, position] = ended

    def _feed_deleted(self, event: MessagesDeleted) -> None:
        # A rule that still asks for what became of a deleted message must notice.
        gone = {place for first, length, _ in event.runs for place in range(first, first + length)}
        for place in gone:
            del self._places[self._names.pop(place)]
        self._settled = {key: ended for key, ended in self._settled.items() if key[1] not in gone}

    def runs(self, position: int) -> Iterator[PushedRun]:
        index = max(bisect_right(self._firsts, position) - 1, 0)
        for run in self._runs[index:]:
            if run.first + run.length > position:
                yield run

    def sizes(self, run: PushedRun) -> tuple[int, ...]:
        return run.sizes

    def settled(self, group: int, position: int) -> Settled | None:
        return self._settled.get((group, position))

    def settlements(self, after_seq: int) -> Iterator[SettledRecord]:
        index = bisect_right(self._settlements, after_seq, key=lambda record: record.seq)
        return iter(self._settlements[index:])

    def given_up(self, group: int, outcome: Outcome, below: int) -> Iterator[int]:
        found = [
            place
            for (owner, place), ended in self._settled.items()
            if owner == group and place < below and ended.outcome == outcome
        ]
        return iter(sorted(found, reverse=True))

    def find(self, transaction_id: str) -> Place | None:
        return self._places.get(transaction_id)


class PartitionHarness:
    """One partition at a time `now` that the test moves."""

    def __init__(self, options: QueueOptions = DEFAULTS) -> None:
        self.options = options
        self.now = START
        self.state = Partition(number=1)
        self.history = Folded()
        self.records: list[Recorded] = []
        self.reply: Any = None
        self.lease = b""
        self._pops = 0
        self._base = 0
        self._commit((PartitionCreated(1, bytes(16), "Default"),))

    # -- acting ---------------------------------------------------------------------------------------------

    def do(self, command: PartitionCommand) -> Any:
        """Run one command as the shell does; returns the reply or raises the refusal."""
        self.events(command)
        return self.reply

    def events(self, command: PartitionCommand) -> tuple[Event, ...]:
        """The events of one command, without those of the ticks before it. Raises the refusal."""
        self.tick()
        decision = self.decide(command)
        self.reply = decision.reply
        behind = isinstance(command, Push) and all(
            isinstance(event, MessagesPushed) and stands_behind(self.state, event, self.options)
            for event in decision.events
        )
        before = self._announced() if behind else None
        self._commit(decision.events)
        assert before is None or before == self._announced(), "a push that is not announced changed something"
        self.check()
        return decision.events

    def _announced(self) -> list[Any]:
        """What the partition would announce beside its counts."""
        told: list[Any] = [self.next_deadline()]
        for group in self.state.groups:
            found = offer(self.state, group, self.options, self.history)
            ready = found is not None and found.ready_at <= self.now
            held = None if ready else blocked(self.state, group, self.options, self.history)
            told += [found, held]
        return told

    def tick(self) -> list[Event]:
        """Tick until no deadline is left in the past; returns what that led to."""
        happened: list[Event] = []
        while (deadline := self.next_deadline()) is not None and deadline <= self.now:
            decision = self.decide(Tick())
            assert decision.events, "a deadline has passed and a tick does nothing: the shell would spin"
            self._commit(decision.events)
            happened += decision.events
        self.check()
        return happened

    def wait(self, seconds: float) -> list[Event]:
        """Let time pass; returns what it brought."""
        self.now += round(seconds * SECOND)
        return self.tick()

    def configure(self, **changes: Any) -> None:
        """Change options (T5); what that lets fall due falls due at once."""
        self.options = msgspec.structs.replace(self.options, **changes)
        self.tick()

    def push(self, *items: str | PushItem | None, count: int = 0) -> list[int]:
        """Push items (transactionIds stand for themselves), or `count` plain ones; returns their positions."""
        self._base += 1 << 32
        given = [item if isinstance(item, PushItem) else PushItem(b"1", item) for item in items]
        reply = self.do(Push(self._base, tuple(given + [PushItem(b"1")] * count)))
        return [pushed.position for pushed in reply]

    def join(self, group: int, cursor: int = 1) -> None:
        """Let another group begin."""
        self.do(Join(group, cursor))

    def pop(self, batch: int = 1, group: int = 0, auto_ack: bool = False) -> list[int]:
        """Positions delivered; the lease is `self.lease` from then on. Nothing delivered: []."""
        self._pops += 1
        reply = self.do(Pop(group, batch, self._pops.to_bytes(16), auto_ack))
        if not isinstance(reply, Grant):
            return []
        self.lease = reply.lease
        return [taken.position for taken in reply.taken]

    def blocked(self, group: int = 0) -> tuple[str | None, float | None]:
        """(cause, seconds until it ends) of a pop that gets nothing."""
        reply = self.do(Pop(group, 1, b"never given, ever"))
        assert isinstance(reply, Nothing)
        return reply.because, None if reply.until is None else (reply.until - self.now) / SECOND

    def ack(
        self,
        position: int,
        status: AckStatus = "completed",
        lease: bytes | None = None,
        group: int = 0,
        error: str | None = None,
    ) -> tuple[str, int]:
        """Acknowledge one message; (status, retryCount) of the answer."""
        (reply,) = self.do(Ack(group, (AckEntry(position, status, error, lease),)))
        return reply.status, reply.retry_count

    # -- looking --------------------------------------------------------------------------------------------

    def offer(self, group: int = 0) -> Offer | None:
        """What `availability.offer` says now, after all ticks."""
        return offer(self.state, group, self.options, self.history)

    def next_deadline(self) -> int | None:
        """When a tick is due next, whatever for."""
        asked = self.state, self.options, self.history
        return min((at for at in (next_deadline(*asked), next_sweep(*asked)) if at is not None), default=None)

    def status(self, position: int, group: int = 0) -> tuple[str, int] | None:
        """(status, retryCount) of a message for a group, or None: deleted, or never meant for the group."""
        view = self.state.groups[group]
        if not 1 <= position < self.state.next_position or position in self.state.deleted:
            return None
        if position >= view.cursor:
            return "pending", 0
        message = view.open.get(position)
        if message is not None:
            return "pending" if message.lease is None else "processing", message.retry_count
        ended = self.history.settled(group, position)
        return None if ended is None else (ended.outcome, ended.retry_count)

    def replayed(self) -> Partition:
        """The state that the records alone lead to."""
        state = Partition(number=1)
        for record in self.records:
            for event in record.events:
                evolve(state, event, record.at, record.shift)
        return state

    def thawed(self) -> Partition:
        """The state after a snapshot of it was written and read."""
        queue = Queue(1, bytes(16), "q", None, None, self.options, START)
        row = partition_row(Slot(1, queue, bytes(16), "Default", START), self.state, len(self.records), set())
        return read_partition(1, cbor2.loads(cbor2.dumps(row)))[-1]

    # -- what holds for every command -------------------------------------------------------------------------

    def decide(self, command: PartitionCommand) -> Any:
        """The decision alone, with no tick before it; nothing comes of it."""
        before = deepcopy(self.state)
        try:
            return decide(self.state, command, self.now, self.options, self.history)
        finally:
            assert self.state == before, f"decide changed the state: {command}"

    def _commit(self, events: tuple[Event, ...]) -> None:
        if not events:
            return
        record = Recorded(len(self.records) + 1, self.now, 0, events)
        for event in events:
            plain = msgspec.to_builtins(event, builtin_types=(bytes,))
            assert msgspec.convert(plain, PartitionEvent, builtin_types=(bytes,)) == event
            evolve(self.state, event, record.at, record.shift)
        self.history.feed(record)
        self.records.append(record)

    def check(self) -> None:
        """Assert the invariants of the state."""
        for group, view in self.state.groups.items():
            self._check_shape(view)
            self._check_counters(group, view)
            if len(self.records) % 16 == 0:
                self._check_surveys(group)  # dear: now and then is enough

    def _check_shape(self, view: GroupView) -> None:
        assert 1 <= view.cursor <= self.state.next_position
        assert view.waiting == sorted(
            (message.available_at, place) for place, message in view.open.items() if message.lease is None
        )
        assert view.places == sorted(place for _, place in view.waiting)
        assert view.next_expiry == min((lease.expires_at for lease in view.leases.values()), default=None)
        assert {(lease.expires_at, lease.id) for lease in view.leases.values()} <= set(view.expiries)
        ended = [lease for lease in view.leases.values() if lease.expires_at <= self.now]
        assert list(ended_leases(view, self.now)) == sorted(ended, key=lambda lease: (lease.expires_at, lease.id))
        for place, message in view.open.items():
            assert place < view.cursor
            assert place not in self.state.deleted
            assert message.lease is None or message.lease is view.leases[message.lease.id]
            assert (message.because is None) == (message.lease is not None)
        for lease in view.leases.values():
            assert lease.positions, "a lease ends with its last message (lesson 25)"
            assert all(view.open[place].lease is lease for place in lease.positions)
        assert sum(len(lease.positions) for lease in view.leases.values()) == view.processing

    def _check_counters(self, group: int, view: GroupView) -> None:
        found = [self.status(place, group) for place in range(1, self.state.next_position)]
        words = [status[0] for status in found if status is not None]
        assert view.pending == words.count("pending")
        assert view.processing == words.count("processing")
        assert view.completed == words.count("completed")
        assert view.failed == words.count("failed")
        assert view.dead_letter == words.count("dead_letter")

    def _check_surveys(self, group: int) -> None:
        """What questions find is what each message is by itself (S1, S5)."""
        places = range(self.state.next_position - 1, 0, -1)
        glances = self.decide(Look(group, tuple(places))).reply
        found = [None if glance is None else (glance.status, glance.retry_count) for glance in glances]
        assert found == [self.status(place, group) for place in places]
        for status in STATUSES:
            expected = [
                place for place, glance in zip(places, glances, strict=True) if glance and glance.status == status
            ]
            surveyed: list[int] = []
            below = self.state.next_position + 5
            while below > 1:
                positions, lower = self.decide(Survey(group, status, below, 3)).reply
                assert lower < below
                below = lower
                surveyed += positions
            assert surveyed == expected
