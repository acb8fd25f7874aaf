"""Figures about queues as users of the library get them: nouns. Instants are µs since the epoch, as the wall clock
shows them; durations are µs. `web/render_figures.py` spells them.
"""

from collections.abc import Iterable
from operator import add, sub
from typing import Literal, NamedTuple

import msgspec

from queen.options import QueueOptions


class Counts(NamedTuple):
    """Messages by status, for the default group (S1). Deleted ones count nowhere."""

    pending: int = 0
    processing: int = 0
    completed: int = 0
    failed: int = 0
    dead_letter: int = 0

    @property
    def total(self) -> int:
        """All of them (S1)."""
        return sum(self)

    def moved(self, before: "Counts", after: "Counts") -> "Counts":
        """This sum, once the part of it that was `before` is `after`."""
        return Counts(*map(add, self, map(sub, after, before)))


NONE = Counts()


def sum_of(counts: Iterable[Counts]) -> Counts:
    """The counts of all together."""
    total = NONE
    for each in counts:
        total = Counts(*map(add, total, each))
    return total


class PartitionFigures(NamedTuple):
    """One partition. `oldest` and `newest` are the creation times of the oldest and newest message that still exists,
    None where there is none, or where they were not asked for."""

    id: str
    name: str
    created_at: int
    counts: Counts
    oldest: int | None = None
    newest: int | None = None


class QueueFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One queue. `partitions` stand in the order of their creation; empty where they were not asked for, though
    `partition_count` counts them."""

    id: str
    name: str
    namespace: str | None
    task: str | None
    created_at: int
    options: QueueOptions
    counts: Counts
    partition_count: int
    partitions: tuple[PartitionFigures, ...] = ()


class GroupFigures(NamedTuple):
    """All queues of one namespace, or of one task."""

    name: str
    queues: int
    partitions: int
    counts: Counts


Verdict = Literal["ready", "leased", "delayed", "buffered", "retry", "empty", "quarantined", "key_missing"]
"""What a pop of a partition would find: something; or what holds pending messages back (L3); or that there are none."""


class LeaseFigures(NamedTuple):
    """A lease that runs. Instants are the server's own, without the shift of the wall clock."""

    id: bytes
    worker: str | None
    leased_at: int
    expires_at: int
    messages: int


class PopExplanation(NamedTuple):
    """Why a partition would deliver now or would not, for one consumer group. `until` is when that changes by itself,
    `oldest_at` when the message was pushed that comes first, `key` the name of an encryption key that is missing."""

    partition: str
    verdict: Verdict
    until: int | None = None
    pending: int = 0
    processing: int = 0
    oldest_at: int | None = None
    key: str | None = None
    leases: tuple[LeaseFigures, ...] = ()


class QueueExplanation(NamedTuple):
    """A page of a queue's partitions, of `total`. `met` says whether the queue knows the group; `shift` (µs) is added
    to instants to get what the wall clock shows."""

    queue: str
    group: str | None
    ordering: str
    met: bool
    total: int
    shift: int
    partitions: tuple[PopExplanation, ...]


class Overview(NamedTuple):
    """Everything there is, at the time `at`."""

    queues: int
    partitions: int
    namespaces: int
    tasks: int
    counts: Counts
    at: int


class MinuteFigures(NamedTuple):
    """What happened in the minute that began at `at` (S3), in the whole server.

    `completed`, `leased` and `failed` speak of the default group. `failed` counts messages that ended as failed or
    dead letters, `leased` those given to consumers under a lease, so that `autoAck`ed ones are not among them.
    `lag` is the average time from creation to completion of the `completed`, 0 where there were none.
    """

    at: int
    incoming: int
    completed: int
    leased: int
    failed: int
    lag: int


class LagFigures(NamedTuple):
    """How long messages took from creation to completion in the last 24 hours (S4), and how many there are now."""

    pending: int
    processing: int
    completed: int
    average: int
    median: int
    p95: int

    @property
    def backlog(self) -> int:
        """Messages that wait or are being processed."""
        return self.pending + self.processing


class QueueLag(NamedTuple):
    """A queue, and those of its partitions that have completed something, by name (S4, Z6). The totals count the
    backlog of all partitions."""

    name: str
    namespace: str | None
    task: str | None
    partitions: tuple[tuple[str, LagFigures], ...]
    totals: LagFigures
