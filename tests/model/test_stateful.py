"""The partition's rules against the plain reference queue, over random sequences of commands and time steps.

The default profile is for every run of the suite. A long campaign:

    QUEEN_MODEL_EXAMPLES=10000 QUEEN_MODEL_STEPS=50 python -m pytest tests/model/test_stateful.py

Every step compares replies, the status and retryCount of every message for every group, and when each group's
next message is available; `world.py` adds the invariants, the end of each example the replay.
"""

import os
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from queen.commands import (
    Ack,
    AckEntry,
    Bury,
    Clear,
    Delete,
    Extend,
    Pop,
    PushItem,
    Release,
    Retry,
    Seek,
)
from queen.errors import Conflict, NotFound
from queen.options import QueueOptions
from queen.replies import Grant
from tests.model.reference import ReferenceQueue, Refused
from tests.model.world import PartitionHarness

# What the options may be: mostly small, so that everything falls due within a few steps.
CHOICES: dict[str, list[Any]] = {
    "lease_time": [1, 3, 10],
    "retry_limit": [0, 1, 3],
    "retry_delay": [0, 500, 2000],
    "retry_backoff": [1, 2.5],
    "ttl": [0, 0, 0, 4, 20],
    "dlq_after_max_retries": [False, True],
    "delayed_processing": [0, 0, 2],
    "window_buffer": [0, 0, 0, 1],
    "retention_enabled": [False, True],
    "retention_seconds": [0, 0, 8, 25],
    "completed_retention_seconds": [0, 2, 15],
    "ordering": ["strict", "relaxed"],
}
POSITIONS = st.integers(min_value=1, max_value=14)
GROUPS = st.sampled_from([0, 0, 1])
STATUSES = st.sampled_from(["completed", "completed", "failed", "failed", "retry", "dead_letter"])
# Which lease an ack names: none, the message's own, or the n-th that was ever given (or never).
LEASES = st.sampled_from(["none", "own", "own", "other"])
ITEMS = st.tuples(st.sampled_from([None, None, "a", "b", "c"]), st.sampled_from([None, None, None, 0, 1, 5]))
STEPS = st.sampled_from([0.001, 0.5, 1, 1, 2, 5, 10, 40])


def lease_id(number: int) -> bytes:
    """The id of the n-th pop's lease."""
    return number.to_bytes(16)


class Comparison(RuleBasedStateMachine):
    """Runs everything on both, and compares."""

    def __init__(self) -> None:
        super().__init__()
        self.real = PartitionHarness()
        self.plain = ReferenceQueue(self.real.options, self.real.now)
        self.pops = 0
        self.last_ack: Ack | None = None

    # -- the world -------------------------------------------------------------------------------------------

    @initialize(options=st.fixed_dictionaries({name: st.sampled_from(values) for name, values in CHOICES.items()}))
    def start(self, options: dict[str, Any]) -> None:
        # Half of the examples have plain options, so that long stories are not always cut short by time.
        if options["retention_enabled"]:
            self._configure(replace(self.real.options, **options))
        else:
            self._configure(replace(self.real.options, ordering=options["ordering"], lease_time=options["lease_time"]))

    @rule(name=st.sampled_from(sorted(CHOICES)), data=st.data())
    def configure(self, name: str, data: st.DataObject) -> None:
        value = data.draw(st.sampled_from(CHOICES[name]))
        self._configure(replace(self.real.options, **{name: value}))

    def _configure(self, options: QueueOptions) -> None:
        self.real.options = self.plain.options = options
        self._settle_time()

    @rule(seconds=STEPS)
    def wait(self, seconds: float) -> None:
        self.real.now += round(seconds * 1_000_000)
        self.plain.now = self.real.now
        self._settle_time()

    @rule()
    def wait_for_deadline(self) -> None:
        """To the very microsecond at which something happens: where off-by-one faults live."""
        instants = [self.real.next_deadline()]
        for group in self.real.state.groups:
            offered = self.real.offer(group)
            instants.append(None if offered is None else offered.ready_at)
        later = [instant for instant in instants if instant is not None and instant > self.real.now]
        if later:
            self.real.now = self.plain.now = min(later)
            self._settle_time()

    def _settle_time(self) -> None:
        self.real.tick()
        self.plain.pass_time()
        deadline = self.real.next_deadline()
        assert deadline is None or deadline > self.real.now

    # -- commands -------------------------------------------------------------------------------------------

    @rule(items=st.lists(ITEMS, min_size=1, max_size=4))
    def push(self, items: list[tuple[str | None, int | None]]) -> None:
        found = self.real.push(*(PushItem(b"1", name, delay_s=delay) for name, delay in items))
        assert found == self.plain.push(items)

    @precondition(lambda self: 1 not in self.real.state.groups)
    @rule(data=st.data())
    def join(self, data: st.DataObject) -> None:
        cursor = data.draw(st.integers(1, self.real.state.next_position))
        self.real.join(1, cursor)
        self.plain.join(1, cursor)

    @rule(group=GROUPS, batch=st.integers(1, 4), auto_ack=st.sampled_from([False, False, False, True]))
    def pop(self, group: int, batch: int, auto_ack: bool) -> None:
        if group not in self.real.state.groups:
            return
        self.pops += 1
        offered = self.real.offer(group)
        reply = self.real.do(Pop(group, batch, lease_id(self.pops), auto_ack))
        expected = self.plain.pop(group, batch, lease_id(self.pops), auto_ack)
        if isinstance(reply, Grant):
            assert [(taken.position, taken.retry_count) for taken in reply.taken] == expected
            assert reply.expires_at == self.real.now + self.real.options.lease_time * 1_000_000
            assert all(taken.pushed_at <= self.real.now for taken in reply.taken)
        else:
            assert (reply.because, reply.until) == expected
        assert isinstance(reply, Grant) == (offered is not None and offered.ready_at <= self.real.now)

    @rule(data=st.data(), group=GROUPS, count=st.integers(1, 4))
    def ack(self, data: st.DataObject, group: int, count: int) -> None:
        self._ack(Ack(group, tuple(self._entry(data, group) for _ in range(count))))

    @rule(data=st.data(), status=STATUSES)
    def ack_lease(self, data: st.DataObject, status: str) -> None:
        """What a well-behaved consumer does: settles some of what it was given."""
        held = [(group, lease) for group, view in self.real.state.groups.items() for lease in view.leases.values()]
        if held:
            group, lease = data.draw(st.sampled_from(held))
            some = sorted(lease.positions)[: data.draw(st.integers(1, 4))]
            self._ack(Ack(group, tuple(AckEntry(place, status, lease=lease.id) for place in some)))

    @rule()
    def ack_again(self) -> None:
        if self.last_ack is not None:
            self._ack(self.last_ack)

    def _entry(self, data: st.DataObject, group: int) -> AckEntry:
        view = self.real.state.groups.get(group)
        likely = sorted(view.open) if view is not None else []
        position = data.draw(st.sampled_from(likely) if likely and data.draw(st.booleans()) else POSITIONS)
        which, lease = data.draw(LEASES), None
        if which == "other":
            lease = lease_id(data.draw(st.integers(1, self.pops + 1)))
        elif which == "own":
            stored = self.plain._find(position)
            copy = None if stored is None else stored.copies.get(group)
            lease = None if copy is None else copy.lease
        return AckEntry(position, data.draw(STATUSES), lease=lease)

    def _ack(self, command: Ack) -> None:
        self.last_ack = command
        # A batch means what its entries mean one after the other.
        expected = [self.plain.ack(command.group, e.position, e.status, e.lease) for e in command.entries]
        events = self.real.events(command)
        found = [(reply.status, reply.retry_count) for reply in self.real.reply]
        assert found == expected, command
        assert all(bool(reply.error) != reply.accepted for reply in self.real.reply)
        assert events or all(reply.at <= self.real.now for reply in self.real.reply)

    @rule(data=st.data(), seconds=st.sampled_from([None, 0, 1, 8]))
    def extend(self, data: st.DataObject, seconds: int | None) -> None:
        lease = self._some_lease(data)
        self._both(Extend(lease, seconds), lambda: self.plain.extend(lease, seconds))

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        lease = self._some_lease(data)
        self._both(Release(lease), lambda: self.plain.release(lease))

    def _some_lease(self, data: st.DataObject) -> bytes:
        running = [lease for view in self.real.state.groups.values() for lease in view.leases]
        if running and data.draw(st.booleans()):
            return data.draw(st.sampled_from(running))
        return lease_id(data.draw(st.integers(1, self.pops + 1)))

    @rule(group=GROUPS, position=POSITIONS)
    def retry(self, group: int, position: int) -> None:
        self._both(Retry(group, position), lambda: self.plain.retry(group, position))

    @rule(group=GROUPS, position=POSITIONS)
    def bury(self, group: int, position: int) -> None:
        self._both(Bury(group, position), lambda: self.plain.bury(group, position))

    @rule(position=POSITIONS)
    def delete(self, position: int) -> None:
        self._both(Delete(position), lambda: self.plain.delete(position))

    @rule(sure=st.sampled_from([False, False, False, True]))
    def clear(self, sure: bool) -> None:
        if sure:
            self._both(Clear(), self.plain.clear)

    @rule(group=GROUPS, position=POSITIONS)
    def seek(self, group: int, position: int) -> None:
        target = min(position, self.real.state.next_position)
        self._both(Seek(group, position), lambda: (self.plain.seek(group, target), target)[1])

    def _both(self, command: Any, plain: Any) -> None:
        expected: Any
        try:
            expected = plain()
        except Refused as refusal:
            expected = refusal.args[0]
        try:
            found = self.real.do(command)
        except NotFound:
            found = "not_found"
        except Conflict:
            found = "conflict"
        assert found == expected, command

    # -- what holds after every step --------------------------------------------------------------------------

    @invariant()
    def same_messages(self) -> None:
        self._settle_time()
        for group in self.real.state.groups:
            for position in range(1, self.real.state.next_position):
                found, expected = self.real.status(position, group), self.plain.status(position, group)
                assert found == expected, (group, position)

    @invariant()
    def same_offers(self) -> None:
        for group in self.real.state.groups:
            offered = self.real.offer(group)
            expected = self.plain.available(group)
            if expected is None or offered is None:
                assert offered == expected
            elif expected[0] <= self.real.now:
                assert offered.ready_at <= self.real.now  # since when is not asked
            else:
                assert (offered.ready_at, offered.because) == expected, group

    def teardown(self) -> None:
        assert self.real.replayed() == self.real.state
        super().teardown()


def campaign(examples: int, steps: int) -> settings:
    """How long and how deep to look."""
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
    )


Comparison.TestCase.settings = campaign(
    int(os.environ.get("QUEEN_MODEL_EXAMPLES", "400")), int(os.environ.get("QUEEN_MODEL_STEPS", "40"))
)
TestComparison = Comparison.TestCase
