"""Whether the server is well, and the few counts that only the edge can know."""

from collections.abc import Callable

import trio

from queen.broker import Broker
from queen.web import render
from queen.web.exchange import Answer, Asked


class Traffic:
    """What the edge counts: requests, open connections (`sockets`: WebSockets among them), requests in flight;
    `answers` by route and status; whether the server stops; and `locked`, why nobody gets in, where that is so."""

    def __init__(self, locked: Callable[[], str | None] = lambda: None) -> None:
        self.locked = locked
        self.started_at = trio.current_time()
        self.requests = 0
        self.connections = 0
        self.sockets = 0
        self.in_flight = 0
        self.answers: dict[tuple[str, int], int] = {}
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

    def answered(self, route: str, status: int) -> None:
        """An answer was made; `route` is one of the table, or "other"."""
        counted = route, status
        self.answers[counted] = self.answers.get(counted, 0) + 1

    @property
    def uptime(self) -> float:
        """Seconds since the start."""
        return trio.current_time() - self.started_at

    def drain(self) -> None:
        """The server stops: no new work."""
        self.draining = True
        self.stopping.set()

    async def wait_quiet(self) -> None:
        """Return once no request is in flight; cancellation leaves nothing behind."""
        while self.in_flight:
            self._changed = trio.Event()
            await self._changed.wait()


async def compact(broker: Broker, asked: Asked) -> Answer:
    """`POST /api/v1/compact` (R5): answers when the new file is in use."""
    done = await broker.compact()
    return render.document({"compacted": True, "bytesBefore": done.before, "bytesAfter": done.after})


async def health(broker: Broker, traffic: Traffic, asked: Asked) -> Answer:
    """`GET /health`: 200 while everything works, else 503 in the same shape.

    Tokens that can't be read are 200 with a `reason`: it is not a new start that mends them."""
    found = broker.health()
    sound = found.status == "healthy" and broker.ready and not traffic.draining
    uptime = traffic.uptime
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
    locked = traffic.locked()
    if locked is not None:
        content["reason"] = _nobody(locked)
    return render.document(content, 200 if sound else 503)


async def ready(broker: Broker, traffic: Traffic, asked: Asked) -> Answer:
    """`GET /health/ready`: 200 while work is taken, 503 while the server starts or stops, the store can't write, or the
    tokens can't be read.

    Full is not among them: acknowledgements must get through then, or there will never be room again (W4)."""
    found = broker.readiness()
    status = "stopping" if traffic.draining else found.status
    reason, locked = found.reason, traffic.locked()
    if status == "ready" and locked is not None:
        status, reason = "failed", _nobody(locked)
    content = {"ready": status == "ready", "status": status, "store": found.store, "reason": reason}
    return render.document(content, 200 if status == "ready" else 503)


def _nobody(fault: str) -> str:
    return f"nobody gets in, since the tokens can't be read: {fault}"
