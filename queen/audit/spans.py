"""Where in their partition the messages stand that an event concerns, and how many they are. Pure."""

from queen.events import (
    AnyEvent,
    MessagesDeleted,
    MessagesLeased,
    MessagesPushed,
    MessagesReturned,
    MessagesRevived,
    MessagesSetAside,
    MessagesSettled,
    Run,
)

Spans = tuple[tuple[int, int], ...]
"""Positions as pairs of the first and the last one, in order."""

_WITH_RUNS = (MessagesLeased, MessagesSettled, MessagesSetAside, MessagesRevived, MessagesDeleted)


def spans_in(event: AnyEvent) -> Spans:
    """The messages that an event concerns; nothing for one of a queue, a group or a lease."""
    if isinstance(event, MessagesPushed):
        return ((event.first, event.first + len(event.sizes) - 1),)
    if isinstance(event, MessagesReturned):
        return _joined([Run(position, 1, 0) for position in event.positions])
    return _joined(event.runs) if isinstance(event, _WITH_RUNS) else ()


def count_of(event: AnyEvent) -> int:
    """How many messages an event concerns."""
    if isinstance(event, MessagesPushed):
        return len(event.sizes)
    if isinstance(event, MessagesReturned):
        return len(event.positions)
    return sum([run.length for run in event.runs]) if isinstance(event, _WITH_RUNS) else 0


def concerns(event: AnyEvent, position: int) -> bool:
    """Whether the message at that position is among them, or may be: a lease's extension, say."""
    spans = spans_in(event)
    return not spans or any(first <= position <= last for first, last in spans)


def _joined(runs: tuple[Run, ...] | list[Run]) -> Spans:
    found: list[tuple[int, int]] = []
    for first, length, _ in runs:
        if found and found[-1][1] == first - 1:
            found[-1] = (found[-1][0], first + length - 1)
        else:
            found.append((first, first + length - 1))
    return tuple(found)
