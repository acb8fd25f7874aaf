"""The writer by itself: order, gathering, jobs, and what it tells whom when it stops."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from queen.errors import Conflict, StoreFailed, StoreFull, Unavailable
from queen.events import QueueDeleted
from queen.store.chain import verify
from queen.store.journal import Change, Table
from queen.store.memory_journal import MemoryJournal
from queen.store.writer import Writer
from tests.actors.world import Gate, patience, slow, steps


def _append(writer: Writer, number: int = 1) -> int:
    return writer.append(0, 1_000, 0, "test", b"", (QueueDeleted(number),))


@asynccontextmanager
async def running(writer: Writer) -> AsyncIterator[trio.Nursery]:
    async with patience(100), trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        yield nursery
        nursery.cancel_scope.cancel()


async def test_callbacks_come_in_order_and_after_their_commit(autojump_clock: Any) -> None:
    """One behind records in a running commit waits for it, one behind later records for the next."""
    gate = Gate()
    journal = MemoryJournal()
    writer = Writer(journal, gate.run)
    told: list[Any] = []

    def tell(name: str) -> None:
        writer.then(lambda failure: told.append((name, failure, journal.head)))

    async with running(writer):
        tell("nothing to wait for")
        assert told.pop() == ("nothing to wait for", None, 0)
        assert _append(writer) == 1
        tell("first")
        await steps()
        tell("behind the running commit")
        assert [_append(writer), _append(writer)] == [2, 3]
        tell("second")
        await steps()
        assert not told
        assert writer.busy
        assert writer.waiting == 3
        gate.open()
        await steps()
        assert told == [("first", None, 1), ("behind the running commit", None, 1), ("second", None, 3)]
        assert writer.commits == 2
        assert (writer.waiting, writer.busy, writer.seq) == (0, False, 3)
    verify(journal.frames(0))


async def test_a_writer_goes_on_where_the_journal_ends(autojump_clock: Any) -> None:
    """Numbers and chain, X3."""
    journal = MemoryJournal()
    for count in range(1, 4):
        writer = Writer(journal, slow(0))
        async with running(writer):
            assert _append(writer) == count
            await writer.flushed()
        assert verify(journal.frames(0)) == (count, writer.digest)
        journal = journal.reopened()


async def test_jobs_run_behind_what_was_handed_in_before_them(autojump_clock: Any) -> None:
    """One a commit, together with the records that wait: no row speaks of a record that isn't there."""
    journal = MemoryJournal()
    writer = Writer(journal, slow(0.1))
    seen: list[Any] = []

    def write(number: int) -> None:
        head = writer.seq
        row = Change(Table.META, b"%d" % number, b"x")
        writer.write(lambda: [row], lambda failure: seen.append((number, failure, journal.head >= head)))

    async with running(writer):
        _append(writer)
        write(1)
        await trio.sleep(0.05)
        _append(writer)
        write(2)
        write(3)
        await trio.sleep(0.1)
        _append(writer)
        await trio.sleep(1)
        assert seen == [(1, None, True), (2, None, True), (3, None, True)]
        assert len(journal.scan(Table.META, b"")) == 3
        assert writer.commits == 3


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (StoreFull("full"), StoreFull),
        (StoreFailed("unknown"), StoreFailed),
        (OSError(5, "I/O"), StoreFailed),
        (Conflict("taken over"), StoreFailed),
    ],
)
async def test_a_failed_commit_is_told_to_all_and_to_all_that_come(
    fault: Exception, kind: type[Exception], autojump_clock: Any
) -> None:
    """Those of the commit, those behind it, jobs, and later ones; `run` raises it."""
    journal = MemoryJournal()

    async def runner(call: Any) -> None:
        await trio.sleep(1)
        raise fault

    writer = Writer(journal, runner)
    told: list[Any] = []
    with pytest.raises(ExceptionGroup) as raised:  # noqa: PT012
        async with running(writer):
            _append(writer)
            writer.then(told.append)
            await trio.sleep(0.5)
            _append(writer)
            writer.then(told.append)
            writer.write(list, told.append)
            await trio.sleep_forever()
    assert [type(error) for error in raised.value.exceptions] == [kind]
    assert len(told) == 3
    writer.then(told.append)
    assert {type(failure) for failure in told} == {kind}
    assert type(writer.failure) is kind
    with pytest.raises(kind):
        _append(writer)
    with pytest.raises(kind):
        await writer.flushed()
    await writer.drain()
    assert journal.head == 0


async def test_stop_drops_what_waits_and_tells_the_truth_about_what_runs(autojump_clock: Any) -> None:
    """The commit that is under way is finished and told as done."""
    journal = MemoryJournal()
    writer = Writer(journal, slow(1))
    told: dict[str, Any] = {}
    with pytest.raises(ExceptionGroup):  # noqa: PT012
        async with running(writer):
            _append(writer)
            writer.then(lambda failure: told.setdefault("running", failure))
            await trio.sleep(0.5)
            _append(writer)
            writer.then(lambda failure: told.setdefault("waiting", failure))
            writer.stop(Unavailable("stopped"))
            writer.stop(StoreFailed("too late"))
            assert list(told) == ["waiting"]
            await trio.sleep_forever()
    assert isinstance(told["waiting"], Unavailable)
    assert told["running"] is None
    assert journal.head == 1


async def test_drain_commits_what_is_left(autojump_clock: Any) -> None:
    """For the end, when `run` has been cancelled."""
    journal = MemoryJournal()
    writer = Writer(journal, slow(0.1))
    async with running(writer):
        pass
    told: list[Any] = []
    _append(writer)
    writer.then(told.append)
    writer.write(lambda: [Change(Table.META, b"k", b"v")], told.append)
    writer.write(lambda: [Change(Table.META, b"l", b"v")], told.append)
    await writer.drain()
    assert told == [None, None, None]
    assert (journal.head, len(journal.scan(Table.META, b""))) == (1, 2)


async def test_a_cancelled_writer_finishes_its_commit(autojump_clock: Any) -> None:
    """Whoever waits for that commit is told."""
    journal = MemoryJournal()
    writer = Writer(journal, slow(1))
    told: list[Any] = []
    async with running(writer):
        _append(writer)
        writer.then(told.append)
        await trio.sleep(0.5)
    assert told == [None]
    assert journal.head == 1


async def test_crowded_counts_what_waits_and_not_what_runs(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: Any
) -> None:
    """A bound on memory, in bytes of frames."""
    monkeypatch.setattr("queen.store.writer.PENDING_BYTES", 300)
    gate = Gate()
    writer = Writer(MemoryJournal(), gate.run)
    async with running(writer):
        _append(writer)
        await steps()
        count = 0
        while not writer.crowded:
            _append(writer)
            count += 1
        assert 1 < count < 10
        gate.open()
        await steps()
        assert not writer.crowded
