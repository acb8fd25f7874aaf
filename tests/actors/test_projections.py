"""The projections give the same answers from tails, from rows, and from both at once (P4, A3, N3)."""

import random
import tracemalloc
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from queen.events import MessagesPushed, MessagesRevived, MessagesSettled, Outcome, Run
from queen.names import generated_transaction_id, message_id, uuid_text
from queen.store import keys
from queen.store.format import ORIGIN, digest_of, pack, unpack
from queen.store.journal import Table
from queen.store.memory_journal import MemoryJournal
from queen.store.projections import Projections
from queen.store.records import UNPACKED, Records

BLOCK = 1 << 12


class World:
    """Projections over a journal, fed by hand; `deleted` are messages that exist no more."""

    def __init__(self) -> None:
        self.journal = MemoryJournal()
        self.deleted: set[tuple[int, int]] = set()
        self.past = self.fresh()
        self.seq = 0
        self.digest = ORIGIN
        self.bases: Iterator[int] = iter(range(7 << 76, 1 << 128, BLOCK))
        self.next: dict[int, int] = {}

    def fresh(self) -> Projections:
        return Projections(self.journal, Records(self.journal), self.stored, self.last_stored)

    def stored(self, partition: int, place: int) -> bool:
        return (partition, place) not in self.deleted

    def last_stored(self, partition: int, place: int) -> int:
        return next((found for found in range(place, 0, -1) if self.stored(partition, found)), 0)

    def record(self, partition: int, *events: Any, at: int = 0) -> int:
        self.seq += 1
        payloads = [b"1"] * sum(len(event.sizes) for event in events if isinstance(event, MessagesPushed))
        frame, self.digest = pack(self.seq, self.digest, at, partition, 7, "test", b"", events, payloads)
        assert digest_of(unpack(self.seq, frame)) == self.digest
        self.journal.commit(self.seq - 1, [frame])
        self.past.add(self.seq, partition, at, 7, events)
        return self.seq

    def push(self, partition: int, *names: str | None, base: int | None = None, **more: Any) -> int:
        """Returns the base of the ids."""
        base = next(self.bases) if base is None else base
        first = self.next.get(partition, 1)
        self.next[partition] = first + len(names)
        given = names if any(names) else ()
        self.record(partition, MessagesPushed(first, base.to_bytes(16), (1,) * len(names), given, **more), at=self.seq)
        return base

    def write(self, rows: int | None = None) -> None:
        """Freeze the tail and write all that are frozen, as the keeper does; with `rows` it stops after so many."""
        self.past.freeze()
        for tail in self.past.frozen():
            changes = tail.changes(dict(self.past.settled_rows(tail)))
            self.journal.commit(self.seq, (), changes[:rows])
            if rows is not None:
                return
            self.past.written(tail)


@pytest.fixture
def world() -> World:
    return World()


def _places(world: World, *names: str) -> list[Any]:
    return [(place.partition, place.position) if (place := world.past.find(name)) else None for name in names]


@pytest.mark.parametrize("where", ["tail", "disk", "both", "frozen"])
async def test_find_by_given_and_by_generated_ids(where: str, world: World) -> None:
    """N2, N3: ids of the messages themselves are no transactionIds."""
    base = world.push(1, "a", None, "c")
    other = world.push(2, None, None)
    if where == "disk":
        world.write()
    elif where == "both":
        world.write(rows=1000)
    elif where == "frozen":
        world.past.freeze()
    generated = [uuid_text(generated_transaction_id(base, index)) for index in range(4)]
    assert _places(world, "a", "c", "b") == [(1, 1), (1, 3), None]
    assert _places(world, *generated) == [None, (1, 2), None, None]
    assert world.past.find(uuid_text(message_id(base, 1))) is None
    assert world.past.find(uuid_text(other - 1)) is None
    place = world.past.find(uuid_text(generated_transaction_id(other, 1)))
    assert place is not None
    assert place == (2, 2, message_id(other, 1))


@pytest.mark.parametrize("first_on_disk", [False, True])
@pytest.mark.parametrize("second_on_disk", [False, True])
async def test_a_name_that_became_free_again(first_on_disk: bool, second_on_disk: bool, world: World) -> None:
    """Z5: a deleted message's name finds the later one, and nothing once that is deleted as well."""
    world.push(1, "a")
    if first_on_disk:
        world.write()
    world.deleted.add((1, 1))
    assert _places(world, "a") == [None]
    world.push(2, "b", "a")
    if second_on_disk:
        world.write()
    assert _places(world, "a", "b") == [(2, 2), (2, 1)]
    world.deleted.add((2, 2))
    assert _places(world, "a", "b") == [None, (2, 1)]


async def test_names_whose_hashes_begin_alike_are_told_apart(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row's key has 8 bytes of the hash; the record has the name. Here the hash is of one byte's worth."""

    class Short:
        def __init__(self, text: bytes) -> None:
            self.text = text

        def digest(self) -> bytes:
            return bytes(7) + bytes([sum(self.text) % 2])

    monkeypatch.setattr(keys, "sha256", Short)
    names = [f"n{number}" for number in range(40)]
    for start in range(0, 40, 8):
        world.push(start % 3 + 1, *names[start : start + 8])
    expected = _places(world, *names)
    assert None not in expected
    world.write()
    assert _places(world, *names) == expected
    assert _places(world, "n41", "x") == [None, None]


async def test_pushes_of_one_request_share_a_block_of_ids(world: World) -> None:
    """Each partition's part begins where the one before it ends."""
    base = next(world.bases)
    world.push(1, None, None, base=base)
    world.push(2, None, base=base + 4)
    expected = [(1, 1), (1, 2), (2, 1), None]
    names = [uuid_text(generated_transaction_id(base, index)) for index in range(4)]
    assert _places(world, *names) == expected
    world.write()
    assert _places(world, *names) == expected


def _runs(world: World, partition: int, position: int) -> list[Any]:
    return [run._replace(sizes=world.past.sizes(run)) for run in world.past.runs(partition, position)]


@pytest.mark.parametrize("seed", range(12))
async def test_runs_where_rows_and_tails_overlap(seed: int, world: World) -> None:
    """Whatever is frozen, written or both: each record once, in order, from the one that holds the position on."""
    chance = random.Random(seed)
    expected: dict[int, list[Any]] = {1: [], 2: []}
    for _ in range(60):
        partition = chance.choice([1, 1, 2])
        names = [None] * chance.choice([1, 2, 7])
        first = world.next.get(partition, 1)
        delays = chance.choice([(), (5,) * len(names)])
        world.push(partition, *names, delays_s=delays)
        run = first, len(names), world.seq - 1, world.seq, world.seq - 1 + 7, delays, None, (1,) * len(names)
        expected[partition].append(run)
        if chance.random() < 0.2:
            world.write(chance.choice([None, 3, 1000]))
        elif chance.random() < 0.1:
            world.past.freeze()
    for partition, runs in expected.items():
        end = world.next[partition]
        assert _runs(world, partition, 1) == runs
        for position in range(1, end + 2):
            assert _runs(world, partition, position) == [run for run in runs if run[0] + run[1] > position]
    assert _runs(world, 3, 1) == []


async def test_more_rows_than_a_page(world: World) -> None:
    """Rows are read a page at a time, and never past the partition."""
    for _ in range(150):
        world.push(1, None)
    world.push(2, None)
    world.write()
    assert [run.first for run in world.past.runs(1, 3)] == list(range(3, 151))


def _settle(
    world: World, partition: int, runs: list[tuple[int, int]], outcome: Any = "completed", group: int = 0
) -> int:
    given = tuple(Run(first, length, 0) for first, length in runs)
    return world.record(partition, MessagesSettled(group, outcome, given, asked=outcome), at=1000 + world.seq)


def _endings(world: World, partition: int, group: int, stop: int) -> list[Any]:
    found = [world.past.settled(partition, group, place) for place in range(1, stop)]
    return [None if ended is None else (ended.outcome, ended.at) for ended in found]


@pytest.mark.parametrize("seed", range(6))
async def test_endings_across_pages_and_tails(seed: int, world: World) -> None:
    """A3: cells of 120 positions, filled by several writes, emptied by a revival, apart for each group."""
    chance = random.Random(seed)
    count = keys.CELLS * 2 + 30
    world.push(1, *[None] * count)
    expected: dict[int, list[Any]] = {0: [None] * count, 5: [None] * count}
    for _ in range(40):
        group = chance.choice([0, 5])
        first = chance.randint(1, count)
        length = min(chance.choice([1, 3, 40, 150]), count + 1 - first)
        if chance.random() < 0.2:
            world.record(1, MessagesRevived(group, (Run(first, length, 0),), length, 0))
            ending = None
        else:
            outcome = chance.choice(["completed", "failed", "dead_letter"])
            _settle(world, 1, [(first, length)], outcome, group)
            ending = outcome, 1000 + world.seq - 1
        expected[group][first - 1 : first - 1 + length] = [ending] * length
        if chance.random() < 0.25:
            world.write(chance.choice([None, None, 2]))
    for group, endings in expected.items():
        assert _endings(world, 1, group, count + 1) == endings
    assert world.past.settled(2, 0, 1) is None


async def test_a_record_that_revives_and_settles_says_the_latter(world: World) -> None:
    """R4: a failed message that is buried."""
    world.push(1, None)
    _settle(world, 1, [(1, 1)], "failed")
    run = (Run(1, 1, 0),)
    world.record(1, MessagesRevived(0, run, 1, 0), MessagesSettled(0, "dead_letter", run))
    for _ in range(2):
        ended = world.past.settled(1, 0, 1)
        assert ended is not None
        assert ended.outcome == "dead_letter"
        world.write()


@pytest.mark.parametrize("lost", [False, True])
async def test_settlements_in_order_each_once(lost: bool, world: World) -> None:
    """T4: rows first, tails behind them, also where both have them."""
    world.push(1, *[None] * 400)
    expected = []
    for number in range(200):
        expected.append(_settle(world, 1, [(number + 1, 1), (number + 201, 1)]))
        _settle(world, 2, [(1, 1)])
        if number in (30, 130):
            world.write(1000 if lost else None)
    assert [record.seq for record in world.past.settlements(1, 0)] == expected
    if not lost:
        after = expected[150]
        assert [record.seq for record in world.past.settlements(1, after) if record.seq > after] == expected[151:]
    (first, *_) = world.past.settlements(1, expected[9])
    assert first.seq == expected[10]
    assert first.runs == (Run(11, 1, 0), Run(211, 1, 0))


async def test_settlements_after_a_record_in_the_tail(world: World) -> None:
    """`after_seq` counts for tails as well."""
    world.push(1, None, None, None)
    seqs = [_settle(world, 1, [(place, 1)]) for place in (1, 2, 3)]
    assert [record.seq for record in world.past.settlements(1, seqs[0])] == seqs[1:]
    world.write()
    assert [record.seq for record in world.past.settlements(1, seqs[0])] == seqs[1:]


async def test_rows_of_a_shutdown_that_was_cut_off_are_completed(world: World) -> None:
    """Two tails write one row of cells, one after the other."""
    world.push(1, None, None)
    first = _settle(world, 1, [(1, 1)])
    world.past.freeze()
    second = _settle(world, 1, [(2, 1)])
    world.past.freeze()
    for tail in world.past.frozen():
        world.journal.commit(world.seq, (), tail.changes(dict(world.past.settled_rows(tail))))
        world.past.written(tail)
    row = world.journal.get(Table.SETTLED, keys.settled_key(1, 0, 1))
    assert row is not None
    assert [keys.number(row[8 * place : 8 * place + 8]) for place in (1, 2)] == [first, second]
    assert world.past.frozen() == []


async def test_small_records_take_no_more_memory_than_large_ones(world: World) -> None:
    """What counts is what they take unpacked."""
    for _ in range(2000):
        world.push(1, None)
    records = Records(world.journal, cache_bytes=500_000)
    tracemalloc.start()
    try:
        for seq in range(1, 2001):
            records.read(seq)
        assert 250_000 < tracemalloc.get_traced_memory()[0] < 750_000
    finally:
        tracemalloc.stop()


async def test_records_are_kept_within_their_bytes(world: World) -> None:
    """A bound on memory; the last one is kept however large."""
    for _ in range(20):
        world.push(1, None)
    size = len(world.journal.frame(1) or b"") + UNPACKED
    records = Records(world.journal, cache_bytes=5 * size)
    for seq in range(1, 21):
        assert records.read(seq).seq == seq
    assert len(records._kept) <= 5
    assert records.read(20) is records.read(20)
    tiny = Records(world.journal, cache_bytes=1)
    tiny.read(1)
    tiny.read(2)
    assert list(tiny._kept) == [2]


@pytest.mark.parametrize("seed", range(8))
async def test_given_up_messages_are_listed_until_they_are_something_else(seed: int, world: World) -> None:
    """None is missing, whatever is frozen or written; once all is written, and settled anew, none is listed in vain."""
    chance = random.Random(seed)
    world.push(1, *[None] * 150)
    world.push(2, *[None] * 150)
    now: dict[tuple[int, int, int], str | None] = {}
    for _ in range(80):
        partition, group, first = chance.choice([1, 2]), chance.choice([0, 3]), chance.randrange(1, 140)
        places = range(first, first + chance.choice([1, 1, 9]))
        if chance.random() < 0.25:
            world.record(partition, MessagesRevived(group, (Run(first, len(places), 0),), 0, 0))
            outcome = None
        else:
            outcome = chance.choice(["completed", "failed", "dead_letter"])
            _settle(world, partition, [(first, len(places))], outcome, group)
        now.update({(partition, group, place): outcome for place in places})
        if chance.random() < 0.1:
            world.deleted.add((partition, chance.randrange(1, 151)))
        if chance.random() < 0.2:
            world.past.freeze()
        if chance.random() < 0.2:
            world.write(chance.choice([None, 3]))
        _check_given_up(world, now, exact=False)
    world.write()
    _check_given_up(world, now, exact=True)
    world.past = world.fresh()
    _check_given_up(world, now, exact=True)


def _check_given_up(world: World, now: dict[tuple[int, int, int], str | None], exact: bool) -> None:
    outcomes: tuple[Outcome, ...] = ("failed", "dead_letter")
    for partition, group, outcome in product((1, 2), (0, 3), outcomes):
        stored = [place for place in range(120, 0, -1) if world.stored(partition, place)]
        expected = [place for place in stored if now.get((partition, group, place)) == outcome]
        found = [p for p in world.past.given_up(partition, group, outcome, 121) if world.stored(partition, p)]
        assert found == sorted(set(found), reverse=True)
        assert found == expected if exact else set(found) >= set(expected)
