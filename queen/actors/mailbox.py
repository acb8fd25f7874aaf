"""What travels between actors: work for partitions, and pops for the router.

Work for partitions that have nothing in front of it is carried out as it is handed in, in the same step: a task
switch would change nothing but the time it takes. Everything else waits in mailboxes.

A piece of work may concern several partitions. It is put into all their mailboxes without a checkpoint in
between, so that all of them meet their shared work in the same order; the last one to arrive carries it out, for
all, in one step; the others wait for that, each holding still. So it is all in one commit, or nothing of it is.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import trio

from queen.actors.catalogue_state import Slot
from queen.commands import DELIVERY_BYTES, PartitionCommand
from queen.errors import QueenError
from queen.messages import Caller
from queen.replies import Grant, Nothing
from queen.reply import Reply

MAILBOX_SIZE = 10_000
"""Pieces of work that may wait for one partition; past it, askers are told to come back."""


class Part(NamedTuple):
    """One command for one partition."""

    slot: Slot
    command: PartitionCommand


class Work:
    """Commands to be carried out together, at most one of a kind for each partition and group.

    `decided` is told the replies at once, before they are durable, and is meant for other actors alone.
    `told` is told when they are durable, or have failed. `admit` may refuse the whole by raising a `QueenError`
    once all is decided and nothing done. `abandoned` work is dropped unseen. `asks` marks work that is nothing but
    questions, after which there is nothing new to be announced.
    """

    __slots__ = ("abandoned", "admit", "arrivals", "asks", "caller", "decided", "done", "parts", "told")

    def __init__(
        self,
        parts: tuple[Part, ...],
        caller: Caller,
        *,
        told: Callable[[list[Any] | None, BaseException | None], None] | None = None,
        decided: Callable[[list[Any] | None, BaseException | None], None] | None = None,
        admit: Callable[[list[Any]], None] | None = None,
        asks: bool = False,
    ) -> None:
        self.parts = parts
        self.caller = caller
        self.told = told
        self.decided = decided
        self.admit = admit
        self.asks = asks
        self.arrivals = 1 if len(parts) == 1 else len({part.slot for part in parts})
        self.done: trio.Event | None = trio.Event() if self.arrivals > 1 else None
        self.abandoned = False

    def fail(self, error: BaseException) -> None:
        """Break the work for everybody concerned."""
        self.abandoned = True
        if self.done is not None:
            self.done.set()
        if self.decided is not None:
            self.decided(None, error)
        if self.told is not None:
            self.told(None, error)


class Scope(NamedTuple):
    """Where a pop looks: one partition, one queue, or all queues of a namespace and a task."""

    queue: str | None = None
    partition: str | None = None
    namespace: str | None = None
    task: str | None = None


class Granted(NamedTuple):
    """What one partition gave to a pop."""

    slot: Slot
    grant: Grant


class PopRequest:
    """A pop on its way: to the router, to a partition, perhaps back and to the next, perhaps parked.

    `batch`, `partitions` and `room` (bytes) count down as grants come in. `ticket` is its place in the order of
    service (O5) and `since_seq` the last record when it came; `parked` is not 0 while it waits.
    """

    __slots__ = (
        "abandoned",
        "auto_ack",
        "batch",
        "caller",
        "from_at",
        "granted",
        "group",
        "insisted",
        "introduced",
        "lease_base",
        "new_only",
        "parked",
        "partitions",
        "reply",
        "room",
        "scope",
        "since_seq",
        "ticked",
        "ticket",
        "wait",
        "work",
        "worker",
    )

    def __init__(
        self,
        scope: Scope,
        group: str | None,
        lease_base: int,
        caller: Caller,
        *,
        batch: int = 1,
        partitions: int = 1,
        wait: bool = False,
        auto_ack: bool = False,
        worker: str | None = None,
        new_only: bool = False,
        from_at: int = 0,
    ) -> None:
        self.scope = scope
        self.group = group
        self.lease_base = lease_base
        self.caller = caller
        self.batch = batch
        self.room = DELIVERY_BYTES
        self.partitions = partitions
        self.wait = wait
        self.auto_ack = auto_ack
        self.worker = worker
        self.new_only = new_only
        self.from_at = from_at
        self.ticket = 0
        self.since_seq = 0
        self.introduced = False
        self.insisted = False
        self.ticked = False
        self.parked = 0
        self.abandoned = False
        self.granted: list[Granted] = []
        self.work: Work | None = None
        self.reply: Reply[list[Granted] | Nothing] = Reply()

    def fail(self, error: QueenError) -> None:
        """Nothing will come of it."""
        self.reply.fail(error)


def retry_later(slot: Slot) -> str:
    """What an asker is told whose work finds the mailbox full."""
    return f"partition '{slot.name}' of queue '{slot.queue.name}' has {MAILBOX_SIZE} commands waiting"
