"""The newest part of the projections, in memory until it is written: one `Tail` is one write. Pure.

Bounded: the engine freezes a tail and starts another before it grows past `projections.TAIL_LIMIT`.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import groupby

from queen.events import (
    AnyEvent,
    MessagesDeleted,
    MessagesPushed,
    MessagesRevived,
    MessagesSettled,
    Outcome,
    Run,
)
from queen.history import Place, PushedRun, Settled, SettledRecord
from queen.names import message_id, uuid_number
from queen.store import keys
from queen.store.journal import Change, Table
from queen.store.touches import Touches

_BLOCK_BITS = 12
_NEVER = bytes(8)


class Settling:
    """Messages of one partition and group that one event settled (or, with no event, made pending again)."""

    __slots__ = ("at", "event", "runs", "seq")

    def __init__(self, seq: int, at: int, runs: tuple[Run, ...], event: MessagesSettled | None) -> None:
        self.seq, self.at, self.runs, self.event = seq, at, runs, event

    def keys(self, partition: int, group: int) -> Iterator[bytes]:
        """The rows of SETTLED that the messages stand in."""
        last = -1
        for first, length, _ in self.runs:
            for page in range(max(first // keys.CELLS, last + 1), (first + length - 1) // keys.CELLS + 1):
                last = page
                yield keys.settled_key(partition, group, page * keys.CELLS)

    def holds(self, position: int) -> bool:
        """Whether the position is among the messages."""
        index = bisect_right(self.runs, position, key=_first) - 1
        return index >= 0 and position < self.runs[index].first + self.runs[index].length


class Tail:
    """What records have added to the projections since the last freeze. `size` counts rows, roughly."""

    def __init__(self) -> None:
        self.size = 0
        self.last_seq = 0
        self._runs: dict[int, list[PushedRun]] = defaultdict(list)
        self._named: dict[str, tuple[Place, int, int]] = {}
        self._blocks: dict[int, list[tuple[int, int, int, MessagesPushed]]] = defaultdict(list)
        self._settled: dict[tuple[int, int], list[Settling]] = defaultdict(list)
        # The same by row of SETTLED, so that a question about one message looks at few entries.
        self._pages: dict[bytes, list[Settling]] = defaultdict(list)
        self._settlements: dict[int, list[SettledRecord]] = defaultdict(list)
        self._deleted: list[tuple[int, Run]] = []
        self._touches = Touches()
        # What else had a transactionId before the message that has it now: for the record, see `changes`.
        self._named_before: list[tuple[str, int, int]] = []

    def add(self, seq: int, partition: int, at: int, shift: int, events: tuple[AnyEvent, ...]) -> None:
        """Take in one record."""
        self.last_seq = seq
        self.size += self._touches.add(seq, partition, events)
        settled: list[Run] = []
        for event in events:
            if type(event) is MessagesPushed:
                self._add_pushed(seq, partition, at, shift, event)
            elif type(event) is MessagesSettled:
                self._add_settling(partition, event.group, Settling(seq, at, event.runs, event))
                settled += event.runs
                self.size += len(event.runs)
            elif type(event) is MessagesRevived:
                self._add_settling(partition, event.group, Settling(seq, at, event.runs, None))
            elif type(event) is MessagesDeleted:
                self._deleted += [(partition, run) for run in event.runs]
                self.size += len(event.runs)
        if settled:
            self._settlements[partition].append(SettledRecord(seq, at, tuple(settled)))

    def _add_pushed(self, seq: int, partition: int, at: int, shift: int, event: MessagesPushed) -> None:
        length = len(event.sizes)
        base = int.from_bytes(event.base)
        self._runs[partition].append(
            PushedRun(event.first, length, at, seq, at + shift, event.delays_s, event.key, event.sizes)
        )
        self._blocks[base >> _BLOCK_BITS].append((base, seq, partition, event))
        self.size += 2
        for index, name in enumerate(event.transaction_ids):
            if name is not None:
                if name in self._named:
                    self._named_before.append((name, *self._named[name][1:]))
                place = Place(partition, event.first + index, message_id(base, index))
                self._named[name] = place, seq, index
        self.size += len(event.transaction_ids)

    def _add_settling(self, partition: int, group: int, entry: Settling) -> None:
        self._settled[partition, group].append(entry)
        for key in entry.keys(partition, group):
            self._pages[key].append(entry)

    @property
    def erases(self) -> bool:
        """Whether messages were deleted, whose payloads are to go."""
        return bool(self._deleted)

    # -- questions ----------------------------------------------------------------------------------------

    def runs(self, partition: int, position: int) -> list[PushedRun]:
        """The partition's newest records of pushed messages from the one that holds `position` on, in order."""
        runs = self._runs.get(partition)
        if runs is None:
            return []
        index = bisect_right(runs, position, key=_first)
        if index and runs[index - 1].first + runs[index - 1].length > position:
            index -= 1
        return runs[index:]

    def covers(self, partition: int, position: int) -> bool:
        """Whether whatever stands at `position` or behind it was pushed in this tail, or later."""
        runs = self._runs.get(partition)
        return runs is not None and runs[0].first <= position

    def settling(self, partition: int, group: int, position: int) -> Settling | None:
        """The last thing that happened to the message here, in the sense of `Settling`."""
        for entry in reversed(self._pages.get(keys.settled_key(partition, group, position), ())):
            if entry.holds(position):
                return entry
        return None

    def given_up(self, partition: int, group: int, outcome: Outcome, below: int) -> set[int]:
        """Positions below `below` that ended so here, whatever has become of them since."""
        return {
            position
            for entry in self._settled.get((partition, group), ())
            if entry.event is not None and entry.event.outcome == outcome
            for run in entry.runs
            for position in range(run.first, min(run.first + run.length, below))
        }

    def newest_run(self, partition: int) -> PushedRun | None:
        """The partition's newest record of pushed messages, None where it has none here."""
        runs = self._runs.get(partition)
        return runs[-1] if runs else None

    def settlements(self, partition: int) -> list[SettledRecord]:
        """Records that settled messages of the partition, in order."""
        return self._settlements.get(partition, [])

    def find(self, transaction_id: str) -> Place | None:
        """The newest message of that transactionId, deleted or not."""
        found = self._named.get(transaction_id)
        if found is not None:
            return found[0]
        number = uuid_number(transaction_id)
        if number is not None:
            for base, _, partition, event in self._blocks.get(number >> _BLOCK_BITS, ()):
                index, odd = divmod(number - base, 2)
                if odd and 0 <= index < len(event.sizes) and is_generated(event, index):
                    return Place(partition, event.first + index, message_id(base, index))
        return None

    # -- writing ------------------------------------------------------------------------------------------

    def settled_keys(self) -> list[bytes]:
        """The keys of the rows of SETTLED that the tail completes."""
        return list(self._pages)

    def changes(self, settled: Mapping[bytes, bytes | None]) -> list[Change]:
        """Everything as rows, each table in key order. `settled` holds what stands under `settled_keys` so far."""
        given_up: list[Change] = []
        rows = [*self._run_rows(), *self._id_rows(), *self._settled_rows(settled, given_up), *self._settlement_rows()]
        rows += given_up
        rows += self._touches.rows()
        # Last: whoever finds one of these finds the rows that say where the messages lie.
        rows += [
            Change(Table.ERASURES, keys.erasure_key(partition, run.first), keys.erasure_value(run.length))
            for partition, run in self._deleted
        ]
        return rows

    def _run_rows(self) -> Iterator[Change]:
        for partition in sorted(self._runs):
            for run in self._runs[partition]:
                yield Change(Table.RUNS, keys.run_key(partition, run.first), keys.run_value(run))

    def _id_rows(self) -> list[Change]:
        rows = [
            Change(Table.IDS, keys.generated_key(base), keys.generated_value(seq, len(event.sizes)))
            for entries in self._blocks.values()
            for base, seq, _, event in entries
        ]
        rows += [
            Change(Table.IDS, keys.named_key(name, seq, index), b"") for name, (_, seq, index) in self._named.items()
        ]
        rows += [Change(Table.IDS, keys.named_key(*earlier), b"") for earlier in self._named_before]
        rows.sort()
        return rows

    def _settled_rows(self, settled: Mapping[bytes, bytes | None], given_up: list[Change]) -> Iterator[Change]:
        """Rows of SETTLED; those of GIVEN_UP, which depend on what stood there before, go into the list."""
        for partition, group in sorted(self._settled):
            cells = {
                position: entry
                for entry in self._settled[partition, group]
                for run in entry.runs
                for position in range(run.first, run.first + run.length)
            }
            for page, positions in groupby(sorted(cells), key=lambda position: position // keys.CELLS):
                key = keys.settled_key(partition, group, page * keys.CELLS)
                row = bytearray(settled[key] or bytes(8 * keys.CELLS))
                for position in positions:
                    offset = 8 * (position % keys.CELLS)
                    event = cells[position].event
                    # What was never settled before has no row to be removed: most messages are settled once.
                    known = event is None or row[offset : offset + 8] != _NEVER
                    if known or (event is not None and event.outcome != "completed"):
                        given_up += _given_up_rows(partition, group, position, event, known)
                    row[offset : offset + 8] = _NEVER if event is None else keys.u64(cells[position].seq)
                yield Change(Table.SETTLED, key, bytes(row))

    def _settlement_rows(self) -> Iterator[Change]:
        for partition in sorted(self._settlements):
            for record in self._settlements[partition]:
                yield Change(Table.SETTLEMENTS, keys.settlement_key(partition, record.seq), keys.u64(record.at))


def _given_up_rows(
    partition: int, group: int, position: int, event: MessagesSettled | None, known: bool
) -> Iterator[Change]:
    for outcome in keys.GIVEN_UP:
        here = event is not None and event.outcome == outcome
        if here or known:
            key = keys.given_up_key(partition, group, outcome, position)
            yield Change(Table.GIVEN_UP, key, b"" if here else None)


def is_generated(event: MessagesPushed, index: int) -> bool:
    """Whether the message's transactionId is the server's."""
    return not event.transaction_ids or event.transaction_ids[index] is None


def _first(run: PushedRun | Run) -> int:
    return run.first


def settled_of(entry: Settling, position: int) -> Settled | None:
    """How the message ended, None where it was made pending again."""
    event = entry.event
    if event is None:
        return None
    retries = event.retry_counts.get(position, 0)
    return Settled(
        event.outcome, event.asked, event.lease, retries, event.error, entry.at, event.leased_at, event.worker
    )
