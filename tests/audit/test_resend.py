"""`queen resend`: chosen messages of the past are pushed again, in order, once under one run's name."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import CliRunner, Result

from queen import Broker, open_broker
from queen.audit.choosing import DELETED, Chosen
from queen.cli import main
from queen.errors import Unavailable
from queen.messages import NewMessage
from queen.names import name_fault
from queen.resend import Resent, Target, check_run, renamed
from queen.store.keyring import KeyRing, new_key
from tests.audit.naive import Naive
from tests.audit.serving import serving


def _command(*arguments: str, exit_code: int = 0) -> Result:
    done = CliRunner().invoke(main, [*arguments], catch_exceptions=False)
    assert done.exit_code == exit_code, done.output
    return done


async def _run(*arguments: str, exit_code: int = 0) -> str:
    """The same from another process, for a folder that this one has open."""
    command = [sys.executable, "-m", "queen", *arguments]
    done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
    output = (done.stdout + done.stderr).decode()
    assert done.returncode == exit_code, output
    return output


async def _fill(broker: Broker) -> None:
    """Ten messages in two partitions; m2 and m3 are dead letters, m4 is completed, m6 deleted."""
    await broker.configure("q", {"retryLimit": 0, "dlqAfterMaxRetries": True}, namespace="shop")
    for number in range(10):
        await broker.push(
            "q",
            {"number": number, "text": "ü 1.0"},
            partition=f"p{number % 2}",
            transaction_id=f"m{number}",
            trace_id=f"trace{number}",
        )
    for name in ("p0", "p1"):
        for message in await broker.pop("q", name, batch=2):
            status: Any = "failed" if message.transaction_id in ("m2", "m3") else "completed"
            await broker.ack(message.transaction_id, status, lease_id=message.lease_id, error="no luck")
    await broker.messages.delete("m6")


async def _all(broker: Broker, queue: str) -> list[tuple[str, str, Any, str | None]]:
    found = []
    while got := await broker.pop(queue, batch=100, auto_ack=True, partitions=10):
        found += [(each.partition, each.transaction_id, each.data, each.trace_id) for each in got]
    return found


async def test_dead_letters_go_to_another_queue_once(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    async with serving(folder) as (broker, url):
        await _fill(broker)
        arguments = ("resend", "--data", str(folder), "--queue", "q", "--status", "dead_letter", "--url", url)
        listed = await _run(*arguments, "--to-queue", "mended", "--dry-run")
        assert "2 messages would be pushed" in listed
        assert not await broker.pop("mended")
        for said in ("2 messages were pushed.", "0 messages were pushed, 2 were there already."):
            assert said in (await _run(*arguments, "--to-queue", "mended"))
        assert await _all(broker, "mended") == [
            (f"p{number % 2}", f"resend:m{number}:mended", {"number": number, "text": "ü 1.0"}, f"trace{number}")
            for number in (2, 3)
        ]
        # Another run is another matter.
        assert "2 messages were pushed." in (await _run(*arguments, "--to-queue", "mended", "--run", "b"))


async def test_what_a_run_has_pushed_it_does_not_find(tmp_path: Path) -> None:
    """The same command, whose filter its own messages fit, brings an end to itself."""
    folder = tmp_path / "data"
    async with serving(folder) as (broker, url):
        await _fill(broker)
        arguments = ("resend", "--data", str(folder), "--queue", "q", "--url", url)
        first = await _run(*arguments, exit_code=1)
        assert first == "9 messages were pushed; 1 is deleted.\n"
        again = await _run(*arguments, "--json", exit_code=1)
        assert json.loads(again) == {"pushed": 0, "thereAlready": 9, "deleted": 1, "unreadable": 0}


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ((), "m0 m1 m2 m3 m4 m5 m6 m7 m8 m9"),
        (("--partition", "p1"), "m1 m3 m5 m7 m9"),
        (("--namespace", "shop", "--status", "completed"), "m0 m1"),
        (("--namespace", "none"), ""),
        (("--status", "pending"), "m4 m5 m7 m8 m9"),
        (("--status", "failed"), ""),
        (("--transaction-id", "m3", "--transaction-id", "m6"), "m3 m6"),
        (("--from", "now"), ""),
        (("--to", "2020-01-01"), ""),
        (("--status", "pending", "--group", "books"), "m2 m4 m8"),
        (("--status", "processing", "--group", "books"), "m0"),
        (("--status", "pending", "--at", "PUSHED"), "m0 m1 m2 m3 m4 m5 m6 m7 m8 m9"),
    ],
)
def test_filters(filled: Path, filters: tuple[str, ...], expected: str) -> None:
    last = max(event["seq"] for event in _events(filled) if event["type"] == "pushed")
    given = [f"#{last}" if word == "PUSHED" else word for word in filters]
    found = [json.loads(line) for line in _list(filled, *given)]
    assert [each["transactionId"] for each in found] == expected.split()
    missing = [each["transactionId"] for each in found if each.get("missing") == DELETED]
    assert missing == ["m6"] * ("m6" in expected)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("filled") / "data"

    async def fill() -> None:
        async with open_broker(folder) as broker:
            await _fill(broker)
            await broker.pop("q", "p0", group="books")

    trio.run(fill)
    return folder


def _list(folder: Path, *filters: str) -> list[str]:
    return _command("resend", "--data", str(folder), "--dry-run", "--json", *filters).output.splitlines()


def _events(folder: Path) -> list[dict[str, Any]]:
    lines = _command("replay", "--data", str(folder), "--format", "ndjson").output.splitlines()
    return [json.loads(line) for line in lines]


def test_the_status_at_any_instant_is_the_naive_one(recorded: Path) -> None:
    events = _events(recorded)
    words = {"deadLetter": "dead_letter"}
    for seq in range(10, events[-1]["seq"], 37):
        naive = Naive().fold(event for event in events if event["seq"] <= seq)
        found = {
            (each["queue"], each["partition"], each["position"]): each["status"]
            for each in map(json.loads, _list(recorded, "--at", f"#{seq}"))
            if each["status"] is not None
        }
        assert found == {
            (queue, name, position): words.get(status, status)
            for queue, partitions in naive.partitions.items()
            for name, messages in partitions.items()
            for position, status in messages.items()
        }


async def test_sealed_messages_need_their_key(tmp_path: Path) -> None:
    folder, keys = tmp_path / "data", tmp_path / "keys"
    keys.touch(0o600)
    keys.write_text(new_key())
    async with serving(folder, KeyRing.from_file(keys)) as (broker, url):
        await broker.configure("q", {"encryptionEnabled": True})
        await broker.push("q", "secret", transaction_id="m")
        arguments = ("resend", "--data", str(folder), "--queue", "q", "--url", url)
        done = await _run(*arguments, exit_code=1)
        assert done == "0 messages were pushed; 1 can't be opened without their key.\n"
        done = await _run(*arguments, "--encryption-key-file", str(keys))
        assert done == "1 message was pushed.\n"
        assert [name for _, name, _, _ in await _all(broker, "q")] == ["m", "resend:m:again"]


async def test_a_push_that_was_cut_off_goes_on(tmp_path: Path) -> None:
    """Many batches, of which some are there already; in the end each is there once and in order."""
    folder = tmp_path / "data"
    async with serving(folder) as (broker, url):
        items = [NewMessage(queue="q", payload=number, transaction_id=f"m{number}") for number in range(250)]
        await broker.push_many(items)
        there = [NewMessage(queue="r", payload=number, transaction_id=f"resend:m{number}:r") for number in range(100)]
        await broker.push_many(there)
        done = await _run("resend", "--data", str(folder), "--queue", "q", "--to-queue", "r", "--url", url)
        assert done == "150 messages were pushed, 100 were there already.\n"
        assert [data for _, _, data, _ in await _all(broker, "r")] == list(range(250))


async def test_a_full_queue_is_waited_for(tmp_path: Path) -> None:
    async with serving(None) as (broker, url):
        await broker.configure("q", {"maxSize": 1})
        await broker.push("q", 1)
        waits: list[float] = []

        def pause(seconds: float) -> None:
            waits.append(seconds)
            trio.from_thread.run(_drain, broker)

        target = Target(url, "q", None, pause)
        sent = await trio.to_thread.run_sync(lambda: target.send([_message("m")], None, lambda sent: None))
        assert (sent.pushed, waits) == (1, [1.0])


async def _drain(broker: Broker) -> None:
    await broker.pop("q", auto_ack=True)


def _message(name: str) -> Resent:
    chosen = Chosen(
        seq=1, at=0, queue="q", partition="Default", position=1, transaction_id=name, trace_id=None, status=None,
        payload=b"1", missing=None,
    )  # fmt: skip
    return Resent(chosen, renamed(name, "again"))


async def test_a_rate_is_kept(tmp_path: Path) -> None:
    async with serving(None) as (broker, url):
        waits: list[float] = []
        target = Target(url, None, None, waits.append)
        messages = [_message(f"m{number}") for number in range(7)]
        await trio.to_thread.run_sync(lambda: target.send(messages, 3.0, lambda sent: None))
        assert waits == pytest.approx([1, 1, 1 / 3])
        assert len(await _all(broker, "q")) == 7


def test_an_address_where_nobody_listens_is_named_at_once() -> None:
    target = Target("http://127.0.0.1:1", None, None, lambda seconds: pytest.fail("it waits"))
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1 can't be reached"):
        target.send([_message("m")], None, lambda sent: None)


async def test_where_tokens_are_wanted_one_that_may_write_is_needed(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    made = {role: _command("tokens", "add", role, "--role", role, "--data", str(folder)) for role in ("read", "write")}
    read, write = (made[role].stdout.strip() for role in ("read", "write"))
    async with serving(folder) as (broker, url):
        await broker.push("q", 1, transaction_id="m")
        arguments = ("resend", "--data", str(folder), "--queue", "q", "--to-queue", "r", "--url", url)
        assert "answers 401" in await _run(*arguments, exit_code=1)
        refused = await _run(*arguments, "--token", read, exit_code=1)
        assert "answers 403" in refused
        assert read not in refused
        assert await _all(broker, "r") == []
        assert await _run(*arguments, "--token", write) == "1 message was pushed.\n"
        assert [name for _, name, _, _ in await _all(broker, "r")] == ["resend:m:r"]
        last = (await _run("history", "resend:m:r", "--data", str(folder), "--json")).encode()
        assert json.loads(last)[0]["steps"][0]["who"] == "write"  # X1: by the token's name


async def test_a_refusal_is_told(tmp_path: Path) -> None:
    async with serving(None) as (_, url):
        target = Target(url + "/nowhere", None, None)
        with pytest.raises(Unavailable, match="answers 404 to a push from 'm' on"):
            await trio.to_thread.run_sync(lambda: target.send([_message("m")], None, lambda sent: None))


@pytest.mark.parametrize("name", ["m", "x" * 255, "ü" * 127, "m:again"])
@pytest.mark.parametrize("run", ["again", "r" * 100])
def test_new_names_are_legal_and_differ(name: str, run: str) -> None:
    assert name_fault(renamed(name, run)) is None
    assert len({renamed(name, check_run(run)), renamed(name + "!", run), renamed(name, run + "!"), name}) == 4


@pytest.mark.parametrize(
    ("arguments", "exit_code", "word"),
    [
        (("--queue", "nowhere"), 1, "nowhere"),
        (("--group", "nobody"), 1, "nobody"),
        (("--transaction-id", "none"), 1, "none"),
        (("--from", "#3"), 2, "--from"),
        (("--run", ""), 2, "--run"),
        (("--url", "ftp://x"), 2, "--url"),
        (("--status", "fine"), 2, "--status"),
        (("--rate", "0"), 2, "--rate"),
        (("--rate", "nan"), 2, "--rate"),
    ],
)
def test_what_makes_no_sense_is_named(recorded: Path, arguments: tuple[str, ...], exit_code: int, word: str) -> None:
    done = _command("resend", "--data", str(recorded), "--dry-run", *arguments, exit_code=exit_code)
    assert word in done.output
