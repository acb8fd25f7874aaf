"""What users of the library hand in and get back: messages to push, delivered messages, acknowledgements."""

from collections.abc import Iterator
from typing import Any

import msgspec

from queen.commands import AckStatus, Status
from queen.names import DEFAULT_PARTITION
from queen.replies import Blocked


class Caller(msgspec.Struct, frozen=True):
    """Who asks (X1): a client address, a token's name or the embedding task, and the request's id."""

    who: str = "library"
    request: bytes = b""


class NewMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message to push.

    `payload` is any value that `msgspec.json` encodes (so NaN and infinities become null), or a `msgspec.Raw` with JSON
    text that is stored as it stands (N5).
    `transaction_id` (N1, unique in the whole server) makes a repeated push harmless (P4); left out, the server
    makes one. `delay_seconds` wins over the queue's `delayedProcessing` (T2). `namespace` and `task` are used
    only if this push creates the queue (P5).
    """

    queue: str
    payload: Any = None
    partition: str = DEFAULT_PARTITION
    transaction_id: str | None = None
    trace_id: str | None = None
    delay_seconds: int | None = None
    namespace: str | None = None
    task: str | None = None


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a pop asks for, see `Broker.pop`."""

    queue: str | None = None
    partition: str | None = None
    namespace: str | None = None
    task: str | None = None
    group: str | None = None
    batch: int = 1
    auto_ack: bool = False
    partitions: int = 1
    worker: str | None = None
    subscription_mode: str | None = None
    subscription_from: int | str | None = None


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A delivered message. Instants are µs since the epoch, as the wall clock shows them.

    `payload` is the JSON text exactly as it was pushed; `data` is what it says.
    """

    id: str
    transaction_id: str
    queue: str
    partition: str
    partition_id: str
    payload: bytes
    retry_count: int
    priority: int
    created_at: int
    locked_at: int
    lease_id: str
    lease_expires_at: int
    consumer_group: str | None
    trace_id: str | None
    lease_time: int
    retry_limit: int

    @property
    def data(self) -> Any:
        """The payload, decoded anew at each call."""
        return msgspec.json.decode(self.payload)


class StoredMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message as it is now for a consumer group, the default one unless another was asked about (S1).

    Instants are µs since the epoch, as the wall clock shows them; None where they don't apply: `locked_at` and
    `worker` are those of the running lease or of the one it was settled under, `failed_at` and `error` of the last
    failed attempt or of the giving up. `payload` is the JSON text exactly as it was pushed, None where it can't be
    decrypted, and then `encryption_error` says why (C4).
    """

    id: str
    transaction_id: str
    queue: str
    partition: str
    partition_id: str
    namespace: str | None
    task: str | None
    payload: bytes | None
    status: Status
    worker: str | None
    created_at: int
    locked_at: int | None
    completed_at: int | None
    failed_at: int | None
    error: str | None
    retry_count: int
    lease_expires_at: int | None
    trace_id: str | None
    encryption_error: str | None = None

    @property
    def data(self) -> Any:
        """The payload, decoded anew at each call; None where it can't be decrypted."""
        return None if self.payload is None else msgspec.json.decode(self.payload)


class GroupPlace(msgspec.Struct, frozen=True, kw_only=True):
    """How far a consumer group has got in a queue, all partitions taken together.

    `position` counts the messages ever pushed that lie behind it, `end` all that were ever pushed. `pending` and
    `processing` are its lag in messages; `lag_seconds` is the age of its oldest pending message, 0 without any.
    """

    queue: str
    position: int
    end: int
    pending: int
    processing: int
    lag_seconds: float


class GroupStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer group, by its name (None: the default group), in every queue that it has met."""

    name: str | None
    queues: tuple[GroupPlace, ...]

    @property
    def lag(self) -> int:
        """Messages that are left for it in all queues: pending and processing."""
        return sum(place.pending + place.processing for place in self.queues)

    @property
    def lag_seconds(self) -> float:
        """The age of its oldest pending message in any queue."""
        return max(place.lag_seconds for place in self.queues)


class Delivery(msgspec.Struct, frozen=True):
    """The answer to a pop: messages in order, or none and what holds pending ones back.

    `because` names the cause that ends first (L3, Z10), `retry_after` the seconds until it does; both are None
    when nothing is pending.
    """

    messages: tuple[Message, ...] = ()
    because: Blocked | None = None
    retry_after: float | None = None

    def __bool__(self) -> bool:
        return bool(self.messages)

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)


class Acknowledgement(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a message at its consumer (A1). With `lease_id`, only that very delivery is settled (A4)."""

    transaction_id: str
    status: AckStatus = "completed"
    error: str | None = None
    lease_id: str | None = None
    consumer_group: str | None = None
