"""A queue's partition as semantics.md tells it, one object per message and group: slow, plain, to compare with.

Written from the rules, not from the code; it shares nothing with the code but the options and the words.
"""

from dataclasses import dataclass, field
from typing import Any

from queen.options import QueueOptions

SECOND = 1_000_000


class Refused(Exception):
    """The whole command is refused: `args[0]` is "conflict" or "not_found"."""


@dataclass
class Copy:
    """One message as one group sees it. `ready_at` is None while only the delay options say when it is ready."""

    status: str = "pending"
    retry_count: int = 0
    ready_at: int | None = None
    because: str = "delayed"
    lease: bytes | None = None
    failed: bool = False
    asked: str | None = None
    settled_at: int = 0

    @property
    def final(self) -> bool:
        return self.status in ("completed", "failed", "dead_letter")


@dataclass
class Stored:
    """One message."""

    position: int
    name: str | None
    pushed_at: int
    delay_s: int | None
    copies: dict[int, Copy]


@dataclass
class ReferenceQueue:
    """One partition. Every method is a command; `now` stands still during it."""

    options: QueueOptions
    now: int
    messages: list[Stored] = field(default_factory=list)
    groups: set[int] = field(default_factory=lambda: {0})
    leases: dict[bytes, int] = field(default_factory=dict)
    positions: int = 0
    newest_at: int = 0

    # -- time -----------------------------------------------------------------------------------------------

    def pass_time(self) -> None:
        """L5, T1, T4, in this order, at `now`."""
        options, now = self.options, self.now
        for _, copy in self._all():
            if copy.status == "processing" and copy.lease is not None and self.leases[copy.lease] <= now:
                self._fail(copy, None, delay=False)
        if options.ttl:
            for message, copy in self._all():
                if copy.status == "pending" and message.pushed_at + options.ttl * SECOND <= now:
                    self._settle(copy, self._given_up, None)
                    copy.lease = None
        if options.retention_enabled and options.retention_seconds:
            span = options.retention_seconds * SECOND
            self._drop(m for m in self.messages if self._is(m, 0, "pending") and m.pushed_at + span <= now)
        if options.retention_enabled and options.completed_retention_seconds:
            span = options.completed_retention_seconds * SECOND
            self._drop(
                m
                for m in self.messages
                if m.copies and all(copy.final and copy.settled_at + span <= now for copy in m.copies.values())
            )

    # -- push and pop -----------------------------------------------------------------------------------------

    def push(self, items: list[tuple[str | None, int | None]]) -> list[int | None]:
        """Positions of the stored ones, None for duplicates (P4). Items are (transactionId, delay)."""
        replies: list[int | None] = []
        for name, delay_s in items:
            if name is not None and any(message.name == name for message in self.messages):
                replies.append(None)
                continue
            self.positions += 1
            self.newest_at = self.now
            copies = {group: Copy() for group in self.groups}
            self.messages.append(Stored(self.positions, name, self.now, delay_s, copies))
            replies.append(self.positions)
        return replies

    def join(self, group: int, cursor: int) -> None:
        """G2: the group gets what stands at `cursor` and behind it."""
        if group not in self.groups:
            self.groups.add(group)
            for message in self.messages:
                if message.position >= cursor:
                    message.copies[group] = Copy()

    def available(self, group: int) -> tuple[int, str] | None:
        """When a pop would get something and what holds it back until then; None: nothing that time alone frees."""
        pending = self._with(group, "pending")
        if not pending or (self._strict and self._with(group, "processing")):
            return None
        if self._strict:
            first = pending[0]
        else:  # ties: a message that was given back before one that was never delivered
            first = min(pending, key=lambda m: (self._ready(m, group), m.copies[group].ready_at is None, m.position))
        ready = self._ready(first, group)
        closes = 0
        if self.options.window_buffer:
            window = self.options.window_buffer * SECOND
            closes = min(self.newest_at + window, pending[0].pushed_at + 10 * window)
        cause = "delayed" if first.copies[group].because == "delayed" else "retry"
        return (closes, "buffered") if closes > ready else (ready, cause)

    def pop(self, group: int, batch: int, lease: bytes, auto_ack: bool) -> list[tuple[int, int]] | tuple[Any, Any]:
        """[(position, retryCount)] of what is delivered, or (cause, until) when nothing is (L3)."""
        pending = self._with(group, "pending")
        available = self.available(group)
        if available is None:
            held = [self.leases[m.copies[group].lease or b""] for m in self._with(group, "processing")]
            return ("leased", min(held)) if pending else (None, None)
        if available[0] > self.now:
            return available[1], available[0]
        taken: list[Stored] = []
        for message in pending:
            if len(taken) == batch:
                break
            if self._ready(message, group) <= self.now:
                taken.append(message)
            elif self._strict:
                break  # Z9
        for message in pending:
            # A delayed message that relaxed order has gone past: its time no longer follows the options.
            if message.position < taken[-1].position and message not in taken:
                message.copies[group].ready_at = self._ready(message, group)
        self.leases[lease] = self.now + self.options.lease_time * SECOND
        result = [(message.position, message.copies[group].retry_count) for message in taken]
        for message in taken:
            copy = message.copies[group]
            copy.lease, copy.status = lease, "processing"
            if auto_ack:
                self._settle(copy, "completed", "completed")
        return result

    # -- leases ---------------------------------------------------------------------------------------------

    def extend(self, lease: bytes, seconds: int | None) -> int:
        """L6."""
        if not any(copy.status == "processing" and copy.lease == lease for _, copy in self._all()):
            raise Refused("not_found")
        span = self.options.lease_time if seconds is None else seconds
        self.leases[lease] = max(self.leases[lease], self.now + span * SECOND)
        return self.leases[lease]

    def release(self, lease: bytes) -> None:
        """L8: uncounted; an ended lease has nothing to give back."""
        for _, copy in self._all():
            if copy.status == "processing" and copy.lease == lease:
                self._give_back(copy, "released", self.now)

    def ack(self, group: int, position: int, status: str, lease: bytes | None) -> tuple[str, int]:
        """(status, retryCount) of one entry (A2-A4, Z2)."""
        message = self._find(position)
        if message is None:
            return "not_found", 0
        copy = message.copies.get(group)
        if copy is None or copy.lease is None or lease not in (None, copy.lease):
            return "conflict", 0  # never leased, or fenced
        if copy.final:
            return (copy.status, copy.retry_count) if copy.asked == status else ("conflict", 0)
        if copy.status == "pending" and copy.because == "retry":
            return ("retry_scheduled", copy.retry_count) if copy.asked == status else ("conflict", 0)
        if status == "failed":
            return self._fail(copy, "failed", delay=True), copy.retry_count
        if status == "retry":
            self._give_back(copy, "retry", self.now)
            copy.asked = "retry"
            return "retry_scheduled", copy.retry_count
        self._settle(copy, status, status)
        return status, copy.retry_count

    # -- the operator ---------------------------------------------------------------------------------------

    def retry(self, group: int, position: int) -> None:
        """R3."""
        copy = self._copy(group, position)
        if copy.status in ("failed", "dead_letter"):
            copy.status, copy.retry_count, copy.lease, copy.failed = "pending", 0, None, False
            copy.ready_at, copy.because, copy.asked = self.now, "revived", None
        elif copy.status == "pending" and copy.because == "retry" and copy.asked == "failed":
            copy.ready_at = min(self.now, copy.ready_at or 0)
        else:
            raise Refused("conflict")

    def bury(self, group: int, position: int) -> None:
        """R4, Z3."""
        copy = self._copy(group, position)
        if copy.status == "dead_letter":
            return
        if copy.status == "failed" or (copy.status == "pending" and copy.failed):
            self._settle(copy, "dead_letter", None)
        else:
            raise Refused("conflict")

    def delete(self, position: int) -> None:
        """R5."""
        message = self._find(position)
        if message is None:
            raise Refused("not_found")
        self.messages.remove(message)

    def clear(self) -> int:
        """Everything goes."""
        count = len(self.messages)
        self.messages.clear()
        return count

    def seek(self, group: int, position: int) -> int:
        """G3, Z15."""
        if group not in self.groups:
            raise Refused("conflict")
        for message in self.messages:
            if message.position >= position:
                message.copies[group] = Copy()
            elif group in message.copies and not message.copies[group].final:
                self._settle(message.copies[group], "completed", None)
                message.copies[group].lease = None
        return position

    # -- looking --------------------------------------------------------------------------------------------

    def status(self, position: int, group: int) -> tuple[str, int] | None:
        """(status, retryCount), or None where there is no such message or it was never meant for the group."""
        message = self._find(position)
        copy = message.copies.get(group) if message is not None else None
        return None if copy is None else (copy.status, copy.retry_count)

    # -- steps ----------------------------------------------------------------------------------------------

    @property
    def _strict(self) -> bool:
        return self.options.ordering == "strict"

    @property
    def _given_up(self) -> str:
        return "dead_letter" if self.options.dlq_after_max_retries else "failed"

    def _all(self) -> list[tuple[Stored, Copy]]:
        return [(message, copy) for message in self.messages for copy in message.copies.values()]

    def _is(self, message: Stored, group: int, status: str) -> bool:
        return group in message.copies and message.copies[group].status == status

    def _with(self, group: int, status: str) -> list[Stored]:
        return [message for message in self.messages if self._is(message, group, status)]

    def _find(self, position: int) -> Stored | None:
        return next((message for message in self.messages if message.position == position), None)

    def _copy(self, group: int, position: int) -> Copy:
        message = self._find(position)
        if message is None and group in self.groups:
            raise Refused("not_found")
        if message is None or group not in message.copies:
            raise Refused("conflict")
        return message.copies[group]

    def _ready(self, message: Stored, group: int) -> int:
        """T2: a delay of its own wins over the queue's."""
        own = message.copies[group].ready_at
        delay = self.options.delayed_processing if message.delay_s is None else message.delay_s
        return message.pushed_at + delay * SECOND if own is None else own

    def _drop(self, gone: Any) -> None:
        for message in list(gone):
            self.messages.remove(message)

    def _settle(self, copy: Copy, status: str, asked: str | None) -> None:
        copy.status, copy.asked, copy.settled_at = status, asked, self.now

    def _give_back(self, copy: Copy, because: str, ready_at: int) -> None:
        copy.status, copy.because, copy.ready_at, copy.asked = "pending", because, ready_at, None

    def _fail(self, copy: Copy, asked: str | None, delay: bool) -> str:
        """R1, R2, R6, for acks and for ended leases alike."""
        options = self.options
        counted = copy.status == "pending" and copy.because == "expired"  # this attempt, by L5
        if not counted and copy.retry_count >= options.retry_limit:
            self._settle(copy, self._given_up, asked)
            return copy.status
        copy.retry_count += not counted
        copy.failed = True
        wait_ms = int(options.retry_delay * options.retry_backoff ** (copy.retry_count - 1)) if delay else 0
        self._give_back(copy, "retry" if delay else "expired", self.now + wait_ms * 1000)
        copy.asked = asked
        return "retry_scheduled"
