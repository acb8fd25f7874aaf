"""Nobody is told anything that is not durable, and what a failing disk leaves behind (O8, P1, P4, A3, W4)."""

from collections.abc import Sequence
from typing import Any

import pytest
import structlog
import trio

from queen import Acknowledgement, Broker, NewMessage
from queen.actors.snapshots import CHECKPOINT
from queen.errors import Conflict, NotFound, ShuttingDown, StoreFailed, StoreFull, Unavailable
from queen.opening import _cause
from queen.store.format import pack_row, unpack_row
from queen.store.journal import Change, Edit, Table
from queen.store.keys import u64
from queen.store.memory_journal import MemoryJournal
from tests.actors.world import Gate, Waiters, engine_of, opened, parked, payloads, picture, slow, steps


class Asked:
    """Requests that run beside the test."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self.answers: dict[str, Any] = {}

    async def start(self, name: str, function: Any, *args: Any, **options: Any) -> None:
        self._nursery.start_soon(self._run, name, function, args, options)
        await steps()

    async def _run(self, name: str, function: Any, args: Any, options: Any) -> None:
        try:
            self.answers[name] = await function(*args, **options)
        except Exception as error:
            self.answers[name] = error


async def test_no_answer_before_its_commit(autojump_clock: Any) -> None:
    """P1, O8, A5: nor one that rests on what another request has under way (P4, A3)."""
    gate = Gate()
    async with opened(runner=gate.run) as queen, trio.open_nursery() as nursery:
        gate.open()
        await queen.push_many([NewMessage(queue="q", transaction_id=f"t{n}", partition=f"p{n}") for n in range(3)])
        (leased,) = await queen.pop("q", "p0")
        await trio.sleep(3)
        gate.close()
        asked = Asked(nursery)
        await asked.start("push", queen.push, "q", 1, transaction_id="new")
        await asked.start("duplicate", queen.push, "q", 1, transaction_id="new")
        await asked.start("duplicate elsewhere", queen.push, "r", 1, transaction_id="new")
        await asked.start("pop", queen.pop, "q", "p1")
        await asked.start("auto", queen.pop, "q", "p2", auto_ack=True)
        await asked.start("ack", queen.ack, leased)
        await asked.start("repeat", queen.ack, "t0")
        await asked.start("conflict", queen.ack, "t0", "failed")
        await asked.start("auto repeat", queen.ack, "t2")
        await asked.start("batch", queen.ack_many, [Acknowledgement(transaction_id="t0")])
        await asked.start("configure", queen.configure, "q", {"priority": 3})
        await asked.start("again", queen.configure, "q", {"priority": 3})
        await asked.start("create", queen.configure, "s")
        await asked.start("unknown", queen.ack, "unknown")
        await trio.sleep(10)
        assert asked.answers == {}
        gate.open()
        await trio.sleep(0.1)
        assert len(asked.answers) == 14
        assert [asked.answers[name].status for name in ("push", "duplicate", "duplicate elsewhere")] == [
            "queued", "duplicate", "duplicate",
        ]  # fmt: skip
        assert len({asked.answers[name].id for name in ("push", "duplicate", "duplicate elsewhere")}) == 1
        assert [asked.answers[name].status for name in ("ack", "repeat", "auto repeat")] == ["completed"] * 3
        assert isinstance(asked.answers["conflict"], Conflict)
        assert len(asked.answers["pop"]) == len(asked.answers["auto"]) == 1


async def test_a_lease_that_is_extended_is_told_when_durable(autojump_clock: Any) -> None:
    """L6"""
    gate = Gate()
    gate.open()
    async with opened(runner=gate.run) as queen, trio.open_nursery() as nursery:
        await queen.push("q")
        (message,) = await queen.pop("q")
        gate.close()
        asked = Asked(nursery)
        await asked.start("extend", queen.extend, message.lease_id, 1000)
        await asked.start("same", queen.extend, message.lease_id, 1000)
        await trio.sleep(1)
        assert not asked.answers
        gate.open()
        await trio.sleep(1)
        assert asked.answers["same"] == asked.answers["extend"] == message.lease_expires_at + 700_000_000


async def test_a_parked_pop_is_served_what_is_not_durable_only_with_it(autojump_clock: Any) -> None:
    """W5, O8"""
    async with opened(runner=slow(0.5)) as queen, trio.open_nursery() as nursery:
        await queen.configure("q")
        waiters = Waiters(queen, nursery)
        await waiters.add("w", "q")
        start = trio.current_time()
        await queen.push("q")
        assert not waiters.served or waiters.served[0][2] >= start + 0.5
        await trio.sleep(2)
        assert waiters.names == ["w"]


async def test_many_requests_share_a_commit(autojump_clock: Any) -> None:
    """Under load, commits grow by themselves."""
    async with opened(runner=slow(0.1)) as queen:
        await queen.push("q")
        commits = engine_of(queen).core.writer.commits
        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(queen.push, "q", number)
        assert engine_of(queen).core.writer.commits - commits <= 3


async def test_a_full_disk_is_told_to_all_and_the_engine_starts_anew(autojump_clock: Any) -> None:
    """507: nothing of it happened, parked pops are told, new work succeeds."""
    journal = MemoryJournal()
    gate = Gate()
    gate.open()
    async with opened(journal, runner=gate.run) as queen, trio.open_nursery() as nursery:
        await queen.push_many([NewMessage(queue="q", partition=f"p{n}", transaction_id=f"t{n}") for n in range(4)])
        (leased,) = await queen.pop("q", "p0")
        await trio.sleep(3)
        before = picture(queen)
        gate.close()
        asked = Asked(nursery)
        await asked.start("parked", queen.pop, "elsewhere", wait=True)
        await parked(queen, 1)
        await asked.start("push", queen.push, "q", 1, transaction_id="new")
        await asked.start("duplicate", queen.push, "q", 1, transaction_id="new")
        await asked.start("pop", queen.pop, "q", "p1")
        await asked.start("ack", queen.ack, leased)
        await asked.start("configure", queen.configure, "q", {"priority": 3})
        journal.fail_next(StoreFull("full"))
        gate.open()
        await steps()
        assert {type(answer) for answer in asked.answers.values()} == {StoreFull}
        assert len(asked.answers) == 6
        assert queen.health().status == "unhealthy"
        with pytest.raises(StoreFull):
            await queen.push("q")
        await trio.sleep(1)
        assert queen.health().status == "healthy"
        assert picture(queen) == before
        assert (await queen.push("q", 1, transaction_id="new")).status == "queued"
        assert (await queen.ack(leased)).status == "completed"
        assert len(await queen.pop("q", "p1")) == 1
        assert queen.health().status == "healthy"
    with pytest.raises(ShuttingDown):
        await queen.push("q")


async def test_a_full_disk_is_told_of_once_a_minute_and_without_a_traceback(autojump_clock: Any) -> None:
    """It is nobody's bug, and as long as it lasts each commit ends so."""
    journal = MemoryJournal()
    with structlog.testing.capture_logs() as lines:
        async with opened(journal) as queen:
            for _ in range(90):
                journal.fail_next(StoreFull("full"))
                with pytest.raises(StoreFull):
                    await queen.push("q", 1)
                await trio.sleep(1)
            assert (await queen.push("q", 1)).status == "queued"
    assert [(line["log_level"], "exception" in line) for line in lines] == [("warning", False)] * 2


async def test_while_there_is_no_room_pushes_are_refused_and_acks_go_on(autojump_clock: Any) -> None:
    """W4"""
    journal = MemoryJournal(capacity=1 << 20, reserve=1 << 18)
    async with opened(journal) as queen:
        with pytest.raises(StoreFull):  # noqa: PT012
            for _ in range(100):
                await queen.push("q", "x" * 20_000)
        with pytest.raises(StoreFull):
            await queen.configure("new")
        assert queen.ready
        (message,) = await queen.pop("q")
        await queen.ack(message)
        await queen.configure("q", {"priority": 1})
        journal.set_capacity(1 << 24)
        await queen.push("q", "x" * 20_000)


@pytest.mark.parametrize("written", [False, True])
async def test_after_an_unknown_outcome_nothing_is_taken_any_more(written: bool, autojump_clock: Any) -> None:
    """503 for good: nobody knows what the disk holds. Closing works, and the next opening serves what it finds."""
    journal = MemoryJournal()
    async with opened(journal) as queen:
        await queen.push_many([NewMessage(queue="q"), NewMessage(queue="r")])
        await queen.pop("r", auto_ack=True)
        await trio.sleep(3)
        async with trio.open_nursery() as nursery:
            asked = Asked(nursery)
            await asked.start("parked", queen.pop, "elsewhere", wait=True)
            journal.fail_next(StoreFailed("unknown"), written=written)
            await asked.start("push", queen.push_many, [NewMessage(queue="q"), NewMessage(queue="r")])
        assert {type(answer) for answer in asked.answers.values()} == {StoreFailed}
        for _ in range(2):
            assert not queen.ready
            assert queen.health().status == "unhealthy"
            for request in (queen.push("q"), queen.pop("q"), queen.ack("t"), queen.configure("q")):
                with pytest.raises(StoreFailed):
                    await request
            await trio.sleep(100)
    async with opened(journal.reopened()) as queen:
        assert len(await queen.pop("q", batch=9, partitions=9)) == 1 + written
        assert len(await queen.pop("r")) == written


async def test_a_failed_broker_keeps_nothing_of_those_it_refuses(autojump_clock: Any) -> None:
    """An error raised again and again would keep everybody's frames, and the payloads in them."""
    journal = MemoryJournal()
    async with opened(journal) as queen:
        journal.fail_next(StoreFailed("unknown"))
        lengths = []
        for _ in range(5):
            with pytest.raises(StoreFailed) as refused:
                await queen.push("q")
            lengths.append(len(refused.traceback))
            await steps()
        assert lengths[1] == lengths[-1]


class Broken(MemoryJournal):
    """A journal of which a commit fails as no journal should."""

    fault: Exception | None = None

    def commit(self, *args: Any, **options: Any) -> None:
        if self.fault is not None:
            raise self.fault
        super().commit(*args, **options)


@pytest.mark.parametrize("fault", [OSError(5, "I/O error"), AssertionError("bug"), Conflict("taken over")])
async def test_a_commit_that_fails_in_an_unknown_way_ends_it_for_good(fault: Exception, autojump_clock: Any) -> None:
    """Whatever it was: not tried again on the same journal."""
    journal = Broken()
    async with opened(journal) as queen:
        await queen.push("q")
        journal.fault = fault
        with pytest.raises(StoreFailed):
            await queen.push("q")
        await trio.sleep(10)
        journal.fault = None
        assert not queen.ready
        with pytest.raises(StoreFailed):
            await queen.push("q")


async def test_another_opening_fences_this_one_off(autojump_clock: Any) -> None:
    """Two writers for one journal never both go on."""
    journal = MemoryJournal()
    async with opened(journal) as queen:
        await queen.push("q", 1)
        async with opened(journal.reopened()) as other:
            await other.push("q", 2)
            with pytest.raises(StoreFailed):
                await queen.push("q", 3)
            assert payloads(await other.pop("q", batch=9)) == [1, 2]


async def test_a_failed_store_while_a_push_is_being_decided(autojump_clock: Any) -> None:
    """The writer's failure counts, whichever error came first: StoreFailed never leads to another start."""
    journal = MemoryJournal()
    async with opened(journal, runner=slow()) as queen:
        await queen.push("q")
        engine = engine_of(queen)
        journal.fail_next(StoreFailed("unknown"))

        async def push() -> None:
            with pytest.raises(Unavailable):
                await queen.push("q")

        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(push)
                await trio.sleep(0.001)
        await trio.sleep(1)
        assert not queen.ready
        assert engine.core.writer.failure is not None
        with pytest.raises(StoreFailed):
            await queen.push("q")


@pytest.mark.parametrize("after", [0, 0.1, 0.19, 0.3])
async def test_closing_between_two_engines(after: float, autojump_clock: Any) -> None:
    """The broker ends, whether the next engine has started by then or not."""
    journal = MemoryJournal()
    async with opened(journal, limit_s=60) as queen:
        journal.fail_next(StoreFull("full"))
        with pytest.raises(StoreFull):
            await queen.push("q")
        await trio.sleep(after)
    with pytest.raises(ShuttingDown):
        await queen.push("q")


async def test_an_engine_that_crashes_is_started_anew(autojump_clock: Any) -> None:
    """A fault of the router's: everybody is told, the next engine serves."""
    async with opened() as queen, trio.open_nursery() as nursery:
        await queen.push("q", 1)
        asked = Asked(nursery)
        await asked.start("parked", queen.pop, "elsewhere", wait=True)
        engine_of(queen).router._tell(_raise)
        await steps()
        assert isinstance(asked.answers["parked"], Unavailable)
        assert not isinstance(asked.answers["parked"], ShuttingDown)
        with pytest.raises(Unavailable) as refusal:
            await queen.push("q", 2)
        assert not isinstance(refusal.value, ShuttingDown)
        await trio.sleep(1)
        assert payloads(await queen.pop("q", batch=9)) == [1]


def test_the_gravest_error_decides_what_comes_next() -> None:
    """Whichever came first: after StoreFailed no engine is started any more."""
    grave, full, other = StoreFailed("unknown"), StoreFull("full"), ZeroDivisionError()
    for errors, expected in (((other, full, grave), grave), ((other, full), full), ((grave, other), grave)):
        assert _cause(ExceptionGroup("", [ExceptionGroup("", [errors[0]]), *errors[1:]])) is expected
    wrapped = _cause(ExceptionGroup("", [ExceptionGroup("", [other])]))
    assert type(wrapped) is Unavailable
    assert wrapped.__cause__ is other


def _raise() -> None:
    raise ZeroDivisionError("planted")


async def test_draining_finishes_what_is_under_way(autojump_clock: Any) -> None:
    """Leaving waits for a slow disk."""
    journal = MemoryJournal()
    answers: list[Any] = []

    async def push(queen: Broker) -> None:
        answers.append(await queen.push("q", 1))

    async with trio.open_nursery() as nursery, opened(journal, runner=slow(1)) as queen:
        nursery.start_soon(push, queen)
        await steps(5)
    assert answers[0].status == "queued"
    async with opened(journal.reopened()) as queen:
        assert payloads(await queen.pop("q")) == [1]


class NoRoomForRows(MemoryJournal):
    """A journal that takes records alone while it is `full`."""

    full = False

    def commit(self, expected: int, frames: Sequence[bytes], edits: Sequence[Edit] = ()) -> None:
        if self.full and edits:
            raise StoreFull("There is no room left in the journal.")
        super().commit(expected, frames, edits)


async def test_a_full_disk_stops_the_projections_and_not_the_engine(autojump_clock: Any) -> None:
    """W4: where there is room for records but not for rows, acknowledgements go on, and rows follow later."""
    journal = NoRoomForRows()
    async with opened(journal) as queen:
        await queen.push_many([NewMessage(queue="q", partition=f"p{n}", transaction_id=f"t{n}") for n in range(3)])
        first = await queen.pop("q", "p0")
        engine = engine_of(queen)
        journal.full = True
        await trio.sleep(3)
        assert (await queen.ack(first.messages[0])).status == "completed"
        second = await queen.pop("q", "p1")
        await trio.sleep(20)
        assert (await queen.ack(second.messages[0])).status == "completed"
        assert engine_of(queen) is engine
        journal.full = False
        await trio.sleep(10)
    again = journal.reopened()
    async with opened(again) as queen:
        assert (await queen.ack("t0")).status == "completed"
        assert [(await queen.pop("q", f"p{n}")).messages != () for n in range(3)] == [False, False, True]


async def test_rows_of_another_version_are_made_anew(autojump_clock: Any) -> None:
    """X4: derived data is no evidence, and never a reason not to start."""
    journal = MemoryJournal()
    async with opened(journal) as queen:
        await queen.push("q", 1, transaction_id="t")
    row = journal.get(Table.META, CHECKPOINT)
    assert row is not None
    seq, digest, _ = unpack_row(row)
    journal.commit(journal.head, [], [Change(Table.META, CHECKPOINT, pack_row([seq, digest, 99]))])
    journal.commit(journal.head, [], [Change(Table.PARTITIONS, u64(1), pack_row([99, "unreadable"]))])
    async with opened(journal.reopened()) as queen:
        assert [message.transaction_id for message in await queen.pop("q")] == ["t"]


async def test_what_is_not_found_is_gone_for_good(autojump_clock: Any) -> None:
    """Law 3: who repeats a deletion whose answer was lost takes "not found" for done, so it waits for the sync."""
    disk = Gate()
    disk.open()
    async with opened(runner=disk.run) as queen:
        await queen.push("q", 1, transaction_id="t")
        disk.close()
        with trio.move_on_after(1):
            await queen.messages.delete("t")
        with trio.move_on_after(1) as scope:
            await queen.messages.delete("t")
        assert scope.cancelled_caught
        with trio.move_on_after(1):
            await queen.delete_queue("q")
        with trio.move_on_after(1) as scope:
            await queen.delete_queue("q")
        assert scope.cancelled_caught
        disk.open()
        with pytest.raises(NotFound):
            await queen.messages.delete("t")
        with pytest.raises(NotFound):
            await queen.delete_queue("q")
