"""The API page (`docs/api-0.1.0.md`), read by the test itself: every endpoint's example answer against what the server
answers in a situation that produces it, field by field and type by type; and every WebSocket event."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from queen.actors import pulse
from tests.contract import page
from tests.contract.client import Client
from tests.contract.conftest import Server
from tests.contract.reply import Reply
from tests.contract.socket import Socket, dashboard

ENDPOINTS = page.endpoints()
EXAMPLES = {f"{each.method} {each.path}": each.answer for each in ENDPOINTS}
PAYLOAD = {"to": "user@example.com", "subject": "Alert"}


# -- situations -------------------------------------------------------------------------------------------


async def urgent(client: Client, count: int = 1) -> list[str]:
    """Messages as the page has them, in its queue and partition; no namespace, no task."""
    return await client.push("emails", *[PAYLOAD] * count, partition="urgent")


async def failed(client: Client) -> str:
    """A message that has failed for good."""
    await configured(client, retryLimit=0)
    (name,) = await urgent(client)
    await client.pop("emails")
    await client.request("POST", "/api/v1/ack", {"transactionId": name, "status": "failed", "error": "no"})
    return name


async def configured(client: Client, **options: Any) -> Reply:
    body = {"queue": "emails", "options": options}
    return await client.request("POST", "/api/v1/configure", body)


async def production(client: Client) -> None:
    """A queue in a namespace with a task: all five statuses in two partitions, and enough completed for its lag."""
    body = {"queue": "emails", "namespace": "production", "task": "notifications", "options": {"retryLimit": 0}}
    await client.request("POST", "/api/v1/configure", body)
    await everything(client)


async def everything(client: Client) -> None:
    for partition in ("Default", "urgent"):
        await client.push("emails", *range(12), partition=partition)
        for status in (*["completed"] * 6, "failed", "dead_letter"):
            target = f"/api/v1/pop/queue/emails/partition/{partition}"
            [message] = (await client.request("GET", target)).json["messages"]
            await client.request("POST", "/api/v1/ack", {"transactionId": message["transactionId"], "status": status})
        await client.request("GET", f"/api/v1/pop/queue/emails/partition/{partition}?batch=2")


async def push(client: Client) -> Reply:
    item = {"queue": "email-queue", "partition": "urgent", "payload": PAYLOAD}
    return await client.request("POST", "/api/v1/push", {"items": [item]})


async def pop_partition(client: Client) -> Reply:
    await urgent(client)
    return await client.request("GET", "/api/v1/pop/queue/emails/partition/urgent?batch=5&wait=true")


async def pop_queue(client: Client) -> Reply:
    await urgent(client)
    return await client.request("GET", "/api/v1/pop/queue/emails?batch=10")


async def pop_filtered(client: Client) -> Reply:
    await client.push("emails", PAYLOAD, namespace="production")
    return await client.request("GET", "/api/v1/pop?namespace=production&batch=5")


async def ack(client: Client) -> Reply:
    (name,) = await urgent(client)
    await client.pop("emails")
    return await client.request("POST", "/api/v1/ack", {"transactionId": name, "status": "completed"})


async def ack_batch(client: Client) -> Reply:
    names = await urgent(client, 2)
    await client.pop("emails", "batch=2")
    first, second = ({"transactionId": name} for name in names)
    entries = [{**first, "status": "completed"}, {**second, "status": "failed", "error": "Processing error"}]
    return await client.request("POST", "/api/v1/ack/batch", {"acknowledgments": entries})


async def configure(client: Client) -> Reply:
    """The page's own request."""
    [request] = [block for block in page.blocks(page.PAGE) if isinstance(block, dict) and "options" in block][:1]
    assert request["options"]["leaseTime"] == 600
    return await client.request("POST", "/api/v1/configure", request)


def looked(target: str, situation: Callable[[Client], Awaitable[Any]]) -> Callable[[Client], Awaitable[Reply]]:
    """The answer to a GET, in that situation."""

    async def look(client: Client) -> Reply:
        await situation(client)
        return await client.request("GET", target)

    return look


async def get_message(client: Client) -> Reply:
    (name,) = await urgent(client)
    return await client.request("GET", f"/api/v1/messages/{name}")


async def delete_message(client: Client) -> Reply:
    (name,) = await urgent(client)
    return await client.request("DELETE", f"/api/v1/messages/{name}")


async def retry(client: Client) -> Reply:
    return await client.request("POST", f"/api/v1/messages/{await failed(client)}/retry")


async def bury(client: Client) -> Reply:
    return await client.request("POST", f"/api/v1/messages/{await failed(client)}/dlq")


async def related(client: Client) -> Reply:
    _, name = await urgent(client, 2)
    return await client.request("GET", f"/api/v1/messages/{name}/related")


async def clear(client: Client) -> Reply:
    await urgent(client, 25)
    return await client.request("DELETE", "/api/v1/queues/emails/clear")


SITUATIONS: dict[str, Callable[[Client], Awaitable[Reply]]] = {
    "POST /api/v1/push": push,
    "GET /api/v1/pop/queue/:queue/partition/:partition": pop_partition,
    "GET /api/v1/pop/queue/:queue": pop_queue,
    "GET /api/v1/pop": pop_filtered,
    "POST /api/v1/ack": ack,
    "POST /api/v1/ack/batch": ack_batch,
    "POST /api/v1/configure": configure,
    "GET /api/v1/analytics/queue/:queue": looked("/api/v1/analytics/queue/emails", everything),
    "GET /api/v1/analytics/queues": looked("/api/v1/analytics/queues", production),
    "GET /api/v1/analytics/queue-depths": looked("/api/v1/analytics/queue-depths", everything),
    "GET /api/v1/analytics/throughput": looked("/api/v1/analytics/throughput", everything),
    "GET /api/v1/analytics/queue-lag": looked("/api/v1/analytics/queue-lag", production),
    "GET /api/v1/analytics/queue-stats": looked("/api/v1/analytics/queue-stats?queue=emails", production),
    "GET /api/v1/analytics": looked("/api/v1/analytics?namespace=production", production),
    "GET /api/v1/messages": looked("/api/v1/messages?queue=emails", urgent),
    "GET /api/v1/messages/:transactionId": get_message,
    "DELETE /api/v1/messages/:transactionId": delete_message,
    "POST /api/v1/messages/:transactionId/retry": retry,
    "POST /api/v1/messages/:transactionId/dlq": bury,
    "GET /api/v1/messages/:transactionId/related": related,
    "DELETE /api/v1/queues/:queue/clear": clear,
    "GET /health": looked("/health", urgent),
    "GET /metrics": looked("/metrics", urgent),
    "GET /api/v1/resources/queues": looked("/api/v1/resources/queues", everything),
    "GET /api/v1/resources/queues/:queue": looked("/api/v1/resources/queues/emails", everything),
    "GET /api/v1/resources/partitions": looked("/api/v1/resources/partitions", everything),
    "GET /api/v1/resources/namespaces": looked("/api/v1/resources/namespaces", production),
    "GET /api/v1/resources/tasks": looked("/api/v1/resources/tasks", production),
    "GET /api/v1/resources/overview": looked("/api/v1/resources/overview", everything),
}


def example_of(endpoint: str) -> Any:
    """The page's example; where it has words instead, what the words say (and Z13)."""
    if endpoint in ("GET /api/v1/pop/queue/:queue", "GET /api/v1/pop"):
        return EXAMPLES["GET /api/v1/pop/queue/:queue/partition/:partition"]  # "Response Format: Same as above"
    if endpoint in ("GET /api/v1/analytics/queue-stats", "GET /api/v1/analytics"):
        return EXAMPLES["GET /api/v1/analytics/queues"]  # Z13
    if endpoint == "GET /api/v1/messages/:transactionId":
        # "Single message object with partition options included"
        [message] = EXAMPLES["GET /api/v1/messages"]["messages"]
        return {**message, "options": EXAMPLES["POST /api/v1/configure"]["options"]}
    return EXAMPLES[endpoint]


# -- the tests --------------------------------------------------------------------------------------------


def test_every_endpoint_of_the_page_has_its_situation() -> None:
    assert len(ENDPOINTS) == len(EXAMPLES) == 29
    assert set(SITUATIONS) == set(EXAMPLES)
    assert all(example_of(endpoint) for endpoint in EXAMPLES)


@pytest.mark.parametrize("endpoint", EXAMPLES)
async def test_the_server_answers_as_the_page_shows(client: Client, endpoint: str) -> None:
    reply = await SITUATIONS[endpoint](client)
    assert reply.status == (201 if endpoint == "POST /api/v1/push" else 200)  # P3
    assert page.faults(example_of(endpoint), reply.json) == []


async def test_what_is_null_on_the_page_is_null(client: Client) -> None:
    """Where the situation is the page's own."""
    shown = (await SITUATIONS["GET /api/v1/messages"](client)).json["messages"][0]
    [example] = EXAMPLES["GET /api/v1/messages"]["messages"]
    for name, value in example.items():
        assert (shown[name] is None) == (value is None), name
    [summary] = (await client.request("GET", "/api/v1/resources/queues")).json["queues"]
    assert summary["namespace"] is summary["task"] is None


async def test_a_duplicate_and_nothing_to_pop(client: Client) -> None:
    """What the page says beside its examples: `"status": "queued"  // or "duplicate"`, and 204 for no messages."""
    item = {"queue": "emails", "transactionId": "4dfb0478-655b-4c91-bcd9-b7acacf0400f"}
    first, again = [await client.request("POST", "/api/v1/push", {"items": [item]}) for _ in range(2)]
    assert page.faults(EXAMPLES["POST /api/v1/push"], again.json) == []
    assert [reply.json["messages"][0]["status"] for reply in (first, again)] == ["queued", "duplicate"]
    for target in ("/queue/none/partition/urgent", "/queue/none", "?task=billing"):
        reply = await client.request("GET", f"/api/v1/pop{target}")
        assert (reply.status, reply.body) == (204, b"")


async def test_errors(client: Client) -> None:
    for method, target, status in (
        ("POST", "/api/v1/push", 400),
        ("GET", "/api/v1/pop", 400),
        ("GET", "/api/v1/messages/none", 404),
        ("GET", "/api/v1/none", 404),
    ):
        reply = await client.request(method, target, b"{}")
        assert reply.status == status
        assert page.faults(page.error(), reply.json) == []


async def test_every_event_of_the_page(server: Server, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """W1."""
    monkeypatch.setattr(pulse, "EVERY_S", 0.05)
    examples = page.events()
    assert len(examples) == 11
    socket = await dashboard(await server.connect())
    other = await dashboard(await server.connect())
    await other.stream.aclose()
    await client.push("emails", 1)
    names = await urgent(client, 2)
    await client.request("GET", "/api/v1/pop/queue/emails/partition/urgent?batch=2", headers={"Queen-Worker": "w"})
    for name, status in zip(names, ("completed", "failed"), strict=True):
        body = {"transactionId": name, "status": status, "error": "Processing error"}
        await client.request("POST", "/api/v1/ack", body)
    first = await dashboard_greeting(server)
    assert page.faults(examples["connected"], first) == []
    missing = set(examples) - {"connected"}
    while missing:
        told = await socket.told()
        example = examples.get(told["event"])
        # Before the queue has both of the page's partitions, its depth can't look like the page's.
        if example is None or (told["event"] == "queue.depth" and len(told["data"]["partitions"]) < 2):
            continue
        assert page.faults(example, told) == []
        missing.discard(told["event"])


async def dashboard_greeting(server: Server) -> Any:
    """The first thing that a new WebSocket is told."""
    socket = await Socket((await server.connect()).stream).open()
    return await socket.told()


# -- the reader and the comparison ------------------------------------------------------------------------


def test_comments_and_ellipses_are_read() -> None:
    text = (
        '{"a": "x // no {...} comment", // one\n "b": [...], "c": {...}, "d": { /* more */ }, "e": 1} {"f": 2} // end'
    )
    first, second = page.read(text)
    assert [page.is_like(first[name]) for name in "abcde"] == [False, True, True, True, False]
    assert first["a"] == "x // no {...} comment"
    assert second == {"f": 2}
    assert page.filled(first, {"b": [1], "c": {"x": 1}, "d": {"y": 1}})["c"] == {"x": 1}


@pytest.mark.parametrize(
    ("example", "answer"),
    [
        ({"a": 1}, {}),
        ({"a": 1}, {"a": "1"}),
        ({"a": 1}, {"a": True}),
        ({"a": 1}, {"a": 1.0}),
        ({"a": 0.5}, {"a": 1}),
        ({"a": None}, {"a": 1}),
        ({"a": {"b": 1}}, {"a": {"c": 1}}),
        ({"a": [{"b": 1}]}, {"a": []}),
        ({"a": [{"b": 1}]}, {"a": [{"b": 1}, {}]}),
        ({"a": [{"b": 1}, {"c": 1}]}, {"a": [{"b": 1}]}),
        ("2025-10-08T07:30:00.000Z", "2025-10-08T07:30:00Z"),
        ("message-uuid", "1"),
        ("7m 17s", "437s"),
        ("0.28", "0.3"),
        ("text", None),
    ],
)
def test_a_planted_difference_is_seen(example: Any, answer: Any) -> None:
    assert page.faults(example, answer)
    assert page.faults(example, example) == [] or example == "message-uuid"
