"""From recorded events to notices. Done when a subscriber takes them, and once for all subscribers: an event that
nobody reads costs no look at who the messages are.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from queen.actors.catalogue_state import Slot
from queen.errors import ChainBroken
from queen.events import (
    AnyEvent,
    MessagesLeased,
    MessagesPushed,
    MessagesReturned,
    MessagesSettled,
    QueueCreated,
    Run,
)
from queen.names import DEFAULT_PARTITION, generated_transaction_id, uuid_texts
from queen.notices import (
    MessageCompleted,
    MessageFailed,
    MessageProcessing,
    MessagePushed,
    Notice,
    QueueAdded,
)

if TYPE_CHECKING:
    from queen.actors.core import Core


class Told:
    """Notices that belong together, all of one queue or of none. `weight` is how many there are.

    `kind` is not empty where it is only the newest of its kind that matters. `ordinal` is its place in the feed."""

    __slots__ = ("_make", "_notices", "kind", "ordinal", "queue", "weight")

    def __init__(
        self, queue: str | None, weight: int, make: Callable[[], Iterable[Notice]], kind: tuple[str, ...] = ()
    ) -> None:
        self.queue = queue
        self.weight = weight
        self.kind = kind
        self.ordinal = 0
        self._make: Callable[[], Iterable[Notice]] | None = make
        self._notices: tuple[Notice, ...] = ()

    def notices(self) -> tuple[Notice, ...]:
        """The notices; messages whose records are gone by now are left out."""
        if self._make is not None:
            self._notices, self._make = tuple(self._make()), None
        return self._notices


def single(notice: Notice) -> Told:
    """One notice by itself."""
    return Told(getattr(notice, "queue", None), 1, lambda: (notice,))


def told_of(core: "Core", partition: int, event: AnyEvent, at: int) -> Told | None:
    """What there is to tell of an event, None where it is nothing. `at` is shown.

    Called when the event is recorded: names are taken now, since the queue may be gone when it is told."""
    if isinstance(event, QueueCreated):
        return single(QueueAdded(at=at, queue=event.name, partition=DEFAULT_PARTITION))
    slot = core.catalogue.slots.get(partition)
    if slot is None:
        return None
    if isinstance(event, MessagesPushed):
        return Told(slot.queue.name, len(event.sizes), lambda: _pushed(slot, event, at))
    if isinstance(event, MessagesLeased | MessagesSettled):
        weight = sum(run.length for run in event.runs)
        make = _processing if isinstance(event, MessagesLeased) else _settled
        return _of_group(core, slot, event, weight, at, make)
    if isinstance(event, MessagesReturned) and event.because in ("failed", "expired"):
        return _of_group(core, slot, event, len(event.positions), at, _returned)
    return None


Make = Callable[["Core", Slot, str | None, Any, int], Iterable[Notice]]


def _of_group(core: "Core", slot: Slot, event: Any, weight: int, at: int, make: Make) -> Told | None:
    found = slot.queue.groups.numbered(event.group)
    if found is None:
        return None  # forgotten; what ends after it concerns nobody
    group = found.name
    return Told(slot.queue.name, weight, lambda: make(core, slot, group, event, at))


def _pushed(slot: Slot, event: MessagesPushed, at: int) -> Iterator[Notice]:
    for name in _names(event, 0, len(event.sizes)):
        yield MessagePushed(at=at, queue=slot.queue.name, partition=slot.name, transaction_id=name)


def _processing(core: "Core", slot: Slot, group: str | None, event: MessagesLeased, at: int) -> Iterator[Notice]:
    for name in _names_at(core, slot.number, event.runs):
        yield MessageProcessing(
            at=at, queue=slot.queue.name, partition=slot.name, transaction_id=name, group=group, worker=event.worker
        )


def _settled(core: "Core", slot: Slot, group: str | None, event: MessagesSettled, at: int) -> Iterator[Notice]:
    names = _names_at(core, slot.number, event.runs)
    if event.outcome == "completed":
        for name in names:
            yield MessageCompleted(at=at, queue=slot.queue.name, partition=slot.name, transaction_id=name, group=group)
        return
    for name in names:
        yield MessageFailed(
            at=at,
            queue=slot.queue.name,
            partition=slot.name,
            transaction_id=name,
            group=group,
            error=event.error,
            outcome=event.outcome,
        )


def _returned(core: "Core", slot: Slot, group: str | None, event: MessagesReturned, at: int) -> Iterator[Notice]:
    for name in _names_at(core, slot.number, (Run(position, 1, 0) for position in event.positions)):
        yield MessageFailed(
            at=at,
            queue=slot.queue.name,
            partition=slot.name,
            transaction_id=name,
            group=group,
            error=event.error,
            outcome="retry",
        )


def _names_at(core: "Core", partition: int, runs: Iterable[Run]) -> Iterator[str]:
    """The transactionIds of messages, read from the records that hold them."""
    for first, length, _ in runs:
        position, stop = first, first + length
        while position < stop:
            found = next(core.projections.runs(partition, position), None)
            if found is None or found.first >= stop:
                break
            start = max(position, found.first)
            position = min(stop, found.first + found.length)
            try:
                pushed = core.records.read(found.seq).pushed
            except ChainBroken:
                continue  # reclaimed since
            if pushed is not None:
                yield from _names(pushed, start - found.first, position - found.first)


def _names(pushed: MessagesPushed, start: int, stop: int) -> Iterator[str]:
    base = int.from_bytes(pushed.base)
    generated = uuid_texts(generated_transaction_id(base, index) for index in range(start, stop))
    if not pushed.transaction_ids:
        yield from generated
        return
    for given, made in zip(pushed.transaction_ids[start:stop], generated, strict=True):
        yield made if given is None else given
