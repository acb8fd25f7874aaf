"""Parked pops, first come first served (O5). Pure."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from queen.actors.mailbox import PopRequest, Scope

Key = tuple[Scope, str | None]
# Requests that left a line stay in its heap until they outnumber those that wait by this many.
_SLACK = 8


class _Line:
    __slots__ = ("heap", "live")

    def __init__(self) -> None:
        self.heap: list[tuple[int, int, PopRequest]] = []
        self.live = 0


class Waiting:
    """Parked requests by what they wait for; each keeps the ticket that it came with."""

    def __init__(self) -> None:
        self._lines: dict[Key, _Line] = {}
        self._groups: dict[Scope, dict[str | None, None]] = {}
        self._live = 0
        self._entries = 0

    def __len__(self) -> int:
        return self._live

    def park(self, request: PopRequest) -> None:
        """Let the request wait, at its ticket's place."""
        line = self._lines.setdefault((request.scope, request.group), _Line())
        self._entries += 1
        request.parked = self._entries
        heappush(line.heap, (request.ticket, request.parked, request))
        line.live += 1
        self._live += 1
        self._groups.setdefault(request.scope, {})[request.group] = None

    def first(
        self, queue: str, partition: str, namespace: str | None, task: str | None, group: str | None
    ) -> PopRequest | None:
        """Take off the request that is first in line for this partition, if there is one."""
        best = self.peek(queue, partition, namespace, task, group)
        if best is not None:
            self.leave(best)
        return best

    def peek(
        self, queue: str, partition: str, namespace: str | None, task: str | None, group: str | None
    ) -> PopRequest | None:
        """The request that is first in line for this partition, left where it is."""
        best: PopRequest | None = None
        for scope in _scopes(queue, partition, namespace, task):
            head = self._head((scope, group))
            if head is not None and (best is None or head.ticket < best.ticket):
                best = head
        return best

    def groups(self, queue: str, partition: str, namespace: str | None, task: str | None) -> set[str | None]:
        """The consumer groups that anybody waits for who would take from this partition."""
        found: set[str | None] = set()
        for scope in _scopes(queue, partition, namespace, task):
            found.update(self._groups.get(scope, ()))
        return found

    def leave(self, request: PopRequest) -> None:
        """The request waits no longer. Nothing happens where it does not wait."""
        if not request.parked:
            return
        request.parked = 0
        key = request.scope, request.group
        line = self._lines[key]
        line.live -= 1
        self._live -= 1
        if not line.live:
            del self._lines[key]
            groups = self._groups[request.scope]
            del groups[request.group]
            if not groups:
                del self._groups[request.scope]
        elif len(line.heap) > 2 * line.live + _SLACK:
            line.heap = [entry for entry in line.heap if _waits(entry)]
            heapify(line.heap)

    def drain(self) -> list[PopRequest]:
        """Take everybody off, in order of their tickets."""
        entries = sorted(entry for line in self._lines.values() for entry in line.heap if _waits(entry))
        self._lines.clear()
        self._groups.clear()
        self._live = 0
        for _, _, request in entries:
            request.parked = 0
        return [request for _, _, request in entries]

    def _head(self, key: Key) -> PopRequest | None:
        line = self._lines.get(key)
        if line is None:
            return None
        while not _waits(line.heap[0]):
            heappop(line.heap)
        return line.heap[0][2]


def _waits(entry: tuple[int, int, PopRequest]) -> bool:
    """Whether this is the entry that the request waits under: it may have left and come back."""
    return entry[2].parked == entry[1]


def _scopes(queue: str, partition: str, namespace: str | None, task: str | None) -> Iterator[Scope]:
    yield Scope(queue, partition)
    yield Scope(queue)
    if namespace is not None:
        yield Scope(namespace=namespace)
    if task is not None:
        yield Scope(task=task)
    if namespace is not None and task is not None:
        yield Scope(namespace=namespace, task=task)
