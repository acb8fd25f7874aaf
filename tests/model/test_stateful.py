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
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace

from queen.commands import (
    Ack,
    AckEntry,
    AckStatus,
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
from tests.model.reference import Copy, ReferenceQueue, Refused
from tests.model.world import PartitionHarness

# What the options may be: mostly as they are by default, else so small that everything falls due within a few steps.
CHOICES: dict[str, list[Any]] = {
    "lease_time": [3, 1, 10],
    "retry_limit": [3, 0, 1],
    "retry_delay": [0, 0, 500, 2000],
    "retry_backoff": [1, 2.5],
    "ttl": [0, 0, 0, 0, 4, 20],
    "dlq_after_max_retries": [False, True],
    "delayed_processing": [0, 0, 0, 2],
    "window_buffer": [0, 0, 0, 0, 1],
    "retention_enabled": [False, False, True],
    "retention_seconds": [0, 0, 8, 25],
    "completed_retention_seconds": [0, 2, 15],
    "ordering": ["strict", "relaxed"],
}
# What an example begins with: anything at all (None), or few options, so that other rules don't cut its story short.
THEMES: list[dict[str, Any] | None] = [
    {},
    None,
    {"retry_delay": 500, "retry_backoff": 2.5},
    {"retention_enabled": True, "completed_retention_seconds": 2},
    {"retention_enabled": True, "completed_retention_seconds": 15, "retry_delay": 2000},
    {"retention_enabled": True, "retention_seconds": 8},
    {"window_buffer": 1},
    {"ttl": 4},
    {"delayed_processing": 2},
]
GROUPS = st.sampled_from([0, 0, 0, 1])
STATUSES: st.SearchStrategy[AckStatus] = st.sampled_from(
    ["completed", "completed", "failed", "failed", "failed", "retry", "dead_letter"]
)
ITEMS = st.tuples(st.sampled_from([None, None, "a", "b", "c"]), st.sampled_from([None, None, None, 0, 1, 5]))
PAUSES = st.sampled_from([0.001, 0.5, 1, 1, 2, 5, 10, 40])

# How often each step is taken. One rule chooses among them: Hypothesis switches single rules off for whole examples,
# and a push, a pop, an ack and the time together are what stories are made of.
WEIGHTS = {
    "push": 4,
    "pop": 7,
    "ack_lease": 6,
    "ack": 3,
    "ack_again": 1,
    "wait": 2,
    "wait_for_deadline": 5,
    "configure": 2,
    "extend": 1,
    "release": 1,
    "retry": 2,
    "bury": 1,
    "delete": 1,
    "seek": 1,
    "join": 1,
    "drip": 0.5,
    "clear": 0.25,
}
# Round robin, since Hypothesis likes the first of a list best.
STEPS = [name for turn in range(28) for name, weight in WEIGHTS.items() if turn < 4 * weight]


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

    @initialize(
        options=st.fixed_dictionaries({name: st.sampled_from(values) for name, values in CHOICES.items()}),
        theme=st.sampled_from(THEMES),
        count=st.integers(1, 5),
    )
    def start(self, options: dict[str, Any], theme: dict[str, Any] | None, count: int) -> None:
        if theme is not None:
            options = {name: options[name] for name in ("ordering", "retry_limit", "lease_time")} | theme
        self._configure(replace(self.real.options, **options))
        self._push([(None, None)] * count)

    @rule(step=st.sampled_from(STEPS), data=st.data())
    def step(self, step: str, data: st.DataObject) -> None:
        getattr(self, step)(data)

    def configure(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(CHOICES)))
        value = data.draw(st.sampled_from(CHOICES[name]))
        self._configure(replace(self.real.options, **{name: value}))

    def _configure(self, options: QueueOptions) -> None:
        self.real.options = self.plain.options = options
        self._settle_time()

    def wait(self, data: st.DataObject) -> None:
        self.real.now += round(data.draw(PAUSES) * 1_000_000)
        self.plain.now = self.real.now
        self._settle_time()

    def wait_for_deadline(self, data: st.DataObject) -> None:
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

    def push(self, data: st.DataObject) -> None:
        self._push(data.draw(st.lists(ITEMS, min_size=1, max_size=4)))

    def _push(self, items: list[tuple[str | None, int | None]]) -> None:
        found = self.real.push(*(PushItem(b"1", name, delay_s=delay) for name, delay in items))
        assert found == self.plain.push(items)

    def drip(self, data: st.DataObject) -> None:
        """A partition that never falls silent (T3)."""
        for _ in range(data.draw(st.integers(1, 12))):
            self._push([(None, None)])
            self.real.now += 900_000
            self.plain.now = self.real.now
            self._settle_time()

    def join(self, data: st.DataObject) -> None:
        cursor = data.draw(st.integers(1, self.real.state.next_position))
        if 1 not in self.real.state.groups:
            self.real.join(1, cursor)
            self.plain.join(1, cursor)

    def pop(self, data: st.DataObject) -> None:
        group = self._group(data)
        batch, auto_ack = data.draw(st.integers(1, 4)), data.draw(st.sampled_from([False, False, False, True]))
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

    def ack(self, data: st.DataObject) -> None:
        """Anything: wrong leases, old leases, repeated entries, messages that were never leased."""
        group = data.draw(GROUPS)
        entries = [self._entry(data, group) for _ in range(data.draw(st.integers(1, 4)))]
        self._ack(Ack(group, tuple(entries)))

    def ack_lease(self, data: st.DataObject) -> None:
        """What a well-behaved consumer does: settles some of what it was given."""
        held = [(group, lease) for group, view in self.real.state.groups.items() for lease in view.leases.values()]
        if held:
            group, lease = data.draw(st.sampled_from(held))
            some = sorted(lease.positions)[: data.draw(st.integers(1, 4))]
            status = data.draw(STATUSES)
            self._ack(Ack(group, tuple(AckEntry(place, status, lease=lease.id) for place in some)))

    def ack_again(self, data: st.DataObject) -> None:
        if self.last_ack is not None:
            self._ack(self.last_ack)

    def _entry(self, data: st.DataObject, group: int) -> AckEntry:
        position = self._position(data, group)
        which = data.draw(st.sampled_from(["none", "own", "own", "other"]))
        lease: bytes | None = None
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

    def extend(self, data: st.DataObject) -> None:
        lease, seconds = self._lease(data), data.draw(st.sampled_from([None, 0, 1, 8]))
        self._both(Extend(lease, seconds), lambda: self.plain.extend(lease, seconds))

    def release(self, data: st.DataObject) -> None:
        lease = self._lease(data)
        self._both(Release(lease), lambda: self.plain.release(lease))

    def retry(self, data: st.DataObject) -> None:
        group = data.draw(GROUPS)
        position = self._position(data, group)
        self._both(Retry(group, position), lambda: self.plain.retry(group, position))

    def bury(self, data: st.DataObject) -> None:
        group = data.draw(GROUPS)
        position = self._position(data, group)
        self._both(Bury(group, position), lambda: self.plain.bury(group, position))

    def delete(self, data: st.DataObject) -> None:
        position = self._position(data, 0)
        self._both(Delete(position), lambda: self.plain.delete(position))

    def clear(self, data: st.DataObject) -> None:
        self._both(Clear(), self.plain.clear)

    def seek(self, data: st.DataObject) -> None:
        group, target = data.draw(GROUPS), data.draw(st.integers(1, self.real.state.next_position))
        self._both(Seek(group, target), lambda: self.plain.seek(group, target))

    def _group(self, data: st.DataObject) -> int:
        """A group that has joined."""
        return data.draw(st.sampled_from(sorted(self.real.state.groups)))

    def _lease(self, data: st.DataObject) -> bytes:
        """Mostly a running lease, else any that was ever given or never."""
        running = [lease for view in self.real.state.groups.values() for lease in view.leases]
        if running and data.draw(st.integers(0, 3)) > 0:
            return data.draw(st.sampled_from(running))
        return lease_id(data.draw(st.integers(1, self.pops + 1)))

    def _position(self, data: st.DataObject, group: int) -> int:
        """Mostly a message that something has happened to, else any position that was ever given or never."""
        met = [m.position for m in self.plain.messages if group in m.copies and m.copies[group] != Copy()]
        if met and data.draw(st.integers(0, 3)) > 0:
            return data.draw(st.sampled_from(met))
        return data.draw(st.integers(1, self.real.state.next_position))

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
                assert offered is None
                assert expected is None
            elif expected[0] <= self.real.now:
                assert offered.ready_at <= self.real.now  # since when is not asked
            else:
                assert (offered.ready_at, offered.because) == expected, group

    def teardown(self) -> None:
        assert self.real.replayed() == self.real.state
        assert self.real.thawed() == self.real.state
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
