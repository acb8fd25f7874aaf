"""The routes for those who run the server, and the few counts that only the edge can know."""

import trio

from queen.broker import Broker
from queen.web import render
from queen.web.exchange import Answer


class Traffic:
    """What the edge counts: requests, open connections (`sockets`: WebSockets among them), requests in flight; and
    whether the server stops."""

    def __init__(self) -> None:
        self.started_at = trio.current_time()
        self.requests = 0
        self.connections = 0
        self.sockets = 0
        self.in_flight = 0
        self.draining = False
        self.stopping = trio.Event()
        self._changed = trio.Event()

    def begin(self) -> None:
        """A request came in."""
        self.requests += 1
        self.in_flight += 1

    def end(self) -> None:
        """A request is over, answered or not."""
        self.in_flight -= 1
        if self.draining and self.in_flight == 0:
            self._changed.set()

    def drain(self) -> None:
        """The server stops: no new work."""
        self.draining = True
        self.stopping.set()

    async def wait_quiet(self) -> None:
        """Return once no request is in flight; cancellation leaves nothing behind."""
        while self.in_flight:
            self._changed = trio.Event()
            await self._changed.wait()


def health(broker: Broker, traffic: Traffic) -> Answer:
    """`GET /health`: 200 while everything works, else 503 in the same shape."""
    found = broker.health()
    sound = found.status == "healthy" and broker.ready and not traffic.draining
    uptime = trio.current_time() - traffic.started_at
    # Rates of the first moment would be nonsense; after a second they are an honest mean.
    seconds = max(uptime, 1.0)
    content = {
        "status": "healthy" if sound else "unhealthy",
        "uptime": f"{int(uptime)}s",
        "connections": traffic.connections,
        "stats": {
            "requests": traffic.requests,
            "messages": found.messages,
            "requestsPerSecond": f"{traffic.requests / seconds:.2f}",
            "messagesPerSecond": f"{found.messages / seconds:.2f}",
            "pool": {"total": found.pool.total, "idle": found.pool.idle, "waiting": found.pool.waiting},
        },
    }
    return render.document(content, 200 if sound else 503)
