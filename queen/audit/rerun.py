"""One partition's script played again by the rules, under other options, in memory. Pure.

What is held fixed: each push, each operator's command, and when consumers came and for how many messages. A consumer
that finds less than it got then waits for the rest. What it does with a message is what was done at the message's
delivery of the same count; beyond that, what was done at the last one, by a consumer that waits; and a message that
was never delivered is completed at once. `assumed` counts the deliveries of which nothing was recorded.
"""

from hashlib import sha256
from heapq import heappop, heappush
from typing import Any, NamedTuple

from queen.actors.availability import next_deadline, offer
from queen.actors.decision import Decision
from queen.actors.partition_rules import decide
from queen.actors.partition_state import Partition, evolve
from queen.audit.remembered import Remembered
from queen.audit.script import Act, Attempt, Closed, Configured, Fixed, Forgotten, Script, Step, Ticked, Visit
from queen.commands import Ack, AckEntry, Extend, PartitionCommand, Pop, Release, Tick
from queen.errors import QueenError
from queen.events import AnyEvent, MessagesDeleted, MessagesReturned
from queen.names import SECOND
from queen.options import QueueOptions
from queen.replies import Grant

GRACE = SECOND
"""How late the server may look at what is due: by the end of a recording, what fell due just then is still open."""
_LAST = 2**63
_AT_ONCE = [Act("ack", 0, _LAST, 0)]


class Told(NamedTuple):
    """An event of the re-run; `timed`: time brought it."""

    at: int
    event: AnyEvent
    timed: bool


class _Due(NamedTuple):
    """What a consumer does about messages that it was given: its acts of one record, at one time."""

    group: int
    kind: str


class _Wake(NamedTuple):
    """Something may be there for those who wait."""


class Rerun:
    """`state` and `history` are as at the beginning, and are changed. `started` says how many attempts each message had
    had by then, by group and position."""

    def __init__(
        self,
        script: Script,
        state: Partition,
        history: Remembered,
        options: QueueOptions,
        started: dict[tuple[int, int], int],
    ) -> None:
        self.state = state
        self.history = history
        self.events: list[Told] = []
        self.refused = 0
        self.assumed = 0
        self._options = options
        self._attempts = script.attempts
        self._ended = script.ended
        self._count = dict(started)
        self._given_at = {key: script.attempts[key][count - 1].at for key, count in started.items()}
        self._heap: list[tuple[int, int, int, Step | _Due | _Wake]] = []
        self._pushed = 0
        self._due: dict[tuple[int, int, _Due], list[tuple[Act, int, bytes]]] = {}
        self._waiting: list[Visit] = []
        self._closed = False
        self._seq = _LAST
        for cue in script.cues:
            self._put(cue.at, cue.seq, cue.step)

    def run(self, begin: int, end: int) -> None:
        """From time `begin` on, up to `end`."""
        self._resume(begin)
        while self._heap and not self._closed:
            at, seq, _, step = heappop(self._heap)
            if at > end:
                break
            if not isinstance(step, Ticked):
                self._catch_up(at)
            self._play(at, seq, step)
            self._serve(at)
        if not self._closed:
            self._catch_up(end - GRACE)

    def _resume(self, begin: int) -> None:
        """What consumers do later about what they had been given before."""
        for (group, position), count in self._count.items():
            attempt = self._attempts[group, position][count - 1]
            message = self.state.groups[group].open.get(position) if group in self.state.groups else None
            lease = None if message is None else message.last_lease
            for act in attempt.acts:
                if attempt.at + act.delay > begin and lease is not None:
                    self._plan(group, position, attempt.at, act, lease)

    def _put(self, at: int, seq: int, step: Step | _Due | _Wake) -> None:
        self._pushed += 1
        heappush(self._heap, (at, seq, self._pushed, step))

    # -- steps --------------------------------------------------------------------------------------------

    def _play(self, at: int, seq: int, step: Step | _Due | _Wake) -> None:
        match step:
            case Fixed():
                self._record(at, Decision((step.event,)), step.shift)
            case Visit():
                self._visit(at, step)
            case Ticked():
                deadline = self._deadline()
                if deadline is not None and deadline <= at:
                    self._record(at, self._decide(Tick(), at), timed=True)
            case Configured():
                self._options = step.options
            case Forgotten():
                self.state.groups.pop(step.group, None)
            case Closed():
                self._closed = True
            case _Due():
                self._consume(at, seq, step)
            case _Wake():
                pass
            case _:
                self._command(at, step)

    def _command(self, at: int, command: PartitionCommand) -> Any:
        """Its reply; None where the rules refuse it now."""
        try:
            decision = self._decide(command, at)
        except (QueenError, KeyError):
            self.refused += 1
            return None
        self._record(at, decision)
        return decision.reply

    def _visit(self, at: int, visit: Visit) -> None:
        if visit.group not in self.state.groups:
            return
        pop = Pop(visit.group, visit.batch, visit.lease, visit.auto_ack, visit.worker)
        decision = self._decide(pop, at)
        left = visit.batch
        if isinstance(decision.reply, Grant):
            self._record(at, decision)
            positions = [taken.position for taken in decision.reply.taken]
            left -= len(positions)
            for position in positions:
                self._deliver(at, visit, position)
        if left:
            self._wait(visit, left)

    def _deliver(self, at: int, visit: Visit, position: int) -> None:
        key = visit.group, position
        count = self._count[key] = self._count.get(key, 0) + 1
        self._given_at[key] = at
        attempts = self._attempts.get(key, [])
        if visit.auto_ack:
            return
        if count > len(attempts):
            self.assumed += 1
        for act in attempts[min(count, len(attempts)) - 1].acts if attempts else _AT_ONCE:
            self._plan(visit.group, position, at, act, visit.lease)

    def _plan(self, group: int, position: int, at: int, act: Act, lease: bytes) -> None:
        due = _Due(group, act.kind)
        key = at + act.delay, act.seq, due
        if key not in self._due:
            self._due[key] = []
            self._put(at + act.delay, act.seq, due)
        self._due[key].append((act, position, lease))

    def _consume(self, at: int, seq: int, due: _Due) -> None:
        acts = sorted(self._due.pop((at, seq, due)), key=_order)
        leases = dict.fromkeys(lease for _, _, lease in acts)
        if due.kind == "ack":
            entries = tuple(AckEntry(position, act.status, act.error, lease) for act, position, lease in acts)
            reply = self._command(at, Ack(due.group, entries))
            self.refused += sum(not settlement.accepted for settlement in reply or ())
            return
        for lease in leases:
            command = Release(lease) if due.kind == "release" else Extend(lease, acts[0][0].seconds)
            self._command(at, command)

    # -- who waits ----------------------------------------------------------------------------------------

    def _wait(self, visit: Visit, count: int) -> None:
        """It got less than it came for, and goes on under a lease of its own."""
        lease = sha256(visit.lease + count.to_bytes(4)).digest()[:16]
        self._waiting.append(visit._replace(batch=count, lease=lease))

    def _serve(self, at: int) -> None:
        """Whoever waits gets what there is; and is woken when there may be more."""
        if not self._waiting or self._closed:
            return
        waiting, self._waiting = self._waiting, []
        for visit in waiting:
            if self._ready(visit.group, at):
                self._visit(at, visit)
            else:
                self._waiting.append(visit)
        times = [self._deadline(), *(self._ready_at(group) for group in {visit.group for visit in self._waiting})]
        later = [time for time in times if time is not None and time > at]
        if later:
            self._put(min(later), _LAST, _Wake())

    def _ready(self, group: int, at: int) -> bool:
        ready_at = self._ready_at(group)
        return ready_at is not None and ready_at <= at

    def _ready_at(self, group: int) -> int | None:
        if group not in self.state.groups:
            return None
        found = offer(self.state, group, self._options, self.history)
        return None if found is None else found.ready_at

    # -- the rules ----------------------------------------------------------------------------------------

    def _decide(self, command: PartitionCommand, at: int) -> Decision:
        return decide(self.state, command, at, self._options, self.history)

    def _deadline(self) -> int | None:
        return next_deadline(self.state, self._options, self.history)

    def _catch_up(self, at: int) -> None:
        """What time has brought by then, each thing at its time. Retention has time (T4), as it has in a server."""
        while (deadline := self._deadline()) is not None and deadline <= at:
            decision = self._decide(Tick(), deadline)
            drops = any(isinstance(event, MessagesDeleted) for event in decision.events)
            if not decision.events or (drops and deadline > at - GRACE):
                return
            self._record(deadline, decision, timed=True)

    def _record(self, at: int, decision: Decision, shift: int = 0, *, timed: bool = False) -> None:
        if not decision.events:
            return
        self._seq += 1
        for event in decision.events:
            evolve(self.state, event, at, shift)
            self.events.append(Told(at, event, timed))  # type: ignore[arg-type]  # the rules' events are all of ours
        self.history.feed(self._seq, at, shift, decision.events)  # type: ignore[arg-type]
        for event in decision.events:
            if isinstance(event, MessagesReturned):
                self._give_chances(event, at)

    def _give_chances(self, event: MessagesReturned, at: int) -> None:
        """A message whose last attempt was its end in the recording, and is not now: somebody will come for it."""
        for position in event.positions:
            key = event.group, position
            attempts, count = self._attempts.get(key, []), self._count.get(key, 0)
            if key in self._ended and count >= len(attempts) and not self._is_awaited(key, attempts[-1], at):
                lease = sha256(b"%d %d %d" % (event.group, position, count)).digest()[:16]
                self._waiting.append(Visit(event.group, 1, lease))

    def _is_awaited(self, key: tuple[int, int], attempt: Attempt, at: int) -> bool:
        """Whether its consumer will yet speak, though its lease has ended."""
        return any(act.kind == "ack" and self._given_at[key] + act.delay > at for act in attempt.acts)


def _order(entry: tuple[Act, int, bytes]) -> int:
    return entry[0].order
