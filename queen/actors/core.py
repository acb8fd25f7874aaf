"""What all actors of one incarnation share, and the one way in which anything is recorded."""

from collections.abc import Sequence

import trio

from queen.actors import catalogue_state
from queen.actors.catalogue_state import Catalogue
from queen.actors.feed import Feed
from queen.actors.statistics import Statistics
from queen.clock import Clock, Ids
from queen.errors import Busy, StoreFull
from queen.events import AnyEvent, MessagesPushed, MessagesSettled
from queen.messages import Caller
from queen.names import DEFAULT_GROUP, SECOND
from queen.store.journal import Journal
from queen.store.keyring import NO_KEYS, KeyRing
from queen.store.projections import Projections
from queen.store.records import Records
from queen.store.writer import Runner, Writer

CATALOGUE = 0
"""The number under which the catalogue's own records stand."""


class Core:
    """Journal, writer, projections, statistics, catalogue, clock and ids; `dirty_queues` have changed since their
    snapshots, the rows of `gone_partitions` are to be removed; `progress` is set by every record, `erasable` when
    deletions have come to the tables. `ring` has the encryption keys; `keys_used` are those that messages were ever
    sealed with, `keys_lost` the ones of them that it has not (C4)."""

    def __init__(
        self, journal: Journal, clock: Clock, ids: Ids, runner: Runner, feed: Feed, ring: KeyRing = NO_KEYS
    ) -> None:
        self.journal = journal
        self.clock = clock
        self.ids = ids
        self.catalogue = Catalogue()
        self.records = Records(journal)
        self.projections = Projections(journal, self.records, self.catalogue.stored, self.catalogue.last_stored)
        self.statistics = Statistics()
        self.feed = feed
        self.meter = feed.meter
        self.writer = Writer(journal, runner, self.meter)
        self.ring = ring
        self.keys_used: set[str] = set()
        self.keys_lost: frozenset[str] = frozenset()
        # Held by whoever works in the background (ticks, rows, erasures) until its commit is durable: so no commit, and
        # nobody who waits for one, gets more than one slice of such work. First come, first served.
        self.turn = trio.Lock()
        self.dirty_queues: set[int] = set()
        self.gone_partitions: set[int] = set()
        # The record of the last moment that is kept, and the partitions that have changed since.
        self.moment = 0
        self.changed_partitions: set[int] = set()
        self.progress = trio.Event()
        self.erasable = trio.Event()
        # Room is looked at once per commit, and at every push while there is none.
        self._room_seen = -1
        self._full = False

    def record(
        self,
        partition: int,
        events: Sequence[AnyEvent],
        caller: Caller,
        now: int,
        shift: int,
        payloads: Sequence[bytes] = (),
    ) -> int:
        """Hand the events to the writer and to everything that is derived from records. Returns the number."""
        seq = self.writer.append(partition, now, shift, caller.who, caller.request, events, payloads)
        self.projections.add(seq, partition, now, shift, tuple(events))
        self.statistics.add(seq, partition, now, shift, events)
        self.progress.set()
        self._measure(events, now)
        if self.feed.subscribers:
            self.feed.recorded(self, seq, partition, now, shift, events)
        return seq

    def _measure(self, events: Sequence[AnyEvent], now: int) -> None:
        for event in events:
            if type(event) is MessagesPushed:
                self.meter.recent.add(now, len(event.sizes), 0)
            elif type(event) is MessagesSettled and event.outcome == "completed" and event.asked is not None:
                count = 0
                for _, length, pushed_at in event.runs:
                    self.meter.lag_s.add((now - pushed_at) / SECOND, length)
                    count += length
                if event.group == DEFAULT_GROUP:
                    self.meter.recent.add(now, 0, count)

    def record_catalogue(self, event: AnyEvent, caller: Caller, partition: int = CATALOGUE) -> int:
        """Record an event of the catalogue and apply it."""
        now, shift = self.clock.now(), self.clock.shift()
        seq = self.record(partition, (event,), caller, now, shift)
        catalogue_state.evolve(self.catalogue, seq, partition, event, now, shift)
        queue = catalogue_state.queue_of(event)
        if queue is not None:
            self.dirty_queues.add(queue)
        return seq

    def check_room(self) -> None:
        """Raise where nothing that takes room may be written now: 507 for a full disk, else come back later."""
        if self.writer.crowded:
            raise Busy("more is waiting for the disk than may wait")
        if self._room_seen != self.writer.commits or self._full:
            self._room_seen = self.writer.commits
            self._full = self.journal.room().free <= 0
        if self._full:
            raise StoreFull("the disk or the map is full; acknowledgements and deletions still work")
