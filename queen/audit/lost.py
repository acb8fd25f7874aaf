"""Messages that were there at an instant, and whose payloads are erased by now: what no restore can bring back. Pure.

A deletion erases payloads out of records that are older than itself (R5). A prefix of such records tells of messages
that can't be delivered any more; they are deleted in it once again.
"""

from collections import Counter
from collections.abc import Iterator

from queen.actors.decision import runs_of
from queen.actors.partition_state import Partition
from queen.audit.world import World
from queen.events import MessagesDeleted, MessagesPushed, MessagesSettled, Outcome, SettledCount
from queen.store.format import Record

_Places = dict[int, int]
"""Positions and when each was pushed."""


class Lost:
    """Gathered record by record; what is lost is known behind the last one."""

    def __init__(self) -> None:
        self._erased: dict[int, _Places] = {}
        self._ends: dict[tuple[int, int, int], Outcome] = {}

    def take(self, record: Record) -> None:
        """The next record."""
        for event in record.events:
            if isinstance(event, MessagesPushed) and record.erased:
                erased = self._erased.setdefault(record.partition, {})
                for index in range(len(event.sizes)):
                    if record.payload(index) is None:
                        erased[event.first + index] = record.at
            elif isinstance(event, MessagesSettled) and record.partition in self._erased:
                for position in _among(self._erased[record.partition], event):
                    self._ends[record.partition, event.group, position] = event.outcome

    def deletions(self, world: World) -> Iterator[tuple[int, MessagesDeleted]]:
        """By partition, the deletion of what is lost in that world, which has been summed up."""
        for number, erased in sorted(self._erased.items()):
            state = world.states.get(number)
            if state is None:
                continue  # its queue is deleted
            lost = sorted((position, at) for position, at in erased.items() if position not in state.deleted)
            if lost:
                positions = [position for position, _ in lost]
                yield number, MessagesDeleted(runs_of(lost), self._settled(number, state, positions))

    def _settled(self, number: int, state: Partition, positions: list[int]) -> tuple[SettledCount, ...]:
        counted = []
        for group, view in state.groups.items():
            ends = Counter(
                self._ends[number, group, position]
                for position in positions
                if position < view.cursor and position not in view.open and (number, group, position) in self._ends
            )
            if ends:
                counted.append(SettledCount(group, ends["completed"], ends["failed"], ends["dead_letter"]))
        return tuple(counted)


def _among(erased: _Places, event: MessagesSettled) -> Iterator[int]:
    """Which of the erased the event settles; looks at the smaller side of each run."""
    for first, length, _ in event.runs:
        if length < len(erased):
            yield from (position for position in range(first, first + length) if position in erased)
        else:
            yield from (position for position in erased if first <= position < first + length)
