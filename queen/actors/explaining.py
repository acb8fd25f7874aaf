"""Why a pop would get something now, or would not: partition by partition, from what the rules themselves say. Pure.

Nothing is decided here that a pop would not decide: `availability` is asked what it tells the router.
"""

from collections.abc import Collection
from dataclasses import replace

from queen.actors.availability import blocked, head, offer
from queen.actors.partition_state import GroupView, Partition
from queen.figures import LeaseFigures, PopExplanation, Verdict
from queen.history import History
from queen.options import STRICT, QueueOptions

LEASES = 100
"""Leases that are listed of a partition, those that end first."""
NO_GROUP = -1
"""The number of a group that the queue has not met."""


def explain(
    state: Partition,
    group: int,
    partition: str,
    now: int,
    options: QueueOptions,
    history: History,
    lost: Collection[str] = (),
) -> PopExplanation:
    """What a pop of this partition would find. `lost` are the keys that messages are sealed with and that are not here.
    A group that the partition has not met is taken to begin at its first message."""
    view = state.groups.get(group)
    if view is None:
        view = GroupView(cursor=1, pending=state.live_from(1))
        state = replace(state, groups={**state.groups, group: view})
    verdict, until, key = _verdict(state, view, group, now, options, history, lost)
    found = offer(state, group, options, history)
    leases = sorted(view.leases.values(), key=lambda lease: lease.expires_at)[:LEASES]
    return PopExplanation(
        partition=partition,
        verdict=verdict,
        until=until,
        pending=view.pending,
        processing=view.processing,
        oldest_at=None if found is None else found.head_at,
        key=key,
        leases=tuple(
            LeaseFigures(lease.id, lease.worker, lease.leased_at, lease.expires_at, len(lease.positions))
            for lease in leases
        ),
    )


def _verdict(
    state: Partition,
    view: GroupView,
    group: int,
    now: int,
    options: QueueOptions,
    history: History,
    lost: Collection[str],
) -> tuple[Verdict, int | None, str | None]:
    if not view.pending:
        # In relaxed order others may have all that there is.
        ends = min((lease.expires_at for lease in view.leases.values()), default=None)
        return ("leased", ends, None) if ends is not None else ("empty", None, None)
    found = blocked(state, group, options, history)
    if found.because is not None and found.until is not None and found.until > now:
        return found.because, found.until, None
    key = _key_of_first(state, view, now, options, history) if lost else None
    return ("key_missing", None, key) if key in lost else ("ready", None, None)


def _key_of_first(state: Partition, view: GroupView, now: int, options: QueueOptions, history: History) -> str | None:
    """The key of the message that a pop would get first."""
    waiting = sorted(place for available_at, place in view.waiting if available_at <= now)
    first = head(state, view, options, history)
    position = waiting[0] if waiting else None if first is None else first.position
    if position is None or (options.ordering == STRICT and view.leases):
        return None
    run = next(history.runs(position), None)
    return None if run is None else run.key
