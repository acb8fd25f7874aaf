"""The port: what the engine asks of a journal, in terms of records and ordered tables; nothing here knows LMDB.

A journal is synchronous. `commit` blocks and runs in a thread of its own; the reads are short and may run on
any one thread beside it. Frames (packed records, see `format.py`) are opaque here.
"""

import enum
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from queen.replies import Compacted


class Table(enum.StrEnum):
    """The projections: ordered tables of bytes, all of which can be made anew from the journal."""

    META = "meta"
    QUEUES = "queues"
    PARTITIONS = "partitions"
    RUNS = "runs"
    IDS = "ids"
    SETTLED = "settled"
    SETTLEMENTS = "settlements"
    STATISTICS = "statistics"
    GIVEN_UP = "given_up"
    ERASURES = "erasures"
    TOUCHES = "touches"
    MOMENTS = "moments"


class Change(NamedTuple):
    """Put `value` under `key`, or remove the key where `value` is None."""

    table: Table
    key: bytes
    value: bytes | None


class Replacement(NamedTuple):
    """Put `frame` in the place of the frame of that number, which must exist: for erasure alone (R5, T4)."""

    seq: int
    frame: bytes


Edit = Change | Replacement


class Room(NamedTuple):
    """How much can still be written, in bytes, and how much is in use."""

    free: int
    used: int


class Compaction(Protocol):
    """Makes the journal's file anew without what it no longer holds, while others read and commit. What was erased
    before is physically gone afterwards (R5). Whoever has begun one calls `prepare` and then, always, `finish` and
    `dispose`."""

    def prepare(self) -> None:
        """Copy everything; takes long, and runs in a thread of its own. On return commits wait for `finish`.

        Raises `StoreFull`, `Busy`, `Conflict` (it was stopped) and `Unavailable`: nothing has changed then. Raises
        `StoreFailed` where it is not known which file the next start would find: nothing is written any more."""

    def stop(self) -> None:
        """Let `prepare` end soon with `Conflict`; called from any thread."""

    def finish(self) -> Compacted:
        """Work with the new file from now on (after a `prepare` that failed: the old). On the thread that reads."""

    def dispose(self) -> None:
        """Let go of the file that is not used; takes a while, and runs in a thread of its own."""


class Reading(Protocol):
    """The reading half of a journal."""

    @property
    def head(self) -> int:
        """The number of the last frame, 0 for an empty journal."""

    def frame(self, seq: int) -> bytes | None:
        """The frame of that number, or None."""

    def frames(self, after: int) -> Iterator[tuple[int, bytes]]:
        """Frames in order, those after number `after`. May be consumed slowly: no snapshot is pinned."""

    def get(self, table: Table, key: bytes) -> bytes | None:
        """The value under exactly this key, or None."""

    def floor(self, table: Table, key: bytes) -> tuple[bytes, bytes] | None:
        """The row with the greatest key that is at most `key`, or None."""

    def scan(
        self, table: Table, start: bytes, stop: bytes | None = None, limit: int = 1000
    ) -> list[tuple[bytes, bytes]]:
        """Up to `limit` rows in key order with start <= key < stop (`stop` None: to the end)."""


class Journal(Reading, Protocol):
    """An append-only sequence of frames, numbered from 1 without gaps, and the tables beside it."""

    @property
    def epoch(self) -> int:
        """The fencing epoch that this opening claimed; each opening claims a greater one."""

    def commit(self, expected: int, frames: Sequence[bytes], edits: Sequence[Edit] = ()) -> None:
        """Append the frames behind number `expected` and make the edits: all or nothing, synced on return. Only
        frames up to `expected` can be replaced.

        Raises `StoreFull` (nothing was written) where there is no room, `StoreFailed` where the outcome is
        unknown (every later commit then fails too), `Conflict` where the head is not `expected` or another
        opening has claimed a later epoch (nothing was written).
        """

    def aside(self) -> Reading | None:
        """For reading from another thread, as long as the journal is open; None where it can only be read from this
        one. What is asked of it once the journal is closed fails."""

    def clear(self, table: Table) -> None:
        """Remove every row of a table; durable on return. Only while nobody commits."""

    def room(self) -> Room:
        """What is left on the disk and in the map; cheap enough to ask at every commit."""

    def compaction(self) -> Compaction:
        """Begin one; raises `Conflict` while another is at work."""

    def maintain(self) -> None:
        """Housekeeping between commits, on the thread that reads: grow the map, drop dead readers."""

    def close(self) -> None:
        """Release everything. Idempotent."""
