"""Reading single records, with the last few kept: a pop and the acks behind it ask for the same ones."""

from collections import OrderedDict

from queen.errors import ChainBroken
from queen.store.format import Record, unpack
from queen.store.journal import Journal

CACHE_BYTES = 8 * 1024 * 1024
"""What the records that are kept may take, in bytes."""
UNPACKED = 1200
"""About what a record takes in memory beside its frame; for most that is ten times the frame."""
UNPACKED_MESSAGE = 80
"""The same for each message that a record holds: its payload's size and place. Small payloads take less."""


class Records:
    """Durable records by number."""

    def __init__(self, journal: Journal, cache_bytes: int = CACHE_BYTES) -> None:
        self._journal = journal
        self._limit = cache_bytes
        self._kept: OrderedDict[int, tuple[Record, int]] = OrderedDict()
        self._bytes = 0

    @property
    def kept_bytes(self) -> int:
        """About how much memory is used."""
        return self._bytes

    def forget(self, seq: int) -> None:
        """The record has been replaced: read it anew."""
        kept = self._kept.pop(seq, None)
        if kept is not None:
            self._bytes -= kept[1]

    def read(self, seq: int) -> Record:
        """The record of that number; raises `ChainBroken` where it is missing or damaged."""
        kept = self._kept.get(seq)
        if kept is not None:
            self._kept.move_to_end(seq)
            return kept[0]
        frame = self._journal.frame(seq)
        if frame is None:
            raise ChainBroken(f"Record {seq} is missing.")
        record = unpack(seq, frame)
        pushed = record.pushed
        taken = len(frame) + UNPACKED + (UNPACKED_MESSAGE * len(pushed.sizes) if pushed else 0)
        self._kept[seq] = record, taken
        self._bytes += taken
        while self._bytes > self._limit and len(self._kept) > 1:
            _, (_, size) = self._kept.popitem(last=False)
            self._bytes -= size
        return record
