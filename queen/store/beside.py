"""A data folder opened for reading: beside the server that has it, from another process, or as a copy.

Nothing is written, and no lock is taken. Each call is a read transaction of its own, so none lives longer than it takes
to copy a page of frames, and the writer's freed pages are never held back. A compaction replaces the journal's file: it
is noticed, and reading goes on in the new one.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from queen.store.data_dir import LOCK, check
from queen.store.journal import Table
from queen.store.lmdb_file import DATA, check_pages
from queen.store.lmdb_journal import LmdbJournal


class Beside:
    """The reading half of a `Journal`, see there. Not for the process that has the folder open for writing."""

    def __init__(self, path: Path) -> None:
        """Raises `FormatUnknown`, `ChainBroken` (the data file is cut off) and `OSError`."""
        self.path = path
        self._folder = check(path)
        self._identity = self._seen()
        self._journal = LmdbJournal.open(self._folder, readonly=True)

    @property
    def head(self) -> int:
        """The number of the last frame at this moment."""
        return self._now().head

    def frame(self, seq: int) -> bytes | None:
        """The frame of that number, or None."""
        return self._now().frame(seq)

    def frames(self, after: int) -> Iterator[tuple[int, bytes]]:
        """Frames in order, those after number `after`, up to what is the last one when it is asked for."""
        while page := self._now().page(after):
            yield from page
            after = page[-1][0]

    def get(self, table: Table, key: bytes) -> bytes | None:
        """The value under exactly this key, or None."""
        return self._now().get(table, key)

    def floor(self, table: Table, key: bytes) -> tuple[bytes, bytes] | None:
        """The row with the greatest key that is at most `key`, or None."""
        return self._now().floor(table, key)

    def scan(
        self, table: Table, start: bytes, stop: bytes | None = None, limit: int = 1000
    ) -> list[tuple[bytes, bytes]]:
        """Up to `limit` rows in key order with start <= key < stop (`stop` None: to the end)."""
        return self._now().scan(table, start, stop, limit)

    @property
    def served(self) -> bool:
        """Whether some process has the folder's lock: asked of the kernel, and so without a lock of one's own."""
        found = os.stat(self.path / LOCK) if (self.path / LOCK).exists() else None
        if found is None:
            return False
        place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
        try:
            return place in Path("/proc/locks").read_text().split()
        except OSError:
            return True  # who knows

    def check_pages(self) -> None:
        """Look at every page of the file; raises `ChainBroken`. Only while nobody serves the folder."""
        check_pages(self._folder)

    def close(self) -> None:
        """Let go of the file. Idempotent."""
        self._journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _now(self) -> LmdbJournal:
        """The journal in the file that has its name now."""
        identity = self._seen()
        if identity != self._identity:
            self._journal.close()
            self._journal = LmdbJournal.open(self._folder, readonly=True)
            self._identity = identity
        return self._journal

    def _seen(self) -> tuple[int, int]:
        found = os.stat(self._folder / DATA)
        return found.st_dev, found.st_ino
