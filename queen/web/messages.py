"""The routes for looking at stored messages and putting them right (the API page's section 6)."""

from typing import Any, Final

import msgspec

from queen.broker import Broker
from queen.commands import Status
from queen.errors import Invalid
from queen.messages import StoredMessage
from queen.names import instant_text
from queen.options import as_dict
from queen.web import parse, render
from queen.web.exchange import Answer, Asked

DEFAULT_LIMIT: Final = 100


async def listed(broker: Broker, asked: Asked) -> Answer:
    """`GET /api/v1/messages`: newest first, by queue, partition, namespace, task and status (S5)."""
    query = asked.query
    limit, offset = _page(query)
    found = await broker.messages.list(
        query.get("queue"),
        query.get("partition"),
        namespace=query.get("namespace"),
        task=query.get("task"),
        status=_status(query),
        limit=limit,
        offset=offset,
    )
    return render.document({"messages": [shown(message) for message in found]})


async def dead_letters(broker: Broker, asked: Asked) -> Answer:
    """`GET /api/v1/dlq`: the dead letters of a group, newest first, and how many there are in all."""
    query = asked.query
    limit, offset = _page(query)
    found, total = await broker.messages.dead_letters(
        query.get("queue"), group=query.get("consumerGroup"), limit=limit, offset=offset
    )
    return render.document({"messages": [shown(message) for message in found], "total": total})


async def get(broker: Broker, asked: Asked) -> Answer:
    """`GET /api/v1/messages/:transactionId`: with the options of its queue (Z13)."""
    message, options = await broker.messages.get(asked.name("transactionId"))
    more = {"traceId": message.trace_id, "partitionId": message.partition_id, "options": as_dict(options)}
    return render.document({**shown(message), **more})


async def history(broker: Broker, asked: Asked) -> Answer:
    """`GET /api/v1/messages/:transactionId/history`: what happened to it, and to those that had its name before."""
    transaction_id = asked.name("transactionId")
    lives = await broker.messages.history(transaction_id)
    return render.document({"transactionId": transaction_id, "messages": list(lives)})


async def delete(broker: Broker, asked: Asked) -> Answer:
    """`DELETE /api/v1/messages/:transactionId` (R5)."""
    transaction_id = asked.name("transactionId")
    await broker.messages.delete(transaction_id, caller=asked.caller)
    return render.document({"deleted": True, "transactionId": transaction_id})


async def retry(broker: Broker, asked: Asked) -> Answer:
    """`POST /api/v1/messages/:transactionId/retry` (R3)."""
    transaction_id = asked.name("transactionId")
    await broker.messages.retry(transaction_id, group=asked.query.get("consumerGroup"), caller=asked.caller)
    return render.document({"retried": True, "transactionId": transaction_id})


async def bury(broker: Broker, asked: Asked) -> Answer:
    """`POST /api/v1/messages/:transactionId/dlq` (R4)."""
    transaction_id = asked.name("transactionId")
    await broker.messages.bury(transaction_id, group=asked.query.get("consumerGroup"), caller=asked.caller)
    return render.document({"movedToDLQ": True, "transactionId": transaction_id})


async def related(broker: Broker, asked: Asked) -> Answer:
    """`GET /api/v1/messages/:transactionId/related`: pushed within an hour of it, newest first."""
    limit, offset = _page(asked.query)
    found = await broker.messages.related(asked.name("transactionId"), limit=limit, offset=offset)
    return render.document(
        {
            "messages": [
                {
                    "transactionId": message.transaction_id,
                    "status": message.status,
                    "createdAt": instant_text(message.created_at),
                    **_payload(message),
                }
                for message in found
            ]
        }
    )


async def clear(broker: Broker, asked: Asked) -> Answer:
    """`DELETE /api/v1/queues/:queue/clear`: all messages of the queue, or of the partition that the query names."""
    queue, partition = asked.name("queue"), asked.query.get("partition")
    count = await broker.messages.clear(queue, partition, caller=asked.caller)
    return render.document(
        {"cleared": True, "count": count, "queue": queue, "partition": "all" if partition is None else partition}
    )


def shown(message: StoredMessage) -> dict[str, Any]:
    """A message as lists show it."""
    return {
        "id": message.id,
        "transactionId": message.transaction_id,
        "queuePath": f"{message.queue}/{message.partition}",
        "queue": message.queue,
        "partition": message.partition,
        "namespace": message.namespace,
        "task": message.task,
        **_payload(message),
        "status": message.status,
        "workerId": message.worker,
        "createdAt": instant_text(message.created_at),
        "lockedAt": _instant(message.locked_at),
        "completedAt": _instant(message.completed_at),
        "failedAt": _instant(message.failed_at),
        "errorMessage": message.error,
        "retryCount": message.retry_count,
        "leaseExpiresAt": _instant(message.lease_expires_at),
    }


def _payload(message: StoredMessage) -> dict[str, Any]:
    """The payload's own text (N5); where it can't be decrypted, null and why (C4)."""
    if message.payload is None:
        return {"payload": None, "encryptionError": message.encryption_error}
    return {"payload": msgspec.Raw(message.payload)}


def _instant(at: int | None) -> str | None:
    return None if at is None else instant_text(at)


def _page(query: dict[str, str]) -> tuple[int, int]:
    """Limit and offset (S5, Z7)."""
    limit = parse.count(query, "limit", DEFAULT_LIMIT)
    offset = parse.integer(query, "offset", 0)
    if offset < 0:
        raise Invalid("offset", "must be 0 or more")
    return limit, offset


def _status(query: dict[str, str]) -> Status | None:
    text = query.get("status")
    if text is None:
        return None
    status = next((known for known in parse.STATUSES if known == text), None)
    if status is None:
        raise Invalid("status", f"must be one of {', '.join(parse.STATUSES)}")
    return status
