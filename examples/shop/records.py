"""What producers and consumers write down: one JSON line per thing seen, in a file of its own for each process.

A line is written with one system call before the process goes on, so a process that ends at any moment (`os._exit`)
leaves whole lines and nothing unsaid. Times are `time.time()`: all processes are on one machine and share its clock.
"""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

QUEUE = "orders"
now = time.time


def order(number: int) -> dict[str, Any]:
    """The content of an order, from its number alone, so that everybody can tell whether it came through unchanged."""
    return {"order": number, "amount": round(number * 7.31 % 500, 2), "note": "Grüße ☕ " * (number % 5)}


def transaction_id(number: int) -> str:
    return f"order-{number}"


class Item(NamedTuple):
    """One line of a push's answer, with what was asked."""

    number: int
    partition: str
    id: str
    status: str


class Taken(NamedTuple):
    """One message of a pop's answer."""

    number: int
    id: str
    retry_count: int
    data: Any


class Result(NamedTuple):
    """What an acknowledgement's answer says of one message."""

    number: int
    status: str
    retry_count: int | None


@dataclass(frozen=True)
class Pushed:
    """A push was answered, after `lost` attempts that were not. `again`: the same push had been answered before."""

    sent: float
    at: float
    lost: int
    again: bool
    items: list[Item]


@dataclass(frozen=True)
class Leased:
    """A pop sent at `sent` was answered at `at` with these messages, ours until `expires`."""

    sent: float
    at: float
    lease: str
    expires: float
    partition: str
    messages: list[Taken]


@dataclass(frozen=True)
class PopLost:
    """A pop got no answer: there may be a lease that nobody knows of."""

    sent: float
    at: float


@dataclass(frozen=True)
class AckSent:
    """An acknowledgement is about to be sent; `attempt` numbers the attempts of this process."""

    attempt: int
    sent: float
    lease: str
    status: dict[str, str]


@dataclass(frozen=True)
class AckAnswered:
    """The attempt was answered."""

    attempt: int
    at: float
    results: list[Result]


@dataclass(frozen=True)
class AckLost:
    """The attempt got no answer: it may have happened."""

    attempt: int
    at: float


@dataclass(frozen=True)
class Died:
    """The process ends itself here, with a lease in its hands."""

    at: float


@dataclass(frozen=True)
class Fault:
    """An answer that the server should never give."""

    at: float
    what: str


Record = Pushed | Leased | PopLost | AckSent | AckAnswered | AckLost | Died | Fault
_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (Pushed, Leased, PopLost, AckSent, AckAnswered, AckLost, Died, Fault)
}
_ROWS: dict[tuple[str, str], Any] = {
    ("Pushed", "items"): Item,
    ("Leased", "messages"): Taken,
    ("AckAnswered", "results"): Result,
}


class Book:
    """The records of one process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, record: Record) -> None:
        line = json.dumps([type(record).__name__, vars(record)]) + "\n"
        os.write(self._file, line.encode())


class Library:
    """All books of a folder, read as they grow: each record once, with the name of the book that it stands in."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}

    def new(self) -> Iterator[tuple[str, Record]]:
        for path in sorted(self._folder.glob("*.jsonl")):
            start = self._read.get(path, 0)
            with path.open("rb") as file:
                file.seek(start)
                text = file.read()
            whole = text.rfind(b"\n") + 1
            self._read[path] = start + whole
            for line in text[:whole].splitlines():
                yield path.stem, _decoded(line)


def _decoded(line: bytes) -> Record:
    kind, fields = json.loads(line)
    for name, value in fields.items():
        row = _ROWS.get((kind, name))
        if row is not None:
            fields[name] = [row(*cells) for cells in value]
    record: Record = _KINDS[kind](**fields)
    return record
