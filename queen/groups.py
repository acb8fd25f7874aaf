"""`broker.groups`: the consumer groups, how far they have got, and moving or forgetting them (G1 to G3)."""

from collections.abc import Callable, Sequence

from queen.actors import census
from queen.actors.engine import Engine
from queen.actors.removal import delete_group
from queen.checks import check_caller
from queen.messages import Caller, GroupStatus
from queen.names import check_instant, check_name

_LIBRARY = Caller()


class Groups:
    """See the module. Everything raises `QueenError`s."""

    def __init__(self, running: Callable[[], Engine]) -> None:
        self._running = running

    async def list(self, queue: str | None = None) -> Sequence[GroupStatus]:
        """Every group with its queues, or with one queue alone, the default group first.

        Costs a question for each partition that was ever pushed to; how many messages there are doesn't matter."""
        if queue is not None:
            check_name(queue, "queue")
        return await census.groups(self._running(), queue)

    async def delete(self, group: str, queue: str | None = None, *, caller: Caller = _LIBRARY) -> Sequence[str]:
        """Forget a group everywhere, or in one queue; returns the queues. Its leases end, and the next contact under
        its name starts anew (G2). Raises `NotFound`. Cancelled, it may or may not have happened, as a whole."""
        check_caller(caller)
        check_name(group, "group")
        if queue is not None:
            check_name(queue, "queue")
        return [found.name for found in await delete_group(self._running(), group, queue, caller)]

    async def seek(
        self, group: str | None, queue: str, timestamp: int | None = None, *, caller: Caller = _LIBRARY
    ) -> int:
        """Move a group (None: the default one) to the first messages pushed at or after `timestamp` (µs), or without it
        to the end; messages before that are done with, those after it are delivered, again if need be (G3, Z15).

        Returns how many of the messages ever pushed to the queue lie behind the group now. Raises `NotFound`.
        Cancelled, it may or may not have happened, as a whole. Costs time for what is passed over.
        """
        check_caller(caller)
        if group is not None:
            check_name(group, "group")
        check_name(queue, "queue")
        if timestamp is not None:
            check_instant(timestamp, "timestamp")
        return await census.seek(self._running(), group, queue, timestamp, caller)
