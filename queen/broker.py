"""The embedding API: what `open_broker` gives. The web layer uses this object and nothing below it."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, Unpack, overload

import msgspec
from msgspec import UNSET, UnsetType

from queen.actors import transaction
from queen.actors.engine import Engine
from queen.actors.feed import Feed
from queen.actors.mailbox import Granted, PopRequest, Scope
from queen.actors.reading import read_granted
from queen.actors.removal import delete_queue
from queen.actors.settling import lease_bytes
from queen.checks import (
    MAX_SPAN_S,
    Checked,
    accepted,
    acknowledgement_of,
    check_acks,
    check_caller,
    check_pop,
    check_scope,
    check_seconds,
    check_transaction,
    check_whole,
    checked,
    instant_of,
)
from queen.clock import Clock, Ids
from queen.commands import AckStatus
from queen.consumer import Consumer, Consuming, Source
from queen.errors import Invalid
from queen.explanations import Explanations
from queen.groups import Groups
from queen.hindsight import Hindsight
from queen.messages import Acknowledgement, Caller, Delivery, Message, NewMessage, Wanted
from queen.names import DEFAULT_PARTITION, SECOND, check_name, uuid_text
from queen.options import QueueOptions
from queen.renewals import Renewals
from queen.replies import Compacted, Nothing, Receipt, Settlement
from queen.reply import Reply
from queen.reports import Reports
from queen.stored import Messages
from queen.succession import Succession

MAX_ITEMS = 1000
"""Messages in a push, acknowledgements in a batch, messages in a pop (P2, O1, A5)."""
MAX_WAIT_S = 60.0
_LIBRARY = Caller()

T = TypeVar("T")


class QueueConfiguration(msgspec.Struct, frozen=True):
    """What a queue is set to."""

    options: QueueOptions
    namespace: str | None
    task: str | None


class Broker(Succession):
    """A queue server without the network. All methods raise `QueenError`s; what a cancellation leaves behind is
    said where it matters. `messages` and `statistics` are subjects of their own."""

    def __init__(self, clock: Clock, ids: Ids) -> None:
        super().__init__()
        self._clock = clock
        self._ids = ids
        self.feed = Feed(clock, self.meter)
        self.renewals = Renewals(self.extend)
        self.explain_pop = Explanations(self._running).pop
        self.messages = Messages(self._running, Hindsight(self._running))
        self.groups = Groups(self._running)
        self.statistics = Reports(self._running, Hindsight(self._running))

    # -- pushing ------------------------------------------------------------------------------------------

    async def push(
        self,
        queue: str,
        payload: Any = None,
        *,
        partition: str = DEFAULT_PARTITION,
        transaction_id: str | None = None,
        trace_id: str | None = None,
        delay_seconds: int | None = None,
        caller: Caller = _LIBRARY,
    ) -> Receipt:
        """Store one message, durably; see `NewMessage`. Cancelled, it may or may not have been stored: push it
        again under the same transaction_id."""
        message = NewMessage(
            queue=queue,
            payload=payload,
            partition=partition,
            transaction_id=transaction_id,
            trace_id=trace_id,
            delay_seconds=delay_seconds,
        )
        return (await self.push_soon([message], caller=caller).wait())[0]

    async def push_many(self, items: Sequence[NewMessage], *, caller: Caller = _LIBRARY) -> list[Receipt]:
        """Store 1 to 1000 messages in one commit (P1-P3), across queues and partitions. Cancelled: as for `push`."""
        return await self.push_soon(items, caller=caller).wait()

    def push_soon(self, items: Sequence[NewMessage] | Checked, *, caller: Caller = _LIBRARY) -> Reply[list[Receipt]]:
        """`push_many`, whose answer comes when it is durable: for callers that don't want a task to wait for it.
        Refusals that need no commit are raised at once."""
        check_caller(caller)
        if not isinstance(items, Checked):
            if not 1 <= len(items) <= MAX_ITEMS:
                raise Invalid("items", f"must hold from 1 to {MAX_ITEMS} messages, holds {len(items)}")
            items = checked(items)
        return self._running().push(items.items, caller)

    # -- popping ------------------------------------------------------------------------------------------

    async def pop(
        self,
        queue: str | None = None,
        partition: str | None = None,
        *,
        namespace: str | None = None,
        task: str | None = None,
        group: str | None = None,
        batch: int = 1,
        wait: bool = False,
        timeout: float = 30.0,
        auto_ack: bool = False,
        partitions: int = 1,
        worker: str | None = None,
        subscription_mode: str | None = None,
        subscription_from: int | str | None = None,
        caller: Caller = _LIBRARY,
    ) -> Delivery:
        """Take up to `batch` messages of one queue or partition, or of the queues of a namespace or task (O1-O7).

        With `wait`, waits up to `timeout` seconds (at most 60) for the first. `subscription_mode` "new" or
        `subscription_from` ("now", an ISO 8601 time, or an instant in µs) say where a `group` begins that meets the
        queue now (G2).
        Cancelled, everything that was taken is given back uncounted (L8), unless it was `auto_ack`ed.
        """
        wanted = Wanted(
            queue=queue,
            partition=partition,
            namespace=namespace,
            task=task,
            group=group,
            batch=batch,
            auto_ack=auto_ack,
            partitions=partitions,
            worker=worker,
            subscription_mode=subscription_mode,
            subscription_from=subscription_from,
        )
        return await self.pop_soon(wanted, wait=wait, timeout=timeout, caller=caller)

    def pop_soon(
        self, wanted: Wanted, *, wait: bool = False, timeout: float = 30.0, caller: Caller = _LIBRARY
    ) -> Reply[Delivery]:
        """`pop`, as `push_soon` is to `push_many`. Left, the reply gives everything back; a delivery that it brought
        can be given back with `release_nowait`."""
        scope = Scope(wanted.queue, wanted.partition, wanted.namespace, wanted.task)
        check_scope(*scope)
        check_pop(wanted.group, wanted.batch, wanted.partitions, wanted.worker, wanted.subscription_mode)
        check_caller(caller)
        seconds = check_seconds(timeout, "timeout")
        request = PopRequest(
            scope,
            wanted.group,
            self._ids.block(),
            caller,
            batch=wanted.batch,
            partitions=wanted.partitions,
            wait=wait,
            auto_ack=wanted.auto_ack,
            worker=wanted.worker,
            new_only=wanted.subscription_mode == "new" or wanted.subscription_from == "now",
            from_at=instant_of(wanted.subscription_from),
        )
        engine = self._running()
        longest = min(max(seconds, 0.0), MAX_WAIT_S)
        found = None if wanted.queue is None else engine.core.catalogue.queues.get(wanted.queue)
        if found is not None and found.options.max_wait_time_seconds:
            longest = min(longest, found.options.max_wait_time_seconds)  # O6
        return engine.pop(request, longest).map(partial(self._delivery, engine, request))

    def _delivery(self, engine: Engine, request: PopRequest, answer: list[Granted] | Nothing) -> Delivery:
        if isinstance(answer, Nothing):
            until = answer.until
            left = None if until is None else max(0.0, (until - self._clock.now()) / SECOND)
            return Delivery((), answer.because, left)
        try:
            return Delivery(tuple(read_granted(engine.core, answer, request.group)))
        except Exception:
            engine.release([grant.lease for _, grant in answer])  # L8: it can't be handed on, whatever the reason
            raise

    def release_nowait(self, delivery: Delivery) -> None:
        """Give back what could not be handed on, uncounted (L8). Never raises; what was settled stays so."""
        if self._engine is not None:
            self._engine.release([lease_bytes(lease) for lease in {message.lease_id for message in delivery}])

    @overload
    def consume(
        self, queue: str | None = None, partition: str | None = None, *, type: type[T], **how: Unpack[Consuming]
    ) -> Consumer[T]: ...

    @overload
    def consume(
        self, queue: str | None = None, partition: str | None = None, **how: Unpack[Consuming]
    ) -> Consumer[Any]: ...

    def consume(
        self, queue: str | None = None, partition: str | None = None, *, type: Any = Any, **how: Unpack[Consuming]
    ) -> Consumer[Any]:
        """Messages without end, each to be used as ``async with message``; see `Consumer`, and `Consuming` for `how`.

        `type` is what payloads are: a msgspec Struct, a dataclass, or whatever else msgspec decodes into."""
        return Consumer(self, Source(queue, partition, **how), type)

    # -- settling -----------------------------------------------------------------------------------------

    async def ack(
        self,
        message: str | Message,
        status: AckStatus = "completed",
        *,
        error: str | None = None,
        lease_id: str | None = None,
        group: str | None = None,
        caller: Caller = _LIBRARY,
    ) -> Settlement:
        """Acknowledge one message (A1-A4): a delivered one under its lease, or any by its transactionId.

        Raises `NotFound` or `Conflict`. Cancelled, it may or may not have happened: the same again is harmless (A3).
        """
        if isinstance(message, Message):
            entry = acknowledgement_of(message, status, error)
        else:
            entry = Acknowledgement(
                transaction_id=message, status=status, error=error, lease_id=lease_id, consumer_group=group
            )
        return await self.ack_soon(entry, caller=caller).wait()

    def ack_soon(self, entry: Acknowledgement, *, caller: Caller = _LIBRARY) -> Reply[Settlement]:
        """`ack`, as `push_soon` is to `push_many`; its reply raises `NotFound` or `Conflict`."""
        return self._settle([entry], caller, "").map(lambda settlements: accepted(settlements[0]))

    async def ack_many(self, entries: Sequence[Acknowledgement], *, caller: Caller = _LIBRARY) -> list[Settlement]:
        """Acknowledge 1 to 1000 messages in one commit (A5); each result stands at its entry's place."""
        return await self.ack_many_soon(entries, caller=caller).wait()

    def ack_many_soon(
        self, entries: Sequence[Acknowledgement], *, caller: Caller = _LIBRARY
    ) -> Reply[list[Settlement]]:
        """`ack_many`, as `push_soon` is to `push_many`."""
        if not 1 <= len(entries) <= MAX_ITEMS:
            raise Invalid("acknowledgments", f"must hold from 1 to {MAX_ITEMS} entries, holds {len(entries)}")
        return self._settle(entries, caller, "acknowledgments[{}].")

    def _settle(self, entries: Sequence[Acknowledgement], caller: Caller, where: str) -> Reply[list[Settlement]]:
        check_caller(caller)
        check_acks(entries, where)
        return self._running().ack(entries, caller)

    async def transaction(
        self, operations: Sequence[Sequence[NewMessage] | Acknowledgement], *, caller: Caller = _LIBRARY
    ) -> list[list[Receipt] | Settlement]:
        """Pushes (each a sequence of messages) and acknowledgements, all in one commit or nothing of them; what became
        of each stands at its place. Queues and partitions are made ahead, and stay where the rest is refused.

        Raises `TransactionRefused` where an acknowledgement would be refused, and what `push_many` raises. Cancelled:
        as for `push`. Consuming, processing and producing is exactly once with it, if what is pushed has
        transaction ids.
        """
        check_caller(caller)
        return await transaction.carry_out(self._running(), check_transaction(operations), caller)

    async def extend(self, lease_id: str, seconds: int | None = None, *, caller: Caller = _LIBRARY) -> int:
        """Move a lease's end to now + `seconds` (default: its leaseTime), never earlier (L6); returns it, µs."""
        check_caller(caller)
        if seconds is not None:
            check_whole(seconds, "seconds", 1, MAX_SPAN_S)
        return await self._running().extend(lease_bytes(lease_id), seconds, caller)

    # -- queues -------------------------------------------------------------------------------------------

    async def configure(
        self,
        queue: str,
        options: Mapping[str, Any] | None = None,
        *,
        namespace: str | UnsetType | None = UNSET,
        task: str | UnsetType | None = UNSET,
        caller: Caller = _LIBRARY,
    ) -> QueueConfiguration:
        """Create or change a queue (C1, C2): options by their wire names; what is left out stays."""
        check_caller(caller)
        check_name(queue, "queue")
        for where, name in (("namespace", namespace), ("task", task)):
            if name is not None and not isinstance(name, UnsetType):
                check_name(name, where)
        found = await self._running().configure(queue, options or {}, namespace, task, caller)
        return QueueConfiguration(found.options, found.namespace, found.task)

    async def delete_queue(self, queue: str, *, caller: Caller = _LIBRARY) -> None:
        """Delete a queue with its messages, groups and options; one made anew has no memory of it. Raises `NotFound`.

        What is under way in it is refused with `QueueGone`; waiting pops go on waiting, by name."""
        check_name(queue, "queue")
        await delete_queue(self._running(), queue, caller)

    def new_id(self) -> str:
        """An id that nothing else has (N2)."""
        return uuid_text(self._ids.block())

    async def compact(self) -> Compacted:
        """Make the file of the data folder anew, without what is deleted (R5): afterwards no byte of such a payload is
        in it. Others go on meanwhile. Needs as much room on the disk as the file has. Raises `Conflict` while another
        compaction runs, `StoreFull`, `Busy`. Cancelled, the file is the old one or the new one, and in use."""
        return await self._running().compact()

    def stop(self) -> None:
        """End, with what has been drained in snapshots."""
        self.feed.close()
        self.renewals.close()
        super().stop()
