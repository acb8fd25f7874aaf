"""Which records touched which messages: what a message's biography needs, without reading a partition's whole past.

A row is a record that concerns messages of one page of positions, from the first to the last of them. What has no
positions stands under pages of its own: what concerns the partition as a whole, and the extensions of leases. The
catalogue's records stand under partition 0, each queue's on the page of its number. Pushes are left out, since RUNS and
IDS lead to them. Pure.
"""

from struct import Struct
from typing import Final, NamedTuple

from queen.events import (
    AnyEvent,
    LeaseExtended,
    MessagesDeleted,
    MessagesLeased,
    MessagesPushed,
    MessagesReturned,
    MessagesRevived,
    MessagesSetAside,
    MessagesSettled,
)
from queen.store.journal import Change, Table

PAGE: Final = 1024
"""Positions per page."""
EXTENSIONS: Final = 2**64 - 2
WHOLE: Final = 2**64 - 1
"""The pages of what has no positions."""

_KEY = Struct(">QQQHH")
_WITH_RUNS = (MessagesLeased, MessagesSettled, MessagesSetAside, MessagesRevived, MessagesDeleted)


class Touch(NamedTuple):
    """Record `seq` concerns messages of a page, at offsets from `first` to `last`."""

    partition: int
    page: int
    seq: int
    first: int = 0
    last: int = PAGE - 1


class Touches:
    """What records have added to the table since the last write."""

    def __init__(self) -> None:
        self._added: list[Touch] = []

    def add(self, seq: int, partition: int, events: tuple[AnyEvent, ...]) -> int:
        """Take in one record; returns how many rows it makes."""
        before = len(self._added)
        for event in events:
            if type(event) is MessagesPushed:
                continue
            if isinstance(event, _WITH_RUNS):
                for first, length, _ in event.runs:
                    self._span(seq, partition, first, first + length - 1)
            elif type(event) is MessagesReturned:
                self._span(seq, partition, event.positions[0], event.positions[-1])
            else:
                self._added.append(Touch(partition, _page_of(partition, event), seq))
        return len(self._added) - before

    def _span(self, seq: int, partition: int, first: int, last: int) -> None:
        """One row for each page; what one record says of a page stands in one row, though there be gaps in it."""
        page, stop = first // PAGE, last // PAGE
        touch = Touch(partition, page, seq, first % PAGE, last % PAGE if page == stop else PAGE - 1)
        if self._added and self._added[-1][:3] == touch[:3]:
            known = self._added.pop()
            touch = touch._replace(first=min(known.first, touch.first), last=max(known.last, touch.last))
        self._added.append(touch)
        for between in range(page + 1, stop):
            self._added.append(Touch(partition, between, seq))
        if page < stop:
            self._added.append(Touch(partition, stop, seq, 0, last % PAGE))

    def rows(self) -> list[Change]:
        """All of it as rows, in key order."""
        return [Change(Table.TOUCHES, _KEY.pack(*touch), b"") for touch in sorted(set(self._added))]


def _page_of(partition: int, event: AnyEvent) -> int:
    """Where an event without positions stands."""
    if type(event) is LeaseExtended:
        return EXTENSIONS
    return WHOLE if partition else getattr(event, "queue", WHOLE)


def touch_key(partition: int, page: int, seq: int) -> bytes:
    """TOUCHES: where the rows of a page begin that tell of record `seq` and later ones."""
    return _KEY.pack(partition, page, seq, 0, 0)


def read_touch(key: bytes) -> Touch:
    """What a row says."""
    return Touch._make(_KEY.unpack(key))
