"""The projection of minutes and hours by itself: whatever part of its rows was written before a crash, a replay of all
records gives what the live one holds (S2)."""

from hypothesis import given
from hypothesis import strategies as st

from queen.actors.statistics import HOUR, MINUTES, Statistics
from queen.events import MessagesSettled, Run
from queen.names import DEFAULT_GROUP
from queen.store.journal import Table
from queen.store.memory_journal import MemoryJournal

START = 500_000 * HOUR

# A record: the partition, how many completed, what time had passed since the record before, how long they had taken;
# two events in a record are two leases in one batch of acknowledgements.
RECORDS = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.integers(1, 2),
        st.sampled_from([1, 1000, 40 * 60 * 10**6, HOUR, 3 * HOUR]),
        st.integers(0, 10**10),
    ),
    max_size=30,
)
Record = tuple[int, int, int, tuple[MessagesSettled, ...]]


def records_of(drawn: list[tuple[int, int, int, int]]) -> list[Record]:
    at = START
    records = []
    for seq, (partition, events, passed, duration) in enumerate(drawn, 1):
        at += passed
        runs = (Run(1, seq, at - duration),)
        settled = MessagesSettled(DEFAULT_GROUP, "completed", runs, asked="completed")
        records.append((seq, partition, at, (settled,) * events))
    return records


def fold(statistics: Statistics, records: list[Record]) -> None:
    for seq, partition, at, events in records:
        statistics.add(seq, partition, at, 0, events)


def content(statistics: Statistics) -> object:
    return (
        statistics.minutes(START + 100 * HOUR),
        {number: lateness.window.parts() for number, lateness in statistics.windows.items()},
        {number: lateness.latest.parts() for number, lateness in statistics.windows.items()},
        {number: (lateness.hour, lateness.seq) for number, lateness in statistics.windows.items()},
    )


def loaded(journal: MemoryJournal) -> Statistics:
    statistics = Statistics()
    start, stop = statistics.begin(START)
    rows = journal.scan(Table.STATISTICS, start, stop)
    statistics.load(journal.get(Table.STATISTICS, MINUTES), rows)
    return statistics


@given(RECORDS, RECORDS, RECORDS, st.integers(0, 20))
def test_any_part_of_the_rows_and_all_records_give_the_same(
    first: list[tuple[int, int, int, int]],
    second: list[tuple[int, int, int, int]],
    third: list[tuple[int, int, int, int]],
    written: int,
) -> None:
    """Rows of the first part are complete, those of the second are written in part, then the server dies."""
    records = records_of(first + second + third)
    journal, live = MemoryJournal(), Statistics()
    fold(live, records[: len(first)])
    journal.commit(0, (), live.rows())
    live.written(live.seq)
    fold(live, records[len(first) : len(first) + len(second)])
    journal.commit(0, (), live.rows()[:written])
    fold(live, records[len(first) + len(second) :])
    again = loaded(journal)
    fold(again, records)
    assert content(again) == content(live)
    plain = Statistics()
    fold(plain, records)
    assert content(plain) == content(live)


@given(RECORDS, RECORDS)
def test_what_was_added_while_rows_were_on_their_way_is_in_the_next_ones(
    first: list[tuple[int, int, int, int]], second: list[tuple[int, int, int, int]]
) -> None:
    records = records_of(first + second)
    journal, live = MemoryJournal(), Statistics()
    fold(live, records[: len(first)])
    rows, seq = live.rows(), live.seq
    fold(live, records[len(first) :])
    journal.commit(0, (), rows)
    live.written(seq)
    journal.commit(0, (), live.rows())
    assert content(loaded(journal)) == content(live)


@given(RECORDS, RECORDS, st.integers(0, 20), st.integers(1, 4))
def test_rows_that_are_made_while_more_happens(
    first: list[tuple[int, int, int, int]], second: list[tuple[int, int, int, int]], written: int, pace: int
) -> None:
    """Each says what it counts; whatever part of them is written, nothing counts twice and nothing is lost."""
    records = records_of(first + second)
    journal, live = MemoryJournal(), Statistics()
    fold(live, records[: len(first)])
    places, seq = live.unwritten(), live.seq
    left = records[len(first) :]
    rows = []
    for place in places:
        rows.append(live.row(place))
        fold(live, left[:pace])
        left = left[pace:]
    rows.append(live.minutes_row())
    journal.commit(0, (), rows[:written])
    fold(live, left)
    again = loaded(journal)
    fold(again, records)
    assert content(again) == content(live)
    journal.commit(0, (), rows)
    live.written(seq)
    journal.commit(0, (), live.rows())
    assert content(loaded(journal)) == content(live)


def test_a_row_is_written_once() -> None:
    """Only what has changed is written anew, and the minutes."""
    live = Statistics()
    fold(live, records_of([(1, 1, 1, 5), (2, 1, 1, 5), (1, 1, HOUR, 5)]))
    assert len(live.rows()) == 4
    live.written(live.seq)
    assert len(live.rows()) == 1


def test_memory_holds_two_hours_of_minutes_at_most() -> None:
    live = Statistics()
    fold(live, records_of([(1, 1, 60 * 10**6, 5)] * 500))
    fold(live, [(501, 1, START, (MessagesSettled(0, "failed", (Run(1, 1, 1),)),))])
    assert len(live._minutes) <= 121
