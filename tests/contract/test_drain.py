"""How a server stops: waiting pops end, what is in flight is finished, new work is refused, and it takes no time."""

import os
import signal

import pytest
import trio

from queen.replies import Receipt
from queen.reply import Reply
from tests.contract.client import Client
from tests.contract.conftest import Server
from tests.contract.test_cli import started


async def test_waiting_pops_are_answered_204(server: Server) -> None:
    clients = [await server.connect() for _ in range(5)]
    for client in clients:
        await client.send("GET", "/api/v1/pop/queue/q?wait=true&timeout=60000")
    await trio.sleep(0.02)
    server.stop.set()
    with trio.fail_after(3):
        for client in clients:
            assert (await client.reply()).status == 204
        await server.stopped.wait()


async def test_what_is_in_flight_is_finished_and_new_work_refused(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    push, held = server.broker.push_soon, Reply[None]()

    def slow_push(*args: object, **kwargs: object) -> Reply[list[Receipt]]:
        slow: Reply[list[Receipt]] = Reply()
        done = push(*args, **kwargs)  # type: ignore[arg-type]
        done.then(lambda: held.then(lambda: slow.set(done.result())))
        return slow

    monkeypatch.setattr(server.broker, "push_soon", slow_push)
    idle, other = await server.connect(), await server.connect()
    assert (await idle.request("GET", "/health")).status == 200
    assert (await other.request("GET", "/health")).status == 200
    await client.send("POST", "/api/v1/push", {"items": [{"queue": "q"}]})
    await trio.sleep(0.02)
    server.stop.set()
    await trio.sleep(0.02)
    health = await other.request("GET", "/health")
    assert (health.status, health.json["status"]) == (503, "unhealthy")
    refused = await idle.request("POST", "/api/v1/push", {"items": [{"queue": "q"}]})
    assert refused.status == 503
    assert "shutting down" in refused.error
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.headers["connection"] == "close"
    with pytest.raises(OSError, match="connect"):
        await server.connect()
    assert not server.stopped.is_set()
    held.set(None)
    assert (await client.reply()).status == 201
    with trio.fail_after(2):
        await server.stopped.wait()


async def test_idle_connections_do_not_hold_it_up(server: Server) -> None:
    silent, served = await server.connect(), await server.connect()
    assert (await served.request("GET", "/health")).status == 200
    with trio.fail_after(2):
        server.stop.set()
        await server.stopped.wait()
    assert await silent.at_end()
    assert await served.at_end()


@pytest.mark.settings(drain_time=0.1)
async def test_a_client_that_reads_nothing_does_not_hold_it_up(server: Server, client: Client) -> None:
    big = "x" * 9_000_000
    await client.push("q", big)
    await client.push("q", big)
    await client.send("GET", "/api/v1/pop/queue/q?batch=2")
    await trio.sleep(0.1)
    with trio.fail_after(3):
        server.stop.set()
        await server.stopped.wait()


@pytest.mark.settings(drain_time=0.1)
async def test_a_request_that_never_ends_does_not_hold_it_up(server: Server, client: Client) -> None:
    await client.stream.send_all(b"POST /api/v1/push HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n{")
    await trio.sleep(0.02)
    with trio.fail_after(3):
        server.stop.set()
        await server.stopped.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_it(number: signal.Signals) -> None:
    """In a process of its own, through the command line; exit code 0."""
    async with started() as (process, port):
        client = Client(await trio.open_tcp_stream("127.0.0.1", port))
        await client.send("GET", "/api/v1/pop/queue/q?wait=true&timeout=60000")
        await trio.sleep(0.05)
        os.kill(process.pid, number)
        with trio.fail_after(5):
            assert (await client.reply()).status == 204
            assert await process.wait() == 0
        await client.stream.aclose()
