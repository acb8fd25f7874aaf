"""The figures of the resources API, of the world as it was once."""

import msgspec

from queen.actors.tally import grouped, matching, overview, queue_figures, slots_of
from queen.audit.reading import Past
from queen.audit.restoring import ages
from queen.audit.world import World
from queen.errors import NotFound
from queen.figures import GroupFigures, Overview, QueueFigures
from queen.names import check_name


def queues_then(
    world: World,
    *,
    queue: str | None = None,
    namespace: str | None = None,
    task: str | None = None,
    partitions: bool = True,
) -> list[QueueFigures]:
    """The queues that match all that is given, oldest first; with `partitions`, each with its partitions."""
    return [queue_figures(each, partitions) for each in matching(world.catalogue, queue, namespace, task)]


def queue_then(past: Past, world: World, name: str) -> QueueFigures:
    """One queue, its partitions with their oldest and newest message. Raises `NotFound` if there was none (Z11)."""
    check_name(name, "queue")
    queue = world.catalogue.queues.get(name)
    if queue is None:
        raise NotFound(f"there was no queue {name!r}")
    figures = queue_figures(queue, True)
    partitions = []
    for slot, partition in zip(slots_of(queue), figures.partitions, strict=True):
        oldest, newest = ages(past, world, slot)
        partitions.append(partition._replace(oldest=oldest, newest=newest))
    return msgspec.structs.replace(figures, partitions=tuple(partitions))


def namespaces_then(world: World) -> list[GroupFigures]:
    """Every namespace, by name."""
    return grouped(world.catalogue, lambda queue: queue.namespace)


def tasks_then(world: World) -> list[GroupFigures]:
    """Every task, by name."""
    return grouped(world.catalogue, lambda queue: queue.task)


def overview_then(world: World, at: int) -> Overview:
    """The sums over everything; `at` is the instant that was asked for."""
    return overview(world.catalogue, at)
