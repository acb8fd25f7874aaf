"""`Consumer`: messages one after another, each acknowledged on leaving its block."""

from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

import msgspec
import trio

from queen.checks import acknowledgement_of
from queen.errors import QueenError, ShuttingDown
from queen.messages import Delivery, Message

if TYPE_CHECKING:
    from queen.broker import Broker

_POLL_S = 60.0
_SETTLE_S = 5.0
"""How long a cancelled or failing block may take to say what became of its message."""


class LeasedMessage(Message, frozen=True, kw_only=True):
    """A message whose block says what becomes of it.

    Leaving ``async with message`` normally completes it; raises `Conflict` where the lease was lost meanwhile.
    An exception fails it and gives the rest of its batch back, in order, and goes on. A cancellation gives it and
    the rest back uncounted.
    """

    consumer: "Consumer"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.consumer.complete(self)
        elif isinstance(error, Exception):
            await self.consumer.fail(self, error)
        else:
            self.consumer.give_back(self)


class Consumer:
    """``async for message in broker.consume(...)``; with a batch above 1, better inside ``async with``, so that
    what was fetched and not used is given back on leaving instead of at the end of its lease."""

    def __init__(
        self,
        broker: "Broker",
        scope: tuple[str | None, str | None, str | None, str | None],
        group: str | None,
        batch: int,
        worker: str | None,
    ) -> None:
        """`scope` is queue, partition, namespace and task, as for `Broker.pop`."""
        self._broker = broker
        self._scope = scope
        self._group = group
        self._batch = batch
        self._worker = worker
        self._fetched: deque[Message] = deque()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> LeasedMessage:
        """The next message. Cancelled, nothing is taken. Ends when the broker closes."""
        queue, partition, namespace, task = self._scope
        while not self._fetched:
            try:
                delivery = await self._broker.pop(
                    queue,
                    partition,
                    namespace=namespace,
                    task=task,
                    group=self._group,
                    batch=self._batch,
                    worker=self._worker,
                    wait=True,
                    timeout=_POLL_S,
                )
            except ShuttingDown:
                raise StopAsyncIteration from None
            self._fetched.extend(delivery.messages)
        message = self._fetched.popleft()
        return LeasedMessage(consumer=self, **msgspec.structs.asdict(message))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back what was fetched and not handed out."""
        rest, self._fetched = tuple(self._fetched), deque()
        self._broker.release_nowait(Delivery(rest))

    async def complete(self, message: Message) -> None:
        """The message is done."""
        await self._broker.ack(message)

    async def fail(self, message: Message, error: Exception) -> None:
        """The message failed; the rest of its batch goes back in the same commit, so that order holds.

        Where that can't be said, the lease ends by itself, and the block's own error is the one that is raised."""
        rest, self._fetched = list(self._fetched), deque()
        entries = [acknowledgement_of(message, "failed", f"{type(error).__name__}: {error}")]
        entries += [acknowledgement_of(other, "retry") for other in rest]
        with suppress(QueenError), trio.move_on_after(_SETTLE_S, shield=True):
            await self._broker.ack_many(entries)

    def give_back(self, message: Message) -> None:
        """The message and the rest of its batch are available to others at once, uncounted."""
        rest, self._fetched = tuple(self._fetched), deque()
        self._broker.release_nowait(Delivery((message, *rest)))
