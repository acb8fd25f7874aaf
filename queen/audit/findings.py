"""What `queen verify` has to say: faults, in plain words, and where they are. Plain data."""

from typing import Literal

import msgspec

from queen.names import instant_text

Kind = Literal["format", "chain", "state", "projection"]
"""A damaged or foreign file; records changed, lost or swapped; events that don't fit what was before; derived tables
that don't say what the records say."""

LIMIT = 1000
"""Findings that are kept; what comes after is only counted."""


class Finding(msgspec.Struct, frozen=True, rename="camel"):
    """One fault. `seq` is the record where it shows, `at` about when that was made, `where` its queue and partition."""

    kind: Kind
    what: str
    seq: int | None = None
    at: str | None = None
    where: str | None = None

    def __str__(self) -> str:
        parts = [f"record {self.seq}" if self.seq is not None else "", self.where or "", self.at or ""]
        place = ", ".join(part for part in parts if part)
        return f"{self.kind}: {self.what}" + (f" ({place})" if place else "")


class Findings:
    """Gathers them, and counts those past the limit."""

    def __init__(self) -> None:
        self.kept: list[Finding] = []
        self.count = 0

    def add(
        self, kind: Kind, what: str, seq: int | None = None, at: int | None = None, where: str | None = None
    ) -> None:
        """`at` is an instant in µs."""
        self.count += 1
        if len(self.kept) < LIMIT:
            self.kept.append(Finding(kind, what, seq, None if at is None else instant_text(at), where))
