"""Deleting queues and consumer groups: one record of the catalogue each, from which everything else follows."""

from queen.actors.catalogue_state import Queue
from queen.actors.engine import Engine
from queen.errors import NotFound
from queen.events import GroupDeleted, QueueDeleted
from queen.messages import Caller


async def delete_queue(engine: Engine, name: str, caller: Caller) -> None:
    """The queue is gone with all that it holds; one of the same name is another. Raises `NotFound`.

    Cancelled, it may or may not have happened."""
    engine.check_open()
    core = engine.core
    queue = core.catalogue.queues.get(name)
    if queue is None:
        raise await engine.durable(NotFound(f"there is no queue '{name}'"))
    core.record_catalogue(QueueDeleted(queue.number), caller)
    engine.house.evict(queue)
    engine.router.forget(queue)
    engine.house.ticker.forget(queue)
    await engine.durable(None)


async def delete_group(engine: Engine, name: str, wanted: str | None, caller: Caller) -> list[Queue]:
    """Every queue that has met the group forgets it, or the wanted queue alone; returns those that did. Raises
    `NotFound`. Cancelled, it may or may not have happened, as a whole."""
    engine.check_open()
    core = engine.core
    queues = [
        queue for queue in core.catalogue.queues.values() if name in queue.groups and wanted in (None, queue.name)
    ]
    if not queues:
        where = "" if wanted is None else f" in queue {wanted!r}"
        raise await engine.durable(NotFound(f"there is no consumer group '{name}'{where}"))
    for queue in queues:
        group = queue.groups[name]
        if group.recorded:
            core.record_catalogue(GroupDeleted(queue.number, group.number), caller)
        else:
            del queue.groups[name]  # nothing on the disk tells of it (W5)
        engine.house.dismiss(queue, group.number)
        engine.router.forget(queue, group.number)
    return await engine.durable(queues)
