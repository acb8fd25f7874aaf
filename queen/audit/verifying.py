"""Is the record complete, and does everything follow from it: the chain, the model's rules, the projections."""

from collections.abc import Callable
from typing import Self

import msgspec

from queen.audit.counted import CountedComparison
from queen.audit.erasing import ErasuresComparison
from queen.audit.findings import Finding, Findings
from queen.audit.invariants import Before, misfit, unsound
from queen.audit.projected import Comparison
from queen.audit.reading import Past, shown
from queen.audit.tables import Tables
from queen.audit.walking import Walk
from queen.audit.world import World
from queen.events import PartitionCreated
from queen.store.format import Record

Progress = Callable[[int, int], None]
"""Called now and then with the record that was reached, and the last one."""
_EVERY = 500


class Verdict(msgspec.Struct, frozen=True, rename="camel"):
    """What came of it. `digest` is the last record's, which the next one will name: kept elsewhere, it proves later
    that nothing before it was changed. `sound_until` is the last record whose state could be checked."""

    records: int
    messages: int
    head: int
    digest: str
    sound_until: int
    checkpoint: int
    rows: int
    count: int
    findings: list[Finding]

    @classmethod
    def unreadable(cls, what: str) -> Self:
        """The file is damaged below the records, which had better not be read then."""
        return cls(0, 0, 0, "", 0, 0, 0, 1, [Finding("format", what)])

    @property
    def fine(self) -> bool:
        """Whether nothing is wrong."""
        return not self.count


def verify(past: Past, progress: Progress = lambda seq, head: None) -> Verdict:
    """Look at everything, up to what is the last record now."""
    return _Verification(past, progress).run()


class _Verification:
    def __init__(self, past: Past, progress: Progress) -> None:
        self._past = past
        self._progress = progress
        self._findings = Findings()
        self._world = World()
        self._walk = Walk(past, self._findings, self._where)
        self._tables = Tables(past, self._findings)
        self._projected = Comparison(self._tables)
        self._counted = CountedComparison(self._tables)
        self._erasures = ErasuresComparison(self._tables, self._findings)
        self._follows = True  # whether the states still follow from all that was before

    def run(self) -> Verdict:
        head = self._past.head
        count = messages = 0
        for record in self._walk.records(head):
            count += 1
            messages += len(record.pushed.sizes) if record.pushed is not None else 0
            if self._follows:
                self._follow(record)
            if count % _EVERY == 0:
                self._progress(record.seq, head)
        self._conclude()
        self._progress(head, head)
        return Verdict(
            records=count,
            messages=messages,
            head=head,
            digest=self._walk.digest.hex(),
            sound_until=self._world.seq,
            checkpoint=self._tables.checkpoint,
            rows=self._tables.rows,
            count=self._findings.count,
            findings=self._findings.kept,
        )

    def _follow(self, record: Record) -> None:
        """States rest on every record before: behind a fault nothing can be said of them."""
        self._follows = self._walk.whole
        if not self._follows:
            return
        fault = self._fault_of(record)
        if fault is not None:
            self._findings.add("state", fault, record.seq, shown(record), self._where(record))
            self._follows = False
            return
        self._projected.take(record, self._world)
        self._counted.take(record, self._world)
        self._erasures.take(record)

    def _fault_of(self, record: Record) -> str | None:
        """Applies the record, or says why it could not have happened."""
        slot = self._world.catalogue.slots.get(record.partition)
        state = self._world.states.get(record.partition)
        if record.partition and slot is None and not isinstance(record.events[0], PartitionCreated):
            return "it is of a partition that does not exist"
        before = None if slot is None or state is None else Before.of(state, record.at, slot.queue.options.ordering)
        try:
            for event in record.events:
                if state is not None and before is not None:
                    fault = misfit(state, event, before)
                    if fault is not None:
                        return fault
                    before.take(event)
                self._world.apply_event(record, event)
        except (AssertionError, LookupError, ValueError, msgspec.MsgspecError) as error:
            return f"its events don't fit what was before ({type(error).__name__}: {error})"
        self._world.passed(record)
        return None

    def _conclude(self) -> None:
        self._world.sum_up()
        if not self._follows or not self._walk.whole:
            return
        for number, state in self._world.states.items():
            slot = self._world.catalogue.slots[number]
            for fault in unsound(state):
                self._findings.add("state", fault, self._world.seq, None, f"{slot.queue.name}/{slot.name}")
        self._projected.finish(self._world)
        self._counted.finish(self._world)
        self._erasures.finish(self._world)

    def _where(self, record: Record) -> str | None:
        slot = self._world.catalogue.slots.get(record.partition)
        return None if slot is None else f"{slot.queue.name}/{slot.name}"
