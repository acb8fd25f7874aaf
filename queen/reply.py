"""An answer to come: what a request that takes a commit returns at once, to be waited for or to call back."""

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Generic, Self, TypeVar

import trio

T = TypeVar("T")
U = TypeVar("U")


class Reply(Generic[T]):
    """An answer that comes once; setting it again changes nothing. Whoever asked awaits it, or leaves a callback: an
    answer that needs no task to wait for it costs no task switch."""

    __slots__ = ("_callbacks", "_error", "_on_leave", "_value", "is_set")

    def __init__(self) -> None:
        self._value: T | None = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[], object]] = []
        self._on_leave: Callable[[], None] | None = None
        self.is_set = False

    def set(self, value: T) -> None:
        """Answer."""
        if not self.is_set:
            self._value, self.is_set = value, True
            self._call()

    def fail(self, error: BaseException) -> None:
        """Answer with an error, which `result` and `wait` raise."""
        if not self.is_set:
            self._error, self.is_set = error, True
            self._call()

    def then(self, callback: Callable[[], object]) -> None:
        """Call back when the answer is there, at once if it is. A callback must not raise."""
        if self.is_set:
            callback()
        else:
            self._callbacks.append(callback)

    def map(self, make: Callable[[T], U]) -> "Reply[U]":
        """What `make` makes of the answer. Errors stay as they are, and one that `make` raises is an answer, too."""
        made: Reply[U] = Reply()
        made._on_leave = self._on_leave
        self.then(lambda: made.settle(lambda: make(self.result())))
        return made

    def settle(self, make: Callable[[], T]) -> None:
        """Answer with what `make` returns or raises."""
        try:
            value = make()
        except Exception as error:
            self.fail(error)
        else:
            self.set(value)

    def result(self) -> T:
        """The answer, which is there."""
        if self._error is not None:
            raise self._error.with_traceback(None)  # shared with others, whose frames it would keep
        return self._value  # type: ignore[return-value]  # set by `set`

    def leaving(self, on_leave: Callable[[], None]) -> Self:
        """What is to be done if nobody takes the answer."""
        self._on_leave = on_leave
        return self

    def leave(self) -> None:
        """Nobody takes the answer, be it there or not. The work goes on, unless its maker says otherwise."""
        if self._on_leave is not None:
            self._on_leave()

    def __await__(self) -> Generator[Any, Any, T]:
        return self.wait().__await__()

    async def wait(self) -> T:
        """The answer. Cancelled, it is left."""
        try:
            if self.is_set:
                await trio.lowlevel.checkpoint()
            else:
                await self._sleep()
        except trio.Cancelled:
            self.leave()
            raise
        return self.result()

    async def _sleep(self) -> None:
        wake = partial(trio.lowlevel.reschedule, trio.lowlevel.current_task())

        def abort(_: object) -> trio.lowlevel.Abort:
            self._callbacks.remove(wake)
            return trio.lowlevel.Abort.SUCCEEDED

        self._callbacks.append(wake)
        await trio.lowlevel.wait_task_rescheduled(abort)

    def _call(self) -> None:
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()
