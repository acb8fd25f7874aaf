"""Python lets a caller hand in anything: it is refused by name and never recorded, for what is must be readable."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from queen import Acknowledgement, Caller, Invalid, NewMessage, open_broker
from queen.events import MessagesPushed
from queen.store.format import ORIGIN, pack
from queen.store.memory_journal import MemoryJournal
from tests.actors.world import opened

Call = Callable[[Any, str, str], Awaitable[object]]

CALLS: list[tuple[str, Call]] = [
    ("items[0].queue", lambda q, t, lease: q.push(5)),
    ("items[0].partition", lambda q, t, lease: q.push("q", partition=5)),
    ("items[0].transactionId", lambda q, t, lease: q.push("q", transaction_id=5)),
    ("items[0].traceId", lambda q, t, lease: q.push("q", trace_id=b"x")),
    ("items[0].delaySeconds", lambda q, t, lease: q.push("q", delay_seconds=1.5)),
    ("items[0].delaySeconds", lambda q, t, lease: q.push("q", delay_seconds="x")),
    ("items[0].delaySeconds", lambda q, t, lease: q.push("q", delay_seconds=True)),
    ("items[0].namespace", lambda q, t, lease: q.push_many([NewMessage(queue="q", namespace=5)])),  # type: ignore[arg-type]
    ("items[0].payload", lambda q, t, lease: q.push("q", object())),
    ("caller", lambda q, t, lease: q.push("q", 1, caller=Caller(who=5, request=b""))),  # type: ignore[arg-type]
    ("caller", lambda q, t, lease: q.push("q", 1, caller=Caller(who="x", request="y"))),  # type: ignore[arg-type]
    ("caller.who", lambda q, t, lease: q.push("q", 1, caller=Caller(who="\ud800"))),
    ("batch", lambda q, t, lease: q.pop("q", batch=1.0)),
    ("partitions", lambda q, t, lease: q.pop("q", partitions="2")),
    ("queue", lambda q, t, lease: q.pop(5)),
    ("consumerGroup", lambda q, t, lease: q.pop("q", group=5)),
    ("workerId", lambda q, t, lease: q.pop("q", worker=5)),
    ("transactionId", lambda q, t, lease: q.ack(5)),
    ("error", lambda q, t, lease: q.ack(t, "failed", error=ValueError("x"))),
    ("leaseId", lambda q, t, lease: q.ack(t, lease_id=5)),
    ("acknowledgments[0].consumerGroup", lambda q, t, lease: q.ack_many(
        [Acknowledgement(transaction_id=t, consumer_group=5)]  # type: ignore[arg-type]
    )),
    ("seconds", lambda q, t, lease: q.extend(lease, 500.5)),
    ("seconds", lambda q, t, lease: q.extend(lease, True)),
    ("namespace", lambda q, t, lease: q.configure("q", namespace=5)),
    ("task", lambda q, t, lease: q.configure("q", task=b"x")),
    ("options.leaseTime", lambda q, t, lease: q.configure("q", {"leaseTime": 1.5})),
    ("options.retryBackoff", lambda q, t, lease: q.configure("q", {"retryBackoff": "2"})),
]  # fmt: skip


@pytest.mark.parametrize(("where", "call"), CALLS)
async def test_a_wrong_type_is_refused_and_leaves_nothing(where: str, call: Call, autojump_clock: Any) -> None:
    journal = MemoryJournal()
    async with opened(journal) as queen:
        await queen.push("q", 1, transaction_id="t")
        (message,) = await queen.pop("q")
        before = journal.head
        with pytest.raises(Invalid) as refusal:
            await call(queen, "t", message.lease_id)
        assert refusal.value.where == where
        assert journal.head == before
    async with opened(journal.reopened()) as queen:
        assert (await queen.ack("t")).status == "completed"


def test_a_record_that_no_start_could_read_is_not_packed() -> None:
    """The last guard, should a wrong value ever get that far."""
    event = MessagesPushed(1, bytes(16), (4,), delays_s=(1.5,))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Expected"):
        pack(1, ORIGIN, 0, 1, 0, "", b"", [event], [b"null"])


@pytest.mark.parametrize("timeout", [float("nan"), "1", True, None, 10**400])
async def test_a_span_that_is_none_ends_one_pop_and_not_the_broker(timeout: Any) -> None:
    """O1: NaN was taken as a deadline, at which everything ended."""
    async with open_broker(None) as broker:
        with pytest.raises(Invalid, match="timeout: "):
            await broker.pop("q", wait=True, timeout=timeout)
        await broker.push("q", 1)
        assert await broker.pop("q", wait=True, timeout=float("inf"))
