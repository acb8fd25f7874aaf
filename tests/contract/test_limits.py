"""Bounds on what a client may send, and on how long it may take: each with its own status."""

import json
from typing import Any

import pytest
import trio

from tests.contract.client import Client, encoded
from tests.contract.conftest import Server

HEAD = b"POST /api/v1/push HTTP/1.1\r\nHost: queen.test\r\n"


def push_of(size: int) -> bytes:
    empty = len(json.dumps({"items": [{"queue": "q", "payload": ""}]}))
    return json.dumps({"items": [{"queue": "q", "payload": "x" * (size - empty)}]}).encode()


def chunked(body: bytes, size: int) -> bytes:
    chunks = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"


@pytest.mark.settings(max_body=4096)
async def test_a_body_may_be_as_large_as_the_limit_and_no_larger(server: Server) -> None:
    """P2."""
    client = await server.connect()
    assert (await client.request("POST", "/api/v1/push", push_of(4096))).status == 201
    reply = await client.request("POST", "/api/v1/push", push_of(4097))
    assert reply.status == 413
    assert "4096" in reply.error
    assert await client.at_end()


async def test_a_large_push_goes_through_by_default(server: Server) -> None:
    """P2: 10 MiB."""
    client = await server.connect()
    assert (await client.request("POST", "/api/v1/push", push_of(10 * 1024 * 1024))).status == 201
    reply = await client.request("GET", "/api/v1/pop/queue/q")
    assert len(reply.body) > 10_000_000
    reply = await client.request("POST", "/api/v1/push", push_of(10 * 1024 * 1024 + 1))
    assert reply.status == 413


@pytest.mark.settings(max_body=4096)
async def test_chunks_count_as_well(server: Server) -> None:
    """P2, and a client that goes on sending gets its answer all the same."""
    client = await server.connect()
    await client.stream.send_all(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(push_of(4096), 100))
    assert (await client.reply()).status == 201
    async with trio.open_nursery() as nursery:

        async def send_on() -> None:
            try:
                await client.stream.send_all(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
                for _ in range(1000):
                    await client.stream.send_all(b"1000\r\n" + b"x" * 4096 + b"\r\n")
            except trio.BrokenResourceError:
                pass

        nursery.start_soon(send_on)
        with trio.fail_after(5):
            reply = await client.reply()
        nursery.cancel_scope.cancel()
    assert reply.status == 413
    assert reply.headers["connection"] == "close"
    with trio.fail_after(3):
        try:
            while await client.stream.receive_some(100):
                pass
        except trio.BrokenResourceError:
            pass  # closed with some of the body unread: a reset, which is an end as well


@pytest.mark.settings(max_body=4096)
async def test_who_asks_before_sending_is_told(server: Server) -> None:
    """`Expect: 100-continue`: 100 for a body that is welcome, 413 at once for one that is not."""
    client = await server.connect()
    body = push_of(100)
    await client.stream.send_all(HEAD + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
    assert (await client.stream.receive_some(12)) == b"HTTP/1.1 100"
    await client.stream.send_all(body)
    assert await client.stream.receive_some(100)
    client = await server.connect()
    await client.stream.send_all(HEAD + b"Expect: 100-continue\r\nContent-Length: 5000\r\n\r\n")
    assert (await client.stream.receive_some(12)) == b"HTTP/1.1 413"


@pytest.mark.parametrize("pieces", [1, 7])
@pytest.mark.settings(max_header=2048)
async def test_headers_have_a_limit_whole_or_in_pieces(server: Server, pieces: int) -> None:
    client = await server.connect()
    assert (await client.request("GET", "/health", None, {"X": "x" * 1500})).status == 200
    data = encoded("GET", "/health", None, {"X": "x" * 2100})
    step = len(data) // pieces + 1
    for begin in range(0, len(data), step):
        try:
            await client.stream.send_all(data[begin : begin + step])
        except trio.BrokenResourceError:
            break
        await trio.sleep(0.002)
    reply = await client.reply()
    assert reply.status == 431
    assert "2048" in reply.error
    assert "access-control-allow-origin" in reply.headers
    assert await client.at_end()


@pytest.mark.settings(max_header=2048)
@pytest.mark.parametrize("start", ["/", "/api/v1/pop/queue/q?"])
async def test_a_target_has_a_limit(server: Server, start: str) -> None:
    client = await server.connect()
    reply = await client.request("GET", start + "x" * 1500)
    assert reply.status == 414
    assert await client.at_end()


@pytest.mark.parametrize("sent", [b"Content-Length: 100\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"])
@pytest.mark.settings(body_time=0.05)
async def test_a_body_that_does_not_come_is_408(server: Server, sent: bytes) -> None:
    client = await server.connect()
    await client.stream.send_all(HEAD + sent)
    reply = await client.reply()
    assert reply.status == 408
    assert reply.error.startswith("body: ")
    assert reply.headers["connection"] == "close"
    assert await client.at_end()


@pytest.mark.parametrize("sent", [b"", b"GET /health HT", b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"])
@pytest.mark.settings(keep_alive=0.05)
async def test_an_idle_connection_is_closed(server: Server, sent: bytes) -> None:
    """One that says nothing, one that stops in the middle of its headers, one that was served."""
    client = await server.connect()
    await client.stream.send_all(sent)
    if sent.endswith(b"\r\n\r\n"):
        assert (await client.reply()).status == 200
    assert await client.at_end()


@pytest.mark.settings(keep_alive=0.05)
async def test_a_long_poll_is_not_idle(server: Server) -> None:
    client = await server.connect()
    assert (await client.request("GET", "/api/v1/pop/queue/q?wait=true&timeout=200")).status == 204


@pytest.mark.parametrize("target", ["/health", "/api/v1/pop/queue/q"])
async def test_connection_close_closes(server: Server, target: str) -> None:
    """Hypercorn alone would leave this socket open."""
    client = await server.connect()
    reply = await client.request("GET", target, None, {"Connection": "close"})
    assert reply.headers["connection"] == "close"
    assert await client.at_end()


@pytest.mark.settings(write_time=0.5)
async def test_a_client_that_reads_nothing_is_given_up(server: Server) -> None:
    """Its connection ends by `write_time`, and what it was to get is given back (L8)."""
    client = await server.connect()
    big = "x" * 5_000_000
    await client.push("q", big, big)
    await client.send("GET", "/api/v1/pop/queue/q?batch=2")
    other = await server.connect()
    with trio.fail_after(5):
        messages: list[dict[str, Any]] = []
        while not messages:
            messages = await other.pop("q", "batch=2&wait=true&timeout=1000")
    assert [message["retryCount"] for message in messages] == [0, 0]


async def test_requests_may_be_sent_ahead(server: Server) -> None:
    """Pipelining: answered in order."""
    client = await server.connect()
    body = push_of(60)
    first = encoded("POST", "/api/v1/push", body)
    await client.stream.send_all(first + encoded("GET", "/api/v1/pop/queue/q") + encoded("GET", "/nothing"))
    assert [(await client.reply()).status for _ in range(3)] == [201, 200, 404]


async def test_a_get_may_carry_a_body(client: Client) -> None:
    assert (await client.request("GET", "/api/v1/pop/queue/q", b"x" * 200_000)).status == 204
    assert (await client.request("GET", "/health", b"x" * 200_000)).status == 200


async def test_http_1_0_works(client: Client) -> None:
    await client.stream.send_all(b"GET /health HTTP/1.0\r\n\r\n")
    assert (await client.reply()).status == 200
    assert await client.at_end()
