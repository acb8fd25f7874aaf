"""The commands that a partition's rules decide on: imperatives, with every id, time span and choice already in them.

An id that a command needs is minted at the edge, so that a command tried again is the same command.
"""

from typing import Literal

import msgspec

DELIVERY_BYTES = 16 * 1024 * 1024
"""Payload in one delivery: an answer is made in memory, in one step, and everybody else waits meanwhile."""

AckStatus = Literal["completed", "failed", "retry", "dead_letter"]
Status = Literal["pending", "processing", "completed", "failed", "dead_letter"]
"""How a message is for one consumer group."""


class Command(msgspec.Struct, frozen=True):
    """Base of all commands."""


class PushItem(msgspec.Struct, frozen=True):
    """One message of a push; `payload` is its JSON text as it will be stored."""

    payload: bytes
    transaction_id: str | None = None
    trace_id: str | None = None
    delay_s: int | None = None


class Push(Command, frozen=True):
    """Store the items, in order, in one partition. Ids are taken from `base` on (see `names.message_id`)."""

    base: int
    items: tuple[PushItem, ...]
    key: str | None = None


class Pop(Command, frozen=True):
    """Lease up to `batch` messages to the group, or complete them at once with `auto_ack` (O7): as many as `room`
    bytes of payload have room for, and one in any case."""

    group: int
    batch: int
    lease: bytes
    auto_ack: bool = False
    worker: str | None = None
    room: int = DELIVERY_BYTES


class AckEntry(msgspec.Struct, frozen=True):
    """The acknowledgement of one message of the partition."""

    position: int
    status: AckStatus
    error: str | None = None
    lease: bytes | None = None


class Ack(Command, frozen=True):
    """Settle or return messages; each entry has its own outcome."""

    group: int
    entries: tuple[AckEntry, ...]


class Extend(Command, frozen=True):
    """Move the lease's end to now + `seconds` (None: the queue's leaseTime), never to an earlier time (L6)."""

    lease: bytes
    seconds: int | None = None


class Release(Command, frozen=True):
    """Give back what is left of a lease, uncounted: its consumer never saw it, or does not want it (L8)."""

    lease: bytes


class Retry(Command, frozen=True):
    """Make a failed or dead-lettered message pending again, or one that waits for its retry available now (R3)."""

    group: int
    position: int


class Bury(Command, frozen=True):
    """Move a message that has failed at least once to the dead letters (R4)."""

    group: int
    position: int


class Delete(Command, frozen=True):
    """Make one message gone for every reader (R5)."""

    position: int


class Clear(Command, frozen=True):
    """Delete every message of the partition."""


class Seek(Command, frozen=True):
    """Move the group to `position`; what lies before it is done with, what follows is delivered (again) (G3)."""

    group: int
    position: int


class Join(Command, frozen=True):
    """Let a group that the partition has not met yet begin at `cursor`."""

    group: int
    cursor: int


class Look(Command, frozen=True):
    """How are these messages, as the group sees them? A question: it changes nothing."""

    group: int
    positions: tuple[int, ...]


class Survey(Command, frozen=True):
    """Which messages below position `below` have this status for the group, newest first, at most `count` of them?"""

    group: int
    status: Status
    below: int
    count: int


class Tick(Command, frozen=True):
    """Decide what time has brought: ended leases, messages past their ttl or their retention."""


class Census(Command, frozen=True):
    """How far has each group got, and what is left for it? A question."""


class Explain(Command, frozen=True):
    """What would a pop of the group find, and why? A question. `partition` is the partition's own name, `lost` are the
    encryption keys that are not here."""

    group: int
    partition: str
    lost: tuple[str, ...] = ()


Question = Look | Survey | Census | Explain
PartitionCommand = Push | Pop | Ack | Extend | Release | Retry | Bury | Delete | Clear | Seek | Join | Tick | Question
