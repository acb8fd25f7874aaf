"""What a partition's rules may look up of its past: questions only, pure, the same answer for the same history.

The state of a partition is a cursor and exceptions; everything older stays on disk and is asked for through
this protocol. `store/projections.py` answers it from the journal's projections.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from queen.events import Outcome, Run


class PushedRun(NamedTuple):
    """Where one record of pushed messages lies: positions `first` to `first + length - 1`.

    `delays_s` is empty where no message of it has a delay of its own; `key` names the key that sealed it. For `sizes`
    ask `History.sizes`.
    """

    first: int
    length: int
    pushed_at: int
    seq: int
    shown_at: int
    delays_s: tuple[int | None, ...] = ()
    key: str | None = None
    sizes: tuple[int, ...] = ()


class Settled(NamedTuple):
    """How a message ended for a group, see `events.MessagesSettled`; `at` is when."""

    outcome: Outcome
    asked: str | None
    lease: bytes | None
    retry_count: int
    error: str | None
    at: int
    leased_at: int | None = None
    worker: str | None = None


class SettledRecord(NamedTuple):
    """One record that settled messages of the partition, for any group."""

    seq: int
    at: int
    runs: tuple[Run, ...]


class Place(NamedTuple):
    """Where a message is: partition number and position; `id` is its message id."""

    partition: int
    position: int
    id: int


class History(Protocol):
    """The past of one partition (`find` alone looks at the whole server)."""

    def runs(self, position: int) -> Iterator[PushedRun]:
        """The record that holds `position`, or the first one behind it, and all that follow, in order."""

    def sizes(self, run: PushedRun) -> tuple[int, ...]:
        """The lengths of a record's payloads, in bytes."""

    def settled(self, group: int, position: int) -> Settled | None:
        """How the message last ended for the group, or None. Stale for messages that are pending again."""

    def settlements(self, after_seq: int) -> Iterator[SettledRecord]:
        """Records that settled messages, those after journal position `after_seq`, in order."""

    def given_up(self, group: int, outcome: Outcome, below: int) -> Iterator[int]:
        """Positions below `below` that may have ended as `outcome` ("failed" or "dead_letter") for the group, in
        descending order: none of those that did is missing, some may have become something else since."""

    def find(self, transaction_id: str) -> Place | None:
        """The stored message of that transactionId (N3), deleted ones not counted."""
