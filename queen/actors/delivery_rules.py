"""Deciding a push, a pop, and what happens to a lease afterwards: extension and release. Pure; changes nothing."""

from typing import TypeVar

from queen.actors.availability import LOOK_AHEAD, blocked, ready_at, sections, window_end
from queen.actors.decision import Decision, runs_of
from queen.actors.partition_state import GroupView, Lease, Partition
from queen.commands import Extend, Join, Pop, Push, PushItem, Release
from queen.errors import NotFound
from queen.events import (
    Event,
    GroupJoined,
    LeaseExtended,
    MessagesLeased,
    MessagesPushed,
    MessagesReturned,
    MessagesSetAside,
    MessagesSettled,
)
from queen.history import History, PushedRun
from queen.names import SECOND, message_id
from queen.options import RELAXED, STRICT, QueueOptions
from queen.replies import Grant, Pushed, Taken

T = TypeVar("T")


def push(state: Partition, command: Push, now: int, options: QueueOptions, history: History) -> Decision:
    """Store what is new; a transactionId that a stored message or an earlier item has is a duplicate (P4)."""
    base, position = command.base, state.next_position
    replies: list[Pushed] = []
    new: list[PushItem] = []
    named: dict[str, int] = {}
    for item in command.items:
        name = item.transaction_id
        if name is not None:
            place = history.find(name)
            first = named.get(name) if place is None else place.id
            if first is not None:
                replies.append(Pushed(first, None))
                continue
            named[name] = base
        replies.append(Pushed(base, position))
        new.append(item)
        base, position = message_id(base, 1), position + 1
    if not new:
        return Decision((), tuple(replies))
    payloads = tuple([item.payload for item in new])
    event = MessagesPushed(
        first=state.next_position,
        base=command.base.to_bytes(16),
        sizes=tuple(map(len, payloads)),
        transaction_ids=tuple([item.transaction_id for item in new]) if named else (),
        trace_ids=_column([item.trace_id for item in new]),
        delays_s=_column([item.delay_s for item in new]),
        key=command.key,
    )
    return Decision((event,), tuple(replies), payloads)


def pop(state: Partition, command: Pop, now: int, options: QueueOptions, history: History) -> Decision:
    """Lease the next messages in order (L1, L2), or say what holds them back."""
    view = state.groups[command.group]
    held = options.ordering == STRICT and view.leases
    if held or window_end(state, view, options, history) > now:
        return Decision((), blocked(state, command.group, options, history))
    taken = _take_waiting(view, command.batch, now, options)
    aside: list[tuple[int, int, int]] = []
    if not (options.ordering == STRICT and len(taken) < len(view.waiting)):
        fresh_ones, aside = _take_fresh(state, view, command.batch - len(taken), now, options, history)
        taken += fresh_ones
    if not taken:
        return Decision((), blocked(state, command.group, options, history))
    size = _fit(taken, command.room, history)
    expires_at = now + options.lease_time * SECOND
    events: list[Event] = []
    # What was passed to reach a message that does not fit is not passed yet.
    aside = [late for late in aside if late[0] < taken[-1].position]
    if aside:
        events.append(
            MessagesSetAside(
                command.group,
                runs_of((position, pushed_at) for position, pushed_at, _ in aside),
                tuple(ready_at for _, _, ready_at in aside),
            )
        )
    events.append(_delivered(view, command, now, expires_at, taken))
    return Decision(tuple(events), Grant(command.lease, now, expires_at, tuple(taken), size))


def join(state: Partition, command: Join, now: int, options: QueueOptions, history: History) -> Decision:
    """A group that the partition knows already keeps its place."""
    if command.group in state.groups:
        return Decision()
    return Decision((GroupJoined(command.group, command.cursor),))


def extend(state: Partition, command: Extend, now: int, options: QueueOptions, history: History) -> Decision:
    """L6: to now + seconds, never to an earlier end than the lease has."""
    group, lease = _lease(state, command.lease)
    seconds = options.lease_time if command.seconds is None else command.seconds
    expires_at = max(lease.expires_at, now + seconds * SECOND)
    if expires_at == lease.expires_at:
        return Decision((), expires_at)
    return Decision((LeaseExtended(group, lease.id, expires_at),), expires_at)


def release(state: Partition, command: Release, now: int, options: QueueOptions, history: History) -> Decision:
    """L8: what is left of the lease is available again, uncounted. An ended lease has nothing left."""
    try:
        group, lease = _lease(state, command.lease)
    except NotFound:
        return Decision()
    view = state.groups[group]
    positions = tuple(sorted(lease.positions))
    counts = tuple(view.open[position].retry_count for position in positions)
    return Decision((MessagesReturned(group, "released", positions, counts, now),))


def _given_up_by(now: int, options: QueueOptions) -> int:
    """T1: messages pushed by then are past their ttl. Of a mass of them some may still wait for their tick."""
    return now - options.ttl * SECOND if options.ttl else -1


def _take_waiting(view: GroupView, batch: int, now: int, options: QueueOptions) -> list[Taken]:
    given_up = _given_up_by(now, options)
    chosen: list[int] = []
    for position in view.places:
        if len(chosen) == batch:
            break
        message = view.open[position]
        if message.available_at <= now and message.pushed_at > given_up:
            chosen.append(position)
        elif options.ordering == STRICT:
            break
    return [Taken(position, view.open[position].pushed_at, view.open[position].retry_count) for position in chosen]


def _take_fresh(
    state: Partition, view: GroupView, batch: int, now: int, options: QueueOptions, history: History
) -> tuple[list[Taken], list[tuple[int, int, int]]]:
    """Ready messages from the cursor on, and the delayed ones that relaxed order goes past to reach them."""
    taken: list[Taken] = []
    aside: list[tuple[int, int, int]] = []
    passed = 0
    given_up = _given_up_by(now, options)
    spare = LOOK_AHEAD - len(view.waiting) if options.ordering == RELAXED else 0
    for start, stop, run in sections(state, view, history):
        if len(taken) >= batch or run.pushed_at <= given_up:
            break
        if not run.delays_s and ready_at(run, start, options) <= now:
            stop = min(stop, start + batch - len(taken))
            taken += [Taken(position, run.pushed_at, 0) for position in range(start, stop)]
            passed = len(aside)
            continue
        for position in range(start, stop):
            ready = ready_at(run, position, options)
            if ready <= now:
                taken.append(Taken(position, run.pushed_at, 0))
                passed = len(aside)
                if len(taken) == batch:
                    break
            elif position > state.last_own_delay or len(aside) >= spare:
                return taken, aside[:passed]  # Z9
            else:
                aside.append((position, run.pushed_at, ready))
    return taken, aside[:passed]


def _fit(taken: list[Taken], room: int, history: History) -> int:
    """Drop from the end of `taken`, in order of position, what goes past `room` bytes, but not the first message.
    Returns the size of what is left."""
    size = 0
    run: PushedRun | None = None
    sizes: tuple[int, ...] = ()
    for index, (position, _, _) in enumerate(taken):
        if run is None or not run.first <= position < run.first + run.length:
            run = next(history.runs(position))
            sizes = history.sizes(run)
        following = size + sizes[position - run.first]
        if following > room and index:
            del taken[index:]
            break
        size = following
    return size


def _delivered(view: GroupView, command: Pop, now: int, expires_at: int, taken: list[Taken]) -> Event:
    runs = runs_of((message.position, message.pushed_at) for message in taken)
    if not command.auto_ack:
        return MessagesLeased(command.group, command.lease, expires_at, runs, command.worker)
    return MessagesSettled(
        command.group,
        "completed",
        runs,
        asked="completed",
        lease=command.lease,
        leased_at=now,
        worker=command.worker,
        retry_counts={message.position: message.retry_count for message in taken if message.retry_count},
    )


def _lease(state: Partition, lease: bytes) -> tuple[int, Lease]:
    for group, view in state.groups.items():
        if lease in view.leases:
            return group, view.leases[lease]
    raise NotFound("there is no such lease, or it has ended")


def _column(values: list[T]) -> tuple[T, ...]:
    return () if values.count(None) == len(values) else tuple(values)  # type: ignore[arg-type]  # it may hold None
