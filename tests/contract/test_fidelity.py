"""What goes in comes out: odd names through URLs (N1), payload text to the byte (N5)."""

from urllib.parse import quote

from queen.rawjson import MAX_NESTING
from tests.contract.client import Client

NAMES = (
    "a/b", "100%", "%2F", "%25", "50%25off", "what?", "#1", "two words", " lead", "trail ", "a+b", "a&b=c", "ünïcödé",
    "\U0001f600\U0001f468‍\U0001f469", "日本語", "a;b", "a:b@c", "..a", "...", "/", "//", "'\"", "\\", "<q>", "a,b",
    "\u00e9", "e\u0301", "x" * 255, "é" * 127, "partition", "~", "*", "\x80", "\xa0",
)  # fmt: skip


async def test_odd_names_survive_the_round_trip(client: Client) -> None:
    """N1: as queue, partition, transactionId, traceId and group, in bodies, paths and queries."""
    for name in NAMES:
        await assert_round_trip(client, name)


async def assert_round_trip(client: Client, name: str) -> None:
    item = {"queue": name, "partition": name, "transactionId": name, "traceId": name, "namespace": name, "task": name}
    reply = await client.request("POST", "/api/v1/push", {"items": [item]})
    assert reply.status == 201, reply
    spelled = quote(name, safe="")
    for path in (
        f"/api/v1/pop/queue/{spelled}/partition/{spelled}?consumerGroup={spelled}",
        f"/api/v1/pop/queue/{spelled}",
        f"/api/v1/pop?namespace={spelled}&task={spelled}&consumerGroup={spelled}2".replace("x" * 255 + "2", "y"),
    ):
        reply = await client.request("GET", path)
        assert reply.status == 200, (path, reply)
        (message,) = reply.json["messages"]
        assert [message[key] for key in ("queue", "partition", "transactionId", "traceId")] == [name] * 4
    reply = await client.request("POST", "/api/v1/ack", {"transactionId": name, "status": "completed"})
    assert (reply.status, reply.json["transactionId"]) == (200, name)


async def test_names_are_decoded_once(client: Client) -> None:
    """N1: `%252F` is the name `%2F`, and `+` is a space in a query but a plus in a path."""
    await client.push("%2F", 1)
    assert (await client.request("GET", "/api/v1/pop/queue/%2F")).status == 204
    assert (await client.request("GET", "/api/v1/pop/queue/%252F")).status == 200
    await client.push("a+b", 1, namespace="a b")
    assert (await client.request("GET", "/api/v1/pop?namespace=a+b&consumerGroup=g")).status == 200
    assert (await client.request("GET", "/api/v1/pop/queue/a+b")).status == 200


PAYLOADS = (
    b"null", b"true", b"0", b"-0", b"1.0", b"1.00", b"1e400", b"-1E-400", b"1e5", b"0.10000000000000000555111512",
    b"1234567890123456789012345678901234567890", b'""', b'"\\u0041\\/\\n"', b'"\\ud83d\\ude00"', '"😀é"'.encode(),
    b'"\\\\ud800"', b'"\\u0000"', b"[]", b"{}", b"[ ]", b'{"b":1,"a":2}', b'{"a":1,"a":2}', b'{ "a" :\t[1 ,\r\n 2 ] }',
    b'{"":{"":[]}}', b'"\x7f"', b'"\xe2\x80\xa8"', b'"[[[[{{{{"',
    b"[" * 200 + b"]" * 200, b'{"a":' * 200 + b"1" + b"}" * 200, b"[" * MAX_NESTING + b"]" * MAX_NESTING,
    b"[" + b",".join([b"[[{}]]"] * 2000) + b"]",
)  # fmt: skip


async def test_payloads_come_back_to_the_byte(client: Client) -> None:
    """N5, Z17."""
    for payload in PAYLOADS:
        body = b'{"items" : [ {"queue":"q", "payload": ' + payload + b' ,"traceId":"t"}]}'
        reply = await client.request("POST", "/api/v1/push", body)
        assert reply.status == 201, (payload, reply)
        reply = await client.request("GET", "/api/v1/pop/queue/q?autoAck=true")
        assert b'"data":' + payload + b"," in reply.body


async def test_an_absent_payload_reads_as_null(client: Client) -> None:
    """N5."""
    await client.request("POST", "/api/v1/push", {"items": [{"queue": "q"}]})
    assert [message["data"] for message in await client.pop("q")] == [None]


async def test_null_for_an_optional_field_means_absent(client: Client) -> None:
    """Z7; unknown fields are ignored."""
    fields = ("partition", "payload", "transactionId", "traceId", "delaySeconds", "namespace", "task", "unheardOf")
    item = {"queue": "q", **dict.fromkeys(fields)}
    reply = await client.request("POST", "/api/v1/push", {"items": [item], "more": 1})
    assert reply.status == 201, reply
    (message,) = await client.pop("q", "unheardOf=1")
    assert (message["partition"], message["data"], message["traceId"]) == ("Default", None, None)
    body = {"transactionId": message["transactionId"], "status": "completed", "error": None, "leaseId": None}
    assert (await client.request("POST", "/api/v1/ack", body | {"consumerGroup": None})).status == 200


async def test_any_content_type_will_do(client: Client) -> None:
    """`curl -d` says it sends a form."""
    for kind in ("application/x-www-form-urlencoded", "text/plain", "application/json; charset=utf-8", "nonsense"):
        body = {"items": [{"queue": "q"}]}
        assert (await client.request("POST", "/api/v1/push", body, {"Content-Type": kind})).status == 201
