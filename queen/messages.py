"""What users of the library hand in and get back: messages to push, delivered messages, acknowledgements."""

from collections.abc import Iterator
from typing import Any

import msgspec

from queen.commands import AckStatus
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
