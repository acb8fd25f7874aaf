"""Each route as the API page shows it, with the additions of semantics.md. Black box: a socket and nothing else."""

import re

import trio

from queen.options import DEFAULTS, as_dict
from tests.contract.client import Client
from tests.contract.conftest import Server

UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


async def test_push_answers_201_in_the_order_of_its_items(client: Client) -> None:
    """P3, N2."""
    items = [{"queue": "q", "transactionId": "mine"}, {"queue": "r", "partition": "p", "payload": [1]}]
    reply = await client.request("POST", "/api/v1/push", {"items": items})
    assert reply.status == 201
    assert reply.headers["content-type"] == "application/json"
    first, second = reply.json["messages"]
    assert first == {"id": first["id"], "transactionId": "mine", "status": "queued"}
    assert list(second) == ["id", "transactionId", "status"]
    assert UUID7.fullmatch(first["id"])
    assert UUID7.fullmatch(second["id"])
    assert UUID7.fullmatch(second["transactionId"])


async def test_a_repeated_transaction_id_is_a_duplicate_with_the_first_id(client: Client) -> None:
    """P4, also within one request."""
    items = [{"queue": "q", "transactionId": "t", "payload": n} for n in range(2)]
    reply = await client.request("POST", "/api/v1/push", {"items": items})
    assert [message["status"] for message in reply.json["messages"]] == ["queued", "duplicate"]
    again = await client.request("POST", "/api/v1/push", {"items": items[1:]})
    assert again.status == 201
    assert again.json["messages"][0]["id"] == reply.json["messages"][0]["id"]
    assert [message["data"] for message in await client.pop("q", "batch=10")] == [0]


async def test_a_popped_message_has_every_field(client: Client) -> None:
    """The page's fields, L4, Z1, Z13."""
    item = {"queue": "emails", "partition": "urgent", "payload": {"to": "a"}, "transactionId": "t", "traceId": "tr"}
    pushed = await client.request("POST", "/api/v1/push", {"items": [item]})
    reply = await client.request("GET", "/api/v1/pop/queue/emails/partition/urgent?batch=5&wait=true")
    assert reply.status == 200
    assert reply.headers["content-type"] == "application/json"
    (message,) = reply.json["messages"]
    assert INSTANT.fullmatch(message["createdAt"])
    assert INSTANT.fullmatch(message["lockedAt"])
    assert INSTANT.fullmatch(message["leaseExpiresAt"])
    assert message["createdAt"] <= message["lockedAt"] < message["leaseExpiresAt"]
    assert message["options"]["leaseTime"] == 300
    assert message["options"]["retryLimit"] == 3
    assert isinstance(message["leaseId"], str)
    assert isinstance(message["partitionId"], str)
    expected = {
        "id": pushed.json["messages"][0]["id"],
        "transactionId": "t",
        "queue": "emails",
        "partition": "urgent",
        "data": {"to": "a"},
        "retryCount": 0,
        "priority": 0,
        "consumerGroup": None,
        "traceId": "tr",
    }
    assert {key: message[key] for key in expected} == expected


async def test_a_pop_from_the_queue_takes_what_waits_longest(client: Client) -> None:
    """O3."""
    await client.push("q", 1, partition="b")
    await client.push("q", 2, partition="a")
    assert [message["partition"] for message in await client.pop("q", "batch=10")] == ["b"]


async def test_a_pop_by_namespace_or_task(client: Client) -> None:
    """O4, P5."""
    await client.push("q", 1, namespace="production", task="billing")
    for query in ("namespace=other", "task=other", "namespace=production&task=other"):
        assert (await client.request("GET", f"/api/v1/pop?{query}")).status == 204
    reply = await client.request("GET", "/api/v1/pop?namespace=production&task=billing&autoAck=true")
    assert reply.json["messages"][0]["queue"] == "q"


async def test_an_empty_pop_is_204_with_nothing_in_it(client: Client) -> None:
    """O2, W5: no body, no content type, and the connection goes on."""
    for path in ("/api/v1/pop/queue/none", "/api/v1/pop/queue/none/partition/x", "/api/v1/pop?namespace=none"):
        reply = await client.request("GET", path)
        assert reply.status == 204
        assert "content-type" not in reply.headers
        assert "content-length" not in reply.headers
        assert "queen-blocked" not in reply.headers


async def test_a_blocked_pop_says_why_and_when(client: Client) -> None:
    """L1, L3, Z10."""
    await client.push("q", 1, 2)
    assert len(await client.pop("q")) == 1
    reply = await client.request("GET", "/api/v1/pop/queue/q")
    assert reply.status == 204
    assert reply.headers["queen-blocked"] == "leased"
    assert 290 <= int(reply.headers["retry-after"]) <= 300


async def test_a_delayed_message_is_named_as_such(client: Client) -> None:
    """T2, L3."""
    await client.push("q", 1, delaySeconds=20)
    reply = await client.request("GET", "/api/v1/pop/queue/q")
    assert (reply.status, reply.headers["queen-blocked"]) == (204, "delayed")
    assert 15 <= int(reply.headers["retry-after"]) <= 20


async def test_a_waiting_pop_is_woken_by_a_push(server: Server, client: Client) -> None:
    """O5."""
    other = await server.connect()
    await client.send("GET", "/api/v1/pop/queue/q?wait=1&timeout=60000")
    await trio.sleep(0.02)
    await other.push("q", "hello")
    with trio.fail_after(5):
        reply = await client.reply()
    assert reply.json["messages"][0]["data"] == "hello"


async def test_a_waiting_pop_ends_with_its_timeout(client: Client) -> None:
    """O1: clamped from below, and short ones are short."""
    for timeout in ("30", "0", "-5"):
        with trio.fail_after(3):
            assert (await client.request("GET", f"/api/v1/pop/queue/q?wait=true&timeout={timeout}")).status == 204


async def test_an_ack_completes(client: Client) -> None:
    """A2, A3."""
    await client.push("q", 1, transactionId="t")
    await client.pop("q")
    reply = await client.request("POST", "/api/v1/ack", {"transactionId": "t", "status": "completed"})
    assert reply.status == 200
    assert INSTANT.fullmatch(reply.json["acknowledgedAt"])
    expected = {"transactionId": "t", "status": "completed", "retryCount": 0}
    assert {key: reply.json[key] for key in expected} == expected
    again = await client.request("POST", "/api/v1/ack", {"transactionId": "t", "status": "completed"})
    assert (again.status, again.json["status"]) == (200, "completed")
    other = await client.request("POST", "/api/v1/ack", {"transactionId": "t", "status": "failed"})
    assert other.status == 409
    assert other.error


async def test_a_failed_message_comes_back_counted(client: Client) -> None:
    """R1."""
    await client.push("q", 1, transactionId="t")
    await client.pop("q")
    reply = await client.request("POST", "/api/v1/ack", {"transactionId": "t", "status": "failed", "error": "x"})
    assert (reply.json["status"], reply.json["retryCount"]) == ("retry_scheduled", 1)
    (message,) = await client.pop("q")
    assert (message["transactionId"], message["retryCount"]) == ("t", 1)


async def test_at_the_limit_a_failure_is_final(client: Client) -> None:
    """R2, R6."""
    for dead, status in ((False, "failed"), (True, "dead_letter")):
        queue = f"q-{status}"
        options = {"retryLimit": 0, "dlqAfterMaxRetries": dead}
        await client.request("POST", "/api/v1/configure", {"queue": queue, "options": options})
        (transaction,) = await client.push(queue, 1)
        await client.pop(queue)
        reply = await client.request("POST", "/api/v1/ack", {"transactionId": transaction, "status": "failed"})
        assert reply.json["status"] == status
        assert await client.pop(queue) == []


async def test_a_stale_lease_is_fenced(client: Client) -> None:
    """A4."""
    await client.push("q", 1, transactionId="t")
    await client.pop("q")
    stale = "018e63b7-6165-753f-88ae-56effa177605"
    body = {"transactionId": "t", "status": "completed", "leaseId": stale}
    assert (await client.request("POST", "/api/v1/ack", body)).status == 409


async def test_ack_of_what_is_not_there_and_of_what_was_never_leased(client: Client) -> None:
    """A4."""
    reply = await client.request("POST", "/api/v1/ack", {"transactionId": "nobody", "status": "completed"})
    assert reply.status == 404
    assert "nobody" in reply.error
    await client.push("q", 1, transactionId="t")
    reply = await client.request("POST", "/api/v1/ack", {"transactionId": "t", "status": "completed"})
    assert reply.status == 409


async def test_an_ack_batch_answers_in_order(client: Client) -> None:
    """A5."""
    await client.push("q", 1, transactionId="a")
    await client.push("q", 2, transactionId="b")
    await client.push("r", 3, transactionId="never leased")
    await client.pop("q", "batch=2")
    entries = [
        {"transactionId": "b", "status": "failed", "error": "boom"},
        {"transactionId": "unknown", "status": "completed"},
        {"transactionId": "a", "status": "completed"},
        {"transactionId": "never leased", "status": "completed"},
    ]
    reply = await client.request("POST", "/api/v1/ack/batch", {"acknowledgments": entries})
    assert reply.status == 200
    assert reply.json["processed"] == 2
    failed, unknown, completed, pending = reply.json["results"]
    assert failed == {"transactionId": "b", "status": "retry_scheduled", "retryCount": 1}
    assert completed["transactionId"] == "a"
    assert completed["status"] == "completed"
    assert (unknown["transactionId"], unknown["status"]) == ("unknown", "not_found")
    assert unknown["error"]
    assert (pending["status"], "retryCount" in pending) == ("conflict", False)


async def test_auto_ack_completes_at_delivery(client: Client) -> None:
    """O7."""
    await client.push("q", 1, 2)
    assert [message["data"] for message in await client.pop("q", "autoAck=true")] == [1]
    assert [message["data"] for message in await client.pop("q", "autoAck=1")] == [2]
    assert await client.pop("q") == []


async def test_a_lease_can_be_extended(client: Client) -> None:
    """L6, Z14."""
    await client.push("q", 1)
    (message,) = await client.pop("q")
    path = f"/api/v1/lease/{message['leaseId']}/extend"
    reply = await client.request("POST", path, {"seconds": 1000})
    assert reply.status == 200
    assert reply.json["leaseId"] == message["leaseId"]
    assert reply.json["leaseExpiresAt"] > message["leaseExpiresAt"]
    for body in (None, b"", b"{}", b'{"seconds": null}'):
        again = await client.request("POST", path, body)
        assert again.status == 200
    assert (await client.request("POST", "/api/v1/lease/unknown/extend", {"seconds": 5})).status == 404


async def test_configure_keeps_resets_and_answers_with_everything(client: Client) -> None:
    """C1, C2, C3."""
    everything = as_dict(DEFAULTS)
    reply = await client.request("POST", "/api/v1/configure", {"queue": "q", "partition": 7})
    assert reply.status == 200
    assert reply.json == {"queue": "q", "namespace": None, "task": None, "configured": True, "options": everything}
    first = {"queue": "q", "options": {"leaseTime": 600, "priority": -3}}
    reply = await client.request("POST", "/api/v1/configure", first)
    assert reply.json["options"] == everything | {"leaseTime": 600, "priority": -3}
    second = {"queue": "q", "options": {"leaseTime": None, "ordering": "relaxed"}, "namespace": "n", "task": None}
    reply = await client.request("POST", "/api/v1/configure", second)
    assert reply.json["options"] == everything | {"priority": -3, "ordering": "relaxed"}
    assert (reply.json["namespace"], reply.json["task"]) == ("n", None)


async def test_a_full_queue_is_429(client: Client) -> None:
    """P6."""
    await client.request("POST", "/api/v1/configure", {"queue": "full", "options": {"maxSize": 1}})
    await client.push("full", 1)
    reply = await client.request("POST", "/api/v1/push", {"items": [{"queue": "full"}]})
    assert reply.status == 429
    assert reply.headers["retry-after"] == "1"
    assert "full" in reply.error
    assert "1" in reply.error


async def test_health_has_the_pages_shape(server: Server, client: Client) -> None:
    await client.push("q", 1, 2)
    await server.connect()
    reply = await client.request("GET", "/health")
    assert reply.status == 200
    assert list(reply.json) == ["status", "uptime", "connections", "stats"]
    assert reply.json["status"] == "healthy"
    assert re.fullmatch(r"\d+s", reply.json["uptime"])
    assert reply.json["connections"] >= 1
    stats = reply.json["stats"]
    assert list(stats) == ["requests", "messages", "requestsPerSecond", "messagesPerSecond", "pool"]
    assert stats["requests"] >= 2
    assert stats["messages"] == 2
    assert re.fullmatch(r"\d+\.\d\d", stats["requestsPerSecond"])
    assert re.fullmatch(r"\d+\.\d\d", stats["messagesPerSecond"])
    assert all(isinstance(stats["pool"][key], int) for key in ("total", "idle", "waiting"))


async def test_groups_consume_on_their_own(client: Client) -> None:
    """G1."""
    await client.push("q", 1)
    for group in ("a", "b"):
        (message,) = await client.pop("q", f"consumerGroup={group}")
        assert message["consumerGroup"] == group
    assert await client.pop("q", "consumerGroup=a") == []
    assert await client.pop("q", "consumerGroup=late&subscriptionMode=new") == []


async def test_a_group_may_begin_at_an_instant(client: Client) -> None:
    """G2: what was pushed at or after it."""
    await client.push("q", 1)
    for group, start, expected in (
        ("past", "2020-01-01T00:00:00Z", [1]),
        ("past2", "2020-01-01T01:00:00%2B01:00", [1]),
        ("future", "2199-01-01T00:00:00.000Z", []),
        ("now", "now", []),
    ):
        messages = await client.pop("q", f"consumerGroup={group}&subscriptionFrom={start}")
        assert [message["data"] for message in messages] == expected, group
