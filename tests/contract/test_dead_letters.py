"""`GET /api/v1/dlq` and `DELETE /api/v1/resources/queues/:queue` (ours): R2, R4, G1, S5, Z11."""

from typing import Any

import pytest

from tests.contract.client import Client
from tests.contract.conftest import running
from tests.contract.test_messages import FIELDS, ack, configure, listed


async def bury(client: Client, queue: str, *names: str, group: str | None = None, **push: Any) -> None:
    """Push messages and make dead letters of them."""
    await configure(client, queue, ordering="relaxed")
    for name in names:
        await client.push(queue, name, transactionId=name, **push)
    await client.pop(queue, f"batch=100&partitions=100{f'&consumerGroup={group}' if group else ''}")
    for name in names:
        await ack(client, name, "dead_letter", error=f"of {name}", **({"consumerGroup": group} if group else {}))


async def dlq(client: Client, query: str = "") -> tuple[str, int]:
    """Payloads and total."""
    reply = await client.request("GET", f"/api/v1/dlq?{query}")
    assert reply.status == 200, reply
    assert list(reply.json) == ["messages", "total"]
    return "".join(message["payload"] for message in reply.json["messages"]), reply.json["total"]


async def test_dead_letters_are_listed_newest_first_with_their_total(client: Client) -> None:
    """S5"""
    assert await dlq(client) == ("", 0)
    await bury(client, "q", "a", "b", "c", partition="x")
    await bury(client, "r", "d")
    await bury(client, "q", "e", partition="y")
    await client.push("q", "pending")
    assert await dlq(client) == ("edcba", 5)
    assert await dlq(client, "queue=q") == ("ecba", 4)
    assert await dlq(client, "queue=none") == ("", 0)
    assert await dlq(client, "limit=2&offset=1") == ("dc", 5)
    assert await dlq(client, "offset=9") == ("", 5)
    reply = await client.request("GET", "/api/v1/dlq?queue=r")
    (message,) = reply.json["messages"]
    assert list(message) == FIELDS
    assert (message["status"], message["errorMessage"]) == ("dead_letter", "of d")
    assert [message] == await listed(client, "queue=r&status=dead_letter")


async def test_each_group_has_its_own(client: Client) -> None:
    """G1, R3: and a message in it can be tried again there."""
    await bury(client, "q", "a", "b")
    await bury(client, "q", "c", "d", group="g")
    await bury(client, "r", "e", group="h")
    await bury(client, "r", "f", group="g")
    assert await dlq(client) == ("ba", 2)
    assert await dlq(client, "consumerGroup=g") == ("fdc", 3)
    assert await dlq(client, "consumerGroup=g&limit=1&offset=1") == ("d", 3)
    assert await dlq(client, "consumerGroup=g&queue=r") == ("f", 1)
    assert await dlq(client, "consumerGroup=none") == ("", 0)
    assert (await client.request("POST", "/api/v1/messages/d/retry")).status == 409
    assert (await client.request("POST", "/api/v1/messages/d/retry?consumerGroup=g")).status == 200
    assert await dlq(client, "consumerGroup=g&queue=q") == ("c", 1)
    assert [message["transactionId"] for message in await client.pop("q", "consumerGroup=g")] == ["d"]


@pytest.mark.parametrize("where", ["limit=0", "limit=1001", "offset=-1", "queue=", "consumerGroup="])
async def test_what_the_dlq_refuses(client: Client, where: str) -> None:
    """S5, Z7"""
    reply = await client.request("GET", f"/api/v1/dlq?{where}")
    assert reply.status == 400
    assert reply.error.startswith(where.split("=")[0] + ":")


async def test_what_left_the_dlq_is_not_listed(client: Client) -> None:
    """R3, R5"""
    await bury(client, "q", "a", "b", "c", "d")
    await client.request("POST", "/api/v1/messages/b/retry")
    await client.request("DELETE", "/api/v1/messages/c")
    assert await dlq(client) == ("da", 2)
    assert len(await client.pop("q", "autoAck=true")) == 1
    assert await dlq(client) == ("da", 2)
    await client.request("DELETE", "/api/v1/queues/q/clear")
    assert await dlq(client) == ("", 0)


async def test_a_deleted_queue_is_gone_and_another_one_knows_nothing_of_it(client: Client) -> None:
    """Options, groups, messages, leases, transactionIds (Z5)."""
    await configure(client, "q", leaseTime=7, maxSize=2)
    await client.push("q", "a", "b", transactionId=None)
    await client.push("r", "mine", transactionId="kept")
    (leased,) = await client.pop("q", "consumerGroup=g")
    reply = await client.request("DELETE", "/api/v1/resources/queues/q")
    assert (reply.status, reply.json) == (200, {"deleted": True, "queue": "q"})
    assert (await client.request("DELETE", "/api/v1/resources/queues/q")).status == 404
    assert await client.pop("q") == []
    assert [message["transactionId"] for message in await listed(client)] == ["kept"]
    body = {"transactionId": leased["transactionId"], "status": "completed", "consumerGroup": "g"}
    assert (await client.request("POST", "/api/v1/ack", body)).status == 404
    assert (await client.request("POST", f"/api/v1/lease/{leased['leaseId']}/extend")).status == 404
    assert (await client.request("DELETE", "/api/v1/queues/q/clear")).status == 404

    await client.push("q", "new", transactionId=leased["transactionId"])
    await client.push("q", *range(5))
    (message,) = await client.pop("q", "consumerGroup=g")
    assert (message["data"], message["options"]["leaseTime"]) == ("new", 300)
    assert len(await listed(client, "queue=q")) == 6


async def test_a_deleted_queue_stays_deleted_after_a_restart(tmp_path: Any) -> None:
    """And its name serves another one, whose messages stay."""
    async with running(tmp_path) as server:
        client = await server.connect()
        await client.push("q", "old", partition="p")
        await client.pop("q", "consumerGroup=g")
        await client.request("DELETE", "/api/v1/resources/queues/q")
        await client.push("q", "new", partition="p")
    async with running(tmp_path) as server:
        client = await server.connect()
        assert [message["payload"] for message in await listed(client)] == ["new"]
        assert [message["data"] for message in await client.pop("q", "consumerGroup=g&batch=9")] == ["new"]
