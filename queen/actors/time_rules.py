"""Deciding what time has brought: ended leases (L5), ttl (T1), retention (T4). Pure.

One `Tick` decides one kind of thing, for a bounded number of messages; the ticker ticks again while a deadline
has passed, so that nobody waits long for a mass of messages that end together.
"""

from collections.abc import Iterator

from queen.actors.ack_rules import Outcomes
from queen.actors.availability import fresh
from queen.actors.decision import Decision, runs_of
from queen.actors.partition_state import GroupView, Open, Partition, ended_leases
from queen.events import Event, MessagesDeleted, MessagesSettled, Outcome, SettledCount
from queen.history import History
from queen.names import DEFAULT_GROUP, SECOND
from queen.options import QueueOptions

# Messages per tick: some milliseconds of work.
TICK_LIMIT = 1000
# The same for retention, which has a minute (T4) and may concern all of a large queue at one instant.
DROP_LIMIT = 250


def tick(state: Partition, now: int, options: QueueOptions, history: History) -> Decision:
    """The next thing whose time has come; no events when there is none."""
    events = (
        _end_leases(state, now, options)
        or _give_up(state, now, options, history)
        or _drop_pending(state, now, options, history)
        or _drop_settled(state, now, options, history)
    )
    return Decision(tuple(events))


def _end_leases(state: Partition, now: int, options: QueueOptions) -> list[Event]:
    """L5: an ended lease counts as an attempt (R1, R2), without the wait of `retryDelay` (Z3)."""
    events: list[Event] = []
    count = 0
    for group, view in state.groups.items():
        outcomes = Outcomes(group, now, options)
        for lease in ended_leases(view, now):
            if count >= TICK_LIMIT:
                break
            count += len(lease.positions)
            for position in lease.positions:
                outcomes.fail(position, view.open[position], None, "lease expired", delayed=False)
        events += outcomes.events()
    return events


def _give_up(state: Partition, now: int, options: QueueOptions, history: History) -> list[Event]:
    """T1: pending messages past their ttl are final, for the group that they are pending in."""
    if not options.ttl:
        return []
    events: list[Event] = []
    outcome: Outcome = "dead_letter" if options.dlq_after_max_retries else "failed"
    for group, view in state.groups.items():
        late = list(_pending_before(state, view, now - options.ttl * SECOND, options, history))
        if late:
            counts = {position: message.retry_count for position, message in late if message.retry_count}
            runs = runs_of((position, message.pushed_at) for position, message in late)
            events.append(MessagesSettled(group, outcome, runs, error="expired", retry_counts=counts))
    return events


def _drop_pending(state: Partition, now: int, options: QueueOptions, history: History) -> list[Event]:
    """T4: pending messages (of the default group, S1) past `retentionSeconds` are deleted."""
    if not options.retention_enabled or not options.retention_seconds:
        return []
    view = state.groups[DEFAULT_GROUP]
    late = [
        (position, message.pushed_at)
        for position, message in _pending_before(
            state, view, now - options.retention_seconds * SECOND, options, history, DROP_LIMIT
        )
    ]
    if not late:
        return []
    return [MessagesDeleted(runs_of(late), count_settled(state, [position for position, _ in late], history))]


def _drop_settled(state: Partition, now: int, options: QueueOptions, history: History) -> list[Event]:
    """T4: messages that every group is done with go `completedRetentionSeconds` after the last one settled them.

    One that is pending again, or that another group needed for longer, is passed over here: its latest
    settlement brings it back.
    """
    if not options.retention_enabled or not options.completed_retention_seconds:
        return []
    due = now - options.completed_retention_seconds * SECOND
    chosen: dict[int, int] = {}
    swept = state.swept_seq
    looked = 0
    for record in history.settlements(state.swept_seq):
        if record.at > due or looked >= DROP_LIMIT:
            break
        for first, count, pushed_at in record.runs:
            for start, stop in state.deleted.gaps(first, first + count):
                looked += stop - start
                for position in range(start, stop):
                    if len(chosen) < DROP_LIMIT and _done(state, position, due, history):
                        chosen[position] = pushed_at
        if len(chosen) < DROP_LIMIT:
            swept = record.seq
    if swept == state.swept_seq and not chosen:
        return []
    positions = sorted(chosen)
    runs = runs_of((position, chosen[position]) for position in positions)
    return [MessagesDeleted(runs, count_settled(state, positions, history), swept)]


def count_settled(state: Partition, positions: list[int], history: History) -> tuple[SettledCount, ...]:
    """How many of the messages each group has settled, by outcome; groups without any are left out."""
    counts = []
    for group, view in state.groups.items():
        outcomes = [
            ended.outcome
            for position in positions
            if position < view.cursor and position not in view.open
            if (ended := history.settled(group, position)) is not None
        ]
        if outcomes:
            by = (outcomes.count("completed"), outcomes.count("failed"), outcomes.count("dead_letter"))
            counts.append(SettledCount(group, *by))
    return tuple(counts)


def _pending_before(
    state: Partition,
    view: GroupView,
    pushed_by: int,
    options: QueueOptions,
    history: History,
    limit: int = TICK_LIMIT,
) -> Iterator[tuple[int, Open]]:
    """Pending messages pushed at or before `pushed_by`, in order of position, up to `limit`."""
    left = limit
    for position in view.places:
        message = view.open[position]
        if message.pushed_at > pushed_by or not left:
            break
        left -= 1
        yield position, message
    for candidate in fresh(state, view, options, history):
        if candidate.pushed_at > pushed_by or not left:
            return
        left -= 1
        yield candidate.position, Open(candidate.pushed_at)


def _done(state: Partition, position: int, due: int, history: History) -> bool:
    """Whether every group that was ever given the message had settled it by `due`."""
    for group, view in state.groups.items():
        if position >= view.cursor or position in view.open:
            return False
        ended = history.settled(group, position)
        if ended is not None and ended.at > due:
            return False
    return True
