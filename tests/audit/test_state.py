"""`queen state` and `queen diff`: the past is what a naive fold of the replay makes of it, with moments or not."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import CliRunner, Result

from queen.audit.reading import moment_at, shown
from queen.audit.reading import read as record_of
from queen.audit.restoring import kept_before, world_at
from queen.audit.times import When
from queen.audit.verifying import verify
from queen.cli import main
from queen.names import instant_text
from queen.opening import open_broker
from queen.store import moments
from queen.store.beside import Beside
from queen.store.format import pack_row, unpack_row
from queen.store.journal import Change, Table
from queen.store.lmdb_journal import LmdbJournal
from tests.audit.naive import Naive
from tests.audit.recorded import record


def _command(*arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments], catch_exceptions=False)


def _state(folder: Path, at: str, *arguments: str) -> Any:
    done = _command("state", "--data", str(folder), "--at", at, "--json", *arguments)
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


def _events(folder: Path) -> list[dict[str, Any]]:
    done = _command("replay", "--data", str(folder), "--format", "ndjson")
    return [json.loads(line) for line in done.output.splitlines()]


def _agree(state: Any, naive: Naive) -> None:
    assert {queue["name"] for queue in state["queues"]} == set(naive.partitions)
    for queue in state["queues"]:
        counts = naive.counts(queue["name"])
        assert {part["name"]: part["stats"] for part in queue["partitions"]} == counts
        assert queue["totals"] == {name: sum(part[name] for part in counts.values()) for name in queue["totals"]}
    assert state["overview"]["partitions"] == sum(map(len, naive.partitions.values()))
    leases = {each["leaseId"]: (each["queue"], each["partition"], each["consumerGroup"]) for each in state["leases"]}
    assert leases == {lease: held[:3] for lease, held in naive.leases.items()}
    assert {each["leaseId"]: set(each["positions"]) for each in state["leases"]} == {
        lease: held[3] for lease, held in naive.leases.items()
    }


def test_the_state_at_twenty_instants_is_the_naive_fold(recorded: Path) -> None:
    events = _events(recorded)
    chance = random.Random(5)
    for seq in sorted(chance.sample(range(1, events[-1]["seq"]), 20)):
        naive = Naive().fold(event for event in events if event["seq"] <= seq)
        _agree(_state(recorded, f"#{seq}"), naive)
        at = next(event["at"] for event in reversed(events) if event["seq"] <= seq)
        # A time names the last record of its millisecond's beginning.
        before = Naive().fold(event for event in events if event["at"] < at)
        _agree(_state(recorded, _earlier(at)), before)


def _earlier(at: str) -> str:
    """Just before that millisecond."""
    return at.replace("Z", "") + "000+00:00" if at.endswith(".000Z") else _minus(at)


def _minus(at: str) -> str:
    head, _, milliseconds = at.removesuffix("Z").rpartition(".")
    return f"{head}.{int(milliseconds) - 1:03}999Z"


def test_now_is_what_the_server_says(copy: Path) -> None:
    """The figures of the live server and those of the fold are the same."""
    state = _state(copy, "now")

    async def asked() -> Any:
        async with open_broker(copy) as broker:
            return [await broker.statistics.queue(queue["name"]) for queue in state["queues"]]

    for live, then in zip(trio.run(asked), state["queues"], strict=True):
        assert live.counts.total == then["totals"]["total"]
        for partition, figures in zip(live.partitions, then["partitions"], strict=True):
            assert partition.name == figures["name"]
            oldest = None if partition.oldest is None else instant_text(partition.oldest)
            newest = None if partition.newest is None else instant_text(partition.newest)
            assert (figures["oldestMessage"], figures["newestMessage"]) == (oldest, newest)


def test_moments_say_what_the_fold_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With moments kept, an instant is the nearest one and the records since; the answer is the same."""
    monkeypatch.setattr(moments, "EVERY", 20)
    monkeypatch.setattr("queen.actors.keeper.EVERY_S", 0.05)
    folder = tmp_path / "data"
    trio.run(record, folder, 3)
    with Beside(folder) as past:
        head = past.head
        found = [world_at(past, moment_at(past, When(seq=seq))) for seq in range(1, head + 1, 3)]
        from_moments = [kept_before(past, seq) for seq in range(1, head + 1, 3)]
        assert len({kept for kept in from_moments if kept is not None}) > 2
        assert verify(past).findings == []
        key, value = next(row for row in past.scan(Table.MOMENTS, b"", None) if moments.read_row_key(row[0])[0])
    journal = LmdbJournal.open(folder / "journal")
    state = unpack_row(value)
    state[7] += 1
    journal.commit(head, (), [Change(Table.MOMENTS, key, pack_row(state))])
    journal.close()
    with Beside(folder) as past:
        (finding,) = verify(past).findings
        assert "the table moments says something else of" in finding.what
    journal = LmdbJournal.open(folder / "journal")
    journal.clear(Table.MOMENTS)
    journal.close()
    with Beside(folder) as past:
        for world, seq in zip(found, range(1, head + 1, 3), strict=True):
            plain = world_at(past, moment_at(past, When(seq=seq)))
            assert plain.records > world.records or kept_before(past, seq) is None
            assert world.states == plain.states
            assert {n: (q.name, q.options, q.counts) for n, q in world.catalogue.numbers.items()} == {
                n: (q.name, q.options, q.counts) for n, q in plain.catalogue.numbers.items()
            }
            assert list(world.leases()) == list(plain.leases())


def test_moments_are_made_for_a_store_that_has_none(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queen.actors.recovery.EVERY", 20)
    before = [_state(copy, f"#{seq}") for seq in (30, 90, 150)]
    assert _command("verify", "--rebuild", "--data", str(copy)).exit_code == 0
    with Beside(copy) as past:
        assert kept_before(past, 150) is not None
        assert 90 - 20 <= (kept_before(past, 90) or moments.Kept(0, 0)).seq <= 90
    assert [_state(copy, f"#{seq}") for seq in (30, 90, 150)] == before


def test_a_difference(recorded: Path) -> None:
    events = _events(recorded)
    first, last = events[-1]["seq"] // 3, events[-1]["seq"]
    done = _command("diff", "--data", str(recorded), "--from", f"#{first}", "--to", f"#{last}", "--json")
    found = json.loads(done.output)
    before = Naive().fold(event for event in events if event["seq"] <= first)
    after = Naive().fold(events)
    between = [event for event in events if first < event["seq"] <= last]
    assert {change["queue"] for change in found["queues"]} == {
        event["queue"] for event in between if event.get("count") or "queue_" in event["type"]
    }
    for change in found["queues"]:
        name = change["queue"]
        if not change["change"]:
            assert sum(change["before"]) == sum(part["total"] for part in before.counts(name).values())
            assert sum(change["after"]) == sum(part["total"] for part in after.counts(name).values())
            for doings in change["doings"]:
                for kind, count in doings["messages"].items():
                    wanted = (name, kind, doings["group"])
                    told = [e for e in between if (e.get("queue"), e["type"], e.get("group")) == wanted]
                    assert sum(event["count"] for event in told) == count


def test_a_changed_option_and_a_deleted_queue_are_told(tmp_path: Path) -> None:
    async def some() -> None:
        async with open_broker(tmp_path / "data") as broker:
            await broker.configure("kept", {"leaseTime": 10}, namespace="n")
            await broker.push("gone", 1)
            await broker.configure("kept", {"leaseTime": 20})
            await broker.delete_queue("gone")
            await broker.push("new", [1])

    trio.run(some)
    done = _command("diff", "--data", str(tmp_path / "data"), "--from", "#5")
    assert done.exit_code == 0
    lines = done.output.splitlines()
    assert "kept was changed" in lines
    assert "  leaseTime: 10 is 20 now" in lines
    assert "gone was deleted, 1 → 0 partitions" in lines
    assert "new was created, 0 → 1 partitions" in lines
    assert "  pending: 0 → 1 (+1)" in lines


def test_an_instant_before_everything(recorded: Path) -> None:
    assert _state(recorded, "#0")["queues"] == []
    with Beside(recorded) as past:
        first = shown(record_of(past, 1))
    assert _state(recorded, instant_text(first - 10_000_000))["queues"] == []


def test_tables(recorded: Path) -> None:
    table = _command("state", "--data", str(recorded), "--at", "#100").output
    assert table.splitlines()[1].split() == [
        *["queue", "pending", "processing", "completed", "failed", "dead", "letter", "total"]
    ]
    table = _command("state", "--data", str(recorded), "--at", "#100", "--queue", "mails").output
    assert "p1" in table


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["state", "--queue", "never"], 1),
        (["state", "--at", "soon"], 2),
        (["diff"], 2),
        (["diff", "--from", "#9", "--to", "#3"], 2),
    ],
)
def test_refusals(recorded: Path, arguments: list[str], code: int) -> None:
    assert _command(*arguments, "--data", str(recorded)).exit_code == code
