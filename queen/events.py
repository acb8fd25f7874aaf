"""The events: what happened, in the past tense, with outcomes and never rules (absolute times, chosen messages).

Events are what the journal keeps for ever. A class's meaning is never changed: a new meaning is a new class
with a new tag and an upcast (`store/upcasts.py`). Fields may be added at the end, with a default that means
"as before". Tags below 32 belong to the catalogue, the others to one partition.
"""

from typing import Any, Literal, NamedTuple

import msgspec


class Event(msgspec.Struct, frozen=True, array_like=True):
    """Base of all events; stored as an array that starts with the class's tag."""


class Run(NamedTuple):
    """Messages side by side in a partition that were pushed together: `first`, `first + 1`, ..."""

    first: int
    length: int
    pushed_at: int


Outcome = Literal["completed", "failed", "dead_letter"]
Because = Literal["failed", "expired", "released", "retried"]
"""An attempt failed; its lease ended; the server took it back undelivered; the consumer gave it back."""


# -- the catalogue: queues and their consumer groups ------------------------------------------------------


class QueueCreated(Event, frozen=True, tag=1):
    """A queue exists from now on. `options` holds those that differ from the defaults."""

    queue: int
    id: bytes
    name: str
    namespace: str | None
    task: str | None
    options: dict[str, Any]


class QueueConfigured(Event, frozen=True, tag=2):
    """The queue's namespace, task and options are these from now on (all of them, not the difference)."""

    queue: int
    namespace: str | None
    task: str | None
    options: dict[str, Any]


class QueueDeleted(Event, frozen=True, tag=3):
    """The queue, its partitions and its messages are gone; a new one of the same name is another queue."""

    queue: int


class GroupStarted(Event, frozen=True, tag=4):
    """A consumer group met the queue (G2). It gets what was pushed after journal position `after_seq` and
    not before `from_at`; both 0 mean everything that is kept."""

    queue: int
    group: int
    name: str
    after_seq: int
    from_at: int


class GroupDeleted(Event, frozen=True, tag=5):
    """The group is forgotten; its name starts anew at its next contact."""

    queue: int
    group: int


class ClockShifted(Event, frozen=True, tag=6):
    """The wall clock jumped while the server was up: from now on it reads the server's time plus `shift` µs (T6)."""

    shift: int


# -- one partition ----------------------------------------------------------------------------------------


class PartitionCreated(Event, frozen=True, tag=32):
    """The partition exists from now on, with the default group at its start."""

    queue: int
    id: bytes
    name: str


class MessagesPushed(Event, frozen=True, tag=33):
    """Messages stand at positions `first`, `first + 1`, ... Their payloads follow the facts of the record.

    Message k has the id `base + 2k` and, where `transaction_ids` is empty or holds None for it, the
    transactionId `base + 2k + 1` (`base` is a UUID as 16 bytes). `sizes` are the payloads' lengths in bytes
    as stored. `trace_ids` and `delays_s` are empty where no message has any. `key` names the key that sealed
    the payloads, None for plain ones. `clock_shift` is added to the record's time to get what is shown as
    `createdAt`.
    """

    first: int
    base: bytes
    sizes: tuple[int, ...]
    transaction_ids: tuple[str | None, ...] = ()
    trace_ids: tuple[str | None, ...] = ()
    delays_s: tuple[int | None, ...] = ()
    key: str | None = None


class GroupJoined(Event, frozen=True, tag=34):
    """The group met this partition; the first message it gets is the one at `cursor` (or the next after it)."""

    group: int
    cursor: int


class MessagesLeased(Event, frozen=True, tag=35):
    """The messages are with a consumer until `expires_at`."""

    group: int
    lease: bytes
    expires_at: int
    runs: tuple[Run, ...]
    worker: str | None = None


class LeaseExtended(Event, frozen=True, tag=36):
    """The lease ends at `expires_at` instead."""

    group: int
    lease: bytes
    expires_at: int


class MessagesSettled(Event, frozen=True, tag=37):
    """The messages are done with, for this group.

    `asked` is the acknowledgement's status that led here, None where time did (a lease or a ttl ended).
    `lease`, `leased_at` and `worker` are those of the last delivery, None for messages that had none.
    `retry_counts` holds the counts that are not 0, by position.
    """

    group: int
    outcome: Outcome
    runs: tuple[Run, ...]
    asked: str | None = None
    lease: bytes | None = None
    leased_at: int | None = None
    worker: str | None = None
    error: str | None = None
    retry_counts: dict[int, int] = {}


class MessagesReturned(Event, frozen=True, tag=38):
    """The messages are available again at their old places, from `available_at` on, with these retry counts.

    `failed_at` and `error` are None where the return says nothing about the messages themselves.
    """

    group: int
    because: Because
    positions: tuple[int, ...]
    retry_counts: tuple[int, ...]
    available_at: int
    error: str | None = None
    failed_at: int | None = None


class MessagesSetAside(Event, frozen=True, tag=39):
    """Delayed messages that a delivery in relaxed order went past; each is available at its own time."""

    group: int
    runs: tuple[Run, ...]
    available_at: tuple[int, ...]


class MessagesRevived(Event, frozen=True, tag=40):
    """Failed or dead-lettered messages are pending again at their old places, with no retries counted (R3).

    `failed` and `dead_letter` say how many were which."""

    group: int
    runs: tuple[Run, ...]
    failed: int
    dead_letter: int


class SettledCount(NamedTuple):
    """How many of some messages a group had settled, by outcome."""

    group: int
    completed: int
    failed: int
    dead_letter: int


class MessagesDeleted(Event, frozen=True, tag=41):
    """The messages are gone for every group; `settled` says how many of them had been settled, by group.

    `swept_seq`: retention has looked at every settlement up to this journal position."""

    runs: tuple[Run, ...]
    settled: tuple[SettledCount, ...] = ()
    swept_seq: int = 0


class GroupMoved(Event, frozen=True, tag=42):
    """The group's next message is the one at `cursor` (G3); its leases ended.

    The counts are those of the messages before the cursor."""

    group: int
    cursor: int
    completed: int
    failed: int
    dead_letter: int


CatalogueEvent = QueueCreated | QueueConfigured | QueueDeleted | GroupStarted | GroupDeleted | ClockShifted
PartitionEvent = (
    PartitionCreated
    | MessagesPushed
    | GroupJoined
    | MessagesLeased
    | LeaseExtended
    | MessagesSettled
    | MessagesReturned
    | MessagesSetAside
    | MessagesRevived
    | MessagesDeleted
    | GroupMoved
)
AnyEvent = CatalogueEvent | PartitionEvent
