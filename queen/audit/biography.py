"""The biography of a message: its push, each delivery and what came of it, in every group, and how it ended. Pure.

A transactionId may have named several messages, one after another: it is free again once a message is deleted.
"""

import msgspec

from queen.audit.atlas import Atlas
from queen.audit.gone import Gone
from queen.audit.happenings import Happening, happening, transaction_ids
from queen.audit.index import Pushed, pushes_of, queue_records, records_touching, whole_records
from queen.audit.reading import Past, shown
from queen.audit.spans import concerns
from queen.errors import NotFound
from queen.events import (
    AnyEvent,
    GroupDeleted,
    GroupJoined,
    GroupMoved,
    LeaseExtended,
    MessagesDeleted,
    MessagesLeased,
    MessagesPushed,
    MessagesReturned,
    MessagesRevived,
    MessagesSettled,
    QueueDeleted,
)
from queen.names import DEFAULT_GROUP, instant_text, message_id, uuid_text
from queen.store.format import Record
from queen.store.keyring import NO_KEYS, KeyRing, open_payload


class Step(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One thing that happened to a message; see `Happening`, whose words these are. `retry_count` is what it was from
    then on, where it says so."""

    seq: int
    at: str
    type: str
    group: str | None = None
    who: str = ""
    request: str = ""
    cause: str | None = None
    error: str | None = None
    worker: str | None = None
    lease_id: str | None = None
    leased_at: str | None = None
    lease_expires_at: str | None = None
    available_at: str | None = None
    retry_count: int | None = None


class Standing(msgspec.Struct, frozen=True, rename="camel"):
    """How a message is for a consumer group, since when."""

    group: str | None
    status: str
    since: str
    retry_count: int


class Life(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All about one message. `status` is how it is for each group that it is there for; `deleted` is the step that made
    it gone for all of them, its tombstone."""

    transaction_id: str
    message_id: str
    queue: str
    partition: str
    position: int
    created_at: str
    size: int
    trace_id: str | None
    encrypted: bool
    erased: bool
    payload: msgspec.Raw | None
    payload_error: str | None
    steps: list[Step]
    status: list[Standing]
    deleted: Step | None


def history(
    past: Past,
    transaction_id: str,
    *,
    atlas: Atlas | None = None,
    until: int | None = None,
    ring: KeyRing = NO_KEYS,
    payloads: bool = False,
) -> list[Life]:
    """The lives of the messages that ever had that transactionId, oldest first, as of record `until` (None: now).

    Raises `NotFound`, and `ChainBroken` where a record that is needed is damaged."""
    pushes = pushes_of(past, transaction_id, until)
    if not pushes:
        raise NotFound(f"no message was ever pushed under the transactionId {transaction_id!r}")
    names = atlas or Atlas(past)
    return [_life(past, names, push, until, ring if payloads else None) for push in pushes]


def _life(past: Past, atlas: Atlas, push: Pushed, until: int | None, ring: KeyRing | None) -> Life:
    record, event, place = push.record, push.event, push.place
    partition = atlas.partition(record.partition)
    queue = None if partition is None else partition.queue
    told = _Telling(atlas, record.partition, queue, record.seq, push.position)
    found = [
        *(queue_records(past, queue, until) if queue is not None else ()),
        *whole_records(past, record.partition, 0, record.seq - 1),
        *records_touching(past, record.partition, push.position, record.seq - 1, until),
    ]
    for each in sorted({each.seq: each for each in [*found, record]}.values(), key=lambda each: each.seq):
        told.take(each)
    # R5: what is deleted by now is shown by no tool, whatever instant is asked for.
    payload, fault = None, "the message is deleted" if ring is not None else None
    if ring is not None and not Gone(past)(record.partition, push.position):
        payload, fault = open_payload(record, place, ring)
    return Life(
        transaction_id=transaction_ids(event)[place],
        message_id=uuid_text(message_id(int.from_bytes(event.base), place)),
        queue=(None if queue is None else atlas.queue(queue)) or "",
        partition="" if partition is None else partition.name,
        position=push.position,
        created_at=instant_text(shown(record)),
        size=event.sizes[place],
        trace_id=event.trace_ids[place] if event.trace_ids else None,
        encrypted=event.key is not None,
        erased=record.payload(place) is None,
        payload=None if payload is None else msgspec.Raw(payload),
        payload_error=fault,
        steps=told.steps,
        status=told.standings(),
        deleted=told.deleted,
    )


class _Group:
    """How the message is for one group."""

    def __init__(self, since: str) -> None:
        self.status, self.since, self.retry_count = "pending", since, 0
        self.lease: bytes | None = None

    def become(self, status: str, since: str, retry_count: int | None = None, lease: bytes | None = None) -> None:
        self.status, self.since, self.lease = status, since, lease
        self.retry_count = self.retry_count if retry_count is None else retry_count


class _Telling:
    """Follows one message through the records that may concern it."""

    def __init__(self, atlas: Atlas, partition: int, queue: int | None, pushed: int, position: int) -> None:
        self._atlas = atlas
        self._partition = partition
        self._queue = queue
        self._pushed = pushed
        self._position = position
        self._groups = {DEFAULT_GROUP: _Group("")}
        self.steps: list[Step] = []
        self.deleted: Step | None = None

    def take(self, record: Record) -> None:
        """The next record, of its partition or of the catalogue."""
        for event in record.events:
            if record.partition == self._partition:
                if concerns(event, self._position):
                    self._apply(event, happening(event, record, self._atlas))
            elif not record.partition and getattr(event, "queue", None) == self._queue:
                self._apply_to_queue(event, happening(event, record, self._atlas))

    def _apply_to_queue(self, event: AnyEvent, told: Happening) -> None:
        if isinstance(event, QueueDeleted):
            self._end(self._note(told))
        elif isinstance(event, GroupDeleted):
            known = self._groups.pop(event.group, None)
            if known is not None and told.seq > self._pushed:
                self._note(told)

    def standings(self) -> list[Standing]:
        """How it is for each group, the default one first."""
        return [
            Standing(self._atlas.group(self._queue, number), group.status, group.since, group.retry_count)
            for number, group in sorted(self._groups.items())
        ]

    def _apply(self, event: AnyEvent, told: Happening) -> None:
        if self.deleted is not None:
            return  # what concerns its partition as a whole is none of its business any more
        if isinstance(event, GroupJoined | GroupMoved) and event.cursor <= self._position:
            self._groups.setdefault(event.group, _Group(told.at))
        if told.seq < self._pushed:
            return
        if isinstance(event, MessagesPushed):
            for group in self._groups.values():
                group.since = told.at
            self._note(told)
            return
        if isinstance(event, MessagesDeleted):
            self._end(self._note(told))
            return
        number = getattr(event, "group", None)
        if number not in self._groups:
            return
        group = self._groups[number]
        match event:
            case MessagesLeased():
                group.become("processing", told.at, lease=event.lease)
            case LeaseExtended():
                if event.lease != group.lease:
                    return
            case MessagesSettled():
                group.become(event.outcome, told.at, event.retry_counts.get(self._position, 0))
            case MessagesReturned():
                counts = dict(zip(event.positions, event.retry_counts, strict=True))
                group.become("pending", told.at, counts[self._position])
            case MessagesRevived():
                group.become("pending", told.at, 0)
            case GroupMoved():
                if event.cursor > self._position or group.status == "pending":
                    return
                group.become("pending", told.at, 0)
        self._note(told, group)

    def _end(self, step: Step) -> None:
        self.deleted = self.deleted or step
        for group in self._groups.values():
            group.become("deleted", step.at)

    def _note(self, told: Happening, group: _Group | None = None) -> Step:
        step = Step(
            seq=told.seq,
            at=told.at,
            type=told.type,
            group=told.group,
            who=told.who,
            request=told.request,
            cause=told.cause,
            error=told.error,
            worker=told.worker,
            lease_id=told.lease_id,
            leased_at=told.leased_at,
            lease_expires_at=told.lease_expires_at,
            available_at=told.available_at,
            retry_count=None if group is None else group.retry_count,
        )
        self.steps.append(step)
        return step
