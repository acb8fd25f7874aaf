"""T1-T5 over HTTP: a glance at each option that time drives, all at once, since it is the real clock. How exact they
are is tested in simulated time (tests/actors/test_options.py).
"""

from typing import Any

import trio

from tests.contract.client import Client
from tests.contract.conftest import Server

OPTIONS: dict[str, dict[str, Any]] = {
    "ttl": {"ttl": 1, "dlqAfterMaxRetries": True},
    "delayed": {"delayedProcessing": 1},
    "buffered": {"windowBuffer": 1},
    "kept": {"retentionEnabled": True, "retentionSeconds": 1},
    "settled": {"retentionEnabled": True, "completedRetentionSeconds": 1},
    "changed": {"delayedProcessing": 3600},
}


async def configured(client: Client, queue: str, options: dict[str, Any]) -> None:
    reply = await client.request("POST", "/api/v1/configure", {"queue": queue, "options": options})
    assert reply.status == 200
    assert reply.json["options"].items() >= options.items()


async def state(client: Client, transaction_id: str) -> str | int:
    """The message's status, or 404."""
    reply = await client.request("GET", f"/api/v1/messages/{transaction_id}")
    return str(reply.json["status"]) if reply.status == 200 else reply.status


async def test_a_second_of_each(server: Server) -> None:
    """T1 to T5."""
    client = await server.connect()
    ids = {}
    for queue, options in OPTIONS.items():
        await configured(client, queue, options)
        (ids[queue],) = await client.push(queue, queue)
    await client.pop("settled", "autoAck=true")
    for queue in ("delayed", "buffered", "changed"):
        reply = await client.request("GET", f"/api/v1/pop/queue/{queue}")
        assert reply.status == 204
        assert reply.headers["queen-blocked"] == ("delayed" if queue == "changed" else queue)
        assert 1 <= int(reply.headers["retry-after"]) <= 3600
    before = [await state(client, ids[queue]) for queue in ("ttl", "kept", "settled")]
    assert before == ["pending", "pending", "completed"]
    began = trio.current_time()
    delayed = await client.pop("delayed", "wait=true&timeout=5000")
    assert [message["data"] for message in delayed] == ["delayed"]
    assert trio.current_time() - began < 1.5
    buffered = await client.pop("buffered", "wait=true&timeout=5000")
    assert [message["data"] for message in buffered] == ["buffered"]
    await trio.sleep(0.3)
    behind = [await state(client, ids[queue]) for queue in ("ttl", "kept", "settled")]
    assert behind == ["dead_letter", 404, 404]
    await configured(client, "changed", {"delayedProcessing": 0})  # T5
    assert [message["data"] for message in await client.pop("changed")] == ["changed"]
