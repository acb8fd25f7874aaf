"""Whether the statistics count what the records say: minutes and hours, each row as of the record that it names."""

from typing import Any, Final

from queen.actors.statistics import (
    HOUR,
    MINUTE,
    MINUTES,
    VERSION,
    WINDOW_HOURS,
    Place,
    Statistics,
    hour_key,
    read_hour_key,
)
from queen.audit.tables import Tables, unpacked
from queen.audit.world import World
from queen.clock import SystemClock
from queen.names import instant_text
from queen.store.format import Record
from queen.store.journal import Table

_FIGURES: Final = ("incoming", "completed", "leased", "failed", "µs of lag of")
_HOUR_KEY: Final = len(hour_key(0, 0))


class CountedComparison:
    """Give it every record, in order, also those behind the checkpoint, and then `finish`.

    The fold is the server's own. Rows go at least up to the checkpoint, and those of a server that runs are written
    anew while the journal is walked: such a row is looked at when the record is reached that it names then.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._fold = Statistics()
        self._minutes = self._seq_of(MINUTES) if tables.checkpoint else 0
        self._hours: dict[Place, int] = {}
        for key, value in tables.all(Table.STATISTICS) if tables.checkpoint else ():
            if len(key) == _HOUR_KEY:
                self._hours[read_hour_key(key)] = _seq_of(value)
            elif key != MINUTES:
                tables.fault(Table.STATISTICS, "has a row of neither the minutes nor an hour")
        # Up to which record a row must count at least, of hours that may still be in the window.
        self._needed: dict[Place, int] = {}
        self._hour = 0

    def take(self, record: Record, world: World) -> None:
        """Compare the rows that go up to this very record."""
        self._fold.add(record.seq, record.partition, record.at, record.shift, record.events)
        if self._minutes == record.seq:
            self._minutes = self._compare_minutes(record.seq)
        lateness = self._fold.windows.get(record.partition)
        if lateness is not None and lateness.seq == record.seq:
            self._take_hour((lateness.hour, record.partition), record.seq, world)
            self._fold.written(record.seq)  # nothing is: but so the fold keeps no hour that is over

    def finish(self, world: World) -> None:
        """What can only be known in the end: rows that are missing, too old, or of records that there are not."""
        if not self._tables.checkpoint:
            return
        self._finish_minutes(world.seq)
        clock = SystemClock()
        clock.resume(world.at, world.shift)
        # The server's clock may be a little ahead, and what has left the window goes while this is looked at.
        _, window = Statistics.ended(clock.now() + HOUR)
        for place, needed in sorted(self._needed.items()):
            key = hour_key(*place)
            if key < window:
                continue  # the server takes those out
            seq = self._seq_of(key)
            if not seq:
                self._fault(place, "lacks the row", "", needed, world)
            elif seq < needed:
                self._fault(place, "counts", f" only up to record {seq}, and not up to {needed}", needed, world)
        for place, seq in sorted(self._hours.items()):
            known = seq <= world.seq or seq > self._tables.past.head
            if known and self._seq_of(hour_key(*place)) == seq:
                what = f" up to record {seq}, which completed nothing of it" if seq else " what can't be read"
                self._fault(place, "counts", what, seq or None, world)

    def _finish_minutes(self, head: int) -> None:
        seq = self._seq_of(MINUTES)
        if not seq:
            self._tables.fault(Table.STATISTICS, "lacks the row of the minutes")
        elif seq < self._tables.checkpoint:
            what = f"counts minutes only up to record {seq}, and not up to the checkpoint {self._tables.checkpoint}"
            self._tables.fault(Table.STATISTICS, what, seq)
        elif seq > max(head, self._tables.past.head):
            self._tables.fault(Table.STATISTICS, f"counts minutes up to record {seq}, which there is not")

    def _compare_minutes(self, seq: int) -> int:
        """The row, unless it goes further by now; returns how far it goes then, else 0."""
        found = self._tables.get(Table.STATISTICS, MINUTES)
        row, expected = unpacked(found), unpacked(self._fold.minutes_row().value)
        assert expected is not None
        if row is None or row[1] > seq:
            return 0 if row is None else int(row[1])
        self._tables.rows += 1
        if row != expected:
            self._tables.fault(Table.STATISTICS, _minutes_fault(row, expected), seq)
        return 0

    def _take_hour(self, place: Place, seq: int, world: World) -> None:
        if place[0] > self._hour:
            self._hour = place[0]
            kept = place[0] - WINDOW_HOURS
            self._needed = {place: needed for place, needed in self._needed.items() if place[0] >= kept}
        if seq <= self._tables.checkpoint:
            self._needed[place] = seq
        if self._hours.get(place) != seq:
            return
        found = self._tables.get(Table.STATISTICS, hour_key(*place))
        row, expected = unpacked(found), unpacked(self._fold.row(place).value)
        assert expected is not None
        if row is not None and row[1] > seq:
            self._hours[place] = row[1]
            return
        del self._hours[place]
        if row is None:
            return  # it has left the window, or is told in the end
        self._tables.rows += 1
        if row != expected:
            what = (
                f" {row[2]} messages that took {row[3]} µs, where records say {expected[2]} that took {expected[3]} µs"
            )
            if row[2:4] == expected[2:4]:
                what = " other durations than the records say"
            self._fault(place, "counts", what, seq, world)

    def _fault(self, place: Place, verb: str, what: str, seq: int | None, world: World) -> None:
        hour, partition = place
        slot = world.catalogue.slots.get(partition)
        where = f"partition {partition}" if slot is None else f"{slot.queue.name}/{slot.name}"
        about = f"{verb} of the hour {instant_text(hour * HOUR)}{what}"
        self._tables.fault(Table.STATISTICS, about, seq, where)

    def _seq_of(self, key: bytes) -> int:
        return _seq_of(self._tables.get(Table.STATISTICS, key))


def _seq_of(value: bytes | None) -> int:
    """The record up to which a row counts, 0 where there is none that can be read."""
    row = unpacked(value)
    return row[1] if row is not None and row[0] == VERSION else 0


def _minutes_fault(row: list[Any], expected: list[Any]) -> str:
    """What is wrong with the minutes, by the first one that is."""
    counted, known = ({minute: figures for minute, *figures in each[3]} for each in (row, expected))
    for minute in sorted(counted.keys() | known.keys()):
        wrong, right = counted.get(minute, [0] * 5), known.get(minute, [0] * 5)
        for name, found, said in zip(_FIGURES, wrong, right, strict=True):
            if found != said:
                what = f"{found} {name} messages, where the records say {said}"
                return f"counts in the minute {instant_text(minute * MINUTE)} {what}"
    return "has a row of minutes with another shift, or in another order, than the records say"
