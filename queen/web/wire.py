"""The bodies as they travel: one struct per request and per answer, field by field as the API page names them."""

from typing import Annotated

import msgspec

from queen.web.schemas import (
    Batch,
    BatchOutcome,
    Count,
    Delay,
    DeliveredOptions,
    Instant,
    Json,
    LeaseName,
    Name,
    OptionChanges,
    Outcome,
    PushStatus,
    Settling,
    Span,
    Text,
    Uuid,
)

NULL = msgspec.Raw(b"null")


class PushItem(msgspec.Struct, rename="camel"):
    """One message of a push. `payload` keeps the sender's own text (N5); absent, it reads as null."""

    queue: Name
    payload: Json = msgspec.field(default_factory=lambda: NULL)
    partition: Name | None = None
    transaction_id: Name | None = None
    trace_id: Name | None = None
    delay_seconds: Delay | None = None
    namespace: Name | None = None
    task: Name | None = None


class PushBody(msgspec.Struct):
    """`POST /api/v1/push`."""

    items: Annotated[list[PushItem], Batch]


class AckBody(msgspec.Struct, rename="camel"):
    """`POST /api/v1/ack`, and one entry of a batch (A1)."""

    transaction_id: Name
    status: Settling
    error: Text | None = None
    lease_id: LeaseName | None = None
    consumer_group: Name | None = None


class AckBatchBody(msgspec.Struct):
    """`POST /api/v1/ack/batch`."""

    acknowledgments: Annotated[list[AckBody], Batch]


class PushOperation(PushBody, tag="push", tag_field="type"):
    """A push within a transaction."""


class AckOperation(AckBody, tag="ack", tag_field="type"):
    """An acknowledgement within a transaction."""


class TransactionBody(msgspec.Struct):
    """`POST /api/v1/transaction`."""

    operations: Annotated[list[PushOperation | AckOperation], Batch]


class ConfigureBody(msgspec.Struct):
    """`POST /api/v1/configure`. Absent and null differ here (C1, C2); `partition` is not even looked at."""

    queue: Name
    options: OptionChanges | None = None
    namespace: Name | msgspec.UnsetType | None = msgspec.UNSET
    task: Name | msgspec.UnsetType | None = msgspec.UNSET


class ExtendBody(msgspec.Struct):
    """`POST /api/v1/lease/:leaseId/extend` (L6)."""

    seconds: Span | None = None


class SeekBody(msgspec.Struct, rename="camel"):
    """`POST /api/v1/consumer-groups/:group/queues/:queue/seek` (G3): one of the two."""

    timestamp: Instant | None = None
    to_end: bool | None = None


class PushedMessage(msgspec.Struct, rename="camel"):
    """What became of one pushed message (P3, P4)."""

    id: Uuid
    transaction_id: Name
    status: PushStatus


class PushAnswer(msgspec.Struct):
    """201."""

    messages: list[PushedMessage]


class PoppedMessage(msgspec.Struct, rename="camel"):
    """One delivered message. What follows `options` is more than the API page has (L4)."""

    id: Uuid
    transaction_id: Name
    queue: Name
    partition: Name
    data: Json
    retry_count: Count
    priority: int
    created_at: Instant
    locked_at: Instant
    options: DeliveredOptions
    lease_id: Uuid
    lease_expires_at: Instant
    partition_id: Uuid
    consumer_group: Name | None
    trace_id: Name | None


class PopAnswer(msgspec.Struct):
    """200; with nothing to give, a pop is answered 204."""

    messages: list[PoppedMessage]


class Settled(msgspec.Struct, rename="camel"):
    """What became of a singly acknowledged message (A2)."""

    transaction_id: Name
    status: Outcome
    acknowledged_at: Instant
    retry_count: Count


class Result(msgspec.Struct, rename="camel", omit_defaults=True):
    """One entry of a batch's answer (A5)."""

    transaction_id: Name
    status: BatchOutcome
    retry_count: Count | None = None
    error: Text | None = None


class BatchSettled(msgspec.Struct):
    """200; `processed` counts the accepted ones."""

    processed: Count
    results: list[Result]
