"""Wrong requests: each is refused with 400 and a text that names the place (N1, P1, P2, O1, O4, A5, C1, Z7)."""

import json
from typing import Any

import pytest

from tests.contract.client import Client

LONG = "x" * 256
PUSH = ("POST", "/api/v1/push")
ACK = ("POST", "/api/v1/ack")
BATCH = ("POST", "/api/v1/ack/batch")
CONFIGURE = ("POST", "/api/v1/configure")
EXTEND = ("POST", "/api/v1/lease/some/extend")


def item(**fields: Any) -> bytes:
    """A push whose second item is wrong."""
    return json.dumps({"items": [{"queue": "q"}, {"queue": "q"} | fields]}).encode()


def raw(payload: bytes) -> bytes:
    return b'{"items":[{"queue":"q"},{"queue":"q","payload":' + payload + b"}]}"


def ack(**fields: Any) -> bytes:
    return json.dumps({"transactionId": "t", "status": "completed"} | fields).encode()


def batch(**fields: Any) -> bytes:
    entries = [{"transactionId": "t", "status": "completed"}, {"transactionId": "t", "status": "completed"} | fields]
    return json.dumps({"acknowledgments": entries}).encode()


def option(name: str, value: Any) -> bytes:
    return json.dumps({"queue": "q", "options": {name: value}}).encode()


WRONG_BODIES = [
    # The body as a whole.
    (PUSH, b"", "body"),
    (PUSH, None, "body"),
    (PUSH, b"null", "body"),
    (PUSH, b"[]", "body"),
    (PUSH, b'"x"', "body"),
    (PUSH, b"{", "body"),
    (PUSH, b'{"items":[{"queue":"q"}]} trailing', "body"),
    (PUSH, b"\xef\xbb\xbf{}", "body"),
    (PUSH, b'{"items":[{"queue":"q","payload":"\xff"}]}', "body: is not valid UTF-8"),
    (PUSH, b'{"items":[{"queue":"\xed\xa0\x80"}]}', "body: is not valid UTF-8"),
    (PUSH, b'{"unknown":"\xff","items":[{"queue":"q"}]}', "body: is not valid UTF-8"),
    (PUSH, b"{}", "items: is required"),
    (PUSH, b'{"items":null}', "items: "),
    (PUSH, b'{"items":{}}', "items: must be an array"),
    (PUSH, b'{"items":[]}', "items: must hold 1 to 1000"),
    (PUSH, json.dumps({"items": [{"queue": "q"}] * 1001}).encode(), "items: must hold 1 to 1000"),
    (PUSH, b"items=1", "body"),
    # Items.
    (PUSH, b'{"items":[{"queue":"q"},7]}', "items[1]: must be an object"),
    (PUSH, b'{"items":[{"queue":"q"},null]}', "items[1]: "),
    (PUSH, b'{"items":[{"queue":"q"},{}]}', "items[1].queue: is required"),
    (PUSH, item(queue=None), "items[1].queue: must be a string"),
    (PUSH, item(queue=5), "items[1].queue: must be a string"),
    (PUSH, item(queue=["q"]), "items[1].queue: must be a string"),
    (PUSH, item(queue=""), "items[1].queue: must not be empty"),
    (PUSH, item(queue=LONG), "items[1].queue: must be at most 255 bytes"),
    (PUSH, item(queue="é" * 128), "items[1].queue: must be at most 255 bytes"),
    (PUSH, item(queue="a\nb"), "items[1].queue: must not contain control characters"),
    (PUSH, item(queue="\x00"), "items[1].queue: must not contain control characters"),
    (PUSH, item(queue="\x7f"), "items[1].queue: must not contain control characters"),
    (PUSH, item(queue="."), "items[1].queue: must not be '.'"),
    (PUSH, item(queue=".."), "items[1].queue: must not be '.'"),
    (PUSH, item(queue="\ud800"), "items[1].queue: "),
    (PUSH, item(partition=""), "items[1].partition: must not be empty"),
    (PUSH, item(partition=1), "items[1].partition: must be a string"),
    (PUSH, item(partition="a\tb"), "items[1].partition: "),
    (PUSH, item(transactionId=""), "items[1].transactionId: must not be empty"),
    (PUSH, item(transactionId=17), "items[1].transactionId: must be a string"),
    (PUSH, item(transactionId=LONG), "items[1].transactionId: "),
    (PUSH, item(traceId="\x1f"), "items[1].traceId: "),
    (PUSH, item(traceId={}), "items[1].traceId: must be a string"),
    (PUSH, item(namespace=""), "items[1].namespace: "),
    (PUSH, item(namespace=True), "items[1].namespace: must be a string"),
    (PUSH, item(task=LONG), "items[1].task: "),
    (PUSH, item(task=[]), "items[1].task: must be a string"),
    (PUSH, item(delaySeconds=-1), "items[1].delaySeconds: must be from 0"),
    (PUSH, item(delaySeconds=2**31), "items[1].delaySeconds: must be from 0"),
    (PUSH, item(delaySeconds=10**30), "items[1].delaySeconds: "),
    (PUSH, item(delaySeconds=1.5), "items[1].delaySeconds: must be an integer"),
    (PUSH, item(delaySeconds="5"), "items[1].delaySeconds: must be an integer"),
    (PUSH, item(delaySeconds=True), "items[1].delaySeconds: must be an integer"),
    # Payloads that are no JSON, or more than we keep (N5, Z17).
    (PUSH, raw(b"NaN"), "body"),
    (PUSH, raw(b"Infinity"), "body"),
    (PUSH, raw(b"-Infinity"), "body"),
    (PUSH, raw(b"01"), "body"),
    (PUSH, raw(b"1."), "body"),
    (PUSH, raw(b".5"), "body"),
    (PUSH, raw(b"+1"), "body"),
    (PUSH, raw(b"'a'"), "body"),
    (PUSH, raw(b"[1,]"), "body"),
    (PUSH, raw(b'{"a":1,}'), "body"),
    (PUSH, raw(b"{a:1}"), "body"),
    (PUSH, raw(b'"\n"'), "body"),
    (PUSH, raw(b'"\\x41"'), "body"),
    (PUSH, raw(b"undefined"), "body"),
    (PUSH, raw(b"/**/1"), "body"),
    (PUSH, raw(b'"\\ud800"'), "items[1].payload: holds an unpaired surrogate"),
    (PUSH, raw(b'"\\udc00"'), "items[1].payload: holds an unpaired surrogate"),
    (PUSH, raw(b'"\\ud800\\u0041"'), "items[1].payload: holds an unpaired surrogate"),
    (PUSH, raw(b'"\\udc00\\ud800"'), "items[1].payload: holds an unpaired surrogate"),
    (PUSH, raw(b'{"\\uDBFF":1}'), "items[1].payload: holds an unpaired surrogate"),
    (PUSH, raw(b'["\\\\\\ud800 "]'), "items[1].payload: holds an unpaired surrogate"),
    (PUSH, raw(b"[" * 257 + b"]" * 257), "items[1].payload: nests deeper than 256"),
    (PUSH, raw(b'{"a":' * 257 + b"1" + b"}" * 257), "items[1].payload: nests deeper than 256"),
    (PUSH, raw(b"[" * 5000 + b"]" * 5000), "items[1].payload: nests deeper than 256"),
    (PUSH, raw(b"[" * 100_000), "items[1].payload: nests deeper than 256"),
    # Acknowledgements.
    (ACK, b"", "body"),
    (ACK, b"[]", "body"),
    (ACK, b"{}", "is required"),
    (ACK, b'{"status":"completed"}', "transactionId: is required"),
    (ACK, b'{"transactionId":"t"}', "status: is required"),
    (ACK, ack(transactionId=5), "transactionId: must be a string"),
    (ACK, ack(transactionId=""), "transactionId: must not be empty"),
    (ACK, ack(transactionId=LONG), "transactionId: "),
    (ACK, ack(status="done"), "status: must be one of completed, failed, retry, dead_letter"),
    (ACK, ack(status="COMPLETED"), "status: must be one of"),
    (ACK, ack(status=None), "status: "),
    (ACK, ack(status=1), "status: must be a string"),
    (ACK, ack(error=5), "error: must be a string"),
    (ACK, ack(error={"m": 1}), "error: must be a string"),
    (ACK, ack(error="\ud800"), "error: "),
    (ACK, ack(leaseId=5), "leaseId: must be a string"),
    (ACK, ack(leaseId=""), "leaseId: must not be empty"),
    (ACK, ack(consumerGroup=""), "consumerGroup: must not be empty"),
    (ACK, ack(consumerGroup=0), "consumerGroup: must be a string"),
    (BATCH, b"{}", "acknowledgments: is required"),
    (BATCH, b'{"acknowledgments":[]}', "acknowledgments: must hold 1 to 1000"),
    (BATCH, b'{"acknowledgments":{}}', "acknowledgments: must be an array"),
    (
        BATCH,
        json.dumps({"acknowledgments": [json.loads(ack())] * 1001}).encode(),
        "acknowledgments: must hold 1 to 1000",
    ),
    (BATCH, b'{"acknowledgments":["t"]}', "acknowledgments[0]: must be an object"),
    (BATCH, batch(status="nack"), "acknowledgments[1].status: must be one of"),
    (BATCH, batch(transactionId=None), "acknowledgments[1].transactionId: "),
    (BATCH, batch(transactionId="\n"), "acknowledgments[1].transactionId: "),
    (BATCH, batch(consumerGroup=""), "acknowledgments[1].consumerGroup: "),
    (BATCH, batch(error=[]), "acknowledgments[1].error: must be a string"),
    (BATCH, batch(leaseId=False), "acknowledgments[1].leaseId: must be a string"),
    # Leases.
    (EXTEND, b"[]", "body"),
    (EXTEND, b'{"seconds":0}', "seconds: must be from 1"),
    (EXTEND, b'{"seconds":-5}', "seconds: must be from 1"),
    (EXTEND, b'{"seconds":1.5}', "seconds: must be an integer"),
    (EXTEND, b'{"seconds":"10"}', "seconds: must be an integer"),
    (EXTEND, b'{"seconds":99999999999}', "seconds: must be from 1"),
    # Configuration.
    (CONFIGURE, b"{}", "queue: is required"),
    (CONFIGURE, b'{"queue":7}', "queue: must be a string"),
    (CONFIGURE, b'{"queue":""}', "queue: must not be empty"),
    (CONFIGURE, b'{"queue":"q","options":[]}', "options: must be an object"),
    (CONFIGURE, b'{"queue":"q","namespace":5}', "namespace: must be a string"),
    (CONFIGURE, b'{"queue":"q","namespace":""}', "namespace: must not be empty"),
    (CONFIGURE, b'{"queue":"q","task":"\\u0007"}', "task: must not contain control characters"),
    (CONFIGURE, option("leaseTme", 5), "options.leaseTme: unknown option"),
    (CONFIGURE, option("leaseTime", 0), "options.leaseTime: "),
    (CONFIGURE, option("leaseTime", "300"), "options.leaseTime: "),
    (CONFIGURE, option("leaseTime", 1.5), "options.leaseTime: "),
    (CONFIGURE, option("leaseTime", "\ud800"), "options.leaseTime: holds an unpaired surrogate"),
    (CONFIGURE, b'{"queue":"q","options":{"ttl":1,"leaseTime":1e400}}', "options.leaseTime: "),
    (CONFIGURE, b'{"queue":"q","options":{"ttl":1,"leaseTime":' + b"[" * 2000, "options.leaseTime: nests deeper than"),
    (PUSH, b'{"items":[{"queue":"q"},"\\ud800"]}', "items[1]: holds an unpaired surrogate"),
    (CONFIGURE, option("leaseTime", True), "options.leaseTime: "),
    (CONFIGURE, option("retryLimit", -1), "options.retryLimit: "),
    (CONFIGURE, option("retryLimit", 10**40), "options.retryLimit: "),
    (CONFIGURE, option("retryBackoff", 0.5), "options.retryBackoff: "),
    (CONFIGURE, option("retryBackoff", []), "options.retryBackoff: "),
    (CONFIGURE, option("dlqAfterMaxRetries", 1), "options.dlqAfterMaxRetries: "),
    (CONFIGURE, option("ordering", "fifo"), "options.ordering: "),
    (CONFIGURE, option("ordering", 1), "options.ordering: "),
    (CONFIGURE, option("maxSize", {}), "options.maxSize: "),
    (CONFIGURE, b'{"queue":"q","options":{"a":' + b"[" * 5000, "options.a: nests deeper than 256"),
    (ACK, b'{"transactionId":"t","status":"failed","x":' + b"[" * 5000, "x: nests deeper than 256"),
]

POP = "/api/v1/pop/queue/q"
OVERVIEW = "/api/v1/resources/overview"

WRONG_POPS = [
    (f"{POP}?batch=0", "batch: must be from 1 to 1000"),
    (f"{POP}?batch=1001", "batch: must be from 1 to 1000"),
    (f"{POP}?batch=-1", "batch: must be from 1 to 1000"),
    (f"{POP}?batch=abc", "batch: must be an integer"),
    (f"{POP}?batch=", "batch: must be an integer"),
    (f"{POP}?batch=1.0", "batch: must be an integer"),
    (f"{POP}?batch=0x10", "batch: must be an integer"),
    (f"{POP}?batch=%D9%A1", "batch: must be an integer"),
    (f"{POP}?batch=1&batch=2", "batch: is given more than once"),
    (f"{POP}?batch={'9' * 100}", "batch: "),
    (f"{POP}?wait=maybe", "wait: must be true, false, 1 or 0"),
    (f"{POP}?wait=", "wait: must be true, false, 1 or 0"),
    (f"{POP}?wait=2", "wait: must be true, false, 1 or 0"),
    (f"{POP}?timeout=soon", "timeout: must be an integer"),
    (f"{POP}?timeout=1e3", "timeout: must be an integer"),
    (f"{POP}?timeout=", "timeout: must be an integer"),
    (f"{POP}?autoAck=yes", "autoAck: must be true, false, 1 or 0"),
    (f"{POP}?partitions=0", "partitions: must be from 1"),
    (f"{POP}?partitions=x", "partitions: must be an integer"),
    (f"{POP}?consumerGroup=", "consumerGroup: must not be empty"),
    (f"{POP}?consumerGroup=%00", "consumerGroup: must not contain control characters"),
    (f"{POP}?consumerGroup=%ff", "consumerGroup: is not valid UTF-8"),
    (f"{POP}?consumerGroup={LONG}", "consumerGroup: must be at most 255 bytes"),
    (f"{POP}?consumerGroup=%zz", "consumerGroup: holds a '%'"),
    (f"{POP}?consumerGroup=a%2", "consumerGroup: holds a '%'"),
    (f"{POP}?subscriptionMode=old", "subscriptionMode: must be one of all, new"),
    (f"{POP}?subscriptionFrom=yesterday", "subscriptionFrom: must be now or an ISO 8601 time"),
    (f"{POP}?subscriptionFrom=", "subscriptionFrom: must be now or an ISO 8601 time"),
    (f"{POP}?subscriptionFrom=0001-01-01T00:00:00%2B00:01", "subscriptionFrom: must be now or an ISO 8601 time in the"),
    (f"{POP}?subscriptionFrom=9999-12-31T23:59:59-14:00", "subscriptionFrom: must be now or an ISO 8601 time in the"),
    (f"{OVERVIEW}?at=0001-01-01T00:00:00%2B14:00", "at: must be an ISO 8601 time"),
    (f"{OVERVIEW}?at=9999-12-31T23:59:59-14:00", "at: must be an ISO 8601 time"),
    (f"{OVERVIEW}?at=-99999999999999h", "at: lies outside the years 1 to 9999"),
    (f"{OVERVIEW}?at=-{'9' * 400}h", "at: must be an ISO 8601 time"),
    (f"{POP}?workerId=%0A", "workerId: must not contain control characters"),
    (f"{POP}?%ff=1", "query: is not valid UTF-8"),
    (f"{POP}?other=%c3%28", "other: is not valid UTF-8"),
    (f"{POP}?" + "&".join(f"p{n}=1" for n in range(101)), "query: holds more than 100"),
    ("/api/v1/pop/queue/%ff", "queue: is not valid UTF-8"),
    ("/api/v1/pop/queue/%ed%a0%80", "queue: is not valid UTF-8"),
    ("/api/v1/pop/queue/a%", "queue: holds a '%'"),
    ("/api/v1/pop/queue/%g0", "queue: holds a '%'"),
    ("/api/v1/pop/queue/%00", "queue: must not contain control characters"),
    ("/api/v1/pop/queue/%7F", "queue: must not contain control characters"),
    ("/api/v1/pop/queue/.", "queue: must not be '.'"),
    ("/api/v1/pop/queue/%2E%2e", "queue: must not be '.'"),
    (f"/api/v1/pop/queue/{LONG}", "queue: must be at most 255 bytes"),
    ("/api/v1/pop/queue/q/partition/%fe", "partition: is not valid UTF-8"),
    ("/api/v1/pop/queue/q/partition/..", "partition: must not be '.'"),
    ("/api/v1/pop/queue/%c0%af/partition/p", "queue: is not valid UTF-8"),
    ("/api/v1/pop", "namespace: or task is required"),
    ("/api/v1/pop?batch=5", "namespace: or task is required"),
    ("/api/v1/pop?namespace=", "namespace: must not be empty"),
    ("/api/v1/pop?task=", "task: must not be empty"),
    ("/api/v1/pop?task=%01", "task: must not contain control characters"),
    ("/api/v1/pop?namespace=n&batch=0", "batch: must be from 1 to 1000"),
]


@pytest.mark.parametrize("route", [PUSH, ACK, BATCH, EXTEND, CONFIGURE], ids=lambda route: route[1])
async def test_wrong_bodies_are_refused_by_name(client: Client, route: tuple[str, str]) -> None:
    """All on one connection, which goes on; at the end, nothing was done."""
    faults = []
    for _, body, text in (row for row in WRONG_BODIES if row[0] == route):
        reply = await client.request(*route, body)
        if reply.status != 400 or text not in reply.error or len(reply.error) > 500:
            faults.append((body and body[:200], text, reply))
    assert faults == []
    assert (await client.request("GET", POP)).status == 204


async def test_wrong_pops_are_refused_by_name(client: Client) -> None:
    """All on one connection, which goes on; no message is lost to them."""
    await client.push("q", 1, namespace="n")
    faults = []
    for target, text in WRONG_POPS:
        reply = await client.request("GET", target)
        if reply.status != 400 or not reply.error.startswith(text):
            faults.append((target, text, reply))
    assert faults == []
    assert len(await client.pop("q")) == 1


async def test_a_worker_that_is_no_name_is_refused(client: Client) -> None:
    """Z13."""
    reply = await client.request("GET", POP, None, {"Queen-Worker": LONG})
    assert (reply.status, reply.error.startswith("Queen-Worker: ")) == (400, True)


async def test_one_bad_item_refuses_the_whole_push(client: Client) -> None:
    """P1."""
    items = [{"queue": "q", "payload": n} for n in range(5)]
    reply = await client.request("POST", "/api/v1/push", {"items": [*items[:3], {"queue": ""}, *items[3:]]})
    assert reply.error.startswith("items[3].queue: ")
    assert await client.pop("q", "batch=10") == []
