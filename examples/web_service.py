"""A web service and its background work in one process: requests are answered at once, consumers do the rest.

    python examples/web_service.py                     # then: curl -d '{"to": "ada@example.org"}' localhost:8000/mails

A request hands its work to a queue and is answered 202 when that is on the disk; from then on the work survives a crash
of the process. `open_broker` and the web server live in one nursery, so that stopping one stops the other, in order.
"""

import argparse
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from quart import request
from quart_trio import QuartTrio

import queen


@dataclass
class Mail:
    to: str
    text: str = ""


@dataclass
class Post:
    """What sends mails; here it only remembers them."""

    sent: list[str] = field(default_factory=list)

    async def send(self, message: "queen.LeasedMessage[Mail]") -> None:
        """One message's work. What it raises is retried, up to the queue's `retryLimit`."""
        mail = message.data
        if "@" not in mail.to:
            raise ValueError(f"{mail.to!r} is no address")
        await trio.sleep(0.05)
        self.sent.append(mail.to)


def create_app(broker: queen.Broker, post: Post) -> QuartTrio:
    """The routes. They know the broker and nothing of how it works."""
    app = QuartTrio(__name__)

    @app.post("/mails")
    async def accept() -> tuple[dict[str, str], int]:
        receipt = await broker.push("mails", await request.get_json(force=True))
        return {"id": receipt.transaction_id}, 202

    @app.get("/mails")
    async def look() -> dict[str, object]:
        counts = (await broker.statistics.queue("mails")).counts
        return {"sent": len(post.sent), "waiting": counts.pending + counts.processing, "given up": counts.dead_letter}

    return app


@asynccontextmanager
async def working(path: "str | None", post: Post) -> AsyncIterator[queen.Broker]:
    """A broker with its background consumers. On leaving, what they hold is given back, and the broker closes."""
    async with queen.open_broker(path) as broker:
        await broker.configure(
            "mails", {"retryLimit": 2, "retryDelay": 100, "dlqAfterMaxRetries": True, "ordering": "relaxed"}
        )
        async with trio.open_nursery() as nursery:
            consumer = broker.consume("mails", type=Mail, deadline=30)
            nursery.start_soon(lambda: consumer.run(post.send, concurrency=8))
            yield broker
            nursery.cancel_scope.cancel()


async def asked_to_stop() -> None:
    """Return at SIGTERM or Ctrl-C."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        await anext(signals)


async def main(path: str, port: int) -> None:
    """Serve until asked to stop."""
    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    post = Post()
    async with working(path, post) as broker, trio.open_nursery() as nursery:
        serving = partial(serve, create_app(broker, post), config, shutdown_trigger=asked_to_stop)
        (url,) = await nursery.start(serving)
        print(json.dumps({"listening": url}), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="mails-data")
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args()
    trio.run(main, given.data, given.port)
