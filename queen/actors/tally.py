"""Figures about queues, summed up from a catalogue: the one of now, or one that is as it was once. Pure."""

from collections.abc import Callable, Iterable, Iterator

from queen.actors.catalogue_state import Catalogue, Queue, Slot
from queen.figures import GroupFigures, Overview, PartitionFigures, QueueFigures, sum_of
from queen.names import check_name, uuid_text


def matching(catalogue: Catalogue, queue: str | None, namespace: str | None, task: str | None) -> Iterator[Queue]:
    """The queues that match all that is given, oldest first. Raises `Invalid` for what can't be a name."""
    for where, name in (("queue", queue), ("namespace", namespace), ("task", task)):
        if name is not None:
            check_name(name, where)
    queues: Iterable[Queue]
    if queue is None:
        queues = catalogue.queues.values()
    else:
        found = catalogue.queues.get(queue)
        queues = [] if found is None else [found]
    for each in queues:
        if namespace in (None, each.namespace) and task in (None, each.task):
            yield each


def slots_of(queue: Queue) -> list[Slot]:
    """The partitions in the order of their creation, which a restart does not keep in the catalogue."""
    return sorted(queue.slots.values(), key=lambda slot: slot.number)


def queue_figures(queue: Queue, partitions: bool) -> QueueFigures:
    """One queue, with its partitions if they are asked for."""
    return QueueFigures(
        id=id_text(queue.id),
        name=queue.name,
        namespace=queue.namespace,
        task=queue.task,
        created_at=queue.created_at,
        options=queue.options,
        counts=queue.counts,
        partition_count=len(queue.slots),
        partitions=tuple(
            [PartitionFigures(id_text(slot.id), slot.name, slot.created_at, slot.counts) for slot in slots_of(queue)]
            if partitions
            else ()
        ),
    )


def grouped(catalogue: Catalogue, key: Callable[[Queue], str | None]) -> list[GroupFigures]:
    """The queues by what `key` says of each, by name; those of which it says nothing count nowhere."""
    groups: dict[str, list[Queue]] = {}
    for queue in catalogue.queues.values():
        name = key(queue)
        if name is not None:
            groups.setdefault(name, []).append(queue)
    return [
        GroupFigures(
            name,
            len(queues),
            sum(len(queue.slots) for queue in queues),
            sum_of(queue.counts for queue in queues),
        )
        for name, queues in sorted(groups.items())
    ]


def overview(catalogue: Catalogue, at: int) -> Overview:
    """The sums over everything, at the time `at`."""
    queues = catalogue.queues.values()
    return Overview(
        len(queues),
        sum(len(queue.slots) for queue in queues),
        len({queue.namespace for queue in queues if queue.namespace is not None}),
        len({queue.task for queue in queues if queue.task is not None}),
        sum_of(queue.counts for queue in queues),
        at,
    )


def id_text(id: bytes) -> str:
    """The id of a queue or a partition as it is shown."""
    return uuid_text(int.from_bytes(id))
