"""The answers about the past and about what holds messages back, as the OpenAPI document describes them."""

from typing import Literal

from queen.web.answers import Body
from queen.web.schemas import Count, Instant, Json, Name, Text, Uuid


class Step(Body):
    """One thing that happened to a message. `seq` is the number of the record that tells of it."""

    seq: Count
    at: Instant
    type: Literal[
        "pushed",
        "leased",
        "lease_extended",
        "completed",
        "failed",
        "dead_letter",
        "returned",
        "set_aside",
        "revived",
        "deleted",
        "group_joined",
        "group_moved",
        "group_deleted",
        "queue_deleted",
    ]
    group: Name = ""
    who: Text = ""
    request: Text = ""
    cause: Text = ""
    error: Text = ""
    worker: Name = ""
    lease_id: Uuid = ""
    leased_at: Instant = ""
    lease_expires_at: Instant = ""
    available_at: Instant = ""
    retry_count: Count = 0


class Standing(Body):
    """How a message is for a consumer group; null is the default one."""

    group: Name | None
    status: Literal["pending", "processing", "completed", "failed", "dead_letter", "deleted"]
    since: Instant
    retry_count: Count


class Life(Body):
    """All about one message. `deleted` is its tombstone."""

    transaction_id: Name
    message_id: Uuid
    queue: Name
    partition: Name
    position: Count
    created_at: Instant
    size: Count
    trace_id: Name | None
    encrypted: bool
    erased: bool
    payload: Json
    payload_error: Text | None
    steps: list[Step]
    status: list[Standing]
    deleted: Step | None


class History(Body):
    """The messages that ever had that transactionId, oldest first."""

    transaction_id: Name
    messages: list[Life]


class RunningLease(Body):
    """A lease that holds messages of the partition."""

    lease_id: Uuid
    worker_id: Name | None
    locked_at: Instant
    lease_expires_at: Instant
    messages: Count


class PartitionExplained(Body):
    """What a pop of the partition would find. `until` is when that changes by itself."""

    partition: Name
    would_deliver: bool
    cause: Literal["ready", "leased", "delayed", "buffered", "retry", "empty", "quarantined", "key_missing"]
    because: Text
    until: Instant | None
    pending: Count
    processing: Count
    oldest_message: Instant | None
    leases: list[RunningLease]


class Explained(Body):
    """A page of the queue's partitions, of `total`."""

    queue: Name
    consumer_group: Name | None
    group_known: bool
    total: Count
    partitions: list[PartitionExplained]
