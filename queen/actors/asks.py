"""Requests that are under way: what they ask is handed in, and each is answered, whatever happens.

Nobody may be left waiting: a drain waits until there is none, and an engine that ends fails those that are left.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import trio

from queen.actors.core import Core
from queen.actors.mailbox import Part, Work
from queen.actors.residents import Residents
from queen.errors import QueenError
from queen.messages import Caller
from queen.reply import Reply

T = TypeVar("T")


class Asks:
    """See the module. `house` is set before anything is asked."""

    house: Residents

    def __init__(self, core: Core) -> None:
        self._core = core
        self._open: set[Reply[Any]] = set()
        self._none = trio.Event()

    def __len__(self) -> int:
        return len(self._open)

    def begin(
        self,
        parts: Sequence[Part],
        caller: Caller,
        make: Callable[[list[Any]], T],
        admit: Callable[[list[Any]], None] | None = None,
    ) -> Reply[T]:
        """Hand in commands, all in one commit or none; the reply is what `make` makes of theirs, once durable."""
        reply: Reply[T] = Reply()

        def told(replies: list[Any] | None, error: BaseException | None) -> None:
            if error is None:
                reply.settle(partial(make, replies or []))
            else:
                reply.fail(error)

        self.open(reply)
        try:
            if parts:
                self.house.put(Work(tuple(parts), caller, told=told, admit=admit))
            else:
                self._core.writer.then(lambda failure: told([], failure))
        except BaseException:
            self.close(reply)
            raise
        return reply

    async def ask(self, reply: Reply[T]) -> T:
        """Wait for an answer; as for `Reply.wait`."""
        self._open.add(reply)
        try:
            return await reply.wait()
        finally:
            self.close(reply)

    def open(self, reply: Reply[Any]) -> None:
        """Somebody is to be answered, before a drain is over and in any case."""
        self._open.add(reply)
        reply.then(partial(self.close, reply))

    def close(self, reply: Reply[Any]) -> None:
        """It is answered, or nobody takes the answer any more."""
        self._open.discard(reply)
        if not self._open:
            self._none.set()

    async def wait_none(self) -> None:
        """Wait until everybody has been answered."""
        while self._open:
            self._none = trio.Event()
            await self._none.wait()

    def fail(self, error: QueenError) -> None:
        """Answer all who are left with an error."""
        for reply in list(self._open):
            reply.fail(error)
