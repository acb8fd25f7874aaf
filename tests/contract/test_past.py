"""History, `?at=…` and `explain/pop` over HTTP: the past as the audit tells it, and why nothing is delivered."""

from typing import Any
from urllib.parse import quote

import pytest

from tests.contract.client import Client


async def get(client: Client, path: str) -> Any:
    reply = await client.request("GET", f"/api/v1/{path}")
    assert reply.status == 200, reply
    return reply.json


async def pop(client: Client, query: str = "") -> list[dict[str, Any]]:
    reply = await client.request("GET", f"/api/v1/pop/queue/orders{query}", headers={"Queen-Worker": "till 3"})
    return list(reply.json["messages"]) if reply.status == 200 else []


@pytest.fixture
async def orders(client: Client) -> Client:
    """order-0 failed once and is done, order-1 is leased, order-2 waits; b-0 stands alone in its partition."""
    await client.request("POST", "/api/v1/configure", {"queue": "orders", "namespace": "shop", "task": "sell"})
    body = {"items": [{"queue": "orders", "payload": {"n": n}, "transactionId": f"order-{n}"} for n in range(3)]}
    await client.request("POST", "/api/v1/push", body)
    for status in ("failed", "completed"):
        (message,) = await pop(client)
        ack = {"transactionId": message["transactionId"], "status": status, "leaseId": message["leaseId"]}
        await client.request("POST", "/api/v1/ack", ack | ({"error": "card refused"} if status == "failed" else {}))
    await pop(client)
    return client


async def test_the_life_of_a_message(orders: Client) -> None:
    told = await get(orders, "messages/order-0/history")
    assert told["transactionId"] == "order-0"
    (life,) = told["messages"]
    assert (life["queue"], life["partition"], life["position"], life["payload"]) == ("orders", "Default", 1, {"n": 0})
    steps = life["steps"]
    assert [step["type"] for step in steps] == ["pushed", "leased", "returned", "leased", "completed"]
    assert steps[1]["worker"] == "till 3"
    assert steps[2]["error"] == "card refused"
    assert steps[2]["retryCount"] == 1
    assert all(step["who"] == "127.0.0.1" and step["request"] for step in steps)
    assert [(each["group"], each["status"]) for each in life["status"]] == [(None, "completed")]
    assert life["deleted"] is None


async def test_a_deleted_message_has_a_tombstone_and_its_name_a_new_life(orders: Client) -> None:
    """R5, Z5."""
    await orders.request("DELETE", "/api/v1/messages/order-2")
    await orders.push("orders", "again", transactionId="order-2")
    first, second = (await get(orders, "messages/order-2/history"))["messages"]
    assert first["payload"] is None
    assert first["deleted"]["who"] == "127.0.0.1"
    assert first["status"][0]["status"] == "deleted"
    assert (second["payload"], second["position"], second["deleted"]) == ("again", 4, None)


async def test_a_message_that_never_was(orders: Client) -> None:
    assert (await orders.request("GET", "/api/v1/messages/never/history")).status == 404


async def test_resources_as_they_were(orders: Client) -> None:
    """Each route says at the last record what it says now, and at an earlier one what it said then."""
    steps = (await get(orders, "messages/order-0/history"))["messages"][0]["steps"]
    pushed = quote(f"#{steps[0]['seq']}")
    for path in ("queues", "queues/orders", "partitions", "namespaces", "tasks", "overview"):
        now, then = await get(orders, f"resources/{path}"), await get(orders, f"resources/{path}?at=now")
        if path == "overview":
            assert now.pop("timestamp") <= then.pop("timestamp")
        assert then == now
        assert await get(orders, f"resources/{path}?at={pushed}") != now
    assert (await get(orders, f"resources/queues/orders?at={pushed}"))["totals"]["pending"] == 3
    assert (await get(orders, f"resources/partitions?queue=orders&minDepth=3&at={pushed}"))["partitions"]
    assert (await get(orders, "resources/queues?at=2020-01-01")) == {"queues": []}
    overview = await get(orders, f"resources/overview?at={quote(steps[1]['at'])}")
    assert overview["timestamp"] == steps[1]["at"]


@pytest.mark.parametrize("at", ["soon", "", "5m"])
async def test_what_is_no_time(orders: Client, at: str) -> None:
    for path in ("queues", "queues/orders", "overview"):
        reply = await orders.request("GET", f"/api/v1/resources/{path}?at={at}")
        assert reply.status == 400
        assert reply.json["error"].startswith("at: must be an ISO 8601 time")


@pytest.mark.parametrize(
    ("at", "why"), [("%23999999", "there is no record 999999; the last one is "), ("2999-01-01", "lies in the future")]
)
async def test_what_is_yet_to_come(orders: Client, at: str, why: str) -> None:
    for path in ("queues", "queues/orders", "overview"):
        reply = await orders.request("GET", f"/api/v1/resources/{path}?at={at}")
        assert (reply.status, reply.error.startswith(f"at: {why}")) == (400, True), reply


async def test_a_queue_that_was_not_there_then(orders: Client) -> None:
    assert (await orders.request("GET", "/api/v1/resources/queues/orders?at=2020-01-01")).status == 404


async def test_why_nothing_is_delivered(orders: Client) -> None:
    """L1, L3: the cause is that of the 204's header, with all that is behind it."""
    reply = await orders.request("GET", "/api/v1/pop/queue/orders")
    assert (reply.status, reply.headers["queen-blocked"]) == (204, "leased")
    told = await get(orders, "explain/pop?queue=orders")
    assert (told["queue"], told["consumerGroup"], told["groupKnown"], told["total"]) == ("orders", None, True, 1)
    (line,) = told["partitions"]
    assert (line["partition"], line["wouldDeliver"], line["cause"]) == ("Default", False, "leased")
    assert (line["pending"], line["processing"]) == (1, 1)
    (lease,) = line["leases"]
    assert (lease["workerId"], lease["messages"], lease["leaseExpiresAt"]) == ("till 3", 1, line["until"])
    assert line["because"].startswith("1 message is leased until ")
    assert "in strict order nothing else is delivered meanwhile" in line["because"]


async def test_every_cause(client: Client) -> None:
    """T2, T3, R1, and what is ready or empty; each as a pop then finds it."""
    settings: dict[str, dict[str, Any]] = {
        "ready": {},
        "delayed": {"delayedProcessing": 60},
        "buffered": {"windowBuffer": 60},
        "retry": {"retryDelay": 60_000},
    }
    for queue, options in settings.items():
        await client.request("POST", "/api/v1/configure", {"queue": queue, "options": options})
        await client.push(queue, 1)
    (message,) = (await client.request("GET", "/api/v1/pop/queue/retry")).json["messages"]
    body = {"transactionId": message["transactionId"], "status": "failed"}
    await client.request("POST", "/api/v1/ack", body)
    for queue in settings:
        (line,) = (await get(client, f"explain/pop?queue={queue}"))["partitions"]
        assert line["cause"] == queue
        assert line["wouldDeliver"] is (queue == "ready")
        assert (line["until"] is None) is (queue == "ready")
        reply = await client.request("GET", f"/api/v1/pop/queue/{queue}")
        assert reply.headers.get("queen-blocked", "ready") == queue
    (line,) = (await get(client, "explain/pop?queue=ready&consumerGroup=late"))["partitions"]
    assert line["cause"] == "ready"
    assert (await get(client, "explain/pop?queue=ready"))["partitions"][0]["cause"] == "leased"
    await client.request("POST", "/api/v1/configure", {"queue": "bare"})
    assert (await get(client, "explain/pop?queue=bare"))["partitions"][0]["cause"] == "empty"


async def test_an_explanation_has_pages_and_filters(client: Client) -> None:
    for number in range(5):
        await client.push("many", number, partition=f"p{number}")
    told = await get(client, "explain/pop?queue=many&limit=2&offset=1")
    assert told["total"] == 6
    assert [line["partition"] for line in told["partitions"]] == ["p1", "p2"]
    told = await get(client, "explain/pop?queue=many")
    assert told["partitions"][-1]["partition"] == "Default"
    told = await get(client, "explain/pop?queue=many&partition=p3&consumerGroup=new")
    assert [line["partition"] for line in told["partitions"]] == ["p3"]
    assert told["groupKnown"] is False


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("", 400),
        ("?queue=", 400),
        ("?queue=never", 404),
        ("?queue=orders&partition=never", 404),
        ("?queue=orders&limit=0", 400),
        ("?queue=orders&offset=-1", 400),
        ("?queue=orders&consumerGroup=", 400),
    ],
)
async def test_what_can_not_be_explained(orders: Client, query: str, status: int) -> None:
    assert (await orders.request("GET", f"/api/v1/explain/pop{query}")).status == status
