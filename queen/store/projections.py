"""What is derived from the records: where messages lie, by position and by transactionId, and how they ended.

Rows on disk up to a checkpoint, and tails in memory for what is newer. All of it can be made anew from the
journal, so none of it is evidence: a wrong row can only be a bug or damage, and `queen verify` compares.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from heapq import merge

from queen.errors import ChainBroken
from queen.events import AnyEvent, MessagesPushed, MessagesSettled, Outcome
from queen.history import Place, PushedRun, Settled, SettledRecord
from queen.names import message_id, uuid_number
from queen.store import keys
from queen.store.journal import Journal, Table
from queen.store.records import Records
from queen.store.tail import Settling, Tail, is_generated, settled_of

TAIL_LIMIT = 16_384
"""Rows that a tail may hold before the engine should freeze it: about 10 ms of sorting and writing."""
DELIVERED = 16_384
"""Delivered messages whose places are remembered, about 4 MB: most acknowledgements follow soon."""
_PAGE = 64


class Projections:
    """Answers questions about the past, of disk and tails together.

    `stored(partition, position)` says whether that message still exists, `last_stored(partition, position)` is the
    nearest position from there downwards whose message does, or 0; the catalogue knows.
    """

    def __init__(
        self,
        journal: Journal,
        records: Records,
        stored: Callable[[int, int], bool],
        last_stored: Callable[[int, int], int],
    ) -> None:
        self._journal = journal
        self._records = records
        self._stored = stored
        self._last_stored = last_stored
        self._tails = [Tail()]
        self._delivered: OrderedDict[str, Place] = OrderedDict()

    @property
    def size(self) -> int:
        """Rows in the tail that still grows."""
        return self._tails[-1].size

    def add(self, seq: int, partition: int, at: int, shift: int, events: tuple[AnyEvent, ...]) -> None:
        """Take in one record, in order, no earlier than it is handed to the writer."""
        self._tails[-1].add(seq, partition, at, shift, events)

    def freeze(self) -> Tail:
        """The tail so far, to be written; a new one grows from here."""
        frozen = self._tails[-1]
        self._tails.append(Tail())
        return frozen

    def settled_rows(self, tail: Tail) -> Iterator[tuple[bytes, bytes | None]]:
        """What `Tail.changes` needs, read on the thread that reads."""
        for key in tail.settled_keys():
            yield key, self._journal.get(Table.SETTLED, key)

    def frozen(self) -> list[Tail]:
        """The tails that no longer grow and are not written yet, oldest first."""
        return self._tails[:-1]

    def written(self, tail: Tail) -> None:
        """Forget a frozen tail whose rows are durable."""
        self._tails.remove(tail)

    def history(self, partition: int) -> "PartitionHistory":
        """The past of one partition, as its rules see it."""
        return PartitionHistory(self, partition)

    # -- positions ----------------------------------------------------------------------------------------

    def runs(self, partition: int, position: int) -> Iterator[PushedRun]:
        """See `History.runs`. Rows and tails never overlap for long: a run that both have is given once."""
        following = position
        if not any(tail.covers(partition, position) for tail in self._tails):
            for run in self._rows(partition, position):
                following = run.first + run.length
                yield run
        for tail in list(self._tails):
            for run in tail.runs(partition, following):
                following = run.first + run.length
                yield run

    def newest_run(self, partition: int) -> PushedRun | None:
        """The partition's newest record of pushed messages, by one lookup; without its delays."""
        for tail in reversed(self._tails):
            run = tail.newest_run(partition)
            if run is not None:
                return run
        row = self._journal.floor(Table.RUNS, keys.run_key(partition, 2**64 - 1))
        if row is None:
            return None
        owner, run, _ = keys.read_run(*row)
        return run if owner == partition else None

    def run_of(self, partition: int, position: int) -> PushedRun | None:
        """The record that holds the position, None where none does."""
        run = next(self.runs(partition, position), None)
        return run if run is not None and run.first <= position else None

    def _rows(self, partition: int, position: int) -> Iterator[PushedRun]:
        row = self._journal.floor(Table.RUNS, keys.run_key(partition, position))
        start = keys.run_key(partition, position + 1)
        rows = [] if row is None else [row]
        limit = 1
        while True:
            for key, value in rows:
                owner, run, more = keys.read_run(key, value)
                if owner == partition and run.first + run.length > position:
                    yield self._complete(run) if more else run
            rows = self._journal.scan(Table.RUNS, start, keys.run_key(partition + 1, 0), limit)
            if not rows:
                return
            start = rows[-1][0] + b"\0"
            limit = _PAGE

    def sizes(self, run: PushedRun) -> tuple[int, ...]:
        """See `History.sizes`. What has no row yet tells itself; any other record is durable, and asked for next."""
        return run.sizes or self._pushed(run).sizes

    def _complete(self, run: PushedRun) -> PushedRun:
        pushed = self._pushed(run)
        return run._replace(delays_s=pushed.delays_s, key=pushed.key)

    def _pushed(self, run: PushedRun) -> MessagesPushed:
        pushed = self._records.read(run.seq).pushed
        if pushed is None:
            raise ChainBroken(f"Record {run.seq} holds no messages, though a projection says so.")
        return pushed

    # -- endings ------------------------------------------------------------------------------------------

    def settled(self, partition: int, group: int, position: int) -> Settled | None:
        """See `History.settled`."""
        for tail in reversed(self._tails):
            entry = tail.settling(partition, group, position)
            if entry is not None:
                return settled_of(entry, position)
        row = self._journal.get(Table.SETTLED, keys.settled_key(partition, group, position))
        if row is None:
            return None
        offset = 8 * (position % keys.CELLS)
        seq = keys.number(row[offset : offset + 8])
        if not seq:
            return None
        record = self._records.read(seq)
        for event in reversed(record.events):
            if isinstance(event, MessagesSettled) and event.group == group:
                entry = Settling(seq, record.at, event.runs, event)
                if entry.holds(position):
                    return settled_of(entry, position)
        raise ChainBroken(f"Record {seq} did not settle position {position}, though a projection says so.")

    def given_up(self, partition: int, group: int, outcome: Outcome, below: int) -> Iterator[int]:
        """See `History.given_up`."""
        recent: set[int] = set()
        for tail in self._tails:
            recent |= tail.given_up(partition, group, outcome, below)
        last = None
        for position in merge(
            sorted(recent, reverse=True), self._given_up_rows(partition, group, outcome, below), reverse=True
        ):
            if position != last:
                yield position
            last = position

    def _given_up_rows(self, partition: int, group: int, outcome: Outcome, below: int) -> Iterator[int]:
        """Descending, one lookup each; deleted ones may stand here for ever and are passed over by whole ranges."""
        first = keys.given_up_key(partition, group, outcome, 0)
        position = self._last_stored(partition, below - 1)
        while position > 0:
            row = self._journal.floor(Table.GIVEN_UP, keys.given_up_key(partition, group, outcome, position))
            if row is None or row[0] < first:
                return
            found = keys.read_given_up(row[0])
            position = self._last_stored(partition, found)
            if position == found:
                yield found
                position = self._last_stored(partition, found - 1)

    def settlements(self, partition: int, after_seq: int) -> Iterator[SettledRecord]:
        """See `History.settlements`."""
        start = keys.settlement_key(partition, after_seq + 1)
        last = after_seq
        while rows := self._journal.scan(Table.SETTLEMENTS, start, keys.settlement_key(partition + 1, 0), _PAGE):
            for row in rows:
                _, last, at = keys.read_settlement(row)
                events = self._records.read(last).events
                runs = [run for event in events if isinstance(event, MessagesSettled) for run in event.runs]
                yield SettledRecord(last, at, tuple(runs))
            start = rows[-1][0] + b"\0"
        for tail in list(self._tails):
            for record in tail.settlements(partition):
                if record.seq > last:
                    yield record

    # -- ids ----------------------------------------------------------------------------------------------

    def find(self, transaction_id: str) -> Place | None:
        """See `History.find`."""
        place = self._delivered.get(transaction_id)
        if place is not None and self._stored(place.partition, place.position):
            return place
        for tail in reversed(self._tails):
            place = tail.find(transaction_id)
            if place is not None and self._stored(place.partition, place.position):
                return place
        prefix = keys.named_prefix(transaction_id)
        for key, _ in self._journal.scan(Table.IDS, prefix, _after(prefix)):
            place = self._named(transaction_id, *keys.read_named(key))
            if place is not None:
                return place
        number = uuid_number(transaction_id)
        return None if number is None else self._generated(number)

    def delivered(self, places: Iterable[tuple[str, Place]]) -> None:
        """Remember where messages are that a consumer has got, by transactionId: its acknowledgement will ask."""
        self._delivered.update(places)
        while len(self._delivered) > DELIVERED:
            self._delivered.popitem(last=False)

    def _named(self, transaction_id: str, seq: int, index: int) -> Place | None:
        record = self._records.read(seq)
        pushed = record.pushed
        if pushed is None or pushed.transaction_ids[index : index + 1] != (transaction_id,):
            return None
        place = Place(record.partition, pushed.first + index, message_id(int.from_bytes(pushed.base), index))
        return place if self._stored(place.partition, place.position) else None

    def _generated(self, number: int) -> Place | None:
        found = keys.read_generated(self._journal.floor(Table.IDS, keys.generated_key(number)))
        if found is None:
            return None
        base, seq, length = found
        index, odd = divmod(number - base, 2)
        if not odd or index >= length:
            return None
        record = self._records.read(seq)
        pushed = record.pushed
        if pushed is None or not is_generated(pushed, index):
            return None
        place = Place(record.partition, pushed.first + index, message_id(base, index))
        return place if self._stored(place.partition, place.position) else None


class PartitionHistory:
    """`History` of one partition."""

    __slots__ = ("_partition", "_past")

    def __init__(self, past: Projections, partition: int) -> None:
        self._past = past
        self._partition = partition

    def runs(self, position: int) -> Iterator[PushedRun]:
        """See `History.runs`."""
        return self._past.runs(self._partition, position)

    def sizes(self, run: PushedRun) -> tuple[int, ...]:
        """See `History.sizes`."""
        return self._past.sizes(run)

    def settled(self, group: int, position: int) -> Settled | None:
        """See `History.settled`."""
        return self._past.settled(self._partition, group, position)

    def settlements(self, after_seq: int) -> Iterator[SettledRecord]:
        """See `History.settlements`."""
        return self._past.settlements(self._partition, after_seq)

    def given_up(self, group: int, outcome: Outcome, below: int) -> Iterator[int]:
        """See `History.given_up`."""
        return self._past.given_up(self._partition, group, outcome, below)

    def find(self, transaction_id: str) -> Place | None:
        """See `History.find`."""
        return self._past.find(transaction_id)


def _after(prefix: bytes) -> bytes | None:
    """The first key that starts with a greater prefix, None where there is none."""
    number = int.from_bytes(prefix) + 1
    return None if number >> (8 * len(prefix)) else number.to_bytes(len(prefix))
