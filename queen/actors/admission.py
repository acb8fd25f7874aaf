"""A push request taken apart by partition and put together again: P4 within one request, ids, P6. Pure."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from queen.actors.catalogue_state import Queue
from queen.commands import PushItem
from queen.errors import QueueFull
from queen.history import Place
from queen.messages import NewMessage
from queen.names import uuid_pairs
from queen.replies import Pushed, Receipt


class Plan:
    """What a push asks of each partition. `places` are (queue, partition) names, in order of first mention."""

    def __init__(self, items: Sequence[tuple[NewMessage, bytes]], base: int) -> None:
        self._items = items
        self._base = base
        self._parts: dict[tuple[str, str], list[PushItem]] = {}
        # For each item: its part and its index there; a repetition of an earlier item has that one's.
        self._where: list[tuple[tuple[str, str], int, bool]] = []
        first: dict[str, int] = {}
        for index, (item, payload) in enumerate(items):
            name = item.transaction_id
            if name is not None and name in first:
                place, place_index, _ = self._where[first[name]]
                self._where.append((place, place_index, True))
                continue
            if name is not None:
                first[name] = index
            place = item.queue, item.partition
            part = self._parts.setdefault(place, [])
            self._where.append((place, len(part), False))
            part.append(PushItem(payload, name, item.trace_id, item.delay_seconds))
        self.places = list(self._parts)
        self._settled: dict[tuple[str, str], tuple[Pushed, ...]] = {}

    def settle(self, place: tuple[str, str], find: Callable[[str], Place | None]) -> bool:
        """Whether all that goes to `place` is stored already, wherever that is. Then the place is left out from now on:
        a push of nothing but duplicates makes no queue or partition (P4)."""
        replies: list[Pushed] = []
        for item in self._parts[place]:
            found = None if item.transaction_id is None else find(item.transaction_id)
            if found is None:
                return False
            replies.append(Pushed(found.id, None))
        self.places.remove(place)
        del self._parts[place]
        self._settled[place] = tuple(replies)
        return True

    def pushes(self) -> Iterator[tuple[int, tuple[PushItem, ...]]]:
        """For each place, the number that its ids start from and its items."""
        base = self._base
        for part in self._parts.values():
            yield base, tuple(part)
            base += 2 * len(part)

    def count_new(self, queue: str, find: Callable[[str], Place | None]) -> int:
        """How many messages the push would bring to a queue; what is stored already doesn't count (Z5)."""
        items = [item for (name, _), part in self._parts.items() if name == queue for item in part]
        return sum(item.transaction_id is None or find(item.transaction_id) is None for item in items)

    def grouping(self, queue: str) -> tuple[str | None, str | None]:
        """Namespace and task for a queue that this push creates: the first that its items give (P5)."""
        given = [item for item, _ in self._items if item.queue == queue]
        namespace = next((item.namespace for item in given if item.namespace is not None), None)
        task = next((item.task for item in given if item.task is not None), None)
        return namespace, task

    def receipts(self, replies: Sequence[Any]) -> list[Receipt]:
        """The answer, in the order of the request (P3), from the partitions' replies in the order of `places`."""
        by_place = self._settled | dict(zip(self.places, replies, strict=True))
        pushed = [by_place[place][index] for place, index, _ in self._where]
        texts = uuid_pairs([id for id, _ in pushed])
        return [
            Receipt(
                id,
                generated if item.transaction_id is None else item.transaction_id,
                "duplicate" if repeated or position is None else "queued",
            )
            for (item, _), (_, _, repeated), (_, position), (id, generated) in zip(
                self._items, self._where, pushed, texts, strict=True
            )
        ]


def queue_full(queue: Queue, count: int) -> None:
    """Raise `QueueFull` where `count` more messages are too many (P6)."""
    limit = queue.options.max_size
    if limit and queue.depth + count > limit:
        raise QueueFull(f"queue '{queue.name}' holds {queue.depth} of at most {limit} messages; {count} more don't fit")
