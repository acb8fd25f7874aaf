"""What the fields of bodies mean, for the OpenAPI document and the page made from it: texts and nothing else. The
types stand with the structs; what a value must be is decided where it is read.

A field that stands in several structs and means the same in all has one text, under `ANYWHERE`.
"""

from typing import Final

_LEASE: Final = "Means nothing where `autoAck` completed the message at its delivery: there is no lease then."
_STATUS: Final = "Where the message stands for the default consumer group, whatever other groups have done with it."
_NULL_RESETS: Final = "Left out, it stays as it is; null takes it away."

ANYWHERE: Final[dict[str, str]] = {
    "consumerGroup": "The consumer group; null stands for the default group.",
    "createdAt": "When it was made; for a message, when it was pushed.",
    "depth": "Messages that wait.",
    "encryptionError": "Why the payload can't be read; absent where it can.",
    "errorMessage": "Why the last attempt failed: what the acknowledgement said, `lease expired` or `expired`.",
    "failedAt": "When the last attempt failed. Stays until the message is completed.",
    "completedAt": "When the message was completed.",
    "id": "Made by the server, and never used again.",
    "leaseExpiresAt": "When the lease ends: the message is then delivered again.",
    "leaseId": "The lease.",
    "lockedAt": "When the message was last delivered.",
    "messagesPerMinute": "Messages in that minute.",
    "messagesPerSecond": "The same per second, rounded.",
    "namespace": "A name by which queues are gathered, null where the queue has none.",
    "options": "All options of the queue.",
    "partitionId": "The partition's id.",
    "payload": "The message's content, to the character as it was pushed.",
    "pending": "Messages that wait for their first or next delivery, for whatever reason they wait.",
    "priority": "The queue's `priority`.",
    "processing": "Messages that are with a consumer.",
    "retryCount": "How many attempts have failed so far, ended leases among them. The last one isn't counted: at the "
    "limit it stays `retryLimit`.",
    "task": "A second name by which queues are gathered, null where the queue has none.",
    "traceId": "As it was pushed; null where none was.",
    "transactionId": "The message's name, unique in the whole server.",
    "uptime": "Seconds since the server's start.",
    "workerId": "Who got the message last, as the pop said; null where it said nothing.",
}
"""By field, where no struct says otherwise."""

_GROUPED: Final[dict[str, dict[str, str]]] = {
    # -- what is sent
    "PushBody PushOperation": {"items": "The messages."},
    "PushItem": {
        "queue": "Where the message goes. A queue that isn't there is created with all options at their defaults.",
        "payload": "The message: any JSON value, which comes back to the character. Left out: null.",
        "partition": "The part of the queue that the message is kept in order with. Left out: `Default`.",
        "transactionId": "The message's name, unique in the whole server, whatever the queue. Pushed again while the "
        "message is stored, it is a duplicate. Left out: the server makes one.",
        "traceId": "Any text of yours; it comes back with the message.",
        "delaySeconds": "The message is delivered that many seconds from now at the earliest. Left out: the queue's "
        "`delayedProcessing`.",
        "namespace": "Of the queue, where this push creates it; else not looked at.",
        "task": "The same for the queue's task.",
    },
    "AckBody AckOperation": {
        "transactionId": "The message.",
        "status": "`completed`: done with. `failed`: the attempt counts; the message is delivered again, `retryLimit` "
        "times at most, and then is `failed` for good, or a dead letter where `dlqAfterMaxRetries` is on. `retry`: "
        "given back and delivered again, not counted. `dead_letter`: to the dead letters at once.",
        "error": "Why it failed. Its first 4,096 characters are kept in the message's history and shown as "
        "`errorMessage`, whatever the status: with `completed` as well.",
        "leaseId": "The lease under which you got the message. Where the message has gone to somebody else meanwhile, "
        "409. Left out: not looked at.",
        "consumerGroup": "The group that got the message. Left out: the default group.",
    },
    "AckBatchBody": {"acknowledgments": "What would each be the body of a single acknowledgement."},
    "TransactionBody": {"operations": "In any order; at most 1000 messages and acknowledgements in all."},
    "ConfigureBody": {
        "queue": "Created where it isn't there.",
        "options": "What is to change; what is left out stays as it is, null resets an option to its default.",
        "namespace": f"A name by which queues are gathered: for pops, lists and figures. {_NULL_RESETS}",
        "task": f"A second such name. {_NULL_RESETS}",
    },
    "ExtendBody": {"seconds": "How long the lease is to last from now. Left out: the queue's `leaseTime`."},
    "SeekBody": {
        "timestamp": "To the first message pushed at or after it.",
        "toEnd": "Past all messages that are there.",
    },
    # -- on a message's way
    "PushedMessage": {
        "id": "For a duplicate, the first message's.",
        "status": "`queued`: stored. `duplicate`: a message of this transactionId is there already, nothing is stored.",
    },
    "PoppedMessage": {
        "data": "The payload.",
        "lockedAt": "When it was delivered.",
        "leaseId": f"For acknowledging and extending; the same for all messages of one pop and partition. {_LEASE}",
        "leaseExpiresAt": f"Till then the message is yours; after that it is delivered again. {_LEASE}",
        "options": "Those options of the queue that concern a consumer.",
    },
    "Settled": {
        "acknowledgedAt": "When it was settled; for a repeated acknowledgement, the first time.",
        "status": "What became of the message. `completed`. `retry_scheduled`: it will be delivered again. `failed`, "
        "`dead_letter`: it won't.",
    },
    "Result AckResult": {
        "status": "What became of the message; `not_found` and `conflict` where the acknowledgement was refused.",
        "error": "Why it was refused.",
    },
    "BatchSettled": {"processed": "How many were accepted.", "results": "One for each, in the order asked for."},
    "Extended": {
        "leaseExpiresAt": "The lease's end from now on: never earlier than it was before.",
        "extended": "Always true, also where the lease lasted as long anyway and nothing has changed.",
    },
    "Transacted": {"results": "One for each operation, in order."},
    "NotTransacted": {"failedIndex": "Which operation was refused, counted from 0."},
    # -- stored messages
    "StoredMessage StoredMessageDetail": {
        "queuePath": "Queue and partition, as `queue/partition`.",
        "payload": "As it was pushed; null where it can't be decrypted.",
        "status": _STATUS,
        "leaseExpiresAt": "When its lease ends; null where it has none.",
    },
    "RelatedMessage": {"status": _STATUS},
    "DeadLetters": {"total": "How many there are on all pages."},
    "MessageDeleted QueueDeleted GroupDeleted": {"deleted": "Always true."},
    "MessageRetried": {"retried": "Always true."},
    "MessageBuried": {"movedToDLQ": "Always true."},
    "QueueCleared": {
        "cleared": "Always true.",
        "count": "How many messages were deleted.",
        "partition": "The one that was named, else `all`.",
    },
    "Configured": {"configured": "Always true."},
    # -- consumer groups
    "GroupPlace": {
        "position": "How many of the queue's messages the group has passed: settled, deleted or skipped by a seek.",
        "end": "How many messages were ever pushed to the queue.",
    },
    "GroupMoved": {
        "moved": "Always true.",
        "position": "How many of the queue's messages the group has passed now.",
    },
    "GroupDeleted": {"queues": "The queues that knew the group."},
    "GroupLag PlaceLag": {
        "messages": "How many messages are left for the group.",
        "seconds": "The age of the oldest that waits for it, in seconds.",
    },
    # -- figures
    "StatusCounts": {
        "completed": "Done with, and still kept.",
        "failed": "Failed for good.",
        "deadLetter": "Dead letters.",
        "total": "The sum of the five.",
    },
    "FewCounts SomeCounts PartitionSummary": {"total": "Messages of every status."},
    "PartitionDetail": {
        "oldestMessage": "When the oldest message that waits was pushed; null where none waits.",
        "newestMessage": "The same of the newest.",
    },
    "Minute": {
        "timestamp": "When the minute began.",
        "incoming": "Messages pushed.",
        "completed": "Messages completed.",
        "processing": "Messages delivered.",
        "failed": "Attempts that failed.",
        "lag": "How long the completed ones took.",
    },
    "LagMean": {
        "avgSeconds": "Mean time from push to completion, in seconds.",
        "avgMilliseconds": "The same in milliseconds.",
        "sampleCount": "Over how many messages.",
    },
    "LagStatistics": {
        "pendingCount": "Messages that wait.",
        "processingCount": "Messages that are with a consumer.",
        "totalBacklog": "The sum of both.",
        "completedMessages": "Completed in the last 24 hours; the times are over these.",
        "avgProcessingTimeSeconds": "Seconds from push to completion, the mean.",
        "avgProcessingTime": "The same as text.",
        "medianProcessingTimeSeconds": "Seconds from push to completion, the median.",
        "medianProcessingTime": "The same as text.",
        "p95ProcessingTimeSeconds": "Seconds from push to completion, the 95th percentile.",
        "p95ProcessingTime": "The same as text.",
        "estimatedLagSeconds": "The backlog times `avgProcessingTimeSeconds`.",
        "estimatedLag": "The same as text.",
        "medianLagSeconds": "The backlog times `medianProcessingTimeSeconds`.",
        "medianLag": "The same as text.",
        "p95LagSeconds": "The backlog times `p95ProcessingTimeSeconds`.",
        "p95Lag": "The same as text.",
    },
    # -- the server
    "Health": {
        "status": "`unhealthy` while the server starts, stops or can't write.",
        "connections": "Open connections.",
        "reason": "Why nobody gets in; absent but where the tokens can't be read.",
    },
    "HealthStatistics": {
        "requests": "HTTP requests.",
        "messages": "Messages stored by pushes.",
        "requestsPerSecond": "Mean since the start.",
        "messagesPerSecond": "Mean since the start.",
        "pool": "The one writer, in the words of a database's pool.",
    },
    "WriterPool": {
        "total": "Always 1.",
        "idle": "1 while it waits for work, 0 while it writes.",
        "waiting": "Answers that wait for the disk.",
    },
    "Readiness": {
        "status": "`starting`, `stopping`, or `failed`: the disk does not answer, or nobody knows what it has kept.",
        "store": "`full`: pushes are refused, acknowledgements and deletions go on.",
        "reason": "What is the matter; null where nothing is.",
    },
    "Totals": {"rate": "Mean per second."},
    "Metrics": {"requests": "HTTP requests.", "messages": "Messages stored by pushes.", "database": "The one writer."},
    "Database": {
        "poolSize": "Always 1.",
        "idleConnections": "1 while it waits for work, 0 while it writes.",
        "waitingRequests": "Answers that wait for the disk.",
    },
    "Memory": {
        "rss": "Resident memory.",
        "heapTotal": "Private memory asked of the kernel.",
        "heapUsed": "Resident memory that belongs to no file.",
        "external": "Resident pages of files.",
        "arrayBuffers": "What waits for the disk, or is kept to be read again.",
    },
    "Compacted": {
        "compacted": "Always true.",
        "bytesBefore": "The file's size before.",
        "bytesAfter": "And now.",
    },
}

MEANINGS: Final = {
    (name, field): text for names, texts in _GROUPED.items() for name in names.split() for field, text in texts.items()
}
"""By struct and field."""


def meaning(struct: str, field: str) -> str | None:
    """What the field of the struct means, None where its name says it all."""
    return MEANINGS.get((struct, field)) or ANYWHERE.get(field)
