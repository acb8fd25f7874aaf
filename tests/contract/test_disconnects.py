"""Clients that leave: a pop gives nothing to a client that is gone, and takes back what can't be written (L8)."""

import socket
import struct

import pytest
import trio

from queen.messages import Delivery
from queen.reply import Reply
from tests.contract.client import Client, encoded
from tests.contract.conftest import Server


def close(client: Client) -> None:
    client.stream.socket.close()


def half_close(client: Client) -> None:
    client.stream.socket.shutdown(socket.SHUT_WR)


def reset(client: Client) -> None:
    client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.stream.socket.close()


LEAVING = pytest.mark.parametrize("leave", [close, half_close, reset])


async def assert_still_there(server: Server, queue: str) -> None:
    """The queue's one message can be had at once and was never counted as an attempt."""
    client = await server.connect()
    (message,) = await client.pop(queue, "wait=true&timeout=2000")
    assert message["retryCount"] == 0


@LEAVING
@pytest.mark.parametrize("query", ["wait=true", "w%61it=true&autoAck=true"])
async def test_a_waiting_pop_ends_with_its_client(server: Server, leave: object, query: str) -> None:
    """The push that comes after goes to somebody who is there, however the waiting was spelled."""
    client = await server.connect()
    await client.send("GET", f"/api/v1/pop/queue/q?{query}")
    await trio.sleep(0.02)
    assert callable(leave)
    leave(client)
    other = await server.connect()
    with trio.fail_after(2):
        while (await other.request("GET", "/health")).json["connections"] > 1:  # noqa: ASYNC110 - seen from outside
            await trio.sleep(0.01)
    await other.push("q", 1)
    await assert_still_there(server, "q")


@LEAVING
@pytest.mark.parametrize("query", ["", "?wait=true"])
async def test_who_asks_and_leaves_at_once_gets_nothing(server: Server, leave: object, query: str) -> None:
    client = await server.connect()
    await client.push("q", 1)
    assert callable(leave)
    for _ in range(10):
        gone = await server.connect()
        await gone.stream.send_all(encoded("GET", f"/api/v1/pop/queue/q{query}"))
        leave(gone)
    await trio.sleep(0.02)
    await assert_still_there(server, "q")


@LEAVING
async def test_a_client_that_leaves_while_its_pop_is_decided(
    server: Server, leave: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease is there when the answer turns out to have no reader."""
    client = await server.connect()
    await client.push("q", 1)
    gone = await server.connect()
    pop, pop_soon = server.broker.pop, server.broker.pop_soon
    assert callable(leave)

    async def pop_then_leave(*args: object, **kwargs: object) -> object:
        with trio.CancelScope(shield=True):
            delivery = await pop(*args, **kwargs)  # type: ignore[arg-type]
            if not left.is_set():
                leave(gone)
                await trio.sleep(0.02)
                left.set()
        return delivery

    def pop_soon_then_leave(*args: object, **kwargs: object) -> Reply[Delivery]:
        def leave_first(delivery: Delivery) -> Delivery:
            if not left.is_set():
                assert callable(leave)
                leave(gone)
                left.set()
            return delivery

        return pop_soon(*args, **kwargs).map(leave_first)  # type: ignore[arg-type]

    left = trio.Event()
    monkeypatch.setattr(server.broker, "pop", pop_then_leave)
    monkeypatch.setattr(server.broker, "pop_soon", pop_soon_then_leave)
    await gone.send("GET", "/api/v1/pop/queue/q")
    with trio.fail_after(5):
        await left.wait()
    await assert_still_there(server, "q")


async def test_a_push_is_done_whether_or_not_its_client_stays(server: Server) -> None:
    gone = await server.connect()
    await gone.send("POST", "/api/v1/push", {"items": [{"queue": "q"}]})
    half_close(gone)
    assert (await gone.reply()).status == 201
    await assert_still_there(server, "q")


async def test_connections_are_given_up_when_their_clients_go(server: Server) -> None:
    for leave in (close, half_close, reset):
        for sent in (b"", b"GET /hea", encoded("GET", "/health"), encoded("POST", "/api/v1/push", b"{}")[:-1]):
            gone = await server.connect()
            await gone.stream.send_all(sent)
            leave(gone)
    client = await server.connect()
    with trio.fail_after(5):
        while (await client.request("GET", "/health")).json["connections"] > 1:  # noqa: ASYNC110 - seen from outside
            await trio.sleep(0.01)


async def test_many_vanishing_waiters_do_not_lose_the_message(server: Server) -> None:
    """L8 under a crowd: the one that stays gets it."""
    crowd = [await server.connect() for _ in range(50)]
    for one in crowd:
        await one.send("GET", "/api/v1/pop/queue/q?wait=true")
    await trio.sleep(0.05)
    for one in crowd[:-1]:
        close(one)
    await crowd[-1].stream.send_all(b"")
    await (await server.connect()).push("q", 1)
    with trio.fail_after(5):
        reply = await crowd[-1].reply()
    assert reply.json["messages"][0]["retryCount"] == 0
