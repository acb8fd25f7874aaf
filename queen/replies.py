"""What an asker gets back: nouns. Instants are µs since the epoch; `web/render.py` spells them."""

from typing import Literal, NamedTuple

import msgspec

from queen.commands import Status

Blocked = Literal["leased", "delayed", "buffered", "retry"]


class Receipt(msgspec.Struct, frozen=True):
    """What became of one pushed message. For a duplicate, `id` is the first message's (P4)."""

    id: str
    transaction_id: str
    status: Literal["queued", "duplicate"]


class Nothing(msgspec.Struct, frozen=True):
    """No message for a pop. `because` names what holds pending ones back, until `until` (L3, Z10), or None."""

    because: Blocked | None = None
    until: int | None = None


class Taken(NamedTuple):
    """One message chosen by a pop, before its record is read."""

    position: int
    pushed_at: int
    retry_count: int


class Grant(msgspec.Struct, frozen=True):
    """What a partition gives to a pop: a lease on these messages, or (auto_ack) the messages themselves. `size` is
    that of their payloads, in bytes."""

    lease: bytes
    leased_at: int
    expires_at: int
    taken: tuple[Taken, ...]
    size: int = 0


class Settlement(msgspec.Struct, frozen=True):
    """What became of one acknowledged message (A2). `status` "not_found" and "conflict" carry an `error`."""

    status: Literal["completed", "retry_scheduled", "failed", "dead_letter", "not_found", "conflict"]
    retry_count: int = 0
    at: int = 0
    error: str | None = None

    @property
    def accepted(self) -> bool:
        """Whether the acknowledgement was taken (now, or by an equal one before)."""
        return self.status not in ("not_found", "conflict")


class Glance(NamedTuple):
    """How one message is for a group. What does not apply is None; `ended_at` is when it was settled."""

    status: Status
    retry_count: int = 0
    worker: str | None = None
    leased_at: int | None = None
    expires_at: int | None = None
    error: str | None = None
    failed_at: int | None = None
    ended_at: int | None = None


class Progress(NamedTuple):
    """How far a group has got in a partition: everything before position `cursor` was given to it at least once, `end`
    is where the next pushed message will stand. `oldest_at` is when its oldest pending message was pushed."""

    cursor: int
    end: int
    pending: int
    processing: int
    dead_letter: int
    oldest_at: int | None


class Surveyed(NamedTuple):
    """Positions in descending order. There may be more below position `below`; 1 says that there are none."""

    positions: tuple[int, ...]
    below: int


class Pushed(NamedTuple):
    """What a partition did with one pushed item: stored it at `position`, or found `duplicate_of`'s id."""

    id: int
    position: int | None


class Compacted(NamedTuple):
    """The size of the journal's file before and after a compaction, in bytes."""

    before: int
    after: int
