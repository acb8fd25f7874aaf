"""`queen history` and `queen replay`: each tells what the other does, and both what happened (X1)."""

import csv
import io
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import CliRunner, Result

from queen import open_broker
from queen.audit.biography import history
from queen.audit.happenings import TYPES
from queen.cli import main
from queen.errors import Invalid, NotFound
from queen.messages import Caller
from queen.names import FIRST_INSTANT, LAST_INSTANT, instant_text
from queen.store.beside import Beside
from queen.store.journal import Table
from queen.store.keyring import KeyRing, new_key
from queen.store.lmdb_journal import LmdbJournal


def _command(*arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments], catch_exceptions=False)


def _replayed(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    done = _command("replay", "--data", str(folder), "--format", "ndjson", *arguments)
    assert done.exit_code == 0
    return [json.loads(line) for line in done.output.splitlines()]


def _positions(event: dict[str, Any]) -> Iterator[int]:
    for first, last in event.get("positions", ()):
        yield from range(first, last + 1)


def _lives(events: list[dict[str, Any]]) -> dict[tuple[str, str, int], list[tuple[int, str, str | None]]]:
    """What `replay` tells of every message: by the record of its queue's creation, partition and position."""
    lives: dict[tuple[str, str, int], list[tuple[int, str, str | None]]] = defaultdict(list)
    for event in events:
        for position in _positions(event):
            place = (event["queue"], event["partition"], position)
            lives[place].append((event["seq"], event["type"], event.get("group")))
    return lives


def test_every_biography_is_what_the_replay_tells(recorded: Path) -> None:
    events = _replayed(recorded)
    named: dict[str, list[int]] = defaultdict(list)
    for event in events:
        for name in event.get("transactionIds", ()):
            named[name].append(event["seq"])
    lives = {
        (queue, partition, position, steps[0][0]): steps
        for (queue, partition, position), steps in _split(_lives(events))
    }
    assert len(named) > 100
    assert any(len(pushes) > 1 for pushes in named.values())
    with Beside(recorded) as past:
        for name, pushes in named.items():
            told = history(past, name)
            assert [life.steps[0].seq for life in told] == pushes
            for life in told:
                assert life.transaction_id == name
                steps = lives[life.queue, life.partition, life.position, life.steps[0].seq]
                skipped = {"lease_extended", "group_moved", "queue_deleted", "group_deleted", "group_joined"}
                assert [(s.seq, s.type, s.group) for s in life.steps if s.type not in skipped] == steps


def _split(lives: Any) -> Iterator[Any]:
    """A queue that was deleted and made anew has its positions anew."""
    for place, steps in lives.items():
        part: list[Any] = []
        for step in steps:
            if step[1] == "pushed" and part:
                yield place, part
                part = []
            part.append(step)
        yield place, part


@pytest.mark.parametrize("without", ["projections", "checkpoint"])
def test_a_biography_does_not_need_projections(recorded: Path, copy: Path, without: str) -> None:
    """They make it quick; the records alone tell the same."""
    journal = LmdbJournal.open(copy / "journal")
    for table in Table:
        if without == "projections" or table is Table.META:
            journal.clear(table)
    journal.close()
    names = [name for event in _replayed(recorded, "--type", "pushed") for name in event["transactionIds"]]
    with Beside(recorded) as quick, Beside(copy) as slow:
        for name in names[::17]:
            assert history(quick, name) == history(slow, name)


def test_a_biography_as_of_a_record(recorded: Path) -> None:
    event = next(event for event in _replayed(recorded, "--type", "completed") if "transactionIds" not in event)
    pushed = _replayed(recorded, "--type", "pushed", "--queue", event["queue"], "--partition", event["partition"])
    place = event["positions"][0][0]
    name = next(
        push["transactionIds"][place - push["positions"][0][0]]
        for push in pushed
        if place in set(_positions(push)) and push["seq"] < event["seq"]
    )
    done = _command("history", name, "--data", str(recorded), "--json", "--at", f"#{event['seq']}")
    life = json.loads(done.output)[-1]
    assert life["steps"][-1]["seq"] == event["seq"]
    assert "completed" in [standing["status"] for standing in life["status"]]


def test_deleted_messages_keep_a_tombstone_and_show_no_payload(recorded: Path) -> None:
    """R5: gone for every tool."""
    deleted = _replayed(recorded, "--type", "deleted")[0]
    pushes = _replayed(recorded, "--payloads", "--queue", deleted["queue"], "--partition", deleted["partition"])
    place = deleted["positions"][0][0]
    push = next(each for each in pushes if each["type"] == "pushed" and place in set(_positions(each)))
    index = place - push["positions"][0][0]
    assert push["payloads"][index] is None
    done = _command("history", push["transactionIds"][index], "--data", str(recorded), "--json", "--payloads")
    life = json.loads(done.output)[0]
    assert life["deleted"]["type"] == "deleted"
    assert life["deleted"]["who"] == "library"
    assert life["payload"] is None
    assert {standing["status"] for standing in life["status"]} == {"deleted"}


def test_an_unknown_message(recorded: Path) -> None:
    with Beside(recorded) as past, pytest.raises(NotFound):
        history(past, "never")
    assert _command("history", "never", "--data", str(recorded)).exit_code == 1


def test_tables_count_as_people_do_and_cut_what_is_long(tmp_path: Path) -> None:
    """The whole error is in the JSON, and where that is stands behind the cut."""
    folder = tmp_path / "data"

    async def fail() -> None:
        async with open_broker(folder) as broker:
            await broker.push("q", 1, transaction_id="m")
            (message,) = await broker.pop("q")
            await broker.ack("m", "failed", lease_id=message.lease_id, error="e" * 4096)

    trio.run(fail)
    table = _command("history", "m", "--data", str(folder)).output
    assert "position 1; 1 byte\n" in table
    assert "4,096 characters; --json has all" in " ".join(table.split())
    assert table.count("e" * 100) < 3
    (line,) = [line for line in _command("replay", "--data", str(folder)).output.splitlines() if "eee" in line]
    assert line.endswith("(4,096 characters; --format ndjson has all)")
    assert "e" * 4096 in _command("history", "m", "--data", str(folder), "--json").output
    assert "with 1 message," in _command("verify", "--data", str(folder)).output


def test_a_key_that_is_missing_is_asked_for(tmp_path: Path) -> None:
    """C4: no server is at work here, so the sentence names the command's own option."""
    folder = tmp_path / "data"

    async def seal() -> None:
        async with open_broker(folder, keys=KeyRing.from_text(new_key(), "key")) as broker:
            await broker.configure("q", {"encryptionEnabled": True})
            await broker.push("q", 1, transaction_id="m")

    trio.run(seal)
    said = " ".join(_command("history", "m", "--data", str(folder), "--payloads").output.split())
    assert "which has not been given (--encryption-key-file)" in said
    assert "server" not in said


def test_filters(recorded: Path) -> None:
    events = _replayed(recorded)
    assert {event["type"] for event in events} <= set(TYPES)
    assert _replayed(recorded, "--queue", "mails") == [e for e in events if e.get("queue") == "mails"]
    wanted = [e for e in events if e.get("partition") == "p1" and e["type"] in ("leased", "returned")]
    assert _replayed(recorded, "--partition", "p1", "--type", "leased", "--type", "returned") == wanted
    assert _replayed(recorded, "--group", "books") == [e for e in events if e.get("group") == "books"]
    assert [e["seq"] for e in _replayed(recorded, "--from", "#10", "--to", "#12")] == [10, 11, 12]
    middle = events[len(events) // 2]["at"]
    assert _replayed(recorded, "--from", middle) == [e for e in events if e["at"] >= middle]
    before = _replayed(recorded, "--to", middle.replace("Z", "000"))
    assert [e for e in before if e["at"] < middle] == [e for e in events if e["at"] < middle]


def test_one_transaction_id_in_every_shape(recorded: Path) -> None:
    events = _replayed(recorded)
    name = next(name for event in events for name in event.get("transactionIds", ()) if event["count"] > 2)
    with Beside(recorded) as past:
        skipped = {"queue_deleted", "group_deleted", "group_moved", "lease_extended", "group_joined"}
        steps = [step for life in history(past, name) for step in life.steps if step.type not in skipped]
    told = _replayed(recorded, "--transaction-id", name)
    about = [event for event in told if event["type"] not in skipped | {"partition_created"}]
    assert [(event["seq"], event["type"]) for event in about] == [(step.seq, step.type) for step in steps]
    table = _command("replay", "--data", str(recorded), "--transaction-id", name).output.splitlines()
    assert table[0].split() == ["record", "when", "what", "where", "positions", "by", "details"]
    assert [int(line.split()[0]) for line in table[1:]] == [event["seq"] for event in told]
    done = _command("replay", "--data", str(recorded), "--transaction-id", name, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(done.output)))
    assert [(int(row["seq"]), row["type"]) for row in rows] == [(event["seq"], event["type"]) for event in told]


@pytest.mark.parametrize("arguments", [["--type", "nonsense"], ["--from", "noon"], ["--format", "xml"], ["--what"]])
def test_wrong_usage(recorded: Path, arguments: list[str]) -> None:
    assert _command("replay", "--data", str(recorded), *arguments).exit_code == 2


@pytest.mark.parametrize("command", ["history", "replay", "verify"])
def test_help_has_an_example(command: str) -> None:
    done = _command(command, "--help")
    assert "Example" in done.output
    assert f"queen {command}" in done.output


@pytest.mark.parametrize("from_at", [-(2**63), FIRST_INSTANT - 1, LAST_INSTANT + 1, 2**63 - 1])
async def test_a_record_with_an_instant_that_nobody_can_spell_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, from_at: int
) -> None:
    """Earlier versions let a group begin at such an instant (G2); `replay` and the history of every message tell it."""
    monkeypatch.setattr("queen.broker.instant_of", lambda start: from_at)
    async with open_broker(tmp_path) as broker:
        await broker.push("q", 1, transaction_id="m")
        await broker.pop("q", group="g")
        (life,) = await broker.messages.history("m")
    started = [event for event in _replayed(tmp_path) if event["type"] == "group_started"]
    assert [event["availableAt"] for event in started] == [instant_text(from_at)]
    assert life.steps[0].type == "pushed"


@pytest.mark.parametrize("at", [FIRST_INSTANT - 1, LAST_INSTANT + 1, 2**63, True, 1.5])
async def test_no_instant_enters_that_nobody_can_spell(tmp_path: Path, at: Any) -> None:
    async with open_broker(tmp_path) as broker:
        await broker.push("q", 1)
        for asked in (
            lambda: broker.pop("q", group="g", subscription_from=at),
            lambda: broker.groups.seek(None, "q", at),
            lambda: broker.statistics.overview(at=at),
        ):
            with pytest.raises(Invalid):
                await asked()
    assert [event["type"] for event in _replayed(tmp_path)] == ["queue_created", "partition_created", "pushed"]


@pytest.mark.parametrize("start", [None, "now"])
async def test_a_group_is_started_by_who_asked_first(tmp_path: Path, start: str | None) -> None:
    """X1: also where nothing says where it is to start, so that it is recorded with its first delivery alone."""
    async with open_broker(tmp_path) as broker:
        await broker.push("q", 1)
        asker = Caller("10.0.0.7", b"asked")
        await broker.pop("q", group="g", subscription_from=start, caller=asker)
    (started,) = [event for event in _replayed(tmp_path) if event["type"] == "group_started"]
    assert (started["who"], started["request"]) == ("10.0.0.7", b"asked".hex())
