"""Replies to answers. Payload text is spliced in as it was stored, never read (N5). Pure."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import ceil
from typing import Any, Final

import msgspec

from queen.messages import Acknowledgement, Delivery, NewMessage
from queen.names import instant_text
from queen.replies import Receipt, Settlement
from queen.web.exchange import Answer
from queen.web.wire import (
    BatchSettled,
    PopAnswer,
    PoppedMessage,
    PushAnswer,
    PushedMessage,
    Result,
    Settled,
)

_encode: Final = msgspec.json.Encoder().encode


def pushed(receipts: Sequence[Receipt]) -> Answer:
    """201 with one entry per item, in order (P3)."""
    found = [PushedMessage(receipt.id, receipt.transaction_id, receipt.status) for receipt in receipts]
    return Answer(201, _encode(PushAnswer(found)))


def delivered(delivery: Delivery, undo: Callable[[], None] | None) -> Answer:
    """200 with the messages, or 204 saying what holds pending ones back (L3, Z10)."""
    if not delivery.messages:
        return _nothing(delivery)
    popped = [
        PoppedMessage(
            id=message.id,
            transaction_id=message.transaction_id,
            queue=message.queue,
            partition=message.partition,
            data=msgspec.Raw(message.payload),
            retry_count=message.retry_count,
            priority=message.priority,
            created_at=_instant(message.created_at),
            locked_at=_instant(message.locked_at),
            options=_options(message.lease_time, message.retry_limit),
            lease_id=message.lease_id,
            lease_expires_at=_instant(message.lease_expires_at),
            partition_id=message.partition_id,
            consumer_group=message.consumer_group,
            trace_id=message.trace_id,
        )
        for message in delivery.messages
    ]
    return Answer(200, _encode(PopAnswer(popped)), (), undo)


def _nothing(delivery: Delivery) -> Answer:
    if delivery.because is None:
        return Answer(204)
    seconds = max(1, ceil(delivery.retry_after or 0))
    return Answer(204, b"", ((b"queen-blocked", delivery.because.encode()), (b"retry-after", b"%d" % seconds)))


def settled(transaction_id: str, settlement: Settlement) -> Answer:
    """200 for a single acknowledgement (A2)."""
    at = instant_text(settlement.at)
    return Answer(200, _encode(Settled(transaction_id, settlement.status, at, settlement.retry_count)))


def batch_settled(entries: Sequence[Acknowledgement], settlements: Sequence[Settlement]) -> Answer:
    """200 for a batch, in the order asked for; refusals stand in their entries (A5)."""
    results = [
        Result(entry.transaction_id, settlement.status, settlement.retry_count)
        if settlement.accepted
        else Result(entry.transaction_id, settlement.status, None, settlement.error)
        for entry, settlement in zip(entries, settlements, strict=True)
    ]
    return Answer(200, _encode(BatchSettled(sum(settlement.accepted for settlement in settlements), results)))


def transacted(
    operations: Sequence[Sequence[NewMessage] | Acknowledgement], results: Sequence[Sequence[Receipt] | Settlement]
) -> Answer:
    """200 with what became of each operation, in order."""
    told: list[dict[str, Any]] = []
    for operation, result in zip(operations, results, strict=True):
        if isinstance(result, Settlement):
            assert isinstance(operation, Acknowledgement)
            found = Result(operation.transaction_id, result.status, result.retry_count)
            told.append({"type": "ack", **msgspec.to_builtins(found)})
        else:
            pushed = [PushedMessage(receipt.id, receipt.transaction_id, receipt.status) for receipt in result]
            told.append({"type": "push", "messages": pushed})
    return document({"success": True, "results": told})


def extended(lease_id: str, expires_at: int) -> Answer:
    """200 with the lease's new end (L6, Z14)."""
    return document({"leaseId": lease_id, "leaseExpiresAt": instant_text(expires_at), "extended": True})


def document(content: Mapping[str, Any], status: int = 200) -> Answer:
    """Any other answer."""
    return Answer(status, _encode(content))


# A batch shares its lease's instants, and messages pushed together their createdAt.
_instant = lru_cache(maxsize=256)(instant_text)


@lru_cache(maxsize=256)
def _options(lease_time: int, retry_limit: int) -> msgspec.Raw:
    return msgspec.Raw(_encode({"leaseTime": lease_time, "retryLimit": retry_limit}))
