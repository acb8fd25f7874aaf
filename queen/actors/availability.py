"""What could be delivered, and when: the questions that the rules and the router ask of a partition's state. Pure.

Nothing here is told to anybody by itself; the router's index of partitions is made of `offer`s, the ticker's heaps
of `next_deadline`s and `next_sweep`s.
"""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from queen.actors.partition_state import GroupView, Partition
from queen.events import MessagesPushed
from queen.history import History, PushedRun
from queen.names import SECOND
from queen.options import STRICT, QueueOptions
from queen.replies import Blocked, Nothing

# How far a relaxed partition looks past delayed messages, and how many it sets aside: each costs memory.
LOOK_AHEAD = 1000
# A partition that never falls silent is delivered once its oldest message is this many windows old (T3).
WINDOWS = 10


class Fresh(NamedTuple):
    """A message that was never delivered to the group; `ready_at` is when its delay is over (T2)."""

    position: int
    pushed_at: int
    ready_at: int
    sure: bool
    """Whether every later message is ready no earlier (so that there is no point in looking further)."""


class Offer(NamedTuple):
    """From `ready_at` on, a pop of the group would get a message; `head_at` is the age that ranks it (O3)."""

    ready_at: int
    head_at: int
    because: Blocked | None


def sections(state: Partition, view: GroupView, history: History) -> Iterator[tuple[int, int, PushedRun]]:
    """From the cursor on, what was never delivered to the group, as (start, stop) within the record that pushed it."""
    position = state.deleted.skip(view.cursor)
    if position >= state.next_position:
        return
    for run in history.runs(position):
        for start, stop in state.deleted.gaps(max(run.first, position), run.first + run.length):
            yield start, stop, run


def ready_at(run: PushedRun, position: int, options: QueueOptions) -> int:
    """When the delay of a message that was never delivered is over: its own, else the queue's (T2)."""
    own = run.delays_s[position - run.first] if run.delays_s else None
    return run.pushed_at + (options.delayed_processing if own is None else own) * SECOND


def fresh(state: Partition, view: GroupView, options: QueueOptions, history: History) -> Iterator[Fresh]:
    """Messages from the cursor on, in order."""
    for start, stop, run in sections(state, view, history):
        for position in range(start, stop):
            ready = ready_at(run, position, options)
            yield Fresh(position, run.pushed_at, ready, position > state.last_own_delay)


def head(state: Partition, view: GroupView, options: QueueOptions, history: History) -> Fresh | None:
    """The first message from the cursor on, or None."""
    return next(fresh(state, view, options, history), None)


def window_end(state: Partition, view: GroupView, options: QueueOptions, history: History) -> int:
    """When the partition's window closes (T3): until then nothing is delivered. 0 without a window."""
    if not options.window_buffer or not view.pending:
        return 0
    window = options.window_buffer * SECOND
    oldest = oldest_waiting(view)
    first = head(state, view, options, history)
    if first is not None and (oldest is None or first.pushed_at < oldest):
        oldest = first.pushed_at
    return min(state.latest_at + window, (oldest or 0) + WINDOWS * window)


def offer(state: Partition, group: int, options: QueueOptions, history: History) -> Offer | None:
    """What the partition has for the group, or None where nothing will come of waiting for time alone."""
    view = state.groups[group]
    if not view.pending or (options.ordering == STRICT and view.leases):
        return None
    found = _strict_offer if options.ordering == STRICT else _relaxed_offer
    result = found(state, view, options, history)
    if result is None:
        return None
    closes = window_end(state, view, options, history)
    return Offer(closes, result.head_at, "buffered") if closes > result.ready_at else result


def stands_behind(state: Partition, event: MessagesPushed, options: QueueOptions) -> bool:
    """Whether messages that are pushed now change nothing of what is offered to any group, nor of when time matters:
    each group has something pending that comes first. Most pushes are such, and need not be announced."""
    if options.window_buffer or event.delays_s:
        return False
    strict = options.ordering == STRICT
    for view in state.groups.values():
        if not view.pending or not (strict or (not view.waiting and state.last_own_delay < view.cursor)):
            return False
    return True


def timeless(options: QueueOptions) -> bool:
    """Whether time alone changes nothing: what was never delivered is available from its push on, and stays so."""
    return not (options.delayed_processing or options.window_buffer or options.ttl or options.retention_enabled)


def blocked(state: Partition, group: int, options: QueueOptions, history: History) -> Nothing:
    """Why a pop finds nothing, and until when (L3, Z10)."""
    view = state.groups[group]
    if not view.pending:
        return Nothing()
    if options.ordering == STRICT and view.leases:
        return Nothing("leased", view.next_expiry)
    found = offer(state, group, options, history)
    return Nothing() if found is None else Nothing(found.because, found.ready_at)


def next_deadline(state: Partition, options: QueueOptions, history: History) -> int | None:
    """When time next changes by itself what pops get (a lease, a ttl ends), or None."""
    deadlines = [view.expiries[0][0] for view in state.groups.values() if view.expiries]
    if options.ttl:
        ttl = options.ttl * SECOND
        deadlines += [at + ttl for at in oldest_pending(state, options, history)]
    return min(deadlines, default=None)


def next_sweep(state: Partition, options: QueueOptions, history: History) -> int | None:
    """When the next message falls to a retention (T4), or None."""
    return min(retention_deadlines(state, options, history), default=None) if options.retention_enabled else None


def oldest_waiting(view: GroupView) -> int | None:
    """When the oldest of the returned messages was pushed: later positions are not older (N4)."""
    return view.open[view.places[0]].pushed_at if view.places else None


def oldest_pending(state: Partition, options: QueueOptions, history: History) -> Iterator[int]:
    """For each group, when its oldest pending messages were pushed: those returned, and the first fresh one."""
    for view in state.groups.values():
        oldest = oldest_waiting(view)
        if oldest is not None:
            yield oldest
        first = head(state, view, options, history)
        if first is not None:
            yield first.pushed_at


def retention_deadlines(state: Partition, options: QueueOptions, history: History) -> list[int]:
    """When the next message falls to a retention (T4), of those that are pending and those that are settled."""
    deadlines = []
    if options.retention_seconds:
        span = options.retention_seconds * SECOND
        view = state.groups[0]
        first = head(state, view, options, history)
        pushed = [oldest_waiting(view), None if first is None else first.pushed_at]
        deadlines += [at + span for at in pushed if at is not None]
    if options.completed_retention_seconds:
        record = next(history.settlements(state.swept_seq), None)
        if record is not None:
            deadlines.append(record.at + options.completed_retention_seconds * SECOND)
    return deadlines


def _strict_offer(state: Partition, view: GroupView, options: QueueOptions, history: History) -> Offer | None:
    if view.waiting:
        first = view.open[view.places[0]]
        return Offer(first.available_at, first.pushed_at, _cause(first.because))
    message = head(state, view, options, history)
    return None if message is None else Offer(message.ready_at, message.pushed_at, "delayed")


def _relaxed_offer(state: Partition, view: GroupView, options: QueueOptions, history: History) -> Offer | None:
    best: Offer | None = None
    if view.waiting:
        available_at, position = view.waiting[0]
        message = view.open[position]
        best = Offer(available_at, message.pushed_at, _cause(message.because))
    # As far as a pop would look: what it goes past it must be able to set aside.
    reach = max(0, LOOK_AHEAD - len(view.waiting)) + 1
    for candidate in islice(fresh(state, view, options, history), reach):
        if best is None or candidate.ready_at < best.ready_at:
            best = Offer(candidate.ready_at, candidate.pushed_at, "delayed")
        if candidate.sure or candidate.ready_at <= state.latest_at:
            break
    return best


def _cause(because: str | None) -> Blocked:
    return "delayed" if because == "delayed" else "retry"
