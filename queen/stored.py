"""`broker.messages`: looking at stored messages and putting them right, one by one or a whole queue's."""

from collections.abc import Callable, Sequence

from queen.actors import inquiry
from queen.actors.catalogue_state import Group
from queen.actors.engine import Engine
from queen.actors.inquiry import Filter
from queen.actors.mailbox import Part
from queen.audit.biography import Life, history
from queen.checks import check_filter, check_page
from queen.commands import Bury, Clear, Delete, Retry, Status
from queen.errors import Conflict, NotFound
from queen.hindsight import Hindsight
from queen.messages import Caller, StoredMessage
from queen.names import DEFAULT_GROUP, check_name
from queen.options import QueueOptions

_LIBRARY = Caller()


class Messages:
    """See the module. Everything raises `QueenError`s. A message's status is that of the default group (S1)."""

    def __init__(self, running: Callable[[], Engine], hindsight: Hindsight) -> None:
        self._running = running
        self._hindsight = hindsight

    async def list(
        self,
        queue: str | None = None,
        partition: str | None = None,
        *,
        namespace: str | None = None,
        task: str | None = None,
        status: Status | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> Sequence[StoredMessage]:
        """Messages newest first (S5). What an `offset` passes over costs time, about a microsecond per message."""
        check_filter(queue, partition, namespace, task, status)
        check_page(limit, offset)
        engine = self._running()
        wanted = Filter(queue, partition, namespace, task)
        return await inquiry.page(engine, inquiry.slots_of(engine, wanted), status, limit, offset)

    async def dead_letters(
        self, queue: str | None = None, *, group: str | None = None, limit: int = 100, offset: int = 0
    ) -> tuple[Sequence[StoredMessage], int]:
        """Dead letters of a consumer group (the default one unless named), newest first, and their total."""
        check_filter(queue, None, None, None, None)
        check_page(limit, offset)
        if group is not None:
            check_name(group, "consumerGroup")
        return await inquiry.dead_letters(self._running(), queue, group, limit, offset)

    async def get(self, transaction_id: str) -> tuple[StoredMessage, QueueOptions]:
        """One message, and the options of its queue. Raises `NotFound`."""
        check_name(transaction_id, "transactionId")
        message, queue = await inquiry.one(self._running(), transaction_id)
        return message, queue.options

    async def related(self, transaction_id: str, *, limit: int = 100, offset: int = 0) -> Sequence[StoredMessage]:
        """Other messages of the same partition, pushed at most an hour before or after, newest first."""
        check_name(transaction_id, "transactionId")
        check_page(limit, offset)
        return await inquiry.related(self._running(), transaction_id, limit, offset)

    async def history(self, transaction_id: str) -> Sequence[Life]:
        """The life of the message of that transactionId, and of those that had it before, oldest first: its push, each
        delivery and failure, what operators did, how it ended; also of deleted ones. Raises `NotFound`."""
        check_name(transaction_id, "transactionId")
        ring = self._running().core.ring
        return await self._hindsight.ask(lambda past, go_on: history(past, transaction_id, ring=ring, payloads=True))

    async def delete(self, transaction_id: str, *, caller: Caller = _LIBRARY) -> None:
        """Make a message gone for everybody, in whatever status (R5); its transactionId is free again (Z5).

        Raises `NotFound`. Cancelled, it may or may not have happened, as with every change here.
        """
        check_name(transaction_id, "transactionId")
        engine = self._running()
        slot, place = await inquiry.locate(engine, transaction_id)
        await engine.carry([Part(slot, Delete(place.position))], caller)

    async def retry(self, transaction_id: str, *, group: str | None = None, caller: Caller = _LIBRARY) -> None:
        """Make a failed message or a dead letter pending again, or one that waits for its retry available now (R3).

        Raises `NotFound`, and `Conflict` for a message in another status."""
        check_name(transaction_id, "transactionId")
        engine = self._running()
        slot, place = await inquiry.locate(engine, transaction_id)
        number = _group_of(slot.queue.groups, group)
        await engine.carry([Part(slot, Retry(number, place.position))], caller)

    async def bury(self, transaction_id: str, *, group: str | None = None, caller: Caller = _LIBRARY) -> None:
        """Make a message that has failed at least once a dead letter (R4). Raises as `retry` does."""
        check_name(transaction_id, "transactionId")
        engine = self._running()
        slot, place = await inquiry.locate(engine, transaction_id)
        number = _group_of(slot.queue.groups, group)
        await engine.carry([Part(slot, Bury(number, place.position))], caller)

    async def clear(self, queue: str, partition: str | None = None, *, caller: Caller = _LIBRARY) -> int:
        """Delete every message of a queue or of one of its partitions, all in one commit; returns how many.

        Raises `NotFound` where there is no such queue or partition (Z11)."""
        check_name(queue, "queue")
        if partition is not None:
            check_name(partition, "partition")
        engine = self._running()
        found = engine.core.catalogue.queues.get(queue)
        if found is None:
            raise await engine.durable(NotFound(f"there is no queue '{queue}'"))
        if partition is not None and partition not in found.slots:
            raise NotFound(f"queue '{queue}' has no partition '{partition}'")
        slots = found.slots.values() if partition is None else [found.slots[partition]]
        parts = [Part(slot, Clear()) for slot in slots if inquiry.holds_messages(engine, slot)]
        counts: list[int] = await engine.carry(parts, caller)
        return sum(counts)


def _group_of(groups: dict[str | None, Group], name: str | None) -> int:
    if name is None:
        return DEFAULT_GROUP
    check_name(name, "consumerGroup")
    if name not in groups:
        raise Conflict("the queue has no such consumer group")
    return groups[name].number
