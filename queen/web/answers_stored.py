"""The answers about stored messages, consumer groups and transactions as the OpenAPI document describes them."""

from typing import Literal

from queen.web.answers import Body
from queen.web.schemas import Count, Instant, Json, Name, Options, Status, Text, Uuid
from queen.web.wire import PushedMessage, Result


class StoredMessage(Body):
    """One message. `payload` is null where it can't be decrypted, which `encryptionError` explains."""

    id: Uuid
    transaction_id: Name
    queue_path: Text
    queue: Name
    partition: Name
    namespace: Name | None
    task: Name | None
    payload: Json
    status: Status
    worker_id: Name | None
    created_at: Instant
    locked_at: Instant | None
    completed_at: Instant | None
    failed_at: Instant | None
    error_message: Text | None
    retry_count: Count
    lease_expires_at: Instant | None
    encryption_error: Text = ""


class StoredMessages(Body):
    """A page of messages."""

    messages: list[StoredMessage]


class StoredMessageDetail(StoredMessage, kw_only=True):
    """One message, with the options of its queue."""

    trace_id: Name | None
    partition_id: Uuid
    options: Options


class DeadLetters(Body):
    """A page of dead letters, and how many there are in all."""

    messages: list[StoredMessage]
    total: Count


class RelatedMessage(Body):
    """One message, in short."""

    transaction_id: Name
    status: Status
    created_at: Instant
    payload: Json
    encryption_error: Text = ""


class RelatedMessages(Body):
    """A page of them."""

    messages: list[RelatedMessage]


class MessageDeleted(Body):
    """Done."""

    deleted: bool
    transaction_id: Name


class MessageRetried(Body):
    """Done."""

    retried: bool
    transaction_id: Name


class MessageBuried(Body, rename=lambda name: {"moved": "movedToDLQ"}.get(name, "transactionId")):
    """Done."""

    moved: bool
    transaction_id: Name


class QueueCleared(Body):
    """Done; `partition` is `all` where no partition was named."""

    cleared: bool
    count: Count
    queue: Name
    partition: Name


class QueueDeleted(Body):
    """Done."""

    deleted: bool
    queue: Name


# -- consumer groups --------------------------------------------------------------------------------------


class GroupLag(Body):
    """How far a group is behind, in all its queues; seconds by the oldest message."""

    messages: Count
    seconds: float


class PlaceLag(Body):
    """How far a group is behind in one queue."""

    messages: Count
    pending: Count
    processing: Count
    seconds: float


class GroupPlace(Body):
    """Where a group is in one queue."""

    queue: Name
    position: Count
    end: Count
    lag: PlaceLag


class Group(Body):
    """One consumer group."""

    consumer_group: Name | None
    queues: list[GroupPlace]
    lag: GroupLag


class Groups(Body):
    """All consumer groups."""

    groups: list[Group]


class GroupDeleted(Body):
    """Done; the queues that knew the group."""

    deleted: bool
    consumer_group: Name
    queues: list[Name]


class GroupMoved(Body):
    """Done; `position` is where the group is now."""

    moved: bool
    consumer_group: Name
    queue: Name
    position: Count


# -- transactions -----------------------------------------------------------------------------------------


class PushResult(Body, tag="push", tag_field="type"):
    """What became of a push."""

    messages: list[PushedMessage]


class AckResult(Result, tag="ack", tag_field="type"):
    """What became of an acknowledgement."""


class Transacted(Body):
    """All is done; a result for each operation, in order."""

    success: Literal[True]
    results: list[PushResult | AckResult]


class NotTransacted(Body):
    """Nothing is done, because of the operation with this index."""

    success: Literal[False]
    error: Text
    reason: Literal["not_found", "conflict"]
    failed_index: Count
