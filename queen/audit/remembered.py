"""The past of one partition, kept in memory as its events come: what the rules ask of a `History`. Pure.

A server asks its projections instead; this is for a scratch partition, whose events stand nowhere.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice

from queen.events import AnyEvent, MessagesPushed, MessagesSettled, Outcome, Run
from queen.history import Place, PushedRun, Settled, SettledRecord


class Remembered:
    """A `History`. Costs memory for every message."""

    def __init__(self) -> None:
        self._runs: list[PushedRun] = []
        self._firsts: list[int] = []
        self._settled: dict[tuple[int, int], Settled] = {}
        self._settlements: list[SettledRecord] = []

    def feed(self, seq: int, at: int, shift: int, events: Sequence[AnyEvent]) -> None:
        """The events of the next record."""
        settled: list[Run] = []
        for event in events:
            if isinstance(event, MessagesPushed):
                length = len(event.sizes)
                run = PushedRun(event.first, length, at, seq, at + shift, event.delays_s, event.key, event.sizes)
                self._runs.append(run)
                self._firsts.append(event.first)
            elif isinstance(event, MessagesSettled):
                settled.extend(event.runs)
                for first, length, _ in event.runs:
                    for position in range(first, first + length):
                        self._settled[event.group, position] = _ending(event, position, at)
        if settled:
            self._settlements.append(SettledRecord(seq, at, tuple(settled)))

    def runs(self, position: int) -> Iterator[PushedRun]:
        """See `History.runs`."""
        index = max(bisect_right(self._firsts, position) - 1, 0)
        for run in islice(self._runs, index, None):
            if run.first + run.length > position:
                yield run

    def sizes(self, run: PushedRun) -> tuple[int, ...]:
        """See `History.sizes`."""
        return run.sizes

    def settled(self, group: int, position: int) -> Settled | None:
        """See `History.settled`."""
        return self._settled.get((group, position))

    def settlements(self, after_seq: int) -> Iterator[SettledRecord]:
        """See `History.settlements`."""
        return iter(self._settlements[bisect_right(self._settlements, after_seq, key=_number) :])

    def given_up(self, group: int, outcome: Outcome, below: int) -> Iterator[int]:
        """See `History.given_up`."""
        found = (
            position
            for (owner, position), ended in self._settled.items()
            if owner == group and position < below and ended.outcome == outcome
        )
        return iter(sorted(found, reverse=True))

    def find(self, transaction_id: str) -> Place | None:
        """Nothing: what was pushed is fed here, not decided."""
        return None


def _ending(event: MessagesSettled, position: int, at: int) -> Settled:
    count = event.retry_counts.get(position, 0)
    return Settled(event.outcome, event.asked, event.lease, count, event.error, at, event.leased_at, event.worker)


def _number(record: SettledRecord) -> int:
    return record.seq
