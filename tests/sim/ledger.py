"""What the journal tells, kept message by message: who was where when. The books that `audit` fills and `accord` reads.

Times are the server's, in µs; a version of something holds from one record's number to the next one's.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from queen.options import QueueOptions
from tests.model.reference import Copy, ReferenceQueue


class Version(NamedTuple):
    """How a message was for one group from record `seq` on, at time `at`; `copy` None: it was deleted."""

    seq: int
    at: int
    copy: Copy | None


@dataclass(eq=False)
class Entry:
    """One stored message."""

    name: str
    id: str
    trace: str | None
    place: "Part"
    position: int
    seq: int
    at: int
    shown_at: int
    key: str | None
    deleted_seq: int | None = None
    versions: dict[int, list[Version]] = field(default_factory=dict)

    def during(self, group: int, first: int, last: int) -> Iterator[Version]:
        """What it was for a group at some moment between two records' being handed in, both included."""
        versions = self.versions.get(group, [])
        start = max(0, bisect_right(versions, first, key=lambda version: version.seq) - 1)
        for version in versions[start:]:
            if version.seq > last:
                return
            yield version


@dataclass(eq=False)
class Lease:
    """One lease. `ends` are its ends as they were set: (record, time). `ended` is (record, time, why) of its last
    message's leaving it."""

    id: bytes
    place: "Part"
    group: int
    positions: list[int]
    seq: int
    at: int
    request: bytes
    auto: bool
    counts: list[int]
    ends: list[tuple[int, int]] = field(default_factory=list)
    ended: tuple[int, int, str] | None = None


@dataclass(eq=False)
class Crowd:
    """One consumer group of a queue, and where it begins (G2)."""

    number: int
    name: str | None
    after_seq: int = 0
    from_at: int = 0
    seq: int = 0
    deleted_seq: int | None = None


@dataclass(eq=False)
class Store:
    """One queue, from its creation to its deletion."""

    number: int
    name: str
    created_seq: int
    options: QueueOptions
    grouping: tuple[str | None, str | None]
    configured_at: int
    deleted_seq: int | None = None
    parts: dict[str, "Part"] = field(default_factory=dict)
    groups: dict[int, Crowd] = field(default_factory=lambda: {0: Crowd(0, None)})
    versions: list[tuple[int, QueueOptions]] = field(default_factory=list)

    @property
    def depth(self) -> int:
        """Pending and processing messages of the default group (P6)."""
        return sum(
            message.copies[0].status in ("pending", "processing")
            for part in self.parts.values()
            for message in part.plain.messages
        )

    def options_during(self, first: int, last: int) -> Iterator[QueueOptions]:
        """The options that held between two records."""
        start = max(0, bisect_right(self.versions, first, key=lambda version: version[0]) - 1)
        yield from (options for seq, options in self.versions[start:] if seq <= last)

    def numbers_of(self, group: str | None, first: int, last: int) -> list[int]:
        """The numbers that a group had between two records, as far as anything is recorded of it."""
        return [
            crowd.number
            for crowd in self.groups.values()
            if crowd.name == group and crowd.seq <= last and (crowd.deleted_seq is None or crowd.deleted_seq > first)
        ]


class Window(NamedTuple):
    """From `since` to `until`, a pop of the group would have got something from the partition. The time of one engine
    may overlap with that of the one before, of whose end nothing is recorded."""

    part: "Part"
    group: int
    since: int
    until: int
    epoch: int


@dataclass(eq=False)
class Part:
    """One partition: the plain reference of it, and what became of each of its messages."""

    number: int
    name: str
    store: Store
    plain: ReferenceQueue
    created_seq: int
    entries: list[Entry] = field(default_factory=list)
    latest_shown: int = 0
    latest_at: int = 0
    since: dict[int, int] = field(default_factory=dict)
    """For groups that something is or will be available to: since when."""
    windows: list[Window] = field(default_factory=list)

    def note(self, seq: int, at: int, groups: list[int], positions: list[int]) -> None:
        """These messages have changed for these groups."""
        for position in positions:
            entry = self.entries[position - 1]
            message = self.plain._find(position)
            for group in groups:
                copy = message.copies.get(group) if message is not None else None
                version = Version(seq, at, replace(copy) if copy is not None else None)
                entry.versions.setdefault(group, []).append(version)

    def measure(self, at: int, epoch: int) -> None:
        """Something has changed at `at`: note what is available to whom from now on."""
        for group in self.plain.groups:
            found = self.plain.available(group)
            since = None if found is None else max(found[0], at)
            before = self.since.pop(group, None)
            if before is not None and before < at:
                if since is not None and since <= at:
                    since = before
                else:
                    self.windows.append(Window(self, group, before, at, epoch))
            if since is not None:
                self.since[group] = since

    def close(self, at: int, epoch: int, group: int | None = None) -> None:
        """Nothing is available any more: the engine, the partition or the group is gone."""
        for gone in list(self.since) if group is None else [group]:
            since = self.since.pop(gone, at)
            if since < at:
                self.windows.append(Window(self, gone, since, at, epoch))


@dataclass
class Ledger:
    """All of it."""

    stores: dict[int, Store] = field(default_factory=dict)
    parts: dict[int, Part] = field(default_factory=dict)
    live: dict[str, Store] = field(default_factory=dict)
    names: dict[str, list[Entry]] = field(default_factory=dict)
    traces: dict[str, Entry] = field(default_factory=dict)
    leases: dict[bytes, Lease] = field(default_factory=dict)
    by_request: dict[bytes, list[int]] = field(default_factory=dict)
    made: set[int] = field(default_factory=set)
    """Records that make queues and partitions, in front of the push that needs them."""
    completed: int = 0
    """Messages of the default group that consumers have completed (S3)."""
    ats: list[int] = field(default_factory=list)
    """When each record was decided, from the first on."""

    def stored(self, name: str) -> Entry | None:
        """The message that has the transactionId now."""
        entries = self.names.get(name)
        return entries[-1] if entries and entries[-1].deleted_seq is None else None

    def stored_during(self, name: str, first: int, last: int) -> list[Entry]:
        """The messages that had the transactionId at some moment between two records."""
        return [
            entry
            for entry in self.names.get(name, ())
            if entry.seq <= last and (entry.deleted_seq is None or entry.deleted_seq > first)
        ]
