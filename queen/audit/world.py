"""Everything as it was once: the fold of records up to an instant, by the very `evolve`s of the live server. Pure."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from queen.actors import catalogue_state
from queen.actors.catalogue_state import Catalogue
from queen.actors.partition_state import GroupView, Partition, evolve
from queen.events import AnyEvent, GroupDeleted, QueueDeleted
from queen.names import DEFAULT_GROUP
from queen.store.format import Record


class LeaseThen(NamedTuple):
    """A lease that ran at that instant."""

    queue: str
    partition: str
    group: str | None
    id: bytes
    worker: str | None
    leased_at: int
    expires_at: int
    positions: tuple[int, ...]


class Pushes:
    """When the messages of folded records were created: by partition, the first position of each record."""

    def __init__(self) -> None:
        self._firsts: dict[int, list[int]] = {}
        self._shown: dict[int, list[int]] = {}

    def add(self, partition: int, first: int, shown_at: int) -> None:
        """A record of pushed messages, in order."""
        self._firsts.setdefault(partition, []).append(first)
        self._shown.setdefault(partition, []).append(shown_at)

    def shown(self, partition: int, position: int) -> int | None:
        """When that message was created; None where its push was not folded."""
        index = bisect_right(self._firsts.get(partition, []), position) - 1
        return None if index < 0 else self._shown[partition][index]


class World:
    """Queues, partitions and their states, as of record `seq`. `shift` is how far the wall clock was off then."""

    def __init__(self) -> None:
        self.catalogue = Catalogue()
        self.states: dict[int, Partition] = {}
        # What a state that was not folded here holds already: up to which record.
        self.seqs: dict[int, int] = {}
        self.pushes = Pushes()
        self.seq = 0
        self.at = 0
        self.shift = 0
        self.records = 0
        self.messages = 0

    def fold(self, records: Iterable[Record]) -> "World":
        """Apply records in order, and sum up."""
        for record in records:
            self.apply(record)
        self.sum_up()
        return self

    def apply(self, record: Record) -> None:
        """Apply the next record."""
        for event in record.events:
            self.apply_event(record, event)
        self.passed(record)

    def apply_event(self, record: Record, event: AnyEvent) -> None:
        """Apply one of its events, for who looks at each; `passed` comes behind the last."""
        if catalogue_state.queue_of(event) is not None:
            self._apply_to_catalogue(record, event)
        if record.seq > self.seqs.get(record.partition, 0) and record.partition in self.catalogue.slots:
            state = self.states.get(record.partition)
            if state is None:
                state = self.states[record.partition] = Partition(record.partition)
            evolve(state, event, record.at, record.shift)

    def passed(self, record: Record) -> None:
        """This is the last record now."""
        self.seq, self.at = record.seq, record.at
        if record.pushed is None:
            self.shift = record.shift  # a push carries that of its createdAt instead (N4)
        else:
            self.messages += len(record.pushed.sizes)
            self.pushes.add(record.partition, record.pushed.first, record.at + record.shift)
        self.records += 1

    def sum_up(self) -> None:
        """Copy what the partitions hold into the catalogue, where figures are read off."""
        for number, state in self.states.items():
            slot = self.catalogue.slots.get(number)
            if slot is not None:
                for group in [group for group in state.groups if slot.queue.groups.numbered(group) is None]:
                    del state.groups[group]  # deleted; the partition has not drawn the consequence yet
                slot.deleted = state.deleted
                view = state.groups[DEFAULT_GROUP]
                slot.tell(view.counts, view.cursor)

    def leases(self) -> Iterator[LeaseThen]:
        """The leases that ran, by queue, partition and time of delivery."""
        for queue in self.catalogue.queues.values():
            for slot in sorted(queue.slots.values(), key=lambda slot: slot.number):
                for number, view in sorted(self._views(slot.number)):
                    group = queue.groups.numbered(number)
                    for lease in sorted(view.leases.values(), key=lambda lease: lease.leased_at):
                        yield LeaseThen(
                            queue.name,
                            slot.name,
                            None if group is None else group.name,
                            lease.id,
                            lease.worker,
                            lease.leased_at + self.shift,
                            lease.expires_at + self.shift,
                            tuple(sorted(lease.positions)),
                        )

    def _views(self, partition: int) -> list[tuple[int, GroupView]]:
        state = self.states.get(partition)
        return [] if state is None else list(state.groups.items())

    def _apply_to_catalogue(self, record: Record, event: AnyEvent) -> None:
        if catalogue_state.replayed(self.catalogue, event, record.partition):
            return
        if isinstance(event, QueueDeleted):
            for slot in self.catalogue.numbers[event.queue].slots.values():
                self.states.pop(slot.number, None)
        elif isinstance(event, GroupDeleted):
            # Each partition of a server draws this consequence when it is next looked at.
            for slot in self.catalogue.numbers[event.queue].slots.values():
                if slot.number in self.states:
                    self.states[slot.number].groups.pop(event.group, None)
        catalogue_state.evolve(self.catalogue, record.seq, record.partition, event, record.at, record.shift)
