"""Reading a journal from a thread of its own, beside the one that works with it: never while its file is exchanged."""

import threading
from collections.abc import Iterator
from typing import Protocol

from queen.store.journal import Table


class Paged(Protocol):
    """What a journal must be able to do for it."""

    @property
    def head(self) -> int: ...

    def frame(self, seq: int) -> bytes | None: ...

    def page(self, after: int) -> list[tuple[int, bytes]]: ...

    def get(self, table: Table, key: bytes) -> bytes | None: ...

    def floor(self, table: Table, key: bytes) -> tuple[bytes, bytes] | None: ...

    def scan(
        self, table: Table, start: bytes, stop: bytes | None = None, limit: int = 1000
    ) -> list[tuple[bytes, bytes]]: ...


class Aside:
    """A `Reading` of a journal. `turn` is held for each call, a millisecond or so; whoever moves the journal's map,
    takes over another file or closes it, holds it too."""

    def __init__(self, journal: Paged, turn: threading.Lock) -> None:
        self._journal = journal
        self._turn = turn

    @property
    def head(self) -> int:
        """See `Journal`, as for everything here."""
        with self._turn:
            return self._journal.head

    def frame(self, seq: int) -> bytes | None:
        """The frame of that number, or None."""
        with self._turn:
            return self._journal.frame(seq)

    def frames(self, after: int) -> Iterator[tuple[int, bytes]]:
        """Frames in order, those after number `after`."""
        while page := self._page(after):
            yield from page
            after = page[-1][0]

    def get(self, table: Table, key: bytes) -> bytes | None:
        """The value under exactly this key, or None."""
        with self._turn:
            return self._journal.get(table, key)

    def floor(self, table: Table, key: bytes) -> tuple[bytes, bytes] | None:
        """The row with the greatest key that is at most `key`, or None."""
        with self._turn:
            return self._journal.floor(table, key)

    def scan(
        self, table: Table, start: bytes, stop: bytes | None = None, limit: int = 1000
    ) -> list[tuple[bytes, bytes]]:
        """Up to `limit` rows in key order with start <= key < stop (`stop` None: to the end)."""
        with self._turn:
            return self._journal.scan(table, start, stop, limit)

    def _page(self, after: int) -> list[tuple[int, bytes]]:
        with self._turn:
            return self._journal.page(after)
