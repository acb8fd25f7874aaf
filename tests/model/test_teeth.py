"""The state machine's teeth: one fault at a time is planted in a rule, and it must be noticed.

The examples are derived from the machine's code alone (derandomized), so that this test gives the same answer every
time. Without a planted fault the same examples pass.
"""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from msgspec.structs import replace

from queen.actors import (
    ack_rules,
    availability,
    delivery_rules,
    message_rules,
    partition_rules,
    partition_state,
    ranges,
    time_rules,
)
from queen.commands import Ack, Extend, Pop
from queen.events import LeaseExtended
from tests.model import test_time
from tests.model.test_stateful import Comparison

BOUNDED = settings(
    max_examples=400,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    database=None,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.generate,),
)

Plant = Callable[[pytest.MonkeyPatch], None]


def plant(target: Any, name: str, wrong: Callable[..., Any]) -> Plant:
    """Replace the rule `name` of `target` by `wrong`, which gets the right one first."""
    right = getattr(target, name)
    return lambda patch: patch.setattr(target, name, lambda *given, **named: wrong(right, *given, **named))


def plant_rule(command: type, wrong: Callable[..., Any]) -> Plant:
    """Replace the rule for a whole command."""
    right = partition_rules._RULES[command]
    return lambda patch: patch.setitem(partition_rules._RULES, command, lambda *given: wrong(right, *given))


def extension_may_shorten(right: Any, state: Any, command: Extend, now: int, options: Any, history: Any) -> Any:
    decision = right(state, command, now, options, history)
    seconds = options.lease_time if command.seconds is None else command.seconds
    group, lease = delivery_rules._lease(state, command.lease)
    return decision._replace(
        events=(LeaseExtended(group, lease.id, now + seconds * 1_000_000),), reply=now + seconds * 1_000_000
    )


def unfenced(right: Any, state: Any, command: Ack, *rest: Any) -> Any:
    return right(state, replace(command, entries=tuple(replace(e, lease=None) for e in command.entries)), *rest)


def decide_writes(right: Any, state: Any, *rest: Any) -> Any:
    state.latest_shown += 1
    return right(state, *rest)


def lease_outlives_its_messages(right: Any, view: Any, lease: Any, position: int) -> None:
    lease.positions.remove(position)


def never_a_failure(right: Any, self: Any, position: int, message: Any, asked: Any, error: Any, delayed: bool) -> str:
    self.give_back(position, message, error)
    return "retry_scheduled"


def one_attempt_more(right: Any, self: Any, *given: Any, **named: Any) -> Any:
    self._options, kept = replace(self._options, retry_limit=self._options.retry_limit + 1), self._options
    try:
        return right(self, *given, **named)
    finally:
        self._options = kept


def end_of_lease_waits(right: Any, self: Any, *given: Any, **named: Any) -> Any:
    return right(self, *given, **(named | {"delayed": True}))


def greedy_release(right: Any, view: Any, *given: Any) -> Any:
    """A nack puts the message at the end: its neighbours are looked at in the order of their return."""
    return right(view, *given)[::-1]


FAULTS: dict[str, Plant] = {
    "L1 strict order is not enforced": lambda patch: patch.setattr(delivery_rules, "STRICT", "never"),
    "L5 leases end a microsecond late": plant(time_rules, "_end_leases", lambda right, s, now, o: right(s, now - 1, o)),
    "L5 an ended lease is not counted": plant(ack_rules.Outcomes, "fail", never_a_failure),
    "L6 an extension may shorten": plant_rule(Extend, extension_may_shorten),
    "L2 relaxed order sets nothing aside": plant(
        delivery_rules, "_take_fresh", lambda right, *given: (right(*given)[0], [])
    ),
    "lesson 25: a lease outlives its messages": plant(partition_state, "_leave", lease_outlives_its_messages),
    "lesson 28: a delivery is out of order": plant(delivery_rules, "_take_waiting", greedy_release),
    "A4 acks are not fenced": plant_rule(Ack, unfenced),
    "A3 an acked message takes any ack again": plant(
        ack_rules, "_repeat", lambda right, entry, before, reply, lease: reply
    ),
    "A4 a pending message that waits for a retry may be acked": plant(ack_rules, "_ack_waiting", lambda *_: None),
    "R1 the retry delay is ignored": plant(ack_rules, "_retry_delay_ms", lambda *_: 0),
    "R2 one attempt too many": plant(ack_rules.Outcomes, "fail", one_attempt_more),
    "Z3 an ended lease waits for the retry delay": plant(ack_rules.Outcomes, "fail", end_of_lease_waits),
    "R5 deleted messages are delivered": plant(
        ranges.RangeSet, "gaps", lambda right, self, start, stop: iter([(start, stop)] if start < stop else [])
    ),
    "R5 deleting does not count what was settled": plant(message_rules, "count_settled", lambda *_: ()),
    "T1 messages past their ttl stay": plant(time_rules, "_give_up", lambda *_: []),
    "T2 a message's own delay is ignored": plant(
        availability, "ready_at", lambda right, run, *rest: right(run._replace(delays_s=()), *rest)
    ),
    "T3 windows are ignored": plant(delivery_rules, "window_end", lambda *_: 0),
    "T3 ten windows are never up": lambda patch: patch.setattr(availability, "WINDOWS", 10**6),
    "T4 a sweep takes what is pending again": plant(time_rules, "_done", lambda *_: True),
    "Z15 a seek forgets what was settled": plant(message_rules, "_settled_before", lambda *_: (0, 0, 0)),
    "decide writes": plant_rule(Pop, decide_writes),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_noticed(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    FAULTS[fault](monkeypatch)
    with pytest.raises(Exception):  # noqa: B017, PT011  # an assertion of ours, or the rules fall over themselves
        run_state_machine_as_test(Comparison, settings=BOUNDED)


def test_a_fault_that_needs_a_long_story_is_noticed_by_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """T4: time counts from an earlier settlement (the machine comes across it in long campaigns only)."""
    any_settlement = 2**62
    plant(time_rules, "_done", lambda right, state, place, due, history: right(state, place, any_settlement, history))(
        monkeypatch
    )
    with pytest.raises(AssertionError):
        test_time.test_t4_the_time_counts_from_the_latest_settlement()
    with pytest.raises(AssertionError):
        test_time.test_t4_a_message_that_another_group_still_needs_stays(apart=5)


def test_without_a_fault_the_same_examples_pass() -> None:
    run_state_machine_as_test(Comparison, settings=BOUNDED)
