"""Known faults, to be planted one at a time into the real code: what the checker of the simulation must notice.

Each is a mistake that somebody could make. `SEEDS` are the first seeds that catch them, by `tests.campaigns.teeth`: a
change of the engine may move them, since it changes what chance meets.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from queen import clock
from queen.actors import (
    ack_rules,
    admission,
    availability,
    creation,
    delivery_rules,
    message_rules,
    partition,
    partition_rules,
    recovery,
    router,
    snapshots,
    time_rules,
    transaction,
)
from queen.actors.catalogue_state import Slot
from queen.actors.feed import Feed
from queen.actors.ranges import RangeSet
from queen.actors.recovery import Recovery
from queen.actors.router import Router
from queen.clock import SystemClock
from queen.commands import Ack, Release
from queen.events import LeaseExtended, MessagesSettled
from queen.names import SECOND
from queen.store import writer
from queen.store.projections import Projections
from queen.store.writer import Writer

Plant = Callable[[pytest.MonkeyPatch], None]


def plant(target: Any, name: str, wrong: Callable[..., Any]) -> Plant:
    """Replace `name` of `target` by `wrong`, which gets the right one first."""
    right = getattr(target, name)
    return lambda patch: patch.setattr(target, name, lambda *given, **named: wrong(right, *given, **named))


def plant_rule(command: type, wrong: Callable[..., Any]) -> Plant:
    """Replace the rule for a whole command."""
    right = partition_rules._RULES[command]
    return lambda patch: patch.setitem(partition_rules._RULES, command, lambda *given: wrong(right, *given))


def deaf(right: Any, self: Router, line: Any, slot: Any, group: int) -> None:
    line.set_ready(slot)


async def torn(right: Any, self: Writer) -> None:
    """The last record of a group is left for the next commit."""
    group, rest, fresh = self._group, writer._Group(), writer._Group
    if len(group.frames) > 1:
        rest.frames.append(group.frames.pop())
        rest.thens, group.thens = group.thens, []
        left = [rest]
        writer._Group = lambda: left.pop() if left else fresh()  # type: ignore[misc, assignment]
    try:
        await right(self)
    finally:
        writer._Group = fresh  # type: ignore[misc]


def unretried(right: Any, row: list[Any]) -> Any:
    view = right(row)
    for message in view.open.values():
        message.retry_count = 0
    return view


def counted_release(right: Any, *given: Any) -> Any:
    decision = right(*given)
    events = tuple(replace(event, retry_counts=tuple(n + 1 for n in event.retry_counts)) for event in decision.events)
    return decision._replace(events=events)


def unfenced(right: Any, state: Any, command: Ack, *rest: Any) -> Any:
    return right(state, replace(command, entries=tuple(replace(e, lease=None) for e in command.entries)), *rest)


def without_deadline(right: Any, self: Recovery, *given: Any) -> None:
    ticker = self._house.ticker
    expect, ticker.expect = ticker.expect, lambda *_: None  # type: ignore[method-assign]
    try:
        right(self, *given)
    finally:
        ticker.expect = expect  # type: ignore[method-assign]


def forgets(*kinds: type) -> Callable[..., Any]:
    """`evolve` passes over such events while the journal is folded."""

    def evolve(right: Any, state: Any, event: Any, at: int, shift: int = 0) -> None:
        if not isinstance(event, kinds):
            right(state, event, at, shift)

    return evolve


def off_by_one(right: Any, self: Slot, counts: Any, cursor: int) -> None:
    right(self, counts._replace(completed=counts.completed + 1) if counts.dead_letter else counts, cursor)


def by_the_wall(right: Any, self: SystemClock) -> int:
    return int(vars(clock)["time"].time_ns() // 1000)


def tells_at_once(right: Any, self: Feed, core: Any) -> None:
    while self._undurable:
        self._tell(self._undurable.popleft()[1])


def one_attempt_more(right: Any, self: Any, *given: Any, **named: Any) -> Any:
    self._options, kept = replace(self._options, retry_limit=self._options.retry_limit + 1), self._options
    try:
        return right(self, *given, **named)
    finally:
        self._options = kept


def undeleted(right: Any, number: int, row: list[Any]) -> Any:
    found = right(number, row)
    found[-1].deleted = RangeSet()
    return found


def answered_at_once(right: Any, self: Writer, callback: Any) -> None:
    if isinstance(callback, partial):
        right(self, callback)  # the feed's
    else:
        callback(self._failure)


def unbounded(patch: pytest.MonkeyPatch) -> None:
    for module in (admission, creation):
        patch.setattr(module, "queue_full", lambda *_: None)


def unordered(patch: pytest.MonkeyPatch) -> None:
    for module in (availability, delivery_rules, router):
        patch.setattr(module, "STRICT", "never")


FAULTS: dict[str, Plant] = {
    "O5: a wake-up is lost": plant(Router, "_ready", deaf),
    "L5: leases end up to a second early": plant(
        time_rules, "ended_leases", lambda right, view, now: right(view, now + SECOND)
    ),
    "law 3: answers don't wait for the sync": plant(Writer, "then", answered_at_once),
    "P1: a joint commit is torn": plant(Writer, "_commit", torn),
    "R1: retry counts don't survive a restart": plant(snapshots, "_view_from", unretried),
    "L1: strict order is not exclusive": unordered,
    "L8: a release counts as an attempt": plant_rule(Release, counted_release),
    "A4: a stale lease is accepted": plant_rule(Ack, unfenced),
    "P4: a duplicate is stored after a restart": plant(Projections, "_named", lambda *_: None),
    "L5, L7: nobody remembers deadlines after a restart": plant(Recovery, "_announce", without_deadline),
    "O8: what is completed comes back after a restart": plant(recovery, "evolve", forgets(MessagesSettled)),
    "L6, L7: an extension is forgotten in a restart": plant(recovery, "evolve", forgets(LeaseExtended)),
    "S2: a counter is off by one": plant(Slot, "tell", off_by_one),
    "T6: the wall clock moves deadlines": plant(SystemClock, "now", by_the_wall),
    "L8: who goes away keeps what it was given": plant(Router, "leave", lambda *_: None),
    "W1: the feed tells before the commit": plant(Feed, "_await_commit", tells_at_once),
    "R2: one attempt too many": plant(ack_rules.Outcomes, "fail", one_attempt_more),
    "R5: a deleted message comes back after a restart": plant(snapshots, "read_partition", undeleted),
    "P6: maxSize is not looked at": unbounded,
    "a transaction goes on without a refused acknowledgement": plant(transaction, "_refuse", lambda *_: None),
    "G2: a group gets what was pushed before it came": plant(partition, "first_position", lambda *_: 1),
    "S1: a seek forgets what was settled": plant(message_rules, "_settled_before", lambda *_: (0, 0, 0)),
}
SEEDS: dict[str, int] = {
    "O5: a wake-up is lost": 0,
    "L5: leases end up to a second early": 0,
    "law 3: answers don't wait for the sync": 0,
    "P1: a joint commit is torn": 0,
    "R1: retry counts don't survive a restart": 1,
    "L1: strict order is not exclusive": 0,
    "L8: a release counts as an attempt": 1,
    "A4: a stale lease is accepted": 14,
    "P4: a duplicate is stored after a restart": 0,
    "L5, L7: nobody remembers deadlines after a restart": 7,
    "O8: what is completed comes back after a restart": 0,
    "L6, L7: an extension is forgotten in a restart": 21,
    "S2: a counter is off by one": 2,
    "T6: the wall clock moves deadlines": 7,
    "L8: who goes away keeps what it was given": 0,
    "W1: the feed tells before the commit": 0,
    "R2: one attempt too many": 1,
    "R5: a deleted message comes back after a restart": 1,
    "P6: maxSize is not looked at": 10,
    "a transaction goes on without a refused acknowledgement": 2,
    "G2: a group gets what was pushed before it came": 2,
    "S1: a seek forgets what was settled": 7,
}
