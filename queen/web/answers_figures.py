"""The answers of the API page's sections 5 and 8 as the OpenAPI document describes them. `render_figures.py` writes
them."""

from queen.web.answers import Body
from queen.web.schemas import Amount, Count, Duration, Instant, Name, Options, Uuid

# -- section 5 --------------------------------------------------------------------------------------------


class StatusCounts(Body):
    """Messages by status; `total` is their sum."""

    total: Count
    pending: Count
    processing: Count
    completed: Count
    failed: Count
    dead_letter: Count


class PartitionStatistics(Body):
    """One partition's counts."""

    name: Name
    stats: StatusCounts


class QueueStatistics(Body):
    """One queue's counts, and those of its partitions."""

    queue: Name
    namespace: Name | None
    task: Name | None
    totals: StatusCounts
    partitions: list[PartitionStatistics]


class QueuesStatistics(Body):
    """All queues that match."""

    queues: list[QueueStatistics]


class PartitionDepth(Body):
    """Messages that wait and that are being processed."""

    name: Name
    depth: Count
    processing: Count


class QueueDepth(Body):
    """The same for a queue."""

    queue: Name
    depth: Count
    processing: Count
    partitions: list[PartitionDepth]


class QueueDepths(Body):
    """All queues."""

    depths: list[QueueDepth]


class Rate(Body):
    """Messages in one minute; per second it is rounded."""

    messages_per_minute: Count
    messages_per_second: Count


class LagMean(Body):
    """From push to completion, of what completed in that minute."""

    avg_seconds: Amount
    avg_milliseconds: Count
    sample_count: Count


class Minute(Body):
    """What happened in one minute."""

    timestamp: Instant
    incoming: Rate
    completed: Rate
    processing: Rate
    failed: Rate
    lag: LagMean


class Throughput(Body):
    """60 minutes, newest first."""

    throughput: list[Minute]


class LagStatistics(Body):
    """Backlog, how long messages take, and how long the backlog will."""

    pending_count: Count
    processing_count: Count
    total_backlog: Count
    completed_messages: Count
    avg_processing_time_seconds: Amount
    median_processing_time_seconds: Amount
    p95_processing_time_seconds: Amount
    estimated_lag_seconds: Amount
    median_lag_seconds: Amount
    p95_lag_seconds: Amount
    estimated_lag: Duration
    median_lag: Duration
    p95_lag: Duration
    avg_processing_time: Duration
    median_processing_time: Duration
    p95_processing_time: Duration


class PartitionLag(Body):
    """One partition."""

    name: Name
    stats: LagStatistics


class QueueLag(Body):
    """One queue and its partitions."""

    queue: Name
    namespace: Name | None
    task: Name | None
    partitions: list[PartitionLag]
    totals: LagStatistics


class QueuesLag(Body):
    """Queues with at least 5 messages completed in the last 24 hours."""

    queues: list[QueueLag]


# -- section 8 --------------------------------------------------------------------------------------------


class FewCounts(Body):
    """Messages of a namespace or a task."""

    total: Count
    pending: Count


class SomeCounts(FewCounts):
    """Messages of a queue."""

    processing: Count


class QueueSummary(Body):
    """One queue."""

    id: Uuid
    name: Name
    namespace: Name | None
    task: Name | None
    created_at: Instant
    partitions: Count
    messages: SomeCounts


class QueueSummaries(Body):
    """All queues that match."""

    queues: list[QueueSummary]


class PartitionDetail(Body):
    """One partition of a queue, with the queue's options."""

    id: Uuid
    name: Name
    priority: int
    options: Options
    created_at: Instant
    stats: StatusCounts
    oldest_message: Instant | None
    newest_message: Instant | None


class QueueDetail(Body):
    """One queue with all its partitions."""

    id: Uuid
    name: Name
    namespace: Name | None
    task: Name | None
    created_at: Instant
    partitions: list[PartitionDetail]
    totals: StatusCounts


class PartitionSummary(Body):
    """One partition, with its queue's options."""

    id: Uuid
    name: Name
    queue: Name
    namespace: Name | None
    task: Name | None
    priority: int
    options: Options
    created_at: Instant
    depth: Count
    processing: Count
    total: Count


class PartitionSummaries(Body):
    """All partitions that match."""

    partitions: list[PartitionSummary]


class Namespace(Body):
    """The queues of one namespace."""

    namespace: Name
    queues: Count
    partitions: Count
    messages: FewCounts


class Namespaces(Body):
    """All of them."""

    namespaces: list[Namespace]


class Task(Body):
    """The queues of one task."""

    task: Name
    queues: Count
    partitions: Count
    messages: FewCounts


class Tasks(Body):
    """All of them."""

    tasks: list[Task]


class Overview(Body):
    """Everything, at one instant."""

    queues: Count
    partitions: Count
    namespaces: Count
    tasks: Count
    messages: StatusCounts
    timestamp: Instant
