"""What the audit says, as tables on a terminal and as lines in a pipe."""

import csv
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import msgspec
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from queen.audit.biography import Life, Step
from queen.audit.happenings import Happening
from queen.audit.verifying import Verdict

_ENCODER = msgspec.json.Encoder()
_ROW = "{:>9} {:<24} {:<17} {:<24} {:<14} {:<15} {}"
_ERROR_CHARACTERS = 200
_HEAD = ("record", "when", "what", "where", "positions", "by", "details")


def console() -> Console:
    """Standard output: in colour and as wide as the terminal; a pipe gets plain text that is not cut off."""
    found = Console(highlight=False, soft_wrap=False)
    return found if found.is_terminal else Console(highlight=False, width=200)


def counted(number: int, noun: str) -> str:
    """A number of things: `1 message`, `2,000 messages`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def life_table(life: Life, payloads: bool) -> None:
    """One message's biography."""
    out = console()
    out.print(Text(f"{life.transaction_id}", style="bold"), Text(f"  message {life.message_id}", style="dim"))
    out.print(
        Text(f"queue {life.queue}, partition {life.partition}, position {life.position}; {counted(life.size, 'byte')}")
        + Text(", encrypted" if life.encrypted else "")
        + Text(", erased" if life.erased else "")
        + Text(f"; trace {life.trace_id}" if life.trace_id else "")
    )
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("record", "when", "what", "group", "by", "details"):
        table.add_column(name, overflow="fold", justify="right" if name == "record" else "left")
    for step in life.steps:
        by = step.who if not step.request else f"{step.who} {step.request}"
        table.add_row(*map(Text, (f"#{step.seq}", step.at, step.type, step.group or "", by, details(step, "--json"))))
    out.print(table)
    for standing in life.status:
        group = "" if standing.group is None else f" for group {standing.group}"
        out.print(Text(f"{standing.status}{group} since {standing.since}", style="bold"))
    if payloads:
        out.print(Text(payload_text(life)))
    out.print()


def payload_text(life: Life) -> str:
    """The payload, or why there is none to show."""
    if life.payload is not None:
        return bytes(life.payload).decode()
    return life.payload_error or "the payload has been erased"


def details(step: Step | Happening, whole: str) -> str:
    """What else there is to say of it, in a line; `whole` is the option that shows a long error in full."""
    words = []
    if step.cause is not None:
        words.append(step.cause)
    if step.worker is not None:
        words.append(f"worker {step.worker}")
    if step.lease_id is not None:
        words.append(f"lease {step.lease_id}")
    if step.lease_expires_at is not None:
        words.append(f"until {step.lease_expires_at}")
    if isinstance(step, Step) and step.retry_count:
        words.append(f"retry {step.retry_count}")
    if step.available_at is not None and step.available_at != step.at:
        words.append(f"available from {step.available_at}")
    if step.error is not None:
        words.append(f"error {_cut(step.error, whole)}")
    return ", ".join(words)


def _cut(error: str, whole: str) -> str:
    if len(error) <= _ERROR_CHARACTERS:
        return repr(error)
    return f"{error[:_ERROR_CHARACTERS]!r}… ({len(error):,} characters; {whole} has all)"


def verdict_text(verdict: Verdict) -> None:
    """What a verification has found, fault by fault, and the sum of it."""
    out = console()
    for finding in verdict.findings:
        out.print(Text(str(finding), style="red"), soft_wrap=True)
    if verdict.count > len(verdict.findings):
        out.print(Text(f"and {verdict.count - len(verdict.findings)} more"))
    looked = (
        f"{counted(verdict.records, 'record')} with {counted(verdict.messages, 'message')}, "
        f"{counted(verdict.rows, 'row')} of projections"
    )
    if verdict.fine:
        out.print(Text(f"Nothing is wrong: {looked}.", style="green"), soft_wrap=True)
    else:
        out.print(Text(f"{counted(verdict.count, 'fault')}: {looked}.", style="bold red"), soft_wrap=True)
        if verdict.sound_until < verdict.head:
            out.print(Text(f"States could be checked up to record {verdict.sound_until}."), soft_wrap=True)
    out.print(Text(f"The last record is {verdict.head}; its digest is {verdict.digest}."), soft_wrap=True)


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error while something takes long; nothing where that is no terminal."""
    out = Console(stderr=True)
    with Progress(console=out, transient=True, disable=not out.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


class Lines(Protocol):
    """Makes a line of each happening."""

    def line(self, told: Happening) -> bytes: ...


def lines_of(shape: str) -> Lines:
    """`shape` is "table", "ndjson" or "csv"."""
    shapes: dict[str, Callable[[], Lines]] = {"table": _Columns, "ndjson": _Ndjson, "csv": _Csv}
    return shapes[shape]()


class _Ndjson:
    """One JSON object a line; what has nothing to say is left out."""

    def line(self, told: Happening) -> bytes:
        return _ENCODER.encode(told) + b"\n"


class _Csv:
    """Comma-separated, with a line of names in front. Positions are written as 1-100 7-7."""

    FIELDS = ("seq", "at", "type", "queue", "partition", "group", "count", "positions", "who", "request", "cause")
    MORE = ("error", "worker", "lease_id", "lease_expires_at", "available_at")

    def __init__(self) -> None:
        self._text = io.StringIO()
        self._writer = csv.writer(self._text, lineterminator="\n")
        self._writer.writerow([*self.FIELDS, *self.MORE])

    def line(self, told: Happening) -> bytes:
        values = [getattr(told, name) for name in (*self.FIELDS, *self.MORE)]
        values[self.FIELDS.index("positions")] = _places(told)
        self._writer.writerow(["" if value is None else value for value in values])
        line = self._text.getvalue()
        self._text.seek(0)
        self._text.truncate()
        return line.encode()


class _Columns:
    """Columns that line up as long as names are short; a stream can't wait to see how long they get."""

    def __init__(self) -> None:
        self._first = True

    def line(self, told: Happening) -> bytes:
        where = "" if told.queue is None else told.queue + ("" if told.partition is None else f"/{told.partition}")
        group = "" if told.group is None else f"[{told.group}] "
        columns = (
            str(told.seq),
            told.at,
            told.type,
            where,
            _places(told),
            told.who,
            f"{group}{details(told, '--format ndjson')}",
        )
        rows = [_HEAD, columns] if self._first else [columns]
        self._first = False
        return "".join([_ROW.format(*row).rstrip() + "\n" for row in rows]).encode()


def _places(told: Happening) -> str:
    return " ".join([f"{first}-{last}" if last > first else f"{first}" for first, last in told.positions])
