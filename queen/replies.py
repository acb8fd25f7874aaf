"""What an asker gets back: nouns. Instants are µs since the epoch; `web/render.py` spells them."""

from typing import Literal, NamedTuple

import msgspec

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


class Pushed(NamedTuple):
    """What a partition did with one pushed item: stored it at `position`, or found `duplicate_of`'s id."""

    id: int
    position: int | None
