"""What the clients of crash.py saw, for crash_judge.py: one record for each request that was sent.

Times are those of one monotonic clock. `at` is when the answer had arrived, or when it was given up; `answered` says
which of the two. What has no answer may have been done or not.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

LEASE_S = 2


class Place(NamedTuple):
    """Where messages queue up, for one consumer group (None: the default one)."""

    queue: str
    partition: str
    group: str | None


class Item(NamedTuple):
    """One message as it was pushed: `number` rises in its partition, and is its payload."""

    name: str
    queue: str
    partition: str
    number: int


class Pushed(NamedTuple):
    """What the answer says of an item."""

    id: str
    status: str


@dataclass
class Push:
    """A push, or the pushes of a transaction. `stored` was looked up in the end where there was no answer."""

    sent: float
    items: list[Item]
    again: bool
    at: float = 0.0
    answers: list[Pushed] | None = None
    stored: list[bool] | None = None


class Got(NamedTuple):
    """One message of a pop's answer."""

    name: str
    id: str
    number: int
    retry_count: int


@dataclass
class Pop:
    """A pop from a queue by a group."""

    sent: float
    queue: str
    group: str | None
    batch: int
    auto: bool
    at: float = 0.0
    answered: bool = False
    partition: str = ""
    lease: str = ""
    messages: list[Got] = field(default_factory=list)


class Settled(NamedTuple):
    """What an acknowledgement's answer says of one message."""

    status: str
    retry_count: int


@dataclass
class Ack:
    """An acknowledgement of messages under one lease; `asked` by transactionId."""

    sent: float
    lease: str
    asked: dict[str, str]
    at: float = 0.0
    results: dict[str, Settled] | None = None
    with_push: Push | None = None
    """In a transaction: stands and falls with the acknowledgement."""


@dataclass
class Extend:
    """A lease's end moved; `seconds` from then on."""

    sent: float
    lease: str
    seconds: float
    at: float = 0.0
    answered: bool = False


@dataclass
class History:
    """Everything that was seen, and each thing that no server may say."""

    pushes: list[Push] = field(default_factory=list)
    pops: list[Pop] = field(default_factory=list)
    acks: list[Ack] = field(default_factory=list)
    extends: list[Extend] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    """By queue, what the server itself counts in the end."""
