"""Walking the chain from the first record to the last, past whatever is damaged, and saying what that is.

A start of the server stops at the first fault. Here the walk goes on behind it, so that all of them are found, and each
is told apart: a record that was changed, one that is gone, one that stands in another's place.
"""

from collections.abc import Callable, Iterator

from queen.audit.findings import Findings
from queen.audit.reading import Past, shown
from queen.errors import Corrupt
from queen.store.format import ORIGIN, Record, digest_of, unpack

NEAR = 64
"""How far from its own place a record is looked for that stands in a wrong one."""
KEPT = 200
"""Unreadable frames that are looked at again in the end: two of them may have changed places over any distance."""


class Walk:
    """Yields the sound records in order. `whole` is False from the first fault on: the records behind it may rest on
    what is not there. `digest` is that of the last record, for comparison with one that was kept elsewhere."""

    def __init__(self, past: Past, findings: Findings, where: Callable[[Record], str | None]) -> None:
        self._past = past
        self._findings = findings
        self._where = where
        self._misplaced: dict[int, int] = {}
        self._damaged: dict[int, tuple[bytes, str, int | None]] = {}
        self._at: int | None = None
        self.whole = True
        self.seq = 0
        self.digest = ORIGIN
        self._known = True  # whether `digest` is that of the record before

    def records(self, until: int) -> Iterator[Record]:
        """Up to number `until`."""
        for seq, frame in self._past.frames(0):
            if seq > until:
                break
            if seq > self.seq + 1:
                self._missing(self.seq + 1, seq - 1)
            record = self._sound(seq, frame)
            self.seq = seq
            if record is not None:
                yield record
        if self.seq < until:
            self._missing(self.seq + 1, until)
        self._tell_misplaced()

    def _missing(self, first: int, last: int) -> None:
        which = f"record {first} is missing" if first == last else f"records {first} to {last} are missing"
        self._fault(f"{which}: removed, or lost", first)

    def _sound(self, seq: int, frame: bytes) -> Record | None:
        """The record, if it is what was written under that number."""
        try:
            record = unpack(seq, frame)
        except Corrupt as error:
            found = _found_near(seq, frame)
            self._known = self.whole = False
            if found is not None:
                self._misplaced[seq] = found.seq
                self._at = shown(found)
            elif len(self._damaged) < KEPT:
                self._damaged[seq] = frame, str(error), self._at
            else:
                self._fault(_changed(str(error)), seq)
            return None
        self._at = shown(record)
        if self._known and record.prev != self.digest:
            what = f"record {seq} names another predecessor than the record {seq - 1} that stands there"
            self._fault(f"{what}: one of the two was changed after it had been written", seq, record)
        self.digest, self._known = digest_of(record), True
        return record

    def _tell_misplaced(self) -> None:
        for place, (frame, _, _) in self._damaged.items():
            own = next((seq for seq in self._damaged if seq != place and _reads(seq, frame)), None)
            if own is not None:
                self._misplaced[place] = own
        for place, own in sorted(self._misplaced.items()):
            if self._misplaced.get(own) != place:
                self._fault(f"in the place of record {place} stands record {own}", place)
            elif place < own:
                self._fault(f"records {place} and {own} have changed places", place)
        for place, (_, error, at) in self._damaged.items():
            if place not in self._misplaced:
                self._at = at
                self._fault(_changed(error), place)

    def _fault(self, what: str, seq: int, record: Record | None = None) -> None:
        """`at` is about when: the time of the record before, where this one's can't be known."""
        self.whole = self._known = False
        self._findings.add("chain", what, seq, self._at, None if record is None else self._where(record))


def _changed(error: str) -> str:
    return f"{error[0].lower()}{error[1:].rstrip('.')}: some of its bytes were changed"


def _found_near(seq: int, frame: bytes) -> Record | None:
    """The frame as a sound record of another number: its checksum covers the number."""
    candidates = [seq + step for distance in range(1, NEAR + 1) for step in (distance, -distance)]
    return next((unpack(place, frame) for place in candidates if place > 0 and _reads(place, frame)), None)


def _reads(seq: int, frame: bytes) -> bool:
    try:
        unpack(seq, frame)
    except Corrupt:
        return False
    return True
