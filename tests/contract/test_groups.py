"""Consumer groups: how far they have got, forgetting them, moving them (G1-G3, Z11, Z14, Z15)."""

from typing import Any

import pytest

from tests.contract.client import Client
from tests.contract.test_messages import ack, configure


async def groups(client: Client, query: str = "") -> dict[str | None, dict[str, dict[str, Any]]]:
    """What is told of each group, by group and queue."""
    reply = await client.request("GET", f"/api/v1/consumer-groups?{query}")
    assert reply.status == 200, reply
    assert list(reply.json) == ["groups"]
    for group in reply.json["groups"]:
        assert list(group) == ["consumerGroup", "queues", "lag"]
        assert group["lag"]["messages"] == sum(queue["lag"]["messages"] for queue in group["queues"])
        assert group["lag"]["seconds"] == max(queue["lag"]["seconds"] for queue in group["queues"])
    names = [group["consumerGroup"] for group in reply.json["groups"]]
    assert names == sorted(names, key=lambda name: (name is not None, name or ""))
    return {
        group["consumerGroup"]: {queue["queue"]: queue for queue in group["queues"]} for group in reply.json["groups"]
    }


async def seek(client: Client, group: str, queue: str, body: object) -> Any:
    return await client.request("POST", f"/api/v1/consumer-groups/{group}/queues/{queue}/seek", body)


async def test_groups_tell_their_places_and_their_lag(client: Client) -> None:
    """G1: of each queue that they have met."""
    assert await groups(client) == {}
    await client.push("q", 1, 2, 3, partition="a")
    await client.push("q", 4, 5, partition="b")
    await client.push("r", 6)
    (first,) = await client.pop("q", "consumerGroup=g")
    await ack(client, first["transactionId"], consumerGroup="g")
    await client.pop("q", "consumerGroup=g")
    found = await groups(client)
    assert {group: list(queues) for group, queues in found.items()} == {None: ["q", "r"], "g": ["q"]}
    place = found["g"]["q"]
    assert list(place) == ["queue", "position", "end", "lag"]
    assert (place["position"], place["end"]) == (2, 5)
    seconds = place["lag"].pop("seconds")
    assert 0 < seconds < 20
    assert place["lag"] == {"messages": 4, "pending": 3, "processing": 1}
    default = found[None]["q"]
    assert (default["position"], default["end"], default["lag"]["messages"]) == (0, 5, 5)
    assert list(await groups(client, "queue=r")) == [None]
    assert await groups(client, "queue=none") == {}


async def test_a_group_without_anything_to_do_does_not_lag(client: Client) -> None:
    """G1, G2"""
    await client.push("q", 1)
    assert await client.pop("q", "consumerGroup=new&subscriptionMode=new") == []
    await client.pop("q", "autoAck=true")
    found = await groups(client)
    for name in (None, "new"):
        place = found[name]["q"]
        assert (place["position"], place["end"]) == (1, 1)
        assert place["lag"] == {"messages": 0, "pending": 0, "processing": 0, "seconds": 0}


async def test_a_deleted_group_starts_anew(client: Client) -> None:
    """G2: its leases end; the queue's other groups know nothing of it."""
    await client.push("q", 1, 2)
    await client.push("r", 3)
    (message,) = await client.pop("q", "consumerGroup=g")
    await client.pop("r", "consumerGroup=g")
    await client.pop("q", "consumerGroup=other")
    await ack(client, message["transactionId"], consumerGroup="g")
    (leased,) = await client.pop("q", "consumerGroup=g")
    reply = await client.request("DELETE", "/api/v1/consumer-groups/g?queue=q")
    assert (reply.status, reply.json) == (200, {"deleted": True, "consumerGroup": "g", "queues": ["q"]})
    assert {group: list(queues) for group, queues in (await groups(client)).items()} == {
        None: ["q", "r"],
        "g": ["r"],
        "other": ["q"],
    }
    body = {"transactionId": leased["transactionId"], "status": "completed", "consumerGroup": "g"}
    assert (await client.request("POST", "/api/v1/ack", body)).status == 409
    assert (await client.request("POST", f"/api/v1/lease/{leased['leaseId']}/extend")).status == 404
    assert [found["data"] for found in await client.pop("q", "consumerGroup=g&batch=9")] == [1, 2]
    assert (await client.request("POST", "/api/v1/ack", body)).status == 200
    reply = await client.request("DELETE", "/api/v1/consumer-groups/g")
    assert sorted(reply.json["queues"]) == ["q", "r"]
    assert (await client.request("DELETE", "/api/v1/consumer-groups/g")).status == 404
    assert (await client.request("DELETE", "/api/v1/consumer-groups/other?queue=r")).status == 404


async def test_seeking_moves_a_group_and_no_other(client: Client) -> None:
    """G3, Z14, Z15: leases it holds are released; what is delivered again may have been completed."""
    await configure(client, "q", ordering="relaxed")
    await client.push("q", 1, 2, partition="a")
    await client.push("q", 3, partition="b")
    for name in ("g", "h"):
        (message,) = await client.pop("q", f"consumerGroup={name}")
        await ack(client, message["transactionId"], consumerGroup=name)
    (leased,) = await client.pop("q", "consumerGroup=g")
    reply = await seek(client, "g", "q", {"toEnd": True})
    assert (reply.status, reply.json) == (200, {"moved": True, "consumerGroup": "g", "queue": "q", "position": 3})
    assert (await client.request("POST", f"/api/v1/lease/{leased['leaseId']}/extend")).status == 404
    assert await client.pop("q", "consumerGroup=g") == []
    assert (await groups(client))["g"]["q"]["lag"]["messages"] == 0
    reply = await seek(client, "g", "q", {"timestamp": "2020-01-01T00:00:00Z"})
    assert reply.json["position"] == 0
    query = "consumerGroup={}&batch=9&partitions=9"
    assert sorted(found["data"] for found in await client.pop("q", query.format("g"))) == [1, 2, 3]
    assert sorted(found["data"] for found in await client.pop("q", query.format("h"))) == [2, 3]


async def test_seeking_by_time_begins_with_what_was_pushed_then(client: Client) -> None:
    """G3: at or after it."""
    moments = []
    for number in range(4):
        (name,) = await client.push("q", number)
        message = (await client.request("GET", f"/api/v1/messages/{name}")).json
        moments.append(message["createdAt"])
        while (await client.request("GET", "/health")).status == 200:
            (other,) = await client.push("clock", 1)
            if (await client.request("GET", f"/api/v1/messages/{other}")).json["createdAt"] > moments[-1]:
                break
    assert len(await client.pop("q", "consumerGroup=g&batch=9&autoAck=true")) == 4
    # A time is shown cut off to the millisecond, so what was pushed then was pushed at it or after it.
    assert (await seek(client, "g", "q", {"timestamp": moments[2]})).json["position"] == 2
    assert [found["data"] for found in await client.pop("q", "consumerGroup=g&batch=9")] == [2, 3]


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({}, "timestamp"),
        ({"toEnd": False}, "timestamp"),
        ({"timestamp": "never"}, "timestamp"),
        ({"timestamp": "0001-01-01T00:00:00+00:01"}, "timestamp"),
        ({"timestamp": "9999-12-31T23:59:59-14:00"}, "timestamp"),
        ({"timestamp": 5}, "timestamp"),
        ({"timestamp": "2020-01-01", "toEnd": True}, "toEnd"),
        ({"toEnd": "yes"}, "toEnd"),
    ],
)
async def test_what_a_seek_refuses(client: Client, body: object, where: str) -> None:
    """W4: every 400 names its place."""
    await client.push("q", 1)
    await client.pop("q", "consumerGroup=g")
    reply = await seek(client, "g", "q", body)
    assert reply.status == 400
    assert reply.error.startswith(f"{where}:")


async def test_unknown_queues_and_groups(client: Client) -> None:
    """Z11"""
    await client.push("q", 1)
    await client.pop("q", "consumerGroup=g")
    assert (await seek(client, "g", "none", {"toEnd": True})).status == 404
    assert (await seek(client, "none", "q", {"toEnd": True})).status == 404
    assert (await client.request("DELETE", "/api/v1/consumer-groups/none")).status == 404
