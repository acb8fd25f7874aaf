"""What callers of the broker may hand in (N1, N5, O1, O4, A1): everything is looked at before anything is done.

Imports vocabulary only. Each refusal is an `Invalid` that names the field by its name on the wire.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from queen.commands import Status
from queen.errors import Conflict, Invalid, NotFound, TooLarge
from queen.messages import Acknowledgement, Caller, Message, NewMessage
from queen.names import check_name, is_known_name, name_fault, parse_instant
from queen.rawjson import MAX_NESTING, check_escapes, check_nesting
from queen.rawjson import check as check_json
from queen.replies import Settlement

MAX_BATCH = 1000
MAX_PUSH_BYTES = 64 * 2**20
"""Of payload, in one push or transaction."""
MAX_SPAN_S = 2**31 - 1
_STATUSES = ("completed", "failed", "retry", "dead_letter")
MAX_OFFSET = 2**53 - 1
MESSAGE_STATUSES: Final[tuple[Status, ...]] = ("pending", "processing", "completed", "failed", "dead_letter")
_MODES = ("all", "new")
_encode: Final = msgspec.json.Encoder().encode


def check_whole(value: object, where: str, low: int, high: int) -> None:
    """A whole number in a range. Types count: what is recorded once must be readable at every start."""
    if type(value) is not int:
        raise Invalid(where, f"must be a whole number, is {type(value).__name__}")
    if not low <= value <= high:
        raise Invalid(where, f"must be from {low} to {high}")


def check_caller(caller: Caller) -> None:
    """Who asks (X1)."""
    if type(caller.who) is not str or type(caller.request) is not bytes:
        raise Invalid("caller", "must be a Caller of a text and bytes")
    _check_text(caller.who, "caller.who")


class Checked:
    """Messages that have been looked at, each with its payload as JSON text. Nobody but this module makes one: what is
    in it needs no second look."""

    __slots__ = ("items",)

    def __init__(self, items: list[tuple[NewMessage, bytes]]) -> None:
        self.items = items


def checked(items: Sequence[NewMessage], where: str = "items") -> Checked:
    """Look at what a caller wants to push."""
    pairs = [(item, _payload(item, where, index)) for index, item in _looked_at(items, where)]
    check_size(pairs, where)
    return Checked(pairs)


def checked_parts(items: Sequence[NewMessage], text: bytes) -> Checked:
    """The same for messages whose payloads were cut out of `text`, all of which was UTF-8 and sound JSON: their grammar
    needs no second look, and what a grammar lets pass is looked for in all of them at once."""
    escapes = b"\\u" in text
    deep = text.count(b"[") + text.count(b"{") > MAX_NESTING
    pairs = [(item, bytes(item.payload)) for _, item in _looked_at(items, "items")]
    if len(text) > MAX_PUSH_BYTES:
        check_size(pairs, "items")
    if escapes or deep:
        for index, (_, payload) in enumerate(pairs):
            check_escapes(payload, f"items[{index}].payload")
            check_nesting(payload, f"items[{index}].payload")
    return Checked(pairs)


def check_size(pairs: Sequence[tuple[NewMessage, bytes]], where: str) -> None:
    """What is pushed together is one record in each partition, and is held in memory whole."""
    size = sum([len(payload) for _, payload in pairs])
    if size > MAX_PUSH_BYTES:
        raise TooLarge(f"{where}: the payloads have {size} bytes together, more than {MAX_PUSH_BYTES}")


def _looked_at(items: Sequence[NewMessage], where: str) -> Iterator[tuple[int, NewMessage]]:
    """Each message with its index, once everything but its payload has been looked at."""
    for index, item in enumerate(items):
        if not isinstance(item, NewMessage):
            raise Invalid(f"{where}[{index}]", f"must be a NewMessage, is {type(item).__name__}")
        # Few queues and partitions have most of the messages, and most messages have nothing else to be looked at.
        if not (
            is_known_name(item.queue)
            and is_known_name(item.partition)
            and item.transaction_id is None
            and item.trace_id is None
            and item.delay_seconds is None
            and item.namespace is None
            and item.task is None
        ):
            _check_fields(item, f"{where}[{index}].")
        yield index, item


def _check_fields(item: NewMessage, where: str) -> None:
    check_name(item.queue, f"{where}queue")
    check_name(item.partition, f"{where}partition")
    optional = (
        ("transactionId", item.transaction_id),
        ("traceId", item.trace_id),
        ("namespace", item.namespace),
        ("task", item.task),
    )
    for field, value in optional:
        if value is not None:
            check_name(value, where + field)
    if item.delay_seconds is not None:
        check_whole(item.delay_seconds, f"{where}delaySeconds", 0, MAX_SPAN_S)


def _payload(item: NewMessage, where: str, index: int) -> bytes:
    """The payload as JSON text."""
    if isinstance(item.payload, msgspec.Raw):
        text = bytes(item.payload) or b"null"
        try:
            msgspec.json.decode(text, type=msgspec.Raw)  # the grammar alone: what a `Raw` holds need not be JSON
        except (msgspec.DecodeError, RecursionError) as error:
            raise Invalid(f"{where}[{index}].payload", f"is not JSON: {error}") from None
        check_json(text, f"{where}[{index}].payload")
        return text
    try:
        return _encode(item.payload)
    except (TypeError, ValueError, RecursionError) as error:
        raise Invalid(f"{where}[{index}].payload", f"can't be JSON: {error}") from error


def check_scope(queue: str | None, partition: str | None, namespace: str | None, task: str | None) -> None:
    """A pop looks at a queue, at a queue's partition, or at a namespace and a task."""
    for field, value in (("queue", queue), ("partition", partition), ("namespace", namespace), ("task", task)):
        if value is not None:
            check_name(value, field)
    if queue is None and partition is not None:
        raise Invalid("partition", "needs a queue")
    if queue is not None and (namespace is not None or task is not None):
        raise Invalid("namespace" if namespace is not None else "task", "does not go with a queue")
    if queue is None and namespace is None and task is None:
        raise Invalid("namespace", "namespace or task is required where no queue is named")


def check_pop(group: str | None, batch: int, partitions: int, worker: str | None, mode: str | None) -> None:
    """The rest of a pop."""
    if group is not None:
        check_name(group, "consumerGroup")
    if worker is not None:
        check_name(worker, "workerId")
    for field, value in (("batch", batch), ("partitions", partitions)):
        check_whole(value, field, 1, MAX_BATCH)
    if mode is not None and mode not in _MODES:
        raise Invalid("subscriptionMode", f"must be one of {', '.join(_MODES)}")


def instant_of(subscription_from: int | str | None) -> int:
    """G2: where a group begins, in µs; 0 where no instant says so."""
    if subscription_from is None or subscription_from == "now":
        return 0
    if isinstance(subscription_from, int):
        return subscription_from
    try:
        return parse_instant(subscription_from)
    except ValueError:
        raise Invalid("subscriptionFrom", "must be 'now' or an ISO 8601 time") from None


def check_acks(entries: Sequence[Acknowledgement], where: str) -> None:
    """Acknowledgements; `where` is how an entry is called, with a place for its index."""
    for index, entry in enumerate(entries):
        # Most have nothing to be looked at but two words and an id.
        if not (
            type(entry.transaction_id) is str
            and name_fault(entry.transaction_id) is None
            and entry.status in _STATUSES
            and entry.consumer_group is None
            and entry.error is None
            and (entry.lease_id is None or type(entry.lease_id) is str)
        ):
            check_ack(entry, where.format(index))


def check_ack(entry: Acknowledgement, where: str) -> None:
    """One acknowledgement."""
    check_name(entry.transaction_id, f"{where}transactionId")
    if entry.status not in _STATUSES:
        raise Invalid(f"{where}status", f"must be one of {', '.join(_STATUSES)}")
    if entry.consumer_group is not None:
        check_name(entry.consumer_group, f"{where}consumerGroup")
    if entry.error is not None:
        _check_text(entry.error, f"{where}error")
    if entry.lease_id is not None and type(entry.lease_id) is not str:
        raise Invalid(f"{where}leaseId", f"must be text, is {type(entry.lease_id).__name__}")


def _check_text(text: object, where: str) -> None:
    if type(text) is not str:
        raise Invalid(where, f"must be text, is {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Invalid(where, "must not contain lone surrogates") from None


def check_filter(
    queue: str | None, partition: str | None, namespace: str | None, task: str | None, status: str | None
) -> None:
    """What a list is of (S5)."""
    for field, value in (("queue", queue), ("partition", partition), ("namespace", namespace), ("task", task)):
        if value is not None:
            check_name(value, field)
    if status is not None and status not in MESSAGE_STATUSES:
        raise Invalid("status", f"must be one of {', '.join(MESSAGE_STATUSES)}")


def check_page(limit: int, offset: int) -> None:
    """Which part of a list (S5, Z7)."""
    check_whole(limit, "limit", 1, MAX_BATCH)
    check_whole(offset, "offset", 0, MAX_OFFSET)


def check_transaction(
    operations: Sequence[Sequence[NewMessage] | Acknowledgement],
) -> list[list[tuple[NewMessage, bytes]] | Acknowledgement]:
    """All operations of a transaction, messages with their payloads as JSON text."""
    if not 1 <= len(operations) <= MAX_BATCH:
        raise Invalid("operations", f"must hold from 1 to {MAX_BATCH} operations, holds {len(operations)}")
    count = sum(1 if isinstance(operation, Acknowledgement) else len(operation) for operation in operations)
    if count > MAX_BATCH:
        raise Invalid("operations", f"must hold at most {MAX_BATCH} messages and acknowledgements, holds {count}")
    looked_at: list[list[tuple[NewMessage, bytes]] | Acknowledgement] = []
    for index, operation in enumerate(operations):
        where = f"operations[{index}]."
        if isinstance(operation, Acknowledgement):
            check_ack(operation, where)
            looked_at.append(operation)
        elif not operation:
            raise Invalid(f"{where}items", "must hold at least one message")
        else:
            looked_at.append(checked(operation, f"{where}items").items)
    check_size([pair for operation in looked_at if isinstance(operation, list) for pair in operation], "operations")
    return looked_at


def acknowledgement_of(message: Message, status: str, error: str | None = None) -> Acknowledgement:
    """The acknowledgement of a delivered message under the lease that it came with."""
    return Acknowledgement(
        transaction_id=message.transaction_id,
        status=status,  # type: ignore[arg-type]  # looked at by `check_ack`
        error=error,
        lease_id=message.lease_id,
        consumer_group=message.consumer_group,
    )


def accepted(settlement: Settlement) -> Settlement:
    """The settlement, if the acknowledgement was accepted. Raises `NotFound` or `Conflict` (A3, A4)."""
    if settlement.status == "not_found":
        raise NotFound(settlement.error or "")
    if settlement.status == "conflict":
        raise Conflict(settlement.error or "")
    return settlement
