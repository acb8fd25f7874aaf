"""Encryption over HTTP (C4): the 400 and the 503, and that a client notices nothing else."""

from pathlib import Path

from queen import KeyRing
from tests.contract.client import Client
from tests.contract.conftest import running

RING = KeyRing([bytes(range(32))])
ON = {"queue": "q", "options": {"encryptionEnabled": True}}


async def test_without_a_server_key_configure_is_refused(client: Client) -> None:
    reply = await client.request("POST", "/api/v1/configure", ON)
    assert reply.status == 400
    assert reply.error.startswith("options.encryptionEnabled: ")
    assert (await client.request("POST", "/api/v1/configure", {"queue": "q", "options": {}})).status == 200


async def test_with_the_key_and_without_it(tmp_path: Path) -> None:
    async with running(tmp_path, keys=RING) as server:
        client = await server.connect()
        reply = await client.request("POST", "/api/v1/configure", ON)
        assert reply.json["options"]["encryptionEnabled"] is True
        await client.push("q", {"a": 1}, {"a": 2})
        assert [message["data"] for message in await client.pop("q", "autoAck=true")] == [{"a": 1}]
    async with running(tmp_path) as server:
        client = await server.connect()
        for target in ("/api/v1/pop/queue/q", "/api/v1/pop/queue/q/partition/Default", "/api/v1/pop/queue/q?wait=true"):
            reply = await client.request("GET", target)
            assert reply.status == 503
            assert "encrypted" in reply.error
            assert "retry-after" in reply.headers
        reply = await client.request("POST", "/api/v1/push", {"items": [{"queue": "q", "payload": 3}]})
        assert reply.status == 503
    async with running(tmp_path, keys=RING) as server:
        client = await server.connect()
        assert [message["data"] for message in await client.pop("q", "batch=9")] == [{"a": 2}]


async def test_without_its_key_a_message_is_listed_without_its_payload(tmp_path: Path) -> None:
    """C4"""
    async with running(tmp_path, keys=RING) as server:
        client = await server.connect()
        await client.request("POST", "/api/v1/configure", ON)
        (name,) = await client.push("q", {"a": 1})
        reply = await client.request("GET", f"/api/v1/messages/{name}")
        assert (reply.json["payload"], "encryptionError" in reply.json) == ({"a": 1}, False)
    async with running(tmp_path) as server:
        client = await server.connect()
        listed = (await client.request("GET", "/api/v1/messages")).json["messages"]
        for message in (listed[0], (await client.request("GET", f"/api/v1/messages/{name}")).json):
            assert (message["transactionId"], message["payload"]) == (name, None)
            assert "key" in message["encryptionError"]
