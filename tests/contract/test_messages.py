"""Looking at messages and putting them right: the API page's section 6 with R3-R5, S1, S5, Z3, Z11 and Z13."""

import json
import re
from typing import Any

import pytest

from queen.options import DEFAULTS, as_dict
from tests.contract.client import Client

INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
FIELDS = [
    "id",
    "transactionId",
    "queuePath",
    "queue",
    "partition",
    "namespace",
    "task",
    "payload",
    "status",
    "workerId",
    "createdAt",
    "lockedAt",
    "completedAt",
    "failedAt",
    "errorMessage",
    "retryCount",
    "leaseExpiresAt",
]


async def listed(client: Client, query: str = "") -> list[dict[str, Any]]:
    reply = await client.request("GET", f"/api/v1/messages?{query}")
    assert reply.status == 200, reply
    messages: list[dict[str, Any]] = reply.json["messages"]
    return messages


async def got(client: Client, transaction_id: str) -> Any:
    reply = await client.request("GET", f"/api/v1/messages/{transaction_id}")
    assert reply.status == 200, reply
    return reply.json


async def ack(client: Client, transaction_id: str, status: str = "completed", **more: Any) -> None:
    body = {"transactionId": transaction_id, "status": status, **more}
    reply = await client.request("POST", "/api/v1/ack", body)
    assert reply.status == 200, reply


async def configure(client: Client, queue: str, **options: Any) -> None:
    assert (await client.request("POST", "/api/v1/configure", {"queue": queue, "options": options})).status == 200


async def one_of_each(client: Client, queue: str = "q", partition: str = "p") -> dict[str, str]:
    """A message in each status, by status."""
    await configure(client, queue, retryLimit=0, ordering="relaxed")
    names = ["completed", "failed", "dead_letter", "processing", "pending"]
    for name in names:
        await client.push(queue, {"is": name}, partition=partition, transactionId=f"{queue}-{name}")
    await client.pop(queue, "batch=4&workerId=w")
    for name in names[:3]:
        error = {} if name == "completed" else {"error": f"error of {name}"}
        await ack(client, f"{queue}-{name}", name, **error)
    return {name: f"{queue}-{name}" for name in names}


async def test_a_listed_message_has_the_pages_fields(client: Client) -> None:
    """6.1"""
    await client.push("emails", {"to": "a"}, partition="urgent", transactionId="t", namespace="n", task="k")
    (message,) = await listed(client)
    assert list(message) == FIELDS
    assert INSTANT.fullmatch(message["createdAt"])
    assert message == {
        "id": message["id"],
        "transactionId": "t",
        "queuePath": "emails/urgent",
        "queue": "emails",
        "partition": "urgent",
        "namespace": "n",
        "task": "k",
        "payload": {"to": "a"},
        "status": "pending",
        "createdAt": message["createdAt"],
        "retryCount": 0,
        **dict.fromkeys(
            ("workerId", "lockedAt", "completedAt", "failedAt", "errorMessage", "leaseExpiresAt"),
        ),
    }


async def test_each_status_shows_what_belongs_to_it(client: Client) -> None:
    """S1, 6.1: who has it and until when, how it ended and when."""
    ids = await one_of_each(client)
    leased = {"workerId", "lockedAt"}
    filled = {
        "pending": set(),
        "processing": leased | {"leaseExpiresAt"},
        "completed": leased | {"completedAt"},
        "failed": leased | {"failedAt", "errorMessage"},
        "dead_letter": leased | {"failedAt", "errorMessage"},
    }
    optional = {"workerId", "lockedAt", "completedAt", "failedAt", "errorMessage", "leaseExpiresAt"}
    for status, transaction_id in ids.items():
        message = await got(client, transaction_id)
        assert message["status"] == status
        assert {field for field in optional if message[field] is not None} == filled[status]
        assert message["payload"] == {"is": status}
        if status == "failed":
            assert message["errorMessage"] == "error of failed"
        if status != "pending":
            assert message["workerId"] == "w"
        assert await listed(client, f"status={status}") == [{field: message[field] for field in FIELDS}]


@pytest.mark.parametrize("status", ["failed", "dead_letter"])
@pytest.mark.parametrize(("length", "kept"), [(4096, "é" * 4096), (5_000_000, "é" * 4095 + "…")])
async def test_of_a_long_error_the_beginning_is_kept(client: Client, status: str, length: int, kept: str) -> None:
    """A1: it is written with its partition's state again and again; and the failure itself is never refused for it."""
    (name,) = await client.push("q", 1)
    await client.pop("q")
    body = {"transactionId": name, "status": status, "error": "é" * length}
    reply = await client.request("POST", "/api/v1/ack", json.dumps(body, ensure_ascii=False).encode())
    assert reply.status == 200
    assert (await got(client, name))["errorMessage"] == kept


async def test_a_single_message_has_the_options_of_its_queue(client: Client) -> None:
    """6.2, Z13, P7"""
    await configure(client, "q", leaseTime=7)
    await client.push("q", 1, transactionId="a/b", traceId="tr")
    message = await got(client, "a%2Fb")
    assert list(message)[: len(FIELDS)] == FIELDS
    assert message["options"] == {**as_dict(DEFAULTS), "leaseTime": 7}
    assert message["traceId"] == "tr"


async def test_a_message_that_failed_before_keeps_its_error_until_it_is_done(client: Client) -> None:
    """R1"""
    (name,) = await client.push("q", 1)
    await client.pop("q")
    await ack(client, name, "failed", error="boom")
    message = await got(client, name)
    assert (message["status"], message["retryCount"], message["errorMessage"]) == ("pending", 1, "boom")
    assert INSTANT.fullmatch(message["failedAt"])
    await client.pop("q")
    assert (await got(client, name))["errorMessage"] == "boom"
    await ack(client, name)
    message = await got(client, name)
    assert (message["status"], message["errorMessage"], message["failedAt"]) == ("completed", None, None)


async def test_lists_are_newest_first_and_in_pages(client: Client) -> None:
    """S5: over partitions and queues, whatever was pushed together."""
    names: list[str] = []
    for number in range(12):
        for queue, partition in (("a", "x"), ("a", "y"), ("b", "x")):
            names += await client.push(queue, *range(1 + number % 3), partition=partition)
    names.reverse()
    assert [message["transactionId"] for message in await listed(client)] == names
    for offset in range(0, len(names) + 3, 5):
        page = await listed(client, f"limit=5&offset={offset}")
        assert [message["transactionId"] for message in page] == names[offset : offset + 5]
        pending = await listed(client, f"limit=5&offset={offset}&status=pending")
        assert [message["transactionId"] for message in pending] == names[offset : offset + 5]


async def test_filters_go_together(client: Client) -> None:
    """6.1"""
    await client.push("a", 1, partition="x", transactionId="1", namespace="n", task="t")
    await client.push("a", 1, partition="y", transactionId="2")
    await client.push("b", 1, partition="x", transactionId="3", namespace="n", task="u")
    await client.push("c", 1, partition="x", transactionId="4")
    for query, expected in (
        ("queue=a", "21"),
        ("queue=a&partition=x", "1"),
        ("partition=x", "431"),
        ("namespace=n", "321"),
        ("task=u", "3"),
        ("namespace=n&task=t", "21"),
        ("namespace=n&partition=x&status=pending", "31"),
        ("status=failed", ""),
        ("queue=none", ""),
        ("queue=a&partition=none", ""),
    ):
        found = [message["transactionId"] for message in await listed(client, query)]
        assert found == list(expected), query


@pytest.mark.parametrize("where", ["limit=0", "limit=1001", "limit=x", "offset=-1", "offset=x", "status=none"])
async def test_what_a_list_refuses(client: Client, where: str) -> None:
    """S5, Z7"""
    reply = await client.request("GET", f"/api/v1/messages?{where}")
    assert reply.status == 400
    assert reply.error.startswith(where.split("=")[0] + ":")


@pytest.mark.parametrize("status", ["pending", "processing", "completed", "failed", "dead_letter"])
async def test_a_deleted_message_is_gone_for_everybody(client: Client, status: str) -> None:
    """6.3, R5, Z5: in whatever status; an ack of it is 404, its transactionId is free again."""
    name = (await one_of_each(client))[status]
    reply = await client.request("DELETE", f"/api/v1/messages/{name}")
    assert (reply.status, reply.json) == (200, {"deleted": True, "transactionId": name})
    assert (await client.request("GET", f"/api/v1/messages/{name}")).status == 404
    assert name not in [message["transactionId"] for message in await listed(client)]
    assert await listed(client, f"status={status}") == []
    assert (await client.request("DELETE", f"/api/v1/messages/{name}")).status == 404
    reply = await client.request("POST", "/api/v1/ack", {"transactionId": name, "status": "completed"})
    assert reply.status == 404
    reply = await client.request("POST", "/api/v1/push", {"items": [{"queue": "q", "transactionId": name}]})
    assert reply.json["messages"][0]["status"] == "queued"


@pytest.mark.parametrize(
    ("status", "retried", "buried"),
    [
        ("pending", 409, 409),
        ("processing", 409, 409),
        ("completed", 409, 409),
        ("failed", 200, 200),
        ("dead_letter", 200, 200),
    ],
)
async def test_retry_and_dlq(client: Client, status: str, retried: int, buried: int) -> None:
    """6.4, 6.5, R3, R4, Z3"""
    name = (await one_of_each(client))[status]
    reply = await client.request("POST", f"/api/v1/messages/{name}/dlq")
    assert reply.status == buried
    if buried == 200:
        assert reply.json == {"movedToDLQ": True, "transactionId": name}
        message = await got(client, name)
        assert (message["status"], message["errorMessage"]) == ("dead_letter", f"error of {status}")
        assert len(await listed(client, "status=failed")) == (0 if status == "failed" else 1)
    reply = await client.request("POST", f"/api/v1/messages/{name}/retry")
    assert reply.status == retried
    if retried == 200:
        assert reply.json == {"retried": True, "transactionId": name}
        assert name in [message["transactionId"] for message in await listed(client, "status=pending")]
        assert name not in [message["transactionId"] for message in await listed(client, "status=dead_letter")]
        assert (await client.pop("q"))[0]["transactionId"] == name


@pytest.mark.parametrize(
    ("method", "path"), [("GET", ""), ("DELETE", ""), ("POST", "/retry"), ("POST", "/dlq"), ("GET", "/related")]
)
async def test_an_unknown_message_is_404_everywhere(client: Client, method: str, path: str) -> None:
    """Z11"""
    reply = await client.request(method, f"/api/v1/messages/none{path}")
    assert reply.status == 404
    assert "none" in reply.error


async def test_related_messages_are_those_of_the_partition(client: Client) -> None:
    """6.6, Z13: without itself, newest first."""
    names = await client.push("q", *range(5), partition="p")
    await client.push("q", 9, partition="other")
    await client.request("DELETE", f"/api/v1/messages/{names[1]}")
    reply = await client.request("GET", f"/api/v1/messages/{names[2]}/related")
    assert reply.status == 200
    assert [message["transactionId"] for message in reply.json["messages"]] == [names[4], names[3], names[0]]
    assert list(reply.json["messages"][0]) == ["transactionId", "status", "createdAt", "payload"]
    assert reply.json["messages"][0]["payload"] == 4
    reply = await client.request("GET", f"/api/v1/messages/{names[2]}/related?limit=1&offset=1")
    assert [message["transactionId"] for message in reply.json["messages"]] == [names[3]]


async def test_clear_empties_a_partition_or_the_queue(client: Client) -> None:
    """6.7: whatever their status; the answer counts them."""
    await one_of_each(client)
    await client.push("q", 1, 2, partition="other")
    await client.push("r", 1)
    reply = await client.request("DELETE", "/api/v1/queues/q/clear?partition=other")
    assert (reply.status, reply.json) == (200, {"cleared": True, "count": 2, "queue": "q", "partition": "other"})
    reply = await client.request("DELETE", "/api/v1/queues/q/clear")
    assert reply.json == {"cleared": True, "count": 5, "queue": "q", "partition": "all"}
    reply = await client.request("DELETE", "/api/v1/queues/q/clear")
    assert reply.json["count"] == 0
    assert [message["queue"] for message in await listed(client)] == ["r"]
    assert await client.pop("q") == []


@pytest.mark.parametrize("path", ["none/clear", "q/clear?partition=none"])
async def test_clearing_what_is_not_there_is_404(client: Client, path: str) -> None:
    """Z11"""
    await client.push("q", 1)
    assert (await client.request("DELETE", f"/api/v1/queues/{path}")).status == 404
    assert len(await listed(client)) == 1
