"""The WebSocket over real sockets: events (W1), slow clients and limits (W2), what clients say (Z16)."""

import re
from typing import Any

import pytest
import trio
import trio.testing
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong, TextMessage
from wsproto.extensions import PerMessageDeflate

from queen.actors import pulse
from queen.web.dashboard import EVENTS
from tests.contract.client import Client
from tests.contract.conftest import Server
from tests.contract.socket import Refused, Socket, dashboard

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


async def test_connected_is_the_first_frame(server: Server) -> None:
    """Z16: also before any ping of the protocol."""
    socket = await Socket((await server.connect()).stream).open()
    frame = await socket.told()
    assert frame["event"] == "connected"
    assert set(frame["data"]) == {"connectionId", "version"}
    assert UUID.fullmatch(frame["data"]["connectionId"])
    assert frame["data"]["version"] == "v2"
    assert INSTANT.fullmatch(frame["timestamp"])
    assert socket.pings == 0


async def test_a_message_from_push_to_completion(server: Server, client: Client) -> None:
    """W1: the page's events and their fields."""
    socket = await dashboard(await server.connect())
    (name,) = await client.push("emails", 1, partition="urgent")
    (message,) = await client.pop("emails", "workerId=worker-123")
    await client.request("POST", "/api/v1/ack", {"transactionId": name, "status": "completed"})
    frames = [await socket.told() for _ in range(4)]
    place = {"queue": "emails", "partition": "urgent"}
    assert [(frame["event"], frame["data"]) for frame in frames] == [
        ("queue.created", {"queue": "emails", "partition": "Default"}),
        ("message.pushed", {**place, "transactionId": name}),
        ("message.processing", {**place, "transactionId": name, "workerId": frames[2]["data"]["workerId"]}),
        ("message.completed", {"transactionId": name}),
    ]
    assert frames[1]["timestamp"] == message["createdAt"]


async def test_a_worker_is_named(server: Server, client: Client) -> None:
    """Z13."""
    socket = await dashboard(await server.connect())
    await client.push("q", 1)
    await client.request("GET", "/api/v1/pop/queue/q", headers={"Queen-Worker": "worker-123"})
    assert (await socket.until("message.processing"))["data"]["workerId"] == "worker-123"


async def test_failures(server: Server, client: Client) -> None:
    """An attempt that failed and a dead letter are both told as failed."""
    await client.request(
        "POST", "/api/v1/configure", {"queue": "q", "options": {"retryLimit": 1, "dlqAfterMaxRetries": True}}
    )
    (name,) = await client.push("q", 1)
    socket = await dashboard(await server.connect())
    for error in ("one", "two"):
        await client.pop("q")
        await client.request("POST", "/api/v1/ack", {"transactionId": name, "status": "failed", "error": error})
        assert (await socket.until("message.failed"))["data"] == {"transactionId": name, "error": error}


async def test_named_groups_are_not_told(server: Server, client: Client) -> None:
    """G1: everything on the page speaks of the default group."""
    (name,) = await client.push("q", 1)
    socket = await dashboard(await server.connect())
    await client.pop("q", "consumerGroup=g&autoAck=true")
    await client.pop("q", "autoAck=true")
    assert (await socket.told())["data"] == {"transactionId": name}
    await socket.say("ping")
    assert await socket.text() == "pong"


async def test_depths_and_statistics(server: Server, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """W1."""
    monkeypatch.setattr(pulse, "EVERY_S", 0.05)
    await client.push("emails", 1, 2, partition="urgent")
    socket = await dashboard(await server.connect())
    depth = (await socket.until("queue.depth"))["data"]
    none = {"depth": 0, "processing": 0, "completed": 0, "failed": 0}
    assert depth == {
        "queue": "emails",
        "namespace": None,
        "task": None,
        "totalDepth": 2,
        "totalProcessing": 0,
        "partitions": {"Default": none, "urgent": {**none, "depth": 2}},
    }
    places = [(await socket.until("partition.depth"))["data"] for _ in range(2)]
    assert places[1] == {"queue": "emails", "partition": "urgent", **none, "depth": 2, "total": 2}
    system = (await socket.until("system.stats"))["data"]
    assert system == {"pending": 2, "processing": 0, "recentCreated": 2, "recentCompleted": 0, "connections": 1}


async def test_clients_hear_of_each_other(server: Server) -> None:
    first = await dashboard(await server.connect())
    second = await Socket((await server.connect()).stream).open()
    name = (await second.told())["data"]["connectionId"]
    assert await first.told() | {"timestamp": ""} == {
        "event": "client.connected",
        "data": {"clientId": name},
        "timestamp": "",
    }
    await second.send(CloseConnection(1000))
    assert await second.closed() == 1000
    assert (await first.until("client.disconnected"))["data"] == {"clientId": name}


async def test_a_client_that_just_goes_is_gone(server: Server) -> None:
    first = await dashboard(await server.connect())
    second = await dashboard(await server.connect())
    await first.until("client.connected")
    await trio.aclose_forcefully(second.stream)
    await first.until("client.disconnected")


async def test_a_subscription_filters(server: Server, client: Client) -> None:
    """W1, Z16: answered, repeated, replaced; completed messages are events of their queue."""
    socket = await dashboard(await server.connect())
    await socket.say({"type": "subscribe", "queues": ["a", "b"]})
    assert (await socket.told())["data"] == {"queues": ["a", "b"]}
    await socket.say({"type": "subscribe", "queues": ["b"]})
    frame = await socket.told()
    assert (frame["event"], frame["data"]) == ("subscribed", {"queues": ["b"]})
    for queue in ("a", "c", "b"):
        await client.push(queue, 1, transactionId=queue)
        await client.pop(queue, "autoAck=true")
    assert [(frame := await socket.told())["event"] for _ in range(3)] == [
        "queue.created",
        "message.pushed",
        "message.completed",
    ]
    assert frame["data"] == {"transactionId": "b"}
    await socket.say({"type": "subscribe"})
    assert (await socket.told())["data"] == {"queues": None}
    await client.push("a", 1)
    assert (await socket.told())["data"]["queue"] == "a"


@pytest.mark.parametrize(
    "message",
    [
        TextMessage(""),
        TextMessage("PING"),
        TextMessage("{"),
        TextMessage("[]"),
        TextMessage("null"),
        TextMessage('{"type": "unsubscribe"}'),
        TextMessage('{"queues": []}'),
        TextMessage('{"type": "subscribe", "queues": "a"}'),
        TextMessage('{"type": "subscribe", "queues": [""]}'),
        TextMessage('{"type": "subscribe", "queues": ["\\ud800"]}'),
        TextMessage("[" * 5000),
        BytesMessage(b"ping"),
        BytesMessage(b""),
    ],
    ids=str,
)
async def test_what_means_nothing_is_told_so(server: Server, message: Any) -> None:
    """The connection goes on."""
    socket = await dashboard(await server.connect())
    await socket.send(message)
    frame = await socket.told()
    assert frame["event"] == "error"
    assert list(frame["data"]) == ["error"]
    await socket.say("ping")
    assert await socket.text() == "pong"


async def test_a_fault_names_its_place(server: Server) -> None:
    socket = await dashboard(await server.connect())
    await socket.say({"type": "subscribe", "queues": ["a", "b\n"]})
    assert (await socket.told())["data"]["error"].startswith("queues[1]: ")


@pytest.mark.parametrize("piece", ["x" * (16 * 1024 + 1), "é" * (8 * 1024 + 1)], ids=["ascii", "in bytes"])
async def test_a_frame_over_16_kib_closes_with_1009(server: Server, piece: str) -> None:
    """W2, Z16."""
    socket = await dashboard(await server.connect())
    await socket.say(piece)
    assert await socket.closed() == 1009


async def test_a_message_over_16_kib_in_small_frames_closes_with_1009(server: Server) -> None:
    socket = await dashboard(await server.connect())
    for _ in range(17):
        await socket.send(TextMessage("x" * 1024, message_finished=False))
    assert await socket.closed() == 1009


async def test_16_kib_are_read(server: Server) -> None:
    socket = await dashboard(await server.connect())
    message = '{"type": "subscribe", "queues": []}'
    for _ in range(3):
        await socket.say(message + " " * (16 * 1024 - len(message)))
        assert (await socket.told())["event"] == "subscribed"


async def test_garbage_ends_that_connection_alone(server: Server) -> None:
    other, socket = await dashboard(await server.connect()), await dashboard(await server.connect())
    await socket.stream.send_all(b"\xff" * 100)
    assert await socket.closed() == 1002
    await other.until("client.disconnected")


async def test_pings_of_the_protocol_are_answered(server: Server) -> None:
    socket = await dashboard(await server.connect())
    await socket.send(Ping(b"abc"))
    pong = await socket.event()
    assert isinstance(pong, Pong)
    assert pong.payload == b"abc"


@pytest.mark.settings(ping_time=0.05)
async def test_the_server_pings_and_closes_when_nothing_comes_back(server: Server) -> None:
    """W2."""
    socket = await dashboard(await server.connect())
    with trio.move_on_after(0.5):
        await socket.event()
    assert socket.pings >= 3
    socket.deaf = True
    with trio.fail_after(1):
        assert await socket.closed() == 1006
    assert socket.pings


@pytest.mark.settings(max_sockets=2)
async def test_past_the_limit_is_503(server: Server, client: Client) -> None:
    """W2."""
    sockets = [await dashboard(await server.connect()) for _ in range(2)]
    with pytest.raises(Refused) as refused:
        await Socket((await server.connect()).stream).open()
    reply = refused.value.reply
    assert reply.status == 503
    assert "2 WebSockets" in reply.error
    assert reply.headers["access-control-allow-origin"] == "*"
    assert int(reply.headers["retry-after"]) >= 1
    await sockets[0].send(CloseConnection(1000))
    await sockets[1].until("client.disconnected")
    await dashboard(await server.connect())


async def test_other_paths_are_404(server: Server) -> None:
    with pytest.raises(Refused) as refused:
        await Socket((await server.connect()).stream).open("/ws/other")
    assert refused.value.reply.status == 404
    assert "/ws/other" in refused.value.reply.error


async def test_a_bad_handshake_is_400(server: Server, client: Client) -> None:
    """W4."""
    headers = {"Connection": "Upgrade", "Upgrade": "websocket"}
    reply = await client.request("GET", "/ws/dashboard", headers=headers)
    assert reply.status == 400
    assert reply.error


async def test_without_an_upgrade_it_is_no_page(server: Server, client: Client) -> None:
    """W4."""
    reply = await client.request("GET", "/ws/dashboard")
    assert (reply.status, reply.headers["upgrade"]) == (426, "websocket")
    assert "/ws/dashboard" in reply.error


async def test_nothing_is_compressed(server: Server) -> None:
    socket = await Socket((await server.connect()).stream).open(extensions=[PerMessageDeflate()])
    assert socket.accepted is not None
    assert socket.accepted.extensions == []
    assert (await socket.told())["event"] == "connected"


async def test_a_connection_that_was_served_before_can_become_one(server: Server, client: Client) -> None:
    """On both lanes."""
    await client.push("q", 1)
    await client.pop("q")
    socket = await dashboard(client)
    await socket.say("ping")
    assert await socket.text() == "pong"


async def test_a_stop_closes_sockets_at_once(server: Server) -> None:
    socket = await dashboard(await server.connect())
    silent = await dashboard(await server.connect())
    with trio.fail_after(2):
        server.stop.set()
        assert await socket.closed() == 1001
        await server.stopped.wait()
    assert await silent.closed() == 1001


async def test_while_it_stops_none_is_opened(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    drain, go_on = server.broker.drain, trio.Event()

    async def slow_drain() -> None:
        await go_on.wait()
        await drain()

    monkeypatch.setattr(server.broker, "drain", slow_drain)
    late = await server.connect()
    await late.request("GET", "/health")
    server.stop.set()
    await trio.testing.wait_all_tasks_blocked()
    with pytest.raises(Refused) as refused:
        await Socket(late.stream).open()
    assert refused.value.reply.status == 503
    go_on.set()


async def test_a_client_that_never_reads_changes_nothing(server: Server, client: Client) -> None:
    """W2: 100,000 messages pass; who reads gets its own, and what waits for the other stays bounded."""
    silent = await dashboard(await server.connect())
    reader = await dashboard(await server.connect())
    await reader.say({"type": "subscribe", "queues": ["small"]})
    await reader.until("subscribed")
    items = {"items": [{"queue": "big", "partition": str(n % 10), "payload": n} for n in range(1000)]}
    for number in range(100):
        reply = await client.request("POST", "/api/v1/push", items)
        assert reply.status == 201
        if number % 10 == 0:
            (name,) = await client.push("small", number)
            assert (await reader.until("message.pushed"))["data"]["transactionId"] == name
    waiting = next(one for one in server.broker.feed.subscribers if one.queues is None)
    assert waiting._size <= 10_000
    assert server.broker.meter.dropped > 50_000
    dropped = 0
    numbers = 0
    (last,) = await client.push("small", "last")
    frame: dict[str, Any] = {"data": {}}
    while frame["data"].get("transactionId") != last:
        frame = await silent.told()
        dropped += frame["data"]["count"] if frame["event"] == "events.dropped" else 0
        numbers += frame["event"] in ("message.pushed", "queue.created", "client.connected")
    assert dropped > 50_000
    assert numbers + dropped >= 100_000 + 11 + 3
    with trio.fail_after(2):
        server.stop.set()
        await server.stopped.wait()


def test_every_event_of_the_page_can_be_sent() -> None:
    """W1."""
    assert {name for name, _ in EVENTS.values()} == {
        "connected",
        "message.pushed",
        "message.processing",
        "message.completed",
        "message.failed",
        "queue.created",
        "queue.depth",
        "partition.depth",
        "system.stats",
        "client.connected",
        "client.disconnected",
        # Ours: W2, Z16.
        "subscribed",
        "events.dropped",
        "error",
    }


async def test_where_no_token_is_needed_one_is_passed_over_in_silence(server: Server) -> None:
    socket = await dashboard(await server.connect())
    await socket.say({"type": "authenticate", "token": "whatever"})
    await socket.say({"type": "subscribe"})
    assert (await socket.told())["event"] == "subscribed"
