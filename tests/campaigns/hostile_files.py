"""Damaged files: one byte of a data folder is changed, the folder is opened, and everything is asked that can be.

Each answer must be the one that the sound folder gives, or a refusal. Every trial is a process of its own, since damage
to LMDB's own structures can end a process; how it ends is part of the judgement.
"""

import json
import os
import random
import select
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import trio

from queen import Acknowledgement, Broker, NewMessage, QueenError, open_broker
from queen.errors import KeyMissing, NotFound
from queen.store.keyring import KeyRing, add_key, new_key
from queen.tokens import Role, Token, add_token, digest_of, read_tokens

PAGE = 4096
LIMIT_S = 120.0
"""A trial that takes longer hangs."""
QUEUES = ("plain", "retried", "sealed", "batch")
PARTITIONS = {queue: [f"{'b' if queue == 'batch' else 'p'}{n}" for n in range(4)] for queue in QUEUES}
STEADY = {"leaseTime": 1_000_000}
"""No lease ends while the campaign runs: each trial's answers are the same."""
FILES = ("journal/data.mdb", "journal/lock.mdb", "FORMAT", "lock", "tokens", "keys")


class Verdict(NamedTuple):
    """What came of a trial. `sort` is one of `same`, `refused` (at the opening), `detected` (in some answers), and the
    faults `wrong`, `crash`, `accident`, `hang`."""

    sort: str
    why: str = ""


FAULTS = ("wrong", "crash", "accident", "hang")


# -- the folder and its questions ---------------------------------------------------------------------------


async def build(folder: Path) -> None:
    """A folder with something of everything."""
    add_key(folder.parent / "keys", new_key())
    async with open_broker(folder, keys=KeyRing.from_file(folder.parent / "keys")) as broker:
        add_token(folder / "tokens", Token("ops", Role.ADMIN, digest_of(b"secret"), 1, None))
        await broker.configure("retried", {**STEADY, "retryLimit": 1, "dlqAfterMaxRetries": True})
        await broker.configure("sealed", {**STEADY, "encryptionEnabled": True})
        for queue in ("plain", "batch"):
            await broker.configure(queue, STEADY)
        for number in range(60):
            queue, partition = ("plain", "retried", "sealed")[number % 3], f"p{number % 4}"
            own = f"own-{number}" if number % 2 else None
            payload = {"n": number, "text": "x" * (5000 if number % 10 == 0 else 20)}
            await broker.push(queue, payload, partition=partition, transaction_id=own)
        await broker.push_many([NewMessage(queue="batch", payload=n, partition=f"b{n % 4}") for n in range(200)])
        for status in ("completed", "failed", "dead_letter", "failed"):
            for queue in ("plain", "retried", "batch"):
                for message in await broker.pop(queue, batch=3):
                    await broker.ack(message.transaction_id, status, error="no", lease_id=message.lease_id)
        await broker.pop("batch", batch=2, group="billing", auto_ack=True)
        await broker.pop("batch", batch=2)
        for name in ("own-1", "own-3"):
            await broker.messages.delete(name)


async def names_in(folder: Path) -> list[str]:
    """The transactionIds of all messages, and some that are free."""
    async with open_broker(folder, keys=KeyRing.from_file(folder.parent / "keys")) as broker:
        found = [message.transaction_id for message in await broker.messages.list(limit=1000)]
    return [*found, "own-1", "own-99", "00000000-0000-7000-8000-000000000000"]


def told(message: Any) -> list[Any]:
    """What of a message must not change from one trial to the next."""
    if message.payload is None:
        raise KeyMissing(message.encryption_error)
    payload = message.payload.decode()
    fields = [message.id, message.transaction_id, message.queue, message.partition, payload, message.retry_count]
    return [*fields, message.created_at, message.trace_id, getattr(message, "status", None)]


async def answers(folder: Path, names: list[str]) -> dict[str, Any]:
    """All questions and their answers; a refusal is told as `!` and its kind."""
    found: dict[str, Any] = {}
    async with open_broker(folder, keys=KeyRing.from_file(folder.parent / "keys")) as broker:

        async def ask(question: str, call: Callable[[], Awaitable[Any]]) -> None:
            try:
                found[question] = await call()
            except NotFound:
                found[question] = "none"
            except QueenError as error:
                found[question] = f"!{type(error).__name__}: {error}"
            except Exception as error:
                found[question] = f"?{type(error).__name__}: {error}"

        await _look(broker, ask, names)
        await _take(broker, ask, names)
        found["tokens"] = [token.name for token in read_tokens(folder / "tokens")]
    return json.loads(json.dumps(found))


Ask = Callable[[str, Callable[[], Awaitable[Any]]], Awaitable[None]]


async def _look(broker: Broker, ask: Ask, names: list[str]) -> None:
    async def listed(**filters: Any) -> list[Any]:
        return [told(message) for message in await broker.messages.list(limit=1000, **filters)]

    async def dead(group: str | None) -> list[Any]:
        messages, total = await broker.messages.dead_letters(group=group)
        return [*map(told, messages), total]

    async def one(name: str) -> list[Any]:
        message, options = await broker.messages.get(name)
        return [*told(message), repr(options)]

    async def groups() -> Any:
        listed = await broker.groups.list()
        return [[g.name, [[p.queue, p.position, p.end, p.pending, p.processing] for p in g.queues]] for g in listed]

    await ask("list", listed)
    for status in ("pending", "processing", "completed", "failed", "dead_letter"):
        await ask(f"list {status}", partial(listed, status=status))
    for queue in QUEUES:
        await ask(f"list {queue}", partial(listed, queue=queue))
    await ask("dead", partial(dead, None))
    await ask("groups", groups)
    for name in names:
        await ask(f"get {name}", partial(one, name))


async def _take(broker: Broker, ask: Ask, names: list[str]) -> None:
    async def again(part: list[str]) -> list[Any]:
        receipts = await broker.push_many([NewMessage(queue="plain", transaction_id=name) for name in part])
        return [[receipt.status, receipt.id if receipt.status == "duplicate" else None] for receipt in receipts]

    async def acked(part: list[str]) -> list[Any]:
        outcomes = await broker.ack_many([Acknowledgement(transaction_id=name) for name in part])
        return [
            [type(one).__name__, getattr(one, "status", None), getattr(one, "retry_count", None)] for one in outcomes
        ]

    async def popped(queue: str, partition: str, group: str | None) -> list[Any]:
        delivery = await broker.pop(queue, partition, batch=1000, group=group)
        return [told(message) for message in delivery.messages]

    parts = [names[start : start + 20] for start in range(0, len(names), 20)]
    for number, part in enumerate(parts[::2]):
        await ask(f"ack {number}", partial(acked, part))
    for queue in QUEUES:
        for partition in PARTITIONS[queue]:
            for group in (None, "billing", "new"):
                await ask(f"pop {queue} {partition} {group}", partial(popped, queue, partition, group))
    for number, part in enumerate(parts):
        await ask(f"again {number}", partial(again, part))


# -- a trial ------------------------------------------------------------------------------------------------


def judged(found: dict[str, Any], expected: dict[str, Any]) -> Verdict:
    """Every answer as expected, or a refusal."""
    detected = ""
    for question, answer in found.items():
        if isinstance(answer, str) and answer.startswith("?"):
            return Verdict("accident", f"{question}: {answer}")
        if isinstance(answer, str) and answer.startswith("!"):
            detected = detected or f"{question}: {answer}"
        elif answer != expected[question]:
            return Verdict("wrong", f"{question}: {difference(answer, expected[question])}")
    return Verdict("detected", detected) if detected else Verdict("same")


def difference(found: Any, expected: Any) -> str:
    """Where two answers part."""
    if isinstance(found, list) and isinstance(expected, list):
        for index, (one, other) in enumerate(zip(found, expected, strict=False)):
            if one != other:
                return f"[{index}] {difference(one, other)}"
        return f"{len(found)} entries, not {len(expected)}"
    return f"{str(found)[:80]}, not {str(expected)[:80]}"


def trial(folder: Path, names: list[str], expected: dict[str, Any]) -> Verdict:
    """Open the folder in a process of its own and ask."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _answer_and_exit(folder, names, writing)
    os.close(writing)
    parts, deadline = [], time.monotonic() + LIMIT_S
    while select.select([reading], [], [], max(0, deadline - time.monotonic()))[0]:
        part = os.read(reading, 1 << 20)
        if not part:
            break
        parts.append(part)
    else:
        os.kill(child, signal.SIGKILL)
    os.close(reading)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return Verdict("hang") if number == signal.SIGKILL else Verdict("crash", signal.Signals(number).name)
    sort, content = json.loads(b"".join(parts))
    return judged(content, expected) if sort == "answers" else Verdict(sort, content)


def _answer_and_exit(folder: Path, names: list[str], writing: int) -> None:
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    try:
        result: tuple[str, Any] = ("answers", trio.run(answers, folder, names))
    except BaseException as error:
        leaves = _leaves(error)
        sound = all(isinstance(leaf, QueenError | OSError) for leaf in leaves)
        result = "refused" if sound else "accident", "; ".join(f"{type(leaf).__name__}: {leaf}" for leaf in leaves)
    with os.fdopen(writing, "wb") as pipe:
        pipe.write(json.dumps(result).encode())
    os._exit(0)


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]


# -- the campaign -------------------------------------------------------------------------------------------


def places(folder: Path, count: int, chance: random.Random) -> list[tuple[str, int, int]]:
    """What to change: file, offset, and what to xor it with. Half are in the first 64 bytes of a page, where LMDB's own
    structure is densest; the small files come whole."""
    found: list[tuple[str, int, int]] = []
    for name in FILES[1:]:
        size = (folder.parent / name if name == "keys" else folder / name).stat().st_size
        offsets = range(size) if size < 1000 else chance.sample(range(size), 50)
        wanted = sorted(chance.sample(offsets, min(len(offsets), max(count // 20, 5))))
        found += [(name, offset, 1 << chance.randrange(8)) for offset in wanted]
    size = (folder / FILES[0]).stat().st_size
    for number in range(count):
        page = chance.randrange(size // PAGE) * PAGE
        offset = page + (chance.randrange(64) if number % 2 else chance.randrange(PAGE))
        found.append((FILES[0], offset, (1 << chance.randrange(8)) if number % 3 else chance.randrange(1, 256)))
    return found


def run(count: int, seed: int, report: Callable[[str], None] = print) -> bool:
    """`count` trials; whether all went well."""
    chance = random.Random(seed)
    verdicts: Counter[tuple[str, str]] = Counter()
    faults = 0
    with tempfile.TemporaryDirectory(prefix="queen-hostile-") as name:
        whole = Path(name) / "whole" / "data"
        whole.mkdir(parents=True)
        trio.run(build, whole)
        whole.chmod(0o700)
        names = trio.run(names_in, whole)
        damaged = Path(name) / "damaged"
        _copy(whole.parent, damaged)
        expected = trio.run(answers, damaged / "data", names)
        assert judged(expected, expected) == Verdict("same"), judged(expected, expected)
        for file, offset, bits in places(whole, count, chance):
            _copy(whole.parent, damaged)
            path = damaged / file if file == "keys" else damaged / "data" / file
            _flip(path, offset, bits)
            verdict = trial(damaged / "data", names, expected)
            verdicts[file, verdict.sort] += 1
            if verdict.sort in FAULTS:
                faults += 1
                report(f"FAULT {file} byte {offset} ^ {bits:#04x}: {verdict.sort} {verdict.why[:300]}")
    for file in FILES:
        figures = ", ".join(f"{sort} {n}" for (where, sort), n in sorted(verdicts.items()) if where == file)
        report(f"files: {file}: {figures}")
    return not faults


def _copy(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)


def _flip(path: Path, offset: int, bits: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        old = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([old ^ bits]))
