"""A recorded run of examples/orders.py, audited from end to end: its server was killed again and again, its consumers
died and overslept, and the journal tells of every order what the clients wrote down."""

import json
import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from shop.records import AckAnswered, AckLost, AckSent, Leased, Library, PopLost, Pushed, Record, order, transaction_id

from queen.audit.biography import Life, Step, history
from queen.audit.verifying import verify
from queen.cli import main
from queen.store.beside import Beside
from tests.audit.naive import Naive
from tests.crash.conftest import ShopRun

FATE = {"completed": "completed", "failed": "returned", "retry": "returned"}


@pytest.fixture
def run(shop_run: ShopRun) -> Path:
    return shop_run.folder


class Logged(NamedTuple):
    """What the clients wrote down of one order."""

    ids: set[str]
    partitions: set[str]
    leases: dict[str, int]
    """Lease and the retry count that the message showed."""
    asked: dict[str, set[str]]
    """Lease and what was asked for under it."""
    answered: list[tuple[str, str, int | None]]
    """Lease, what became of the order, its retry count."""


def _read(books: Path) -> tuple[dict[int, Logged], list[Record]]:
    orders: dict[int, Logged] = defaultdict(lambda: Logged(set(), set(), {}, defaultdict(set), []))
    attempts: dict[tuple[str, int], AckSent] = {}
    records = []
    for book, record in Library(books).new():
        records.append(record)
        match record:
            case Pushed():
                for item in record.items:
                    orders[item.number].ids.add(item.id)
                    orders[item.number].partitions.add(item.partition)
            case Leased():
                for taken in record.messages:
                    orders[taken.number].leases[record.lease] = taken.retry_count
            case AckSent():
                attempts[book, record.attempt] = record
                for number, status in record.status.items():
                    orders[int(number)].asked[record.lease].add(status)
            case AckAnswered():
                lease = attempts[book, record.attempt].lease
                for result in record.results:
                    orders[result.number].answered.append((lease, result.status, result.retry_count))
    return orders, records


def test_the_biographies_of_a_hundred_orders_are_what_the_clients_logged(run: Path) -> None:
    orders, records = _read(run / "books")
    lost = any(isinstance(record, PopLost | AckLost) for record in records)
    assert lost, "a run in which nothing was lost shows little"
    with Beside(run / "data") as past:
        for number in random.Random(3).sample(sorted(orders), 100):
            (life,) = history(past, transaction_id(number), payloads=True)
            _agree(number, life, orders[number])


def _agree(number: int, life: Life, logged: Logged) -> None:
    assert {life.message_id} == logged.ids
    assert {life.partition} == logged.partitions
    assert life.payload is not None
    assert json.loads(bytes(life.payload)) == order(number)
    assert all(step.who in ("127.0.0.1", "server") for step in life.steps)
    delivered = {step.lease_id: step for step in life.steps if step.type == "leased"}
    # A delivery that no client knows of is one whose answer was lost on its way.
    assert set(logged.leases) <= set(delivered)
    for lease, retries in logged.leases.items():
        assert delivered[lease].retry_count == retries
    for lease, step in _settlements(life):
        if step.cause in ("ack", "failed", "givenBack"):
            asked = logged.asked[lease]
            assert any(FATE[status] == step.type for status in asked), (number, step, asked)
            assert step.error == ("card refused" if step.cause == "failed" else None)
    told = [(lease, step.type, step.retry_count) for lease, step in _settlements(life)]
    for lease, status, count in logged.answered:
        if status in ("completed", "retry_scheduled"):
            kind = "completed" if status == "completed" else "returned"
            assert any(each[:2] == (lease, kind) for each in told), (number, lease, status, told)
            assert count is None or (lease, kind, count) in told or _repeated(told, lease)
    assert [(standing.group, standing.status) for standing in life.status] == [(None, "completed")]


def _settlements(life: Life) -> Iterator[tuple[str, Step]]:
    """Each settlement or return, with the lease that it ended or that came last."""
    lease = ""
    for step in life.steps:
        if step.type == "leased":
            lease = step.lease_id or ""
        elif step.type in ("completed", "returned", "failed", "dead_letter"):
            yield step.lease_id or lease, step


def _repeated(told: list[tuple[str, str, int | None]], lease: str) -> bool:
    """Whether the lease had ended by itself before the acknowledgement came (Z2)."""
    return sum(each[0] == lease for each in told) > 1


def test_the_states_at_twenty_instants_are_a_naive_fold(run: Path) -> None:
    data = str(run / "data")
    done = CliRunner().invoke(main, ["replay", "--data", data, "--format", "ndjson"], catch_exceptions=False)
    events: list[dict[str, Any]] = [json.loads(line) for line in done.output.splitlines()]
    for seq in sorted(random.Random(4).sample(range(1, events[-1]["seq"]), 20)):
        naive = Naive().fold(event for event in events if event["seq"] <= seq)
        asked = ["state", "--data", data, "--at", f"#{seq}", "--json"]
        state = json.loads(CliRunner().invoke(main, asked, catch_exceptions=False).output)
        (queue,) = state["queues"]
        assert {part["name"]: part["stats"] for part in queue["partitions"]} == naive.counts("orders")
        held = {lease: positions for lease, (_, _, _, positions) in naive.leases.items()}
        assert {each["leaseId"]: set(each["positions"]) for each in state["leases"]} == held


def test_the_record_is_whole(run: Path) -> None:
    with Beside(run / "data") as past:
        verdict = verify(past)
    assert verdict.findings == []
    assert verdict.messages == 2000
