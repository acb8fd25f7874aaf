"""Errors of every origin are JSON, and CORS headers stand on every answer (W3, W4)."""

import pytest
import structlog
import trio

from queen.replies import Receipt
from queen.reply import Reply as Pending
from tests.contract.client import Client
from tests.contract.conftest import Server
from tests.contract.reply import Reply

CORS = {
    "access-control-allow-origin": "*",
    "access-control-allow-methods": "GET, POST, PUT, DELETE, OPTIONS",
    "access-control-allow-headers": "Content-Type, Authorization, Queen-Worker",
    "access-control-expose-headers": "Queen-Blocked, Retry-After",
    "access-control-max-age": "86400",
}


def has_cors(reply: Reply) -> bool:
    return CORS.items() <= reply.headers.items()


@pytest.mark.parametrize(
    ("method", "target", "body", "status"),
    [
        ("GET", "/health", None, 200),
        ("GET", "/api/v1/pop/queue/q", None, 204),
        ("POST", "/api/v1/push", b'{"items":[{"queue":"q"}]}', 201),
        ("POST", "/api/v1/push", b"{", 400),
        ("GET", "/", None, 200),
        ("GET", "/x", None, 404),
        ("GET", "/api", None, 404),
        ("GET", "/api/v1/nothing", None, 404),
        ("GET", "/api/v1/push/", None, 404),
        ("POST", "/api/v1/push/x", b"{}", 404),
        ("GET", "//nothing", None, 404),
        ("GET", "/api//v1/pop?task=t", None, 404),
        ("GET", "/api/v1/pop/queue/", None, 404),
        ("GET", "/api/v1/pop/queue//partition/p", None, 404),
        ("GET", "/api/v1/pop/queue/a/b", None, 404),
        ("GET", "/%ff", None, 404),
        ("GET", "/static/x", None, 404),
        ("GET", "/api/v1/push", None, 405),
        ("PUT", "/api/v1/push", b"{}", 405),
        ("DELETE", "/api/v1/ack", None, 405),
        ("POST", "/api/v1/pop/queue/q", b"{}", 405),
        ("POST", "/health", b"", 405),
        ("BREW", "/api/v1/pop", None, 405),
        ("BREW", "/nothing", None, 404),
        ("OPTIONS", "/api/v1/push", None, 204),
        ("OPTIONS", "/nothing", None, 204),
        ("OPTIONS", "*", None, 204),
    ],
)
async def test_every_answer_is_json_and_open_to_browsers(
    client: Client, method: str, target: str, body: bytes | None, status: int
) -> None:
    reply = await client.request(method, target, body)
    assert reply.status == status, reply
    assert has_cors(reply)
    if status >= 400:
        assert reply.headers["content-type"] == "application/json"
        assert reply.error
    if status == 405:
        assert "OPTIONS" in reply.headers["allow"].split(", ")
        assert method not in reply.headers["allow"].split(", ")
    assert (await client.request("GET", "/health")).status == 200


async def test_a_preflight_is_answered(client: Client) -> None:
    """W3."""
    headers = {"Origin": "http://x", "Access-Control-Request-Method": "POST"}
    reply = await client.request("OPTIONS", "/api/v1/push", None, headers)
    assert (reply.status, reply.body, has_cors(reply)) == (204, b"", True)


async def test_head_takes_no_messages(client: Client) -> None:
    """A HEAD that popped would lose what it took."""
    await client.push("q", 1)
    for target in ("/api/v1/pop/queue/q", "/api/v1/pop/queue/q/partition/Default", "/api/v1/pop?task=t"):
        reply = await client.request("HEAD", target)
        assert (reply.status, reply.body) == (405, b"")
        assert reply.headers["allow"] == "GET, OPTIONS"
        reply = await client.request("POST", target, b"{}")
        assert (reply.status, reply.headers["allow"]) == (405, "GET, OPTIONS")
    assert len(await client.pop("q")) == 1


@pytest.mark.parametrize(
    ("target", "status"),
    [
        *[(f"/{path}", 200) for path in ("", "health", "health/ready", "metrics", "docs", "openapi.json")],
        ("/api/v1/messages", 200),
        ("/api/v1/messages/nothing", 404),
        ("/api/v1/resources/overview", 200),
        ("/nothing", 404),
        ("/ws/dashboard", 426),
        ("/" + "x" * 20_000, 414),
    ],
)
async def test_head_tells_what_get_would_without_its_body(client: Client, target: str, status: int) -> None:
    reply = await client.request("HEAD", target)
    assert (reply.status, reply.body) == (status, b"")
    assert has_cors(reply)
    assert int(reply.headers["content-length"]) > 0
    if status == 414:
        assert await client.at_end()
    else:
        assert (await client.request("GET", target)).headers["content-type"] == reply.headers["content-type"]


@pytest.mark.parametrize(
    "headers", [{"X": "x" * 40_000}, {"Content-Length": str(2**40)}, {"Transfer-Encoding": "gzip"}, {"Connection": "x"}]
)
async def test_head_is_refused_without_a_body(server: Server, headers: dict[str, str]) -> None:
    """A body behind it would be taken for the next answer; and the server goes on."""
    client = await server.connect()
    await client.send("HEAD", "/health", None, headers)
    assert (await client.reply("HEAD")).body == b""
    assert (await (await server.connect()).request("GET", "/health")).status == 200


async def test_the_root_says_where_to_begin(client: Client) -> None:
    reply = await client.request("GET", "/")
    for path in (reply.json["docs"], reply.json["openapi"], reply.json["asyncapi"]):
        assert (await client.request("GET", path)).status == 200


async def test_an_absolute_target_is_read_as_its_path(client: Client) -> None:
    reply = await client.request("GET", "http://queen.test/api/v1/pop/queue/q?batch=x")
    assert reply.error.startswith("batch: ")


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"nonsense\r\n\r\n",
        b"GET /health HTTP/1.1\r\n\r\n",
        b"GET /api/v1/pop/queue/q HTTP/1.1\r\n\r\n",
        b"GET /api/v1/pop/queue/q HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /api/v1/pop/queue/q HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST /api/v1/ack HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        b"GET /health HTTP/1.1\r\nHost: a\r\nbad header\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST /api/v1/push HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
        b"POST /api/v1/push HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /api/v1/push HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n",
        b"POST /api/v1/push HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    ],
)
async def test_what_is_no_http_is_told_so(client: Client, request_bytes: bytes) -> None:
    await client.stream.send_all(request_bytes)
    reply = await client.reply()
    assert reply.status == 400
    assert has_cors(reply)
    assert reply.error
    assert reply.headers["connection"] == "close"
    assert await client.at_end()


@pytest.mark.parametrize("path", ["/nothing", "/api/v1/push", "/health"])
async def test_a_websocket_where_there_is_none_is_refused(client: Client, path: str) -> None:
    """W4: JSON 404, and no accident in the log."""
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    reply = await client.request("GET", path, headers=headers)
    assert (reply.status, reply.error) == (404, f"no such path for a WebSocket: {path}")
    assert has_cors(reply)


async def test_lines_may_end_in_a_bare_line_feed(client: Client) -> None:
    for _ in range(2):
        await client.stream.send_all(b"GET /api/v1/pop/queue/q HTTP/1.1\nHost: a\n\n")
        with trio.fail_after(2):
            assert (await client.reply()).status == 204


async def test_an_accident_tells_nothing_of_the_inside(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W4: 500, its cause in the log and nowhere else."""

    def broken(*_: object, **__: object) -> Pending[list[Receipt]]:
        def fail(_: object) -> list[Receipt]:
            raise ZeroDivisionError("the inside")

        return push(*_, **__).map(fail)  # type: ignore[arg-type]

    push = server.broker.push_soon
    monkeypatch.setattr(server.broker, "push_soon", broken)
    with structlog.testing.capture_logs() as logs:
        reply = await client.request("POST", "/api/v1/push", {"items": [{"queue": "q", "payload": "secret"}]})
    assert reply.status == 500
    assert has_cors(reply)
    assert "inside" not in reply.error
    (entry,) = logs
    assert (entry["log_level"], entry["exc_info"]) == ("error", True)
    assert "secret" not in repr(entry)
    monkeypatch.undo()
    assert (await client.request("POST", "/api/v1/push", {"items": [{"queue": "q"}]})).status == 201
