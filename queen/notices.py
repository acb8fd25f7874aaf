"""What subscribers of the feed are told: one frozen struct per notice. Vocabulary; knows no wire names.

`at` is an instant in µs as the wall clock shows it. A notice follows the commit that it tells of, in commit order.
"""

from typing import Literal

import msgspec

from queen.figures import Counts


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all notices. A notice of one queue has a field `queue`."""

    at: int


class MessageNotice(Notice, frozen=True, kw_only=True):
    """Something happened to one message. `group` is the consumer group, None for the default group."""

    queue: str
    partition: str
    transaction_id: str
    group: str | None = None


class MessagePushed(MessageNotice, frozen=True, kw_only=True):
    """A message was stored. It is one for all groups, so `group` is None."""


class MessageProcessing(MessageNotice, frozen=True, kw_only=True):
    """A message was delivered; `worker` is what the consumer calls itself."""

    worker: str | None


class MessageCompleted(MessageNotice, frozen=True, kw_only=True):
    """A message was completed."""


class MessageFailed(MessageNotice, frozen=True, kw_only=True):
    """An attempt failed, its lease ended, or time ran out. `outcome` is what became of the message."""

    error: str | None
    outcome: Literal["retry", "failed", "dead_letter"]


class QueueAdded(Notice, frozen=True, kw_only=True):
    """A queue was created, with its first partition."""

    queue: str
    partition: str


class PartitionDepth(Notice, frozen=True, kw_only=True):
    """How many messages of the default group a partition holds, by status."""

    queue: str
    partition: str
    counts: Counts


class QueueDepth(Notice, frozen=True, kw_only=True):
    """The same for a queue; `partitions` holds the first ones of it, see `pulse.PARTITIONS`."""

    queue: str
    namespace: str | None
    task: str | None
    counts: Counts
    partitions: tuple[PartitionDepth, ...]


class SystemStatistics(Notice, frozen=True, kw_only=True):
    """All queues together; `created` and `completed` are those of the last minute, no longer back than the start of
    the broker."""

    pending: int
    processing: int
    created: int
    completed: int


class NoticesDropped(Notice, frozen=True, kw_only=True):
    """The subscriber reads too slowly: so many notices that stood before the next one were dropped (W2)."""

    count: int
