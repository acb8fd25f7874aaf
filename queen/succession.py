"""One engine after another: which one works now, or why none does, and how it ends for good.

`Broker` is built on this; what it can be asked is there.
"""

import trio

from queen.actors.engine import Engine
from queen.condition import Health, Readiness, health_of, readiness_of
from queen.errors import QueenError, ShuttingDown, Unavailable
from queen.meter import Meter


class Succession:
    """See the module. `opening.supervise` starts the engines."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._failure: QueenError | None = None
        self._closed = False
        self._stopped = trio.Event()
        self._started = trio.Event()
        self.meter = Meter()

    @property
    def ready(self) -> bool:
        """Whether work is taken now."""
        return self._engine is not None and self._engine.accepting

    def health(self) -> Health:
        """How the broker is, at no cost."""
        return health_of(self._engine, self.meter)

    def readiness(self) -> Readiness:
        """Whether work is taken now, and why not."""
        return readiness_of(self._engine, self._failure, self._closed)

    async def drain(self) -> None:
        """Take no new work, answer waiting pops with nothing, and wait for what is under way."""
        self._closed = True
        if self._engine is not None:
            await self._engine.drain()

    def stop(self) -> None:
        """End, with what has been drained in snapshots."""
        self._closed = True
        self._stopped.set()
        if self._engine is not None:
            self._engine.stop()

    @property
    def started(self) -> bool:
        """Whether the journal has been read, once at least."""
        return self._started.is_set()

    async def wait_started(self) -> None:
        """Wait until the journal has been read."""
        await self._started.wait()

    async def wait_stopped(self) -> None:
        """Wait for `stop`."""
        await self._stopped.wait()

    def attach(self, engine: Engine) -> None:
        """Work with this engine from now on. For `opening.supervise` alone, as `detach` is."""
        self._engine, self._failure = engine, None
        self._started.set()
        if self._stopped.is_set():
            engine.stop()

    def detach(self, failure: QueenError | None = None) -> None:
        """The engine has ended; without a failure, another one comes or the broker closes."""
        self._engine, self._failure = None, failure

    @property
    def closed(self) -> bool:
        """Whether the broker takes no more work for good."""
        return self._closed

    def _running(self) -> Engine:
        if self._closed:
            raise ShuttingDown("the server is shutting down")
        if self._engine is None:
            failure = self._failure or Unavailable("the server is starting")
            # An error that is kept would keep the frames of all who were told, and what they held.
            raise failure.with_traceback(None)
        return self._engine
