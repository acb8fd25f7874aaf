"""A message in the hands of a consumer: what happens between entering its block and leaving it.

Whatever may end a block (done, failed, too late, lease lost, cancelled) comes together in `LeasedMessage.__aexit__`.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self, TypeVar

import trio

from queen.commands import AckStatus
from queen.errors import Busy, Conflict, Unavailable, leaves
from queen.messages import Message, NewMessage
from queen.renewals import HeldLease, Renewal
from queen.replies import Settlement

if TYPE_CHECKING:
    from queen.consumer import Consumer

T = TypeVar("T")


class Block:
    """What a block has come to so far."""

    __slots__ = ("lease", "renewal", "scope", "settled")

    def __init__(self, lease: HeldLease) -> None:
        self.lease = lease
        self.scope = trio.CancelScope()
        self.renewal: Renewal | None = None
        self.settled = False

    def leave(self, error: BaseException | None) -> BaseException | None:
        """Close the scope; what is left of the error, None where it was the scope's own cancellation."""
        if self.renewal is not None:
            self.renewal.running = False
        try:
            swallowed = self.scope.__exit__(
                type(error) if error else None, error, error.__traceback__ if error else None
            )
        except BaseException as rest:  # of a group, without the scope's cancellations
            return rest
        return None if swallowed else error


def is_no_fault(error: BaseException) -> bool:
    """Whether the message has nothing to do with what went wrong: something is full, or a store starts anew."""
    return all(isinstance(leaf, Busy | Unavailable) for leaf in leaves(error))


class LeasedMessage(Message, Generic[T], frozen=True, kw_only=True):
    """A message whose block says what becomes of it.

    Leaving ``async with message`` normally completes it; raises `Conflict` where the lease was lost meanwhile.
    An exception fails it (R1), gives the rest of its batch back, in order, and goes on. But `Busy` and `Unavailable`
    (a full queue further on, say) are no fault of the message: it is given back uncounted, and so it is by a
    cancellation. A block that outlasts the consumer's `deadline` is cancelled and has failed with `trio.TooSlowError`.
    """

    consumer: "Consumer[T]"
    block: Block

    @property
    def data(self) -> T:
        """The payload as the consumer's type, decoded anew at each call. Raises `msgspec.ValidationError`."""
        return self.consumer.decode(self.payload)

    async def settle(
        self, status: AckStatus = "completed", *, error: str | None = None, push: Sequence[NewMessage] = ()
    ) -> Settlement:
        """Say now what becomes of the message (A1), instead of by leaving the block, which then changes nothing.

        With `push`, these messages are pushed in the same commit, or nothing is done: a step from queue to queue that
        happens exactly once. Raises `Conflict` where the lease was lost, and what a push raises. Cancelled, it may
        or may not have happened, whole.
        """
        settlement = await self.consumer.settle(self, status, error, push)
        self.block.settled = True
        return settlement

    async def __aenter__(self) -> Self:
        block = self.block
        block.scope.__enter__()
        if self.consumer.deadline is not None:
            block.scope.deadline = trio.current_time() + self.consumer.deadline
            block.renewal = self.consumer.keep(block.lease, block.scope)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        left = self.block.leave(error)
        if error is not None and left is None:
            left = self._ended_early()
        if self.block.settled:
            pass
        elif left is None:
            await self.consumer.settle(self, "completed", None, ())
        elif isinstance(left, Exception) and not is_no_fault(left):
            await self.consumer.fail(self, left)
        else:
            self.consumer.give_back(self)
        if left is not None and left is not error:
            raise left
        return False

    def _ended_early(self) -> Exception:
        """Why the block's own scope was cancelled."""
        if self.block.renewal is not None and self.block.renewal.lost:
            return Conflict(f"the lease of {self.transaction_id!r} was lost while its block ran")
        return trio.TooSlowError(f"the deadline of {self.consumer.deadline:g} s passed")
