"""A journal that keeps its promises in memory, for tests and for `open_broker(None)`, and breaks them on order."""

import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from itertools import islice

from queen.errors import Conflict, StoreFailed, StoreFull
from queen.replies import Compacted
from queen.store.journal import Change, Edit, Replacement, Room, Table

_MAX_KEY = 511


class _Rows:
    """One table: a dict, and its keys in order. Putting a new key in the middle moves the keys behind it, which is
    quick as long as they are counted in hundred thousands."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.keys: list[bytes] = []

    def put(self, key: bytes, value: bytes) -> int:
        """Returns by how many bytes the table grew."""
        old = self.values.get(key)
        if old is None:
            insort(self.keys, key)
        self.values[key] = value
        return len(value) - len(old) if old is not None else len(key) + len(value)

    def remove(self, key: bytes) -> int:
        """Returns by how many bytes the table grew: less than none."""
        old = self.values.pop(key, None)
        if old is None:
            return 0
        del self.keys[bisect_left(self.keys, key)]
        return -len(key) - len(old)


class _Content:
    """What is "on the disk": it outlives the journals that are opened on it."""

    def __init__(self, capacity: int) -> None:
        self.lock = threading.Lock()
        self.frames: list[bytes] = []
        self.tables = {table: _Rows() for table in Table}
        self.epoch = 0
        self.capacity = capacity
        self.used = 0


class _Nothing:
    """A `Compaction` of what is compact."""

    def __init__(self, size: int) -> None:
        self._size = size

    def prepare(self) -> None:
        """See `Compaction.prepare`."""

    def stop(self) -> None:
        """See `Compaction.stop`."""

    def finish(self) -> Compacted:
        """See `Compaction.finish`."""
        return Compacted(self._size, self._size)

    def dispose(self) -> None:
        """See `Compaction.dispose`."""


class MemoryJournal:
    """A `Journal`. `capacity` in bytes is where it is full; `reserve` is what `room` keeps back of that."""

    def __init__(self, *, capacity: int = 1 << 40, reserve: int = 0, _content: _Content | None = None) -> None:
        self._content = _content or _Content(capacity)
        self._reserve = reserve
        self._failed = False
        self._closed = False
        self._next_fault: tuple[StoreFull | StoreFailed, bool] | None = None
        with self._content.lock:
            self._content.epoch += 1
            self._epoch = self._content.epoch

    def reopened(self) -> "MemoryJournal":
        """Another opening of the same content, as after a restart or a crash: it fences this one off."""
        return MemoryJournal(reserve=self._reserve, _content=self._content)

    def fail_next(self, error: StoreFull | StoreFailed, *, written: bool = False) -> None:
        """Let the next commit raise `error`. After `StoreFailed` nobody knows what was written: with `written`, all."""
        assert not (written and isinstance(error, StoreFull)), "StoreFull means that nothing was written"
        self._next_fault = (error, written)

    def set_capacity(self, capacity: int) -> None:
        """Make the disk larger or smaller, in bytes; less than what is used is allowed."""
        self._content.capacity = capacity

    @property
    def head(self) -> int:
        """The number of the last frame, 0 for an empty journal."""
        return len(self._content.frames)

    @property
    def epoch(self) -> int:
        """The fencing epoch that this opening claimed."""
        return self._epoch

    def commit(self, expected: int, frames: Sequence[bytes], edits: Sequence[Edit] = ()) -> None:
        """Append the frames behind number `expected` and make the edits: all or nothing."""
        changes = [entry for entry in edits if isinstance(entry, Change)]
        replaced = [entry for entry in edits if isinstance(entry, Replacement)]
        content = self._content
        with content.lock:
            self._check_usable()
            if expected != len(content.frames):
                raise Conflict(f"The journal's head is {len(content.frames)}, not {expected}.")
            if self._epoch != content.epoch:
                raise Conflict("Another opening has taken this journal over.")
            assert all(0 < len(change.key) <= _MAX_KEY for change in changes), "a key that no journal takes"
            assert all(0 < entry.seq <= expected for entry in replaced), "a frame that isn't there is replaced"
            fault, self._next_fault = self._next_fault, None
            if fault is not None:
                self._failed = isinstance(fault[0], StoreFailed)
                if not fault[1]:
                    raise fault[0]
            growth = sum(map(len, frames)) + sum(len(change.key) + len(change.value or b"") for change in changes)
            if content.used + growth > content.capacity and (frames or any(change.value for change in changes)):
                raise StoreFull("There is no room left in the journal.")
            content.frames.extend(map(bytes, frames))
            content.used += sum(map(len, frames))
            for seq, frame in replaced:
                content.used += len(frame) - len(content.frames[seq - 1])
                content.frames[seq - 1] = frame
            for table, key, value in changes:
                rows = content.tables[table]
                content.used += rows.remove(key) if value is None else rows.put(key, value)
            if fault is not None:
                raise fault[0]

    def frame(self, seq: int) -> bytes | None:
        """The frame of that number, or None."""
        frames = self._content.frames
        return frames[seq - 1] if 0 < seq <= len(frames) else None

    def frames(self, after: int) -> Iterator[tuple[int, bytes]]:
        """Frames in order, those after number `after`."""
        while (frame := self.frame(after + 1)) is not None:
            after += 1
            yield after, frame

    def get(self, table: Table, key: bytes) -> bytes | None:
        """The value under exactly this key, or None."""
        return self._content.tables[table].values.get(key)

    def floor(self, table: Table, key: bytes) -> tuple[bytes, bytes] | None:
        """The row with the greatest key that is at most `key`, or None."""
        with self._content.lock:
            rows = self._content.tables[table]
            index = bisect_right(rows.keys, key)
            return (rows.keys[index - 1], rows.values[rows.keys[index - 1]]) if index else None

    def scan(
        self, table: Table, start: bytes, stop: bytes | None = None, limit: int = 1000
    ) -> list[tuple[bytes, bytes]]:
        """Up to `limit` rows in key order with start <= key < stop (`stop` None: to the end)."""
        with self._content.lock:
            rows = self._content.tables[table]
            first = bisect_left(rows.keys, start)
            end = len(rows.keys) if stop is None else bisect_left(rows.keys, stop)
            return [(key, rows.values[key]) for key in islice(rows.keys, first, max(first, min(end, first + limit)))]

    def aside(self) -> None:
        """See `Journal.aside`: a simulation has one thread."""

    def clear(self, table: Table) -> None:
        """Remove every row of a table. Only while nobody commits."""
        with self._content.lock:
            self._check_usable()
            old = self._content.tables[table]
            self._content.used -= sum(len(key) + len(value) for key, value in old.values.items())
            self._content.tables[table] = _Rows()

    def room(self) -> Room:
        """What is left of the capacity."""
        content = self._content
        return Room(max(content.capacity - content.used - self._reserve, 0), content.used)

    def compaction(self) -> "_Nothing":
        """Nothing needs compacting here: what is replaced is gone."""
        return _Nothing(self._content.used)

    def maintain(self) -> None:
        """Nothing needs housekeeping here."""

    def close(self) -> None:
        """End this opening; the content stays for `reopened`. Idempotent."""
        self._closed = True

    def _check_usable(self) -> None:
        assert not self._closed, "the journal is closed"
        if self._failed:
            raise StoreFailed("An earlier commit failed; this process must not write again.")
