"""The bodies as they travel: one struct per request and per answer, field by field as the API page names them."""

from typing import Any

import msgspec

NULL = msgspec.Raw(b"null")


class PushItem(msgspec.Struct, rename="camel"):
    """One message of a push. `payload` keeps the sender's own text (N5); absent, it reads as null."""

    queue: str
    payload: msgspec.Raw = NULL
    partition: str | None = None
    transaction_id: str | None = None
    trace_id: str | None = None
    delay_seconds: int | None = None
    namespace: str | None = None
    task: str | None = None


class PushBody(msgspec.Struct):
    """`POST /api/v1/push`."""

    items: list[PushItem]


class AckBody(msgspec.Struct, rename="camel"):
    """`POST /api/v1/ack`, and one entry of a batch (A1)."""

    transaction_id: str
    status: str
    error: str | None = None
    lease_id: str | None = None
    consumer_group: str | None = None


class AckBatchBody(msgspec.Struct):
    """`POST /api/v1/ack/batch`."""

    acknowledgments: list[AckBody]


class PushOperation(PushBody, tag="push", tag_field="type"):
    """A push within a transaction."""


class AckOperation(AckBody, tag="ack", tag_field="type"):
    """An acknowledgement within a transaction."""


class TransactionBody(msgspec.Struct):
    """`POST /api/v1/transaction`."""

    operations: list[PushOperation | AckOperation]


class ConfigureBody(msgspec.Struct):
    """`POST /api/v1/configure`. Absent and null differ here (C1, C2); `partition` is not even looked at."""

    queue: str
    options: dict[str, Any] | None = None
    namespace: str | msgspec.UnsetType | None = msgspec.UNSET
    task: str | msgspec.UnsetType | None = msgspec.UNSET


class ExtendBody(msgspec.Struct):
    """`POST /api/v1/lease/:leaseId/extend` (L6)."""

    seconds: int | None = None


class SeekBody(msgspec.Struct, rename="camel"):
    """`POST /api/v1/consumer-groups/:group/queues/:queue/seek` (G3): one of the two."""

    timestamp: str | None = None
    to_end: bool | None = None


class PushedMessage(msgspec.Struct, rename="camel"):
    """What became of one pushed message (P3, P4)."""

    id: str
    transaction_id: str
    status: str


class PushAnswer(msgspec.Struct):
    """201."""

    messages: list[PushedMessage]


class PoppedMessage(msgspec.Struct, rename="camel"):
    """One delivered message: the page's fields, and after `options` what L4 adds."""

    id: str
    transaction_id: str
    queue: str
    partition: str
    data: msgspec.Raw
    retry_count: int
    priority: int
    created_at: str
    locked_at: str
    options: msgspec.Raw
    lease_id: str
    lease_expires_at: str
    partition_id: str
    consumer_group: str | None
    trace_id: str | None


class PopAnswer(msgspec.Struct):
    """200; with nothing to give, a pop is answered 204."""

    messages: list[PoppedMessage]


class Settled(msgspec.Struct, rename="camel"):
    """What became of a singly acknowledged message (A2)."""

    transaction_id: str
    status: str
    acknowledged_at: str
    retry_count: int


class Result(msgspec.Struct, rename="camel", omit_defaults=True):
    """One entry of a batch's answer (A5)."""

    transaction_id: str
    status: str
    retry_count: int | None = None
    error: str | None = None


class BatchSettled(msgspec.Struct):
    """200; `processed` counts the accepted ones."""

    processed: int
    results: list[Result]
