"""What changed between two instants: queues, their options and partitions, counts, and what was done to messages."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from queen.actors.catalogue_state import Queue
from queen.audit.atlas import Atlas
from queen.audit.happenings import TYPES, happening_type
from queen.audit.reading import Moment, Past, records
from queen.audit.restoring import Progress, world_at
from queen.audit.spans import count_of
from queen.audit.world import World
from queen.figures import NONE, Counts
from queen.names import instant_text
from queen.options import as_dict
from queen.store.format import Record


class Doings(msgspec.Struct, frozen=True, rename="camel"):
    """How many messages each kind of event concerned, in one queue and for one consumer group. None is the default one,
    and what is of no group."""

    group: str | None
    messages: dict[str, int]


class QueueChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of one queue. `change` is "created", "deleted", "changed" or "" where its shape stayed as it was;
    `settings` holds what it is set to, before and after, where that differs."""

    queue: str
    change: str
    before: Counts
    after: Counts
    partitions_before: int
    partitions_after: int
    settings: dict[str, tuple[Any, Any]]
    doings: list[Doings]


class Difference(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Between records `first` (its state included) and `last`. Queues that nothing happened to are left out."""

    since: str
    until: str
    first: int
    last: int
    queues: list[QueueChange]


class _Shape(msgspec.Struct, frozen=True):
    """A queue as it was at an instant."""

    name: str
    settings: dict[str, Any]
    partitions: int
    counts: Counts

    @classmethod
    def of(cls, queue: Queue) -> "_Shape":
        settings = {"namespace": queue.namespace, "task": queue.task, **as_dict(queue.options)}
        return cls(queue.name, settings, len(queue.slots), queue.counts)


def difference(past: Past, since: Moment, until: Moment, progress: Progress = lambda seq, last: None) -> Difference:
    """What changed from the state behind record `since.seq` to that behind `until.seq`."""
    world = world_at(past, since, progress)
    before = {number: _Shape.of(queue) for number, queue in world.catalogue.numbers.items()}
    deeds: dict[int, Counter[tuple[int, str]]] = {}
    names = dict(before)
    for record in records(past, since.seq, until.seq):
        queue = _queue_of(world, record)
        world.apply(record)
        _count(deeds.setdefault(queue or _queue_of(world, record) or 0, Counter()), record)
        for number in _named(record):
            if number in world.catalogue.numbers:
                names[number] = _Shape.of(world.catalogue.numbers[number])
        if record.seq % 1000 == 0:
            progress(record.seq, until.seq)
    world.sum_up()
    after = {number: _Shape.of(queue) for number, queue in world.catalogue.numbers.items()}
    atlas = Atlas(past)
    changes = [
        _change(number, names[number].name, before.get(number), after.get(number), deeds.get(number, Counter()), atlas)
        for number in sorted({*names, *after})
    ]
    return Difference(
        since=instant_text(since.at),
        until=instant_text(until.at),
        first=since.seq,
        last=until.seq,
        queues=[change for change in changes if change.change or change.doings],
    )


def _queue_of(world: World, record: Record) -> int | None:
    """The number of the queue that a record is about."""
    slot = world.catalogue.slots.get(record.partition)
    if slot is not None:
        return slot.queue.number
    return next(iter(_named(record)), None)


def _named(record: Record) -> Iterable[int]:
    return [event.queue for event in record.events if hasattr(event, "queue")]


def _count(deeds: "Counter[tuple[int, str]]", record: Record) -> None:
    for event in record.events:
        count = count_of(event)
        if count:
            deeds[getattr(event, "group", 0), happening_type(event)] += count


def _change(
    number: int,
    name: str,
    before: _Shape | None,
    after: _Shape | None,
    deeds: "Counter[tuple[int, str]]",
    atlas: Atlas,
) -> QueueChange:
    settings: dict[str, tuple[Any, Any]] = {}
    if before is not None and after is not None:
        old, new = before.settings, after.settings
        settings = {key: (old[key], new[key]) for key in old if old[key] != new[key]}
    change = "created" if before is None else "deleted" if after is None else "changed" if settings else ""
    if before is None and after is None:
        change = "created and deleted"
    return QueueChange(
        queue=name,
        change=change,
        before=before.counts if before is not None else NONE,
        after=after.counts if after is not None else NONE,
        partitions_before=before.partitions if before is not None else 0,
        partitions_after=after.partitions if after is not None else 0,
        settings=settings,
        doings=[
            Doings(
                atlas.group(number, group),
                {kind: deeds[group, kind] for kind in TYPES if deeds[group, kind]},
            )
            for group in sorted({group for group, _ in deeds})
        ],
    )
