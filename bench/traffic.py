"""The bytes that travel: requests made beforehand, and answers picked apart no further than is needed.

Nothing here decodes JSON: at a hundred messages an answer the generator would be what is measured.
"""

import re
from collections.abc import Sequence
from typing import Final

PARTITIONS: Final = 100
PAYLOAD_BYTES: Final = 256
POP: Final = "/api/v1/pop/queue/bench"

_TRANSACTION: Final = b'"transactionId":"'
_LEASE: Final = re.compile(rb'"leaseId":"([^"]*)"')
_DATA: Final = b'"data":"'
_COMPLETED: Final = b'"status":"completed"'


def post(path: str, body: bytes) -> bytes:
    """A whole POST request."""
    fields = f"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return f"POST {path} HTTP/1.1\r\n{fields}\r\n\r\n".encode() + body


def get(path: str) -> bytes:
    """A whole GET request."""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def payload(mark: int = 0) -> bytes:
    """A JSON string of `PAYLOAD_BYTES`, quotes included, that begins with `mark`."""
    return b'"%010d%s"' % (mark, b"x" * (PAYLOAD_BYTES - 12))


def item(partition: str, data: bytes = payload(), queue: str = "bench") -> bytes:
    """One message of a push."""
    return b'{"queue":"%s","partition":"%s","payload":%s}' % (queue.encode(), partition.encode(), data)


def push(items: list[bytes]) -> bytes:
    """A push of these messages."""
    return post("/api/v1/push", b'{"items":[%s]}' % b",".join(items))


def pushes(messages: int) -> list[bytes]:
    """For each partition, a push of so many messages to it."""
    return [push([item(f"p{partition}")] * messages) for partition in range(PARTITIONS)]


def transactions(popped: bytes) -> list[bytes]:
    """The transactionIds in the answer to a pop, in order."""
    return [rest.partition(b'"')[0] for rest in popped.split(_TRANSACTION)[1:]]


def marks(popped: bytes) -> list[int]:
    """The marks of the payloads in the answer to a pop, in order."""
    return [int(rest[:10]) for rest in popped.split(_DATA)[1:]]


def acknowledgement(popped: bytes) -> bytes:
    """Complete, in one batch, all that a pop brought; its messages have one lease."""
    lease = _LEASE.search(popped)
    if lease is None:
        raise ValueError(f"no lease in {popped[:300]!r}")
    between = b'","status":"completed","leaseId":"%s"},{"transactionId":"' % lease[1]
    entries = b'{"transactionId":"%s","status":"completed","leaseId":"%s"}'
    return post(
        "/api/v1/ack/batch",
        b'{"acknowledgments":[%s]}' % (entries % (between.join(transactions(popped)), lease[1])),
    )


def settlement(names: list[bytes], outcomes: Sequence[str]) -> bytes:
    """A batch that gives these messages these statuses, one by one."""
    pairs = zip(names, outcomes, strict=False)
    entries = [b'{"transactionId":"%s","status":"%s"}' % (name, outcome.encode()) for name, outcome in pairs]
    return post("/api/v1/ack/batch", b'{"acknowledgments":[%s]}' % b",".join(entries))


def acknowledgement_of_one(popped: bytes) -> bytes:
    """Complete the one message that a pop brought."""
    (transaction,) = transactions(popped)
    return post("/api/v1/ack", b'{"transactionId":"%s","status":"completed"}' % transaction)


def completed(acknowledged: bytes) -> int:
    """How many messages the answer to an acknowledgement calls completed."""
    return acknowledged.count(_COMPLETED)
