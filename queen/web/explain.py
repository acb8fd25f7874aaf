"""The route that says why a queue delivers now or doesn't."""

from typing import Any, Final

from queen.broker import Broker
from queen.errors import Invalid
from queen.figures import PopExplanation
from queen.names import instant_text, uuid_text
from queen.web import parse
from queen.web.exchange import Answer, Asked
from queen.web.render import document

DEFAULT_LIMIT: Final = 100


async def pop(broker: Broker, asked: Asked) -> Answer:
    """`GET /api/v1/explain/pop?queue=…`: what a pop would find, partition by partition, and why (L3)."""
    query = asked.query
    if "queue" not in query:
        raise Invalid("queue", "is needed")
    found = await broker.explain_pop(
        query["queue"],
        query.get("partition"),
        group=query.get("consumerGroup"),
        limit=parse.integer(query, "limit", DEFAULT_LIMIT),
        offset=parse.integer(query, "offset", 0),
    )
    strict = found.ordering == "strict"
    return document(
        {
            "queue": found.queue,
            "consumerGroup": found.group,
            "groupKnown": found.met,
            "total": found.total,
            "partitions": [_line(partition, found.shift, strict) for partition in found.partitions],
        }
    )


def _line(told: PopExplanation, shift: int, strict: bool) -> dict[str, Any]:
    return {
        "partition": told.partition,
        "wouldDeliver": told.verdict == "ready",
        "cause": told.verdict,
        "because": _sentence(told, shift, strict),
        "until": None if told.until is None else instant_text(told.until + shift),
        "pending": told.pending,
        "processing": told.processing,
        "oldestMessage": None if told.oldest_at is None else instant_text(told.oldest_at + shift),
        "leases": [
            {
                "leaseId": uuid_text(int.from_bytes(lease.id)),
                "workerId": lease.worker,
                "lockedAt": instant_text(lease.leased_at + shift),
                "leaseExpiresAt": instant_text(lease.expires_at + shift),
                "messages": lease.messages,
            }
            for lease in told.leases
        ],
    }


def _sentence(told: PopExplanation, shift: int, strict: bool) -> str:
    until = "" if told.until is None else f" until {instant_text(told.until + shift)}"
    match told.verdict:
        case "ready":
            return "a pop gets messages now"
        case "empty":
            return "no message is pending"
        case "leased" if told.pending and strict:
            leased = "1 message is" if told.processing == 1 else f"{told.processing} messages are"
            return f"{leased} leased{until}; in strict order nothing else is delivered meanwhile"
        case "leased":
            if told.processing == 1:
                return f"the one message that is left is leased{until}"
            return f"all {told.processing} messages that are left are leased{until}"
        case "delayed":
            return f"the next message is delayed{until}"
        case "buffered":
            return f"the queue's windowBuffer holds the partition back{until}"
        case "retry":
            return f"a message that failed waits for its next attempt{until}"
        case "quarantined":
            return "the partition's actor crashed three times in a row; it rests until the server is started anew"
        case "key_missing":
            return f"the next message is encrypted with the key {told.key}, which the server does not have"
