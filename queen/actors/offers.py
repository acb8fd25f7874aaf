"""What the router knows of all queues, as each consumer group sees them, and which partition a pop should go to.

One `Line` for each queue and group that anybody has asked for since the start. No waiting, no pops of its own.
"""

from collections.abc import Iterator

from queen.actors.catalogue_rules import group_started, start_group
from queen.actors.catalogue_state import Group, Queue, Slot
from queen.actors.core import Core
from queen.actors.introduction import Introduction, Introductions
from queen.actors.lines import Line
from queen.actors.mailbox import PopRequest
from queen.actors.residents import Residents
from queen.names import DEFAULT_GROUP
from queen.replies import Nothing

_NOTHING = Nothing()


class Offers:
    """See the module."""

    def __init__(self, core: Core, house: Residents) -> None:
        self._core = core
        self._house = house
        self._lines: dict[tuple[int, int], Line] = {}
        self.introductions = Introductions(house.introduce)

    def known(self, queue: Queue, group: int) -> Line | None:
        """The line of a group, None where nobody has asked for it. The default group is always asked for."""
        line = self._lines.get((queue.number, group))
        if line is None and group == DEFAULT_GROUP:
            line = self._lines[queue.number, group] = Line(self._core.catalogue.slots)
        return line

    def drop(self, queue: Queue, group: int | None) -> None:
        """The queue, or one of its groups, is gone."""
        for key in [key for key in self._lines if key[0] == queue.number and group in (None, key[1])]:
            del self._lines[key]

    def choose(self, request: PopRequest) -> Slot | Introduction | None:
        """The best partition that has something for the pop (O3, O4), or None; before that is known, the introduction
        that the pop has to wait for."""
        scope = request.scope
        if scope.partition is not None and scope.queue is not None:
            slot = self._core.catalogue.slot(scope.queue, scope.partition)
            if slot is None:
                return None
            line = self.line(slot.queue, request)
            if line.introduction is not None and not request.introduced:
                return line.introduction
            asks = line.is_ready(slot) or self._house.is_quarantined(slot)
            return slot if asks or (line.is_taken(slot) and not request.wait) else None
        for queues in self._candidates(request):
            heads: list[tuple[int, Slot]] = []
            for queue in queues:
                line = self.line(queue, request)
                best = line.best()
                going = line.introduction
                if going is not None and (best is None or not going.long):
                    return going
                if best is not None:
                    heads.append(best)
            if heads:
                return min(heads, key=lambda head: head[0])[1]
        return None

    def in_between(self, request: PopRequest) -> Slot | None:
        """A partition that another pop is on its way to, asked once by a pop that can't wait for what it says: it may
        have something left, and knows the cause if not (L3)."""
        if request.insisted or request.scope.partition is not None:
            return None
        for queues in self._candidates(request):
            for queue in queues:
                slot = self.line(queue, request).taken()
                if slot is not None:
                    request.insisted = True
                    return slot
        return None

    def _candidates(self, request: PopRequest) -> Iterator[list[Queue]]:
        """The queues to look at, those of one priority at a time, highest first (O4)."""
        scope = request.scope
        if scope.queue is not None:
            queue = self._core.catalogue.queues.get(scope.queue)
            yield [] if queue is None else [queue]
            return
        matching: dict[int, list[Queue]] = {}
        for queue in self._matching(request):
            matching.setdefault(queue.options.priority, []).append(queue)
        for priority in sorted(matching, reverse=True):
            yield matching[priority]

    def _matching(self, request: PopRequest) -> list[Queue]:
        namespace, task = request.scope.namespace, request.scope.task
        return [
            queue
            for queue in self._core.catalogue.queues.values()
            if namespace in (None, queue.namespace) and task in (None, queue.task)
        ]

    def held(self, request: PopRequest) -> Nothing:
        """What holds back what the pop is looking for; the cause that ends first (Z10)."""
        scope = request.scope
        if scope.partition is not None and scope.queue is not None:
            slot = self._core.catalogue.slot(scope.queue, scope.partition)
            return _NOTHING if slot is None else self.line(slot.queue, request).held(slot)
        found = [self.line(queue, request).held() for queues in self._candidates(request) for queue in queues]
        return min((nothing for nothing in found if nothing.until is not None), key=_until, default=_NOTHING)

    def line(self, queue: Queue, request: PopRequest) -> Line:
        """The queue as the pop's group sees it; partitions are asked at the first time."""
        group = self.group(queue, request)
        line = self._lines.get((queue.number, group.number))
        if line is None:
            line = self._lines[queue.number, group.number] = Line(self._core.catalogue.slots)
            if group.number:
                line.introduction = self.introductions.begin(queue, group.number)
        line.asked = True
        return line

    def forget_unasked(self) -> None:
        """Forget what is offered to groups that nobody has asked for since the last time this was called. Those that
        have never got anything either are forgotten themselves: they would begin again where they began (W5)."""
        for (number, group), line in list(self._lines.items()):
            queue = self._core.catalogue.numbers.get(number)
            if queue is None or not group or line.introduction is not None:
                continue
            if line.asked:
                line.asked = False
                continue
            del self._lines[number, group]
            known = queue.groups.numbered(group)
            if known is not None and not known.recorded:
                del queue.groups[known.name]
                self._house.dismiss(queue, group)

    def group(self, queue: Queue, request: PopRequest) -> Group:
        """The request's group in this queue, met now if it is new (G2)."""
        group = queue.groups.get(request.group)
        if group is None:
            assert request.group is not None, "every queue has the default group"
            group = start_group(queue, request.group, request.new_only, request.from_at, request.since_seq)
            queue.groups[request.group] = group
            queue.next_group += 1
            if group.after_seq or group.from_at:
                self._core.record_catalogue(group_started(queue, group), request.caller)
                group = queue.groups[request.group]
        return group


def _until(nothing: Nothing) -> int:
    return nothing.until or 0
