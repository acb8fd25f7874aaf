"""What the journal's events say, in the words of the API: one `Happening` for each event, with names for numbers. Pure.

`queen replay` writes these, one a line. Fields that have nothing to say are left out there.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from queen.audit.atlas import Atlas
from queen.audit.spans import Spans, count_of, spans_in
from queen.events import (
    AnyEvent,
    ClockShifted,
    GroupDeleted,
    GroupJoined,
    GroupMoved,
    GroupStarted,
    LeaseExtended,
    MessagesDeleted,
    MessagesLeased,
    MessagesPushed,
    MessagesReturned,
    MessagesRevived,
    MessagesSetAside,
    MessagesSettled,
    PartitionCreated,
    QueueConfigured,
    QueueCreated,
    QueueDeleted,
)
from queen.names import generated_transaction_id, instant_text, message_id, uuid_text, uuid_texts
from queen.store.format import Record

BY_TIME: Final = "server"
"""Who records what time or the server itself has brought."""

_TYPE: Final[dict[type, str]] = {
    QueueCreated: "queue_created",
    QueueConfigured: "queue_configured",
    QueueDeleted: "queue_deleted",
    GroupStarted: "group_started",
    GroupDeleted: "group_deleted",
    ClockShifted: "clock_shifted",
    PartitionCreated: "partition_created",
    MessagesPushed: "pushed",
    GroupJoined: "group_joined",
    MessagesLeased: "leased",
    LeaseExtended: "lease_extended",
    MessagesReturned: "returned",
    MessagesSetAside: "set_aside",
    MessagesRevived: "revived",
    MessagesDeleted: "deleted",
    GroupMoved: "group_moved",
}
TYPES: Final = (*_TYPE.values(), "completed", "failed", "dead_letter")
"""Every `Happening.type`."""


class Happening(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One event. `count` is how many messages it concerns, `positions` where they stand in their partition."""

    seq: int
    at: str
    type: str
    queue: str | None = None
    partition: str | None = None
    group: str | None = None
    count: int = 0
    positions: Spans = ()
    who: str = ""
    request: str = ""
    cause: str | None = None
    error: str | None = None
    worker: str | None = None
    lease_id: str | None = None
    leased_at: str | None = None
    lease_expires_at: str | None = None
    available_at: str | None = None
    retry_counts: dict[str, int] | None = None
    cursor: int | None = None
    created_at: str | None = None
    message_ids: list[str] | None = None
    transaction_ids: list[str] | None = None
    trace_ids: list[str | None] | None = None
    delay_seconds: list[int | None] | None = None
    payloads: list[msgspec.Raw | None] | None = None
    namespace: str | None = None
    task: str | None = None
    options: dict[str, Any] | None = None


def happening_type(event: AnyEvent) -> str:
    """`Happening.type` of an event."""
    return event.outcome if isinstance(event, MessagesSettled) else _TYPE[type(event)]


def happenings(record: Record, atlas: Atlas) -> Iterator[Happening]:
    """What a record tells, event by event. The atlas knows the names up to it."""
    return (happening(event, record, atlas) for event in record.events)


def happening(event: AnyEvent, record: Record, atlas: Atlas) -> Happening:
    """What one event of a record tells."""
    place = atlas.partition(record.partition)
    queue: int | None = getattr(event, "queue", None if place is None else place.queue)
    group = getattr(event, "group", None)
    return Happening(
        seq=record.seq,
        at=instant_text(record.at + record.shift),
        who=record.who,
        request=record.request.hex(),
        queue=None if queue is None else atlas.queue(queue),
        partition=None if place is None else place.name,
        group=None if group is None else atlas.group(queue, group),
        type=happening_type(event),
        count=count_of(event),
        positions=spans_in(event),
        **_DETAILS[type(event)](event, record),
    )


def settled_because(event: MessagesSettled, record: Record) -> str:
    """What settled the messages: an acknowledgement, a delivery with autoAck, a lease's end, the ttl, a seek, or an
    operator (R4)."""
    if event.asked is not None:
        return "autoAck" if event.leased_at == record.at else "ack"
    if event.leased_at is not None:
        return "leaseExpired"
    if record.who == BY_TIME:
        return "ttl"
    return "seek" if event.outcome == "completed" else "operator"


def returned_because(event: MessagesReturned) -> str:
    """Why the messages are available again; "operator" for a retry that somebody hastened (R3)."""
    if event.because == "failed" and event.failed_at is None:
        return "operator"
    return {"failed": "failed", "expired": "leaseExpired", "released": "undelivered", "retried": "givenBack"}[
        event.because
    ]


def transaction_ids(event: MessagesPushed) -> list[str]:
    """The messages' transactionIds, their clients' or the server's."""
    base = int.from_bytes(event.base)
    made = uuid_texts([generated_transaction_id(base, index) for index in range(len(event.sizes))])
    if not event.transaction_ids:
        return list(made)
    return [own if given is None else given for given, own in zip(event.transaction_ids, made, strict=True)]


# -- the details of each class --------------------------------------------------------------------------------

Details = dict[str, Any]


def _pushed(event: MessagesPushed, record: Record) -> Details:
    base = int.from_bytes(event.base)
    return {
        "message_ids": list(uuid_texts([message_id(base, index) for index in range(len(event.sizes))])),
        "transaction_ids": transaction_ids(event),
        "trace_ids": list(event.trace_ids) or None,
        "delay_seconds": list(event.delays_s) or None,
    }


def _leased(event: MessagesLeased, record: Record) -> Details:
    return {**_extended(event, record), "worker": event.worker}


def _extended(event: LeaseExtended | MessagesLeased, record: Record) -> Details:
    return {"lease_id": _id(event.lease), "lease_expires_at": _time(event.expires_at, record)}


def _settled(event: MessagesSettled, record: Record) -> Details:
    return {
        "cause": settled_because(event, record),
        "error": event.error,
        "worker": event.worker,
        "lease_id": _id(event.lease),
        "leased_at": _time(event.leased_at, record),
        "retry_counts": {str(position): count for position, count in event.retry_counts.items()} or None,
    }


def _returned(event: MessagesReturned, record: Record) -> Details:
    counts = {str(place): count for place, count in zip(event.positions, event.retry_counts, strict=True) if count}
    return {
        "cause": returned_because(event),
        "error": event.error,
        "available_at": _time(event.available_at, record),
        "retry_counts": counts or None,
    }


def _set_aside(event: MessagesSetAside, record: Record) -> Details:
    return {"available_at": _time(min(event.available_at), record)}


def _by_operator(event: MessagesRevived, record: Record) -> Details:
    return {"cause": "operator"}


def _deleted(event: MessagesDeleted, record: Record) -> Details:
    return {"cause": "retention" if record.who == BY_TIME else "operator"}


def _configured(event: QueueCreated | QueueConfigured, record: Record) -> Details:
    return {"namespace": event.namespace, "task": event.task, "options": event.options}


def _started(event: GroupStarted, record: Record) -> Details:
    return {"available_at": _time(event.from_at or None, record)}


def _placed(event: GroupJoined | GroupMoved, record: Record) -> Details:
    return {"cursor": event.cursor}


def _nothing(event: AnyEvent, record: Record) -> Details:
    return {}


def _id(id: bytes | None) -> str | None:
    return None if id is None else uuid_text(int.from_bytes(id))


def _time(at: int | None, record: Record) -> str | None:
    return None if at is None else instant_text(at + record.shift)


_DETAILS: Final[dict[type, Callable[[Any, Record], Details]]] = {
    QueueCreated: _configured,
    QueueConfigured: _configured,
    QueueDeleted: _nothing,
    GroupStarted: _started,
    GroupDeleted: _nothing,
    ClockShifted: _nothing,
    PartitionCreated: _nothing,
    MessagesPushed: _pushed,
    GroupJoined: _placed,
    MessagesLeased: _leased,
    LeaseExtended: _extended,
    MessagesSettled: _settled,
    MessagesReturned: _returned,
    MessagesSetAside: _set_aside,
    MessagesRevived: _by_operator,
    MessagesDeleted: _deleted,
    GroupMoved: _placed,
}
