"""`queen whatif`: under the options that there were, a re-run is the recording; under others, what would have been."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from click.testing import CliRunner

from queen import Broker, open_broker
from queen.audit.reading import Moment
from queen.audit.rerun import Told
from queen.audit.whatif import Changes, WhatIf, replayed, whatif
from queen.cli import main
from queen.events import AnyEvent, MessagesDeleted
from queen.messages import NewMessage
from queen.store.beside import Beside
from tests.audit.recorded import record


def _plain(told: list[Told]) -> list[object]:
    """Without the numbers of records, which a re-run has none of."""
    return [each._replace(event=_unswept(each.event)) for each in told]


def _unswept(event: AnyEvent) -> AnyEvent:
    return msgspec.structs.replace(event, swept_seq=0) if isinstance(event, MessagesDeleted) else event


@pytest.mark.parametrize("part", [0, 0.3, 0.7])
def test_without_a_change_the_rerun_is_the_recording(recorded: Path, part: float) -> None:
    with Beside(recorded) as past:
        head = past.head
        pairs = list(replayed(past, int(head * part), head, Changes({})))
    assert pairs
    for told, again in pairs:
        assert _plain(again) == _plain(told)


@pytest.mark.parametrize("seed", range(2, 6))
def test_so_it_is_for_other_recordings(tmp_path: Path, seed: int) -> None:
    trio.run(record, tmp_path / "data", seed, 120)
    with Beside(tmp_path / "data") as past:
        for told, again in replayed(past, 40 * (seed % 3), past.head, Changes({})):
            assert _plain(again) == _plain(told)


# -- other options --------------------------------------------------------------------------------------------


def _compare(folder: Path, *settings: str) -> WhatIf:
    with Beside(folder) as past:
        found = whatif(past, Moment(0, 0), Moment(past.head, 0), Changes.parse(settings), lambda seq, last: None)
        unchanged = whatif(past, Moment(0, 0), Moment(past.head, 0), Changes({}), lambda seq, last: None)
    assert all(row.recorded == row.rerun for row in unchanged.queues)
    assert (unchanged.messages, unchanged.refused, unchanged.assumed) == ([], 0, 0)
    return found


def _record(folder: Path, story: Callable[[Broker], Awaitable[None]], **options: Any) -> Path:
    async def main() -> None:
        async with open_broker(folder) as broker:
            await broker.configure("q", options)
            await story(broker)

    trio.run(main)
    return folder


async def _fail(broker: Broker, times: int) -> None:
    for _ in range(times):
        for message in await broker.pop("q", batch=10):
            await broker.ack(message.transaction_id, "failed", lease_id=message.lease_id)


async def _bad_hour(broker: Broker) -> None:
    """Three messages of which each fails twice, and would then have been done."""
    await broker.push_many([NewMessage(queue="q", transaction_id=f"m{number}") for number in range(3)])
    await _fail(broker, 2)
    for message in await broker.pop("q", batch=10):
        await broker.ack(message.transaction_id, lease_id=message.lease_id)


def test_a_lower_limit_makes_dead_letters(tmp_path: Path) -> None:
    folder = _record(tmp_path / "data", _bad_hour, retryLimit=5, dlqAfterMaxRetries=True)
    found = _compare(folder, "q.retryLimit=1")
    (row,) = found.queues
    assert (row.recorded.completed, row.recorded.dead_letters, row.recorded.retries) == (3, 0, 6)
    assert (row.rerun.completed, row.rerun.dead_letters, row.rerun.retries) == (0, 3, 3)
    assert [(each.transaction_id, each.recorded, each.rerun) for each in found.messages] == [
        (f"m{number}", "completed", "dead_letter") for number in range(3)
    ]
    (row,) = _compare(folder, "q.retryLimit=1", "q.dlqAfterMaxRetries=false").queues
    assert (row.rerun.failed, row.rerun.dead_letters) == (3, 0)


def test_beyond_what_is_recorded_a_delivery_goes_as_the_last_did(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        await broker.push("q", 1)
        await _fail(broker, 2)

    folder = _record(tmp_path / "data", story, retryLimit=1)
    found = _compare(folder, "q.retryLimit=4")
    (row,) = found.queues
    assert (row.recorded.deliveries, row.recorded.failed) == (2, 1)
    # Somebody comes for it at once. The failures come as slowly as the last one, and the recording ends with that.
    assert row.rerun.failed == 0
    assert row.rerun.deliveries == 3
    assert (row.rerun.processing, found.assumed) == (1, 1)


def test_a_lease_that_is_too_short_ends_before_its_acknowledgement(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        await broker.push("q", 1, transaction_id="m")
        (message,) = await broker.pop("q")
        await trio.sleep(1.2)
        await broker.ack("m", lease_id=message.lease_id)

    folder = _record(tmp_path / "data", story, retryLimit=0)
    found = _compare(folder, "q.leaseTime=1")
    (row,) = found.queues
    assert (row.recorded.leases_ended, row.recorded.completed) == (0, 1)
    assert (row.rerun.leases_ended, row.rerun.completed, row.rerun.failed) == (1, 0, 1)
    assert found.refused == 1


def test_a_longer_ttl_leaves_messages_to_be_taken(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        await broker.push("q", 1, transaction_id="old")
        await trio.sleep(1.1)
        await broker.push("q", 1, transaction_id="new")
        (message,) = await broker.pop("q")
        assert message.transaction_id == "new"
        await broker.ack(message.transaction_id, lease_id=message.lease_id)

    folder = _record(tmp_path / "data", story, ttl=1)
    found = _compare(folder, "q.ttl=0")
    (row,) = found.queues
    assert (row.recorded.expired, row.recorded.failed, row.recorded.completed) == (1, 1, 1)
    # The consumer came once, and takes the older one: what nobody took is held fixed as well.
    assert (row.rerun.expired, row.rerun.failed, row.rerun.completed, row.rerun.pending) == (0, 0, 1, 1)
    assert {(each.transaction_id, each.rerun) for each in found.messages} == {("old", "completed"), ("new", "pending")}


def test_a_failed_message_blocks_in_strict_order_and_not_in_relaxed(tmp_path: Path) -> None:
    """Who finds nothing now waits, and gets it when it is there."""

    async def story(broker: Broker) -> None:
        await broker.push_many([NewMessage(queue="q", transaction_id=f"m{number}") for number in range(3)])
        (first,) = await broker.pop("q")
        await broker.ack("m0", "failed", lease_id=first.lease_id)
        for number in (1, 2):
            (message,) = await broker.pop("q")
            await broker.ack(f"m{number}", lease_id=message.lease_id)

    folder = _record(tmp_path / "data", story, ordering="relaxed", retryDelay=600_000)
    found = _compare(folder, "q.ordering=strict")
    (row,) = found.queues
    assert (row.recorded.completed, row.recorded.pending) == (2, 1)
    assert (row.rerun.completed, row.rerun.pending) == (0, 3)
    found = _compare(folder, "q.ordering=strict", "q.retryDelay=0")
    (row,) = found.queues
    assert row.rerun.deliveries == 3


@pytest.mark.parametrize(
    ("setting", "word"),
    [
        ("q.maxSize=3", "maxSize"),
        ("q.nothing=3", "nothing"),
        ("q.ttl", "queue.option=value"),
        ("ttl=3", "queue.option=value"),
        ("q.ttl=x", "ttl"),
        ("q.ttl=-1", "ttl"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(recorded: Path, setting: str, word: str) -> None:
    done = CliRunner().invoke(main, ["whatif", "--data", str(recorded), "--set", setting])
    assert done.exit_code == 2
    assert word in done.output


def test_an_unknown_queue_is_named(recorded: Path) -> None:
    done = CliRunner().invoke(main, ["whatif", "--data", str(recorded), "--set", "nowhere.ttl=1"])
    assert done.exit_code == 1
    assert "nowhere" in done.output


def test_as_a_table_and_as_json(recorded: Path) -> None:
    arguments = ["whatif", "--data", str(recorded), "--set", "odd/name.retryLimit=0"]
    table = CliRunner().invoke(main, arguments).output
    assert "dead letters" in table
    assert "messages would have been otherwise" in table
    found = msgspec.json.decode(CliRunner().invoke(main, [*arguments, "--json"]).output)
    assert {row["queue"] for row in found["queues"]} == {"odd/name"}
    assert all(row["rerun"]["retries"] == 0 for row in found["queues"])
