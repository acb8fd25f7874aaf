"""A fold of what `queen replay` prints, written without the audit's own code: what the others are compared with."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

Place = tuple[str, str]
"""Queue and partition."""


class Naive:
    """How every message is for the default group, by partition and position."""

    def __init__(self) -> None:
        self.partitions: dict[str, dict[str, dict[int, str]]] = {}
        self.leases: dict[str, tuple[str, str, str | None, set[int]]] = {}
        self._groups: dict[tuple[str, str, str], set[int]] = defaultdict(set)

    def fold(self, events: Iterable[dict[str, Any]]) -> "Naive":
        for event in events:
            self.take(event)
        return self

    def take(self, event: dict[str, Any]) -> None:
        kind, queue, partition = event["type"], event.get("queue", ""), event.get("partition", "")
        group = event.get("group")
        if kind == "queue_created":
            self.partitions[queue] = {}
        elif kind == "queue_deleted":
            del self.partitions[queue]
            self.leases = {lease: held for lease, held in self.leases.items() if held[0] != queue}
        elif kind == "partition_created":
            self.partitions[queue][partition] = {}
        elif kind in _BECOMES or kind == "group_moved":
            self._messages(event, kind, self.partitions[queue][partition], queue, partition, group)

    def _messages(
        self, event: dict[str, Any], kind: str, messages: dict[int, str], queue: str, partition: str, group: str | None
    ) -> None:
        positions = set(_positions(event))
        if kind == "group_moved":
            positions = {place for place in messages if place >= event["cursor"]}
            held = [lease for lease, its in self.leases.items() if its[:3] == (queue, partition, group)]
            for lease in held:
                del self.leases[lease]
        elif kind != "leased":
            self._let_go(queue, partition, None if kind == "deleted" else [group], positions)
        else:
            self.leases[event["leaseId"]] = queue, partition, group, positions
        for place in positions if group is None else ():
            if kind == "deleted":
                del messages[place]
            else:
                messages[place] = _BECOMES.get(kind, "pending")

    def _let_go(self, queue: str, partition: str, groups: list[str | None] | None, positions: set[int]) -> None:
        for lease, (its_queue, its_partition, its_group, held) in list(self.leases.items()):
            if (its_queue, its_partition) == (queue, partition) and (groups is None or its_group in groups):
                held -= positions
                if not held:
                    del self.leases[lease]

    def counts(self, queue: str) -> dict[str, dict[str, int]]:
        """By partition, in the words of the API."""
        found = {}
        for name, messages in self.partitions[queue].items():
            counts = dict.fromkeys(("pending", "processing", "completed", "failed", "deadLetter"), 0)
            for status in messages.values():
                counts[status] += 1
            found[name] = {"total": len(messages), **counts}
        return found


_BECOMES = {
    "pushed": "pending",
    "leased": "processing",
    "completed": "completed",
    "failed": "failed",
    "dead_letter": "deadLetter",
    "returned": "pending",
    "set_aside": "pending",
    "revived": "pending",
    "deleted": "deleted",
}


def _positions(event: dict[str, Any]) -> Iterator[int]:
    for first, last in event.get("positions", ()):
        yield from range(first, last + 1)
