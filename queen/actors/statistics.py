"""What happens per minute in the server, and how long each partition's messages take: a projection of the records.

Pure, and exact after a crash: every row says up to which record it counts, and a record that it holds already is
passed over when the journal is replayed. Nothing here is looked up or summed over messages (S2).
"""

from collections.abc import Iterable, Mapping, Sequence
from operator import add
from typing import Final

from queen.actors.sketch import Sketch
from queen.events import AnyEvent, MessagesLeased, MessagesPushed, MessagesRevived, MessagesSettled
from queen.figures import MinuteFigures
from queen.names import DEFAULT_GROUP, SECOND
from queen.store.format import pack_row, unpack_row
from queen.store.journal import Change, Table
from queen.store.keys import number, u64

MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
SHOWN_MINUTES: Final = 60
WINDOW_HOURS: Final = 24
"""The window is the hour that runs and so many before it; it moves on by whole hours."""

VERSION: Final = 1
MINUTES: Final = b"minutes"
_HOURS: Final = b"h"
_AFTER_HOURS: Final = b"i"

Place = tuple[int, int]
"""Number of an hour, and a partition's."""

_ZEROS: Final = (0, 0, 0, 0, 0)


class Lateness:
    """How long the messages took that a partition completed within the window.

    `latest` has those of `hour` alone and counts up to record `seq`. It is the same object as `window` as long as
    the window has no other hour.
    """

    __slots__ = ("hour", "latest", "seq", "window")

    def __init__(self, hour: int, seq: int, sketch: Sketch) -> None:
        self.hour = hour
        self.seq = seq
        self.latest = self.window = sketch

    def begin(self, hour: int, seq: int, sketch: Sketch) -> None:
        """A later hour: `sketch` is what is known of it."""
        if self.window is self.latest:
            self.window = self.latest.copy()
        self.window.merge(sketch)
        self.hour, self.seq, self.latest = hour, seq, sketch

    def add(self, seq: int, duration: int, times: int) -> None:
        """Count messages that were completed in the latest hour."""
        self.seq = seq
        self.latest.add(duration, times)
        if self.window is not self.latest:
            self.window.add(duration, times)


class Statistics:
    """See the module. `seq` is the last record that the minutes count, `since` the first hour that windows hold:
    what has left the window by the start is neither read nor folded."""

    def __init__(self) -> None:
        self.seq = 0
        self.since = 0
        self._shift = 0
        # By number of the minute as the wall clock shows it: incoming, completed, leased, failed, sum of lags in µs.
        self._minutes: dict[int, tuple[int, ...]] = {}
        self._lateness: dict[int, Lateness] = {}
        self._changed: set[int] = set()  # partitions whose latest hour is newer than its row
        self._closed: dict[Place, tuple[int, Sketch]] = {}  # earlier hours that have no complete row yet

    # -- records ------------------------------------------------------------------------------------------

    def add(self, seq: int, partition: int, at: int, shift: int, events: Sequence[AnyEvent]) -> None:
        """Take in one record, in order."""
        incoming = completed = leased = failed = lag = 0
        revived = False
        for event in events:
            if isinstance(event, MessagesPushed):
                incoming += len(event.sizes)
            elif isinstance(event, MessagesLeased):
                if event.group == DEFAULT_GROUP:
                    leased += sum([run.length for run in event.runs])
            elif isinstance(event, MessagesRevived):
                revived = True
            elif isinstance(event, MessagesSettled) and event.group == DEFAULT_GROUP:
                count = sum([run.length for run in event.runs])
                if event.outcome != "completed":
                    failed += 0 if revived else count  # a failed message that is buried has failed before
                elif event.asked is not None:  # one that a seek goes past is processed by nobody
                    completed += count
                    lag += sum([(at - run.pushed_at) * run.length for run in event.runs])
                    self._complete(seq, partition, at, event)
        if seq > self.seq:
            self.seq = seq
            if not incoming:
                self._shift = shift  # a push carries that of its createdAt instead (N4)
            if incoming or completed or leased or failed:
                self._count((at + self._shift) // MINUTE, (incoming, completed, leased, failed, lag))

    def _count(self, minute: int, figures: tuple[int, ...]) -> None:
        counted = self._minutes.get(minute)
        if counted is not None:
            self._minutes[minute] = tuple(map(add, counted, figures))
            return
        # Minutes to come are kept as well: a clock that has been set back may be set forth again.
        self._minutes = {
            known: values for known, values in self._minutes.items() if abs(known - minute) < SHOWN_MINUTES
        }
        self._minutes[minute] = figures

    def _complete(self, seq: int, partition: int, at: int, event: MessagesSettled) -> None:
        hour = at // HOUR
        if hour < self.since:
            return
        lateness = self._lateness.get(partition)
        if lateness is None:
            lateness = self._lateness[partition] = Lateness(hour, 0, Sketch())
        elif seq < lateness.seq or (seq == lateness.seq and partition not in self._changed):
            return  # its row holds the record
        elif hour > lateness.hour:
            if partition in self._changed:
                self._closed[lateness.hour, partition] = lateness.seq, lateness.latest
            lateness.begin(hour, lateness.seq, Sketch())
        for run in event.runs:
            lateness.add(seq, at - run.pushed_at, run.length)
        self._changed.add(partition)

    # -- questions ----------------------------------------------------------------------------------------

    def minutes(self, shown_now: int) -> list[MinuteFigures]:
        """S3: the minute that `shown_now`, the wall clock's time, is in, and the 59 before it."""
        last = shown_now // MINUTE
        figures = []
        for minute in range(last, last - SHOWN_MINUTES, -1):
            incoming, completed, leased, failed, lag = self._minutes.get(minute, _ZEROS)
            average = round(lag / completed) if completed else 0
            figures.append(MinuteFigures(minute * MINUTE, incoming, completed, leased, failed, average))
        return figures

    @property
    def windows(self) -> Mapping[int, Lateness]:
        """The partitions, by number, that have completed anything within the window. To be read only."""
        return self._lateness

    # -- rows ---------------------------------------------------------------------------------------------

    def unwritten(self) -> list[Place]:
        """The hours whose rows are not in the table yet as they are. Earlier ones first, and so they are to be written:
        a row of an hour says that those of earlier hours of its partition are complete."""
        return sorted([*self._closed, *[(self._lateness[partition].hour, partition) for partition in self._changed]])

    def row(self, place: Place) -> Change:
        """The row of an hour as it is now, with the record up to which it counts now."""
        hour, partition = place
        lateness = self._lateness[partition]
        seq, sketch = (lateness.seq, lateness.latest) if lateness.hour == hour else self._closed[place]
        return Change(Table.STATISTICS, hour_key(hour, partition), pack_row([VERSION, seq, *sketch.parts()]))

    def minutes_row(self) -> Change:
        """The row of all minutes."""
        minutes = [[minute, *figures] for minute, figures in self._minutes.items()]
        return Change(Table.STATISTICS, MINUTES, pack_row([VERSION, self.seq, self._shift, minutes]))

    def rows(self) -> list[Change]:
        """Everything that the table does not hold yet, at once."""
        return [*map(self.row, self.unwritten()), self.minutes_row()]

    def written(self, seq: int) -> None:
        """What was unwritten when `seq` was the last record is in the table, as it was then or later."""
        self._changed = {partition for partition in self._changed if self._lateness[partition].seq > seq}
        self._closed = {place: entry for place, entry in self._closed.items() if entry[0] > seq}

    def begin(self, now: int) -> tuple[bytes, bytes]:
        """Start at `now`; returns where in the table (from, to before) the hours stand that are to be loaded."""
        self.since = now // HOUR - WINDOW_HOURS
        return hour_key(self.since, 0), _AFTER_HOURS

    def load(self, minutes: bytes | None, hours: Iterable[tuple[bytes, bytes]]) -> None:
        """Begin with what the table holds, `hours` in the order of their keys."""
        if minutes is not None:
            _, self.seq, self._shift, counted = unpack_row(minutes)
            self._minutes = {minute: tuple(figures) for minute, *figures in counted}
        for key, row in hours:
            hour, partition = read_hour_key(key)
            _, seq, *parts = unpack_row(row)
            lateness = self._lateness.get(partition)
            if lateness is None:
                self._lateness[partition] = Lateness(hour, seq, Sketch(*parts))
            else:
                lateness.begin(hour, seq, Sketch(*parts))

    # -- the end of the window ----------------------------------------------------------------------------

    @staticmethod
    def ended(now: int) -> tuple[bytes, bytes]:
        """Where in the table (from, to before) the hours stand that have left the window."""
        return _HOURS, hour_key(now // HOUR - WINDOW_HOURS, 0)

    def forget(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Take hours out that have left the window, given as the rows that the table had for them. Each row once, and
        none that is yet to be written anew: it is a day since its hour ended."""
        for key, row in rows:
            hour, partition = read_hour_key(key)
            lateness = self._lateness.get(partition)
            if lateness is None or hour < self.since:
                continue
            if lateness.hour <= hour:
                del self._lateness[partition]
            else:
                _, _, *parts = unpack_row(row)
                lateness.window.take_out(Sketch(*parts))


def hour_key(hour: int, partition: int) -> bytes:
    """STATISTICS: the row of an hour of a partition."""
    return _HOURS + u64(hour) + u64(partition)


def read_hour_key(key: bytes) -> Place:
    """Undo `hour_key`."""
    return number(key[1:9]), number(key[9:])
