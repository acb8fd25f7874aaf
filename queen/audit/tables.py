"""Reading the projections to compare them, past rows that are damaged, and saying what is wrong with a table."""

from collections.abc import Iterator
from typing import Any

from queen.actors.snapshots import VERSION
from queen.audit.findings import Findings
from queen.audit.index import checkpoint
from queen.audit.reading import Past
from queen.errors import Corrupt
from queen.store.format import unpack_row
from queen.store.journal import Table

_SCAN = 1000


class Tables:
    """The tables beside the records that they were made of. `checkpoint` is how far they are complete, as it was at
    first: a server that runs goes on writing meanwhile, so a row may say what is newer, never what is older. `rows` is
    how many were compared."""

    def __init__(self, past: Past, findings: Findings) -> None:
        self.past = past
        self._findings = findings
        self._told: set[Table] = set()
        self.checkpoint = checkpoint(past)
        self.rows = 0

    def get(self, table: Table, key: bytes) -> bytes | None:
        """The row, None where it is damaged: that is said once, and that it is lacking too."""
        try:
            return self.past.get(table, key)
        except Corrupt:
            self._damaged(table)
            return None

    def all(self, table: Table) -> Iterator[tuple[bytes, bytes]]:
        """The rows in the order of their keys, up to a damaged one."""
        start = b""
        try:
            while rows := self.past.scan(table, start, None, _SCAN):
                yield from rows
                start = rows[-1][0] + b"\0"
        except Corrupt:
            self._damaged(table)

    def unpacked(self, table: Table) -> Iterator[tuple[bytes, list[Any]]]:
        """The rows of a table of arrays that begin with a version."""
        for key, value in self.all(table):
            row = unpacked(value)
            if row is None or row[0] != VERSION:
                self.fault(table, "has a row that can't be read")
            else:
                yield key, row

    def fault(self, table: Table, what: str, seq: int | None = None, where: str | None = None) -> None:
        """Say what is wrong, and of which record and partition."""
        self._findings.add("projection", f"the table {table} {what}", seq, where=where)

    def _damaged(self, table: Table) -> None:
        if table not in self._told:
            self._told.add(table)
            self.fault(table, "has rows whose bytes were changed")


def unpacked(value: bytes | None) -> list[Any] | None:
    """A row, None where there is none that can be read."""
    try:
        return None if value is None else unpack_row(value)
    except Corrupt:
        return None
