"""Whether the payloads of deleted messages, and of no others, are erased or stand among those that are to be."""

from collections import defaultdict
from collections.abc import Iterator

from queen.actors.ranges import RangeSet
from queen.audit.findings import Findings
from queen.audit.index import pushed_run
from queen.audit.reading import read, records
from queen.audit.tables import Tables
from queen.audit.world import World
from queen.errors import Corrupt
from queen.events import MessagesDeleted, PartitionCreated, QueueDeleted
from queen.store import keys
from queen.store.format import Record
from queen.store.journal import Table

_NONE = RangeSet()

Sets = dict[int, RangeSet]
"""Positions, by number of the partition."""


class ErasuresComparison:
    """Give it every record, in order, and then `finish`. Costs memory per gap between what is deleted or erased.

    A server that runs deletes and erases meanwhile. What it erases, and takes out of the table, is looked at again in
    its record; what it deletes stands in records behind those that were given.
    """

    def __init__(self, tables: Tables, findings: Findings) -> None:
        self._tables = tables
        self._findings = findings
        self._deletions = Deletions()
        self._erased: Sets = defaultdict(RangeSet)

    def take(self, record: Record) -> None:
        """Note what a record has lost and, up to the checkpoint, what it deletes."""
        if record.seq <= self._tables.checkpoint:
            self._deletions.take(record)
        if record.erased and record.pushed is not None:
            for index in range(len(record.pushed.sizes)):
                if record.payload(index) is None:
                    position = record.pushed.first + index
                    self._erased[record.partition].add(position, position + 1)

    def finish(self, world: World) -> None:
        """Compare, once everything is known."""
        listed = self._listed() if self._tables.checkpoint else {}
        self._find_forgotten(listed, world)
        self._find_living(listed, world)

    def _listed(self) -> Sets:
        """What stands in the table. Read before records are looked at again: what leaves it meanwhile is erased then,
        and what is left of a row comes behind it."""
        listed: Sets = defaultdict(RangeSet)
        for key, value in self._tables.all(Table.ERASURES):
            partition, first, stop = keys.read_erasure(key, value)
            _include(listed[partition], max(first, 1), stop)
        return listed

    def _find_forgotten(self, listed: Sets, world: World) -> None:
        """Deleted messages whose payloads are there, and would be for ever."""
        for partition, deleted in sorted(self._deletions.positions().items()):
            known = RangeSet(self._erased.get(partition, _NONE).ranges())
            for start, stop in listed.get(partition, _NONE).ranges():
                _include(known, start, stop)
            for start, stop in _without(deleted, known):
                for first, end, seq in self._still_there(partition, start, stop):
                    where = _where(partition, world)
                    what = f"lacks the payloads of deleted messages, which are not erased, at {_span(first, end)}"
                    self._tables.fault(Table.ERASURES, what, seq, where)

    def _still_there(self, partition: int, start: int, stop: int) -> Iterator[tuple[int, int, int | None]]:
        """Which of the positions have payloads in their records now, as (start, stop, record)."""
        while start < stop:
            try:
                run = pushed_run(self._tables.past, partition, start)
            except Corrupt:
                run = None
            if run is None:
                yield start, stop, None  # the table of runs is wrong, which is told by itself
                return
            record = read(self._tables.past, run.seq)
            end = min(stop, run.first + run.length)
            there = RangeSet()
            for position in range(start, end):
                if record.payload(position - run.first) is not None:
                    there.add(position, position + 1)
            yield from ((first, behind, run.seq) for first, behind in there.ranges())
            start = end

    def _find_living(self, listed: Sets, world: World) -> None:
        """Messages that are not deleted, and yet have lost their payloads, or are to."""
        erased, doomed = (
            [
                (partition, *each)
                for partition, found in sorted(sets.items())
                for each in _living(partition, found, world)
            ]
            for sets in (self._erased, listed)
        )
        if not erased and not doomed:
            return
        later = Deletions(world)
        for record in records(self._tables.past, world.seq):
            later.take(record)
        since = later.positions()
        for partition, start, stop in erased:
            for first, end in since.get(partition, _NONE).gaps(start, stop):
                what = f"the payload at {_span(first, end)} was erased, though the message is not deleted"
                self._findings.add("state", what, self._seq(partition, first), where=_where(partition, world))
        for partition, start, stop in doomed:
            for first, end in since.get(partition, _NONE).gaps(start, stop):
                what = f"would have payloads erased of messages that are not deleted, at {_span(first, end)}"
                self._tables.fault(Table.ERASURES, what, self._seq(partition, first), _where(partition, world))

    def _seq(self, partition: int, position: int) -> int | None:
        try:
            run = pushed_run(self._tables.past, partition, position)
        except Corrupt:
            return None
        return None if run is None else run.seq


class Deletions:
    """What records delete: messages by their positions, and whole partitions with their queue. `world` is how
    everything was before the first of them."""

    def __init__(self, world: World | None = None) -> None:
        self._deleted: Sets = defaultdict(RangeSet)
        self._ends: dict[int, int] = {}
        self._partitions: dict[int, set[int]] = defaultdict(set)
        self._gone: set[int] = set()
        if world is not None:
            for number, state in world.states.items():
                self._ends[number] = state.next_position
                self._partitions[world.catalogue.slots[number].queue.number].add(number)

    def take(self, record: Record) -> None:
        """The next record."""
        for event in record.events:
            if isinstance(event, PartitionCreated):
                self._partitions[event.queue].add(record.partition)
            elif isinstance(event, MessagesDeleted):
                for first, length, _ in event.runs:
                    self._deleted[record.partition].add(first, first + length)
            elif isinstance(event, QueueDeleted):
                self._gone |= self._partitions.pop(event.queue, set())
        if record.pushed is not None:
            self._ends[record.partition] = record.pushed.first + len(record.pushed.sizes)

    def positions(self) -> Sets:
        """All that is deleted."""
        for partition in self._gone:
            _include(self._deleted[partition], 1, self._ends.get(partition, 1))
        return self._deleted


def _living(partition: int, positions: RangeSet, world: World) -> Iterator[tuple[int, int]]:
    """The positions whose messages are not deleted."""
    state = world.states.get(partition)
    if state is not None:
        yield from _without(positions, state.deleted)


def _without(positions: RangeSet, others: RangeSet) -> Iterator[tuple[int, int]]:
    for start, stop in positions.ranges():
        yield from others.gaps(start, stop)


def _include(positions: RangeSet, start: int, stop: int) -> None:
    """Add them, some of which may be included."""
    for first, end in list(positions.gaps(start, stop)):
        positions.add(first, end)


def _span(start: int, stop: int) -> str:
    return f"position {start}" if stop == start + 1 else f"positions {start} to {stop - 1}"


def _where(partition: int, world: World) -> str:
    slot = world.catalogue.slots.get(partition)
    return f"partition {partition}, whose queue is deleted" if slot is None else f"{slot.queue.name}/{slot.name}"
