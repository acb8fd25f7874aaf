"""Clients whose request is under way: they may send ahead, leave, or read slowly, and nobody else notices."""

from typing import Any

import pytest
import trio

from queen.replies import Receipt
from queen.reply import Reply as Pending
from tests.contract.client import Client, encoded
from tests.contract.conftest import Server

POP = encoded("GET", "/api/v1/pop/queue/q?wait=true&timeout=5000")


async def parked(server: Server, count: int) -> None:
    with trio.fail_after(5):
        while server.broker.health().parked != count:  # noqa: ASYNC110 - seen from outside
            await trio.sleep(0.01)


async def test_what_is_sent_ahead_of_a_waiting_pop_waits_with_it(server: Server, client: Client) -> None:
    """Answers keep the order of requests; the connection goes on as before."""
    await client.stream.send_all(POP)
    await parked(server, 1)
    await client.stream.send_all(encoded("POST", "/api/v1/push", {"items": [{"queue": "r"}]}))
    await client.stream.send_all(encoded("GET", "/api/v1/pop/queue/r"))
    await trio.sleep(0.02)
    assert not await (await server.connect()).pop("r")
    await (await server.connect()).push("q", 1)
    assert [message["data"] for message in (await client.reply()).json["messages"]] == [1]
    assert [(await client.reply()).status for _ in range(2)] == [201, 200]
    assert (await client.request("GET", "/api/v1/pop/queue/q")).status == 204


async def test_a_client_that_sends_ahead_and_leaves_is_taken_off(server: Server) -> None:
    """L8: a pop that waits is not kept for what stands behind it."""
    client = await server.connect()
    await client.stream.send_all(POP)
    await parked(server, 1)
    await client.stream.send_all(b"GET /api/v1/pop")
    await trio.sleep(0.02)
    assert server.broker.health().parked == 1
    client.stream.socket.close()
    await parked(server, 0)


async def test_a_pop_waits_as_long_as_it_says_on_a_connection_that_goes_on(client: Client) -> None:
    """O1: with nothing to give, 204; nothing of an earlier wait is left over for a later one."""
    for milliseconds in (0, 30, 60, 1):
        began = trio.current_time()
        assert await client.pop("q", f"wait=true&timeout={milliseconds}") == []
        assert milliseconds / 1000 <= trio.current_time() - began < 2


async def test_answers_of_many_connections_are_not_mixed_up(server: Server) -> None:
    """Each gets its own, whatever shares a commit."""

    async def work(name: str) -> None:
        client = await server.connect()
        for number in range(20):
            (pushed,) = await client.push(name, number)
            (message,) = await client.pop(name, "wait=true&timeout=5000")
            assert (message["transactionId"], message["data"]) == (pushed, number)
            done = {"transactionId": pushed, "status": "completed", "leaseId": message["leaseId"]}
            assert (await client.request("POST", "/api/v1/ack", done)).status == 200

    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(work, f"queue-{number}")


async def test_a_client_may_send_ahead_of_a_commit_and_leave(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is under way is done; what was sent ahead of it and never answered may or may not be."""
    push, held = server.broker.push_soon, Pending[None]()

    def slow_push(*args: Any, **kwargs: Any) -> Pending[list[Receipt]]:
        slow: Pending[list[Receipt]] = Pending()
        done = push(*args, **kwargs)
        done.then(lambda: held.then(lambda: slow.set(done.result())))
        return slow

    monkeypatch.setattr(server.broker, "push_soon", slow_push)
    client = await server.connect()
    await client.send("POST", "/api/v1/push", {"items": [{"queue": "q", "payload": 1}]})
    await trio.sleep(0.02)
    await client.stream.send_all(encoded("GET", "/health"))
    await trio.sleep(0.02)
    client.stream.socket.close()
    await trio.sleep(0.02)
    held.set(None)
    other = await server.connect()
    assert [message["data"] for message in await other.pop("q", "wait=true&timeout=2000")] == [1]
    with trio.fail_after(5):
        while (await other.request("GET", "/health")).json["connections"] > 1:  # noqa: ASYNC110 - seen from outside
            await trio.sleep(0.01)
