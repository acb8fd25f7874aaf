"""`POST /api/v1/transaction`: pushes and acknowledgements, all in one commit or nothing of them (P1, A3-A5)."""

from typing import Any

import pytest

from tests.contract.client import Client
from tests.contract.reply import Reply
from tests.contract.test_messages import got, listed


async def transact(client: Client, *operations: object) -> Reply:
    return await client.request("POST", "/api/v1/transaction", {"operations": operations})


def push(*items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "push", "items": list(items)}


def ack(transaction_id: str, status: str = "completed", **more: Any) -> dict[str, Any]:
    return {"type": "ack", "transactionId": transaction_id, "status": status, **more}


async def popped(client: Client, count: int = 2, **fields: Any) -> list[dict[str, Any]]:
    """Messages of the queue `in` that are being processed."""
    await client.push("in", *range(count), **fields)
    return await client.pop("in", f"batch={count}")


async def test_consume_process_produce(client: Client) -> None:
    """In the order asked for; each result has the form of its own route."""
    first, second = await popped(client)
    reply = await transact(
        client,
        ack(first["transactionId"], leaseId=first["leaseId"]),
        push({"queue": "out", "payload": "a", "transactionId": "a"}, {"queue": "more", "payload": "b"}),
        ack(second["transactionId"], "failed", error="no"),
        push({"queue": "out", "payload": "c", "transactionId": "a"}),
    )
    assert reply.status == 200
    assert list(reply.json) == ["success", "results"]
    assert reply.json["success"] is True
    acked, pushed, failed, again = reply.json["results"]
    assert acked == {
        "type": "ack",
        "transactionId": first["transactionId"],
        "status": "completed",
        "retryCount": 0,
    }
    assert failed == {
        "type": "ack",
        "transactionId": second["transactionId"],
        "status": "retry_scheduled",
        "retryCount": 1,
    }
    assert [message["status"] for message in pushed["messages"]] == ["queued", "queued"]
    assert list(pushed["messages"][0]) == ["id", "transactionId", "status"]
    assert again == {"type": "push", "messages": [{**pushed["messages"][0], "status": "duplicate"}]}
    assert [message["data"] for message in await client.pop("out", "batch=9")] == ["a"]
    assert (await got(client, first["transactionId"]))["status"] == "completed"


async def test_the_same_transaction_again_changes_nothing(client: Client) -> None:
    """P4, A3: a client that lost the answer repeats it."""
    (message,) = await popped(client, 1)
    operations = (ack(message["transactionId"]), push({"queue": "out", "transactionId": "o"}))
    first = await transact(client, *operations)
    again = await transact(client, *operations)
    assert again.json["success"] is True
    assert again.json["results"][0] == first.json["results"][0]
    assert again.json["results"][1]["messages"][0]["status"] == "duplicate"
    assert len(await listed(client, "queue=out")) == 1


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        (ack("none"), "not_found"),
        (ack("pending"), "conflict"),
        (ack("done", "failed"), "conflict"),
        (ack("leased", leaseId="018e63b7-6165-753f-88ae-56effa177605"), "conflict"),
        (ack("leased", consumerGroup="none"), "conflict"),
        (ack("pushed here"), "not_found"),
    ],
)
async def test_one_refusal_undoes_all(client: Client, refused: dict[str, Any], reason: str) -> None:
    """A4, A5: 200, and nothing of it was done, whatever stands before and behind."""
    await client.push("in", 1, transactionId="done", partition="d")
    await client.pop("in", "autoAck=true")
    assert (await client.request("POST", "/api/v1/ack", ack("done"))).status in (200, 409)
    await client.push("in", 1, transactionId="leased", partition="l")
    await client.pop("in")
    await client.push("in", 1, transactionId="pending", partition="p")
    reply = await transact(
        client,
        ack("leased"),
        push({"queue": "in", "partition": "p"}, {"queue": "out", "transactionId": "pushed here"}),
        refused,
        ack("leased"),
    )
    assert reply.status == 200
    assert list(reply.json) == ["success", "error", "reason", "failedIndex"]
    assert (reply.json["success"], reply.json["failedIndex"], reply.json["reason"]) == (False, 2, reason)
    assert reply.json["error"].startswith("operations[2]: ")
    assert (await got(client, "leased"))["status"] == "processing"
    assert len(await listed(client, "queue=in")) == 3
    assert await listed(client, "queue=out") == []


async def test_a_full_queue_refuses_all(client: Client) -> None:
    """P6: 429 as for a push."""
    (message,) = await popped(client, 1)
    await client.request("POST", "/api/v1/configure", {"queue": "out", "options": {"maxSize": 1}})
    reply = await transact(
        client, ack(message["transactionId"]), push({"queue": "out"}, {"queue": "out", "partition": "p"})
    )
    assert reply.status == 429
    assert reply.headers["retry-after"] == "1"
    assert (await got(client, message["transactionId"]))["status"] == "processing"
    assert await listed(client, "queue=out") == []


@pytest.mark.parametrize(
    ("operations", "where"),
    [
        ([], "operations"),
        ([{"type": "pop"}], "operations[0].type"),
        ([{"items": []}], "operations[0].type"),
        ([{"type": "push", "items": []}], "operations[0].items"),
        ([push({"queue": "q"}), push({"queue": ""})], "operations[1].items[0].queue"),
        ([push({"queue": "q"}, {"queue": 5})], "operations[0].items[1].queue"),
        ([ack("a", "done")], "operations[0].status"),
        ([ack("")], "operations[0].transactionId"),
        ([ack("a", leaseId="")], "operations[0].leaseId"),
        ([{"type": "ack", "status": "completed"}], "operations[0].transactionId"),
        ([push(*[{"queue": "q"}] * 999), ack("a"), ack("b")], "operations"),
        ([5], "operations[0]"),
        ("x", "operations"),
    ],
)
async def test_what_is_malformed(client: Client, operations: object, where: str) -> None:
    """400, naming the place; nothing is stored."""
    reply = await client.request("POST", "/api/v1/transaction", {"operations": operations})
    assert reply.status == 400
    assert reply.error.startswith(f"{where}:"), reply.error
    assert await listed(client) == []


async def test_a_refused_push_leaves_at_most_empty_queues(client: Client) -> None:
    """P1: of messages, all or none; queues and partitions are made ahead, as the manual and OpenAPI say."""
    await client.request("POST", "/api/v1/configure", {"queue": "full", "options": {"maxSize": 1}})
    await client.push("full", 1)
    items = [{"queue": "new", "transactionId": "a"}, {"queue": "full", "transactionId": "b"}]
    for reply in (
        await transact(client, push(*items)),
        await client.request("POST", "/api/v1/push", {"items": items}),
    ):
        assert reply.status == 429
    assert await listed(client, "queue=new") == []
    assert len(await listed(client, "queue=full")) == 1
    paths = (await client.request("GET", "/openapi.json")).json["paths"]
    for route in ("push", "transaction"):
        assert "empty" in paths[f"/api/v1/{route}"]["post"]["description"]
