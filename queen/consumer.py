"""`Consumer`: messages one after another, or many at once, each settled on leaving its block."""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypedDict, TypeVar

import msgspec
import structlog
import trio

from queen.checks import MAX_SPAN_S, accepted, acknowledgement_of, check_pop, check_scope, check_whole
from queen.errors import Busy, Invalid, QueenError, ShuttingDown, StoreFull, Unavailable, named, traced
from queen.leased import Block, LeasedMessage, is_no_fault
from queen.messages import Acknowledgement, Delivery, Message, NewMessage
from queen.renewals import HeldLease, Renewal
from queen.replies import Settlement

if TYPE_CHECKING:
    from queen.broker import Broker

T = TypeVar("T")

log = structlog.get_logger()

MAX_CONCURRENCY = 10_000
_POLL_S = 60.0
_SETTLE_S = 5.0
"""How long a cancelled or failing block may take to say what became of its message."""
_REST_S = 0.1
"""For a worker whose message could not be handed on, since something is full."""
_AGAIN_S = 1.0
"""After a pop that was refused for a moment's reason."""


class Consuming(TypedDict, total=False):
    """What can be said to `Broker.consume` beside queue, partition and type."""

    namespace: str | None
    task: str | None
    """With `namespace` or `task` instead of a queue: all queues of these (O4)."""
    group: str | None
    """The consumer group (G1)."""
    batch: int
    """How many messages to fetch at once, 1 to 1000; 1 unless said."""
    worker: str | None
    """Who this is, for whoever looks at a message under way (Z13)."""
    deadline: float | None
    """Seconds that a block may take. While it runs, its lease is extended by itself; None: no limit, no extension."""


class Source(NamedTuple):
    """What a consumer consumes, and how."""

    queue: str | None
    partition: str | None
    namespace: str | None = None
    task: str | None = None
    group: str | None = None
    batch: int = 1
    worker: str | None = None
    deadline: float | None = None

    def check(self) -> None:
        """Raises `Invalid`."""
        check_scope(self.queue, self.partition, self.namespace, self.task)
        check_pop(self.group, self.batch, 1, self.worker, None)
        deadline: object = self.deadline  # whatever the caller's types say
        if deadline is None:
            return
        if not isinstance(deadline, int | float) or not 0 < deadline <= MAX_SPAN_S:
            raise Invalid("deadline", f"must be a number of seconds above 0 and up to {MAX_SPAN_S}")


class Consumer(Generic[T]):
    """``async for message in broker.consume(...)``, or ``await broker.consume(...).run(work, concurrency=8)``.

    With a batch above 1, the loop is better inside ``async with``, so that what was fetched and not used is given back
    on leaving instead of at the end of its lease. It fetches only when it has nothing left: what nobody has
    time for stays in the queue, for others.
    """

    def __init__(self, broker: "Broker", source: Source, type: type[T]) -> None:
        """Raises `Invalid`."""
        source.check()
        self._broker = broker
        self._source = source
        self._type = type
        self._decoder = msgspec.json.Decoder(type)
        self._fetched: deque[tuple[Message, HeldLease]] = deque()

    # -- one after another ------------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> LeasedMessage[T]:
        """The next message. Cancelled, nothing is taken. Ends when the broker closes.

        While the broker starts anew after a failed commit, or the disk is full, it waits."""
        while not self._fetched:
            try:
                self._take(await self._pop())
            except ShuttingDown:
                raise StopAsyncIteration from None
            except QueenError as error:
                if not _passes(error):
                    raise
                log.warning("nothing can be consumed now", reason=str(error))
                await trio.sleep(_AGAIN_S)
        message, lease = self._fetched.popleft()
        return LeasedMessage(consumer=self, block=Block(lease), **msgspec.structs.asdict(message))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back what was fetched and not handed out."""
        self._broker.release_nowait(Delivery(tuple(self._rest())))

    # -- many at once -----------------------------------------------------------------------------------------

    async def run(self, work: Callable[[LeasedMessage[T]], Awaitable[object]], *, concurrency: int = 1) -> None:
        """Await ``work(message)`` in each message's block, `concurrency` of them side by side, until the broker closes.

        What `work` raises fails its message, is logged, and ends nothing else. After `Busy` or `Unavailable` (a full
        queue further on, say) the message is given back, and the one who got it rests a moment. Cancelled, all messages
        under way are given back uncounted.
        """
        check_whole(concurrency, "concurrency", 1, MAX_CONCURRENCY)
        if not callable(work):
            raise TypeError(f"run takes a function of a message, not {work!r}")
        async with trio.open_nursery() as nursery:
            for _ in range(concurrency):
                alike = Consumer(self._broker, self._source, self._type)
                nursery.start_soon(alike._work, work)

    async def _work(self, work: Callable[[LeasedMessage[T]], Awaitable[object]]) -> None:
        async with self:
            async for message in self:
                try:
                    async with message:
                        await work(message)
                except Exception as error:
                    if is_no_fault(error):
                        await trio.sleep(_REST_S)
                        continue
                    log.warning(
                        "a message failed",
                        queue=message.queue,
                        transaction_id=message.transaction_id,
                        attempt=message.retry_count + 1,
                        exception=traced(error),
                    )

    # -- for `LeasedMessage` ----------------------------------------------------------------------------------

    @property
    def deadline(self) -> float | None:
        """Seconds that a block may take."""
        return self._source.deadline

    def decode(self, payload: bytes) -> T:
        """The payload as the consumer's type."""
        return self._decoder.decode(payload)

    def keep(self, lease: HeldLease, scope: trio.CancelScope) -> Renewal:
        """Keep a lease alive while a block runs."""
        return self._broker.renewals.begin(lease, scope)

    async def settle(self, message: Message, status: str, error: str | None, push: Sequence[NewMessage]) -> Settlement:
        """All in one commit: the message, what is pushed, and, where the message returns to its place, the rest of its
        batch in front of which it stands."""
        if push and status != "completed":
            raise Invalid("push", "goes with 'completed' alone")
        entries = [acknowledgement_of(message, status, error)]
        if status in ("failed", "retry"):
            entries += [acknowledgement_of(other, "retry") for other in self._rest()]
        if push:
            operations: list[Sequence[NewMessage] | Acknowledgement] = [*entries, list(push)]
            settlement = (await self._broker.transaction(operations))[0]
            assert isinstance(settlement, Settlement)
            return settlement
        return accepted((await self._broker.ack_many(entries))[0])

    async def fail(self, message: Message, error: Exception) -> None:
        """The message failed. Where that can't be said, its lease ends by itself; the block's own error is raised."""
        with suppress(QueenError), trio.move_on_after(_SETTLE_S, shield=True):
            await self.settle(message, "failed", named(error), ())

    def give_back(self, message: Message) -> None:
        """The message and the rest of its batch are available to others at once, uncounted."""
        self._broker.release_nowait(Delivery((message, *self._rest())))

    # -- what was fetched -------------------------------------------------------------------------------------

    async def _pop(self) -> Delivery:
        source = self._source
        return await self._broker.pop(
            source.queue,
            source.partition,
            namespace=source.namespace,
            task=source.task,
            group=source.group,
            batch=source.batch,
            worker=source.worker,
            wait=True,
            timeout=_POLL_S,
        )

    def _take(self, delivery: Delivery) -> None:
        leases = {message.lease_id: HeldLease(message.lease_id, message.lease_time) for message in delivery}
        self._fetched.extend((message, leases[message.lease_id]) for message in delivery)

    def _rest(self) -> list[Message]:
        """What was fetched and not handed out, which from now on it isn't."""
        rest = [message for message, _ in self._fetched]
        self._fetched.clear()
        return rest


def _passes(error: Any) -> bool:
    """Whether waiting helps, without anybody's doing."""
    return isinstance(error, Busy | StoreFull) or type(error) is Unavailable
