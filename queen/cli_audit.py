"""The audit on the command line: arguments, one call into `queen.audit`, and the shape of what it says.

Exit codes: 0 for an answer that finds nothing wrong, 1 where something is wrong or missing, 2 for wrong usage, 3 where
the folder can't be read.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Any, Final, NoReturn, TypeVar

import click
import msgspec
import trio

from queen.audit.biography import history as lives_of
from queen.audit.happenings import TYPES
from queen.audit.reading import Past, seq_at
from queen.audit.replaying import Replay, Wanted
from queen.audit.times import FORMS, Number, parse_time
from queen.audit.verifying import Verdict
from queen.audit.verifying import verify as verified
from queen.cli_keys import encryption_keys
from queen.cli_tables import Lines, life_table, lines_of, progress, verdict_text
from queen.errors import Corrupt, Invalid, NotFound, QueenError
from queen.opening import forget_projections, open_broker
from queen.settings import DEFAULTS, Settings
from queen.store.beside import Beside

WRONG: Final = 1
UNREADABLE: Final = 3
FOLLOW_S: Final = 0.25
"""How long `--follow` waits before it looks again, in seconds."""

Command = TypeVar("Command", bound=Callable[..., Any])

_DATA = click.option(
    "--data",
    default=DEFAULTS.data,
    envvar="QUEEN_DATA",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="a data folder: that of a server that runs, or a copy; it is only read",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="JSON instead of a table")
_KEYS = click.option("--encryption-key-file", "key_file", default="", help="to open encrypted payloads with")


def _times(command: Command) -> Command:
    command = click.option("--to", "until", help="up to then")(command)
    return click.option("--from", "since", help=f"from then on: {FORMS}")(command)


def now() -> int:
    """The wall clock, in µs."""
    return int(datetime.now(UTC).timestamp() * 1_000_000)


@contextmanager
def reading(folder: Path) -> Iterator[Beside]:
    """The folder, opened for reading. What goes wrong ends the command with its sentence and its exit code."""
    try:
        with Beside(folder) as past:
            yield past
    except Invalid as error:
        raise click.UsageError(str(error)) from None
    except NotFound as error:
        end(str(error), WRONG)
    except QueenError as error:
        end(f"{error} `queen verify` says more.", UNREADABLE)
    except BrokenPipeError:
        sys.stderr.close()  # whoever read the output has enough of it
        raise SystemExit(0) from None
    except OSError as error:
        end(f"{error.filename or folder}: {error.strerror or error}", UNREADABLE)


def end(sentence: str, code: int) -> NoReturn:
    """Stop with one line on standard error."""
    click.echo(f"Error: {sentence}", err=True)
    raise SystemExit(code)


def seq_of(past: Past, text: str | None, where: str, otherwise: int) -> int:
    """The last record made by that time. Raises `Invalid`."""
    if text is None:
        return otherwise
    at = parse_time(text, now(), where)
    return min(at, past.head) if isinstance(at, Number) else seq_at(past, at)


def before(past: Past, text: str | None) -> int:
    """The number of the record in front of the first one from that time on."""
    if text is None:
        return 0
    at = parse_time(text, now(), "--from")
    return max(0, at - 1) if isinstance(at, Number) else seq_at(past, at - 1)


@click.command()
@click.argument("transaction_id")
@_DATA
@click.option("--at", help=f"as of then: {FORMS}")
@click.option("--payloads", is_flag=True, help="show the payload too")
@_KEYS
@_JSON
def history(transaction_id: str, data: Path, at: str | None, payloads: bool, key_file: str, as_json: bool) -> None:
    """Tell the life of a message: its push, each delivery, each failure, what operators did, and how it ended.

    One that was deleted is told as well, and so is every message that had the transactionId before.

    \b
    Example:
      queen history order-4711 --data /var/lib/queen
    """
    with reading(data) as past:
        ring = encryption_keys(Settings(encryption_key_file=key_file))
        until = seq_of(past, at, "--at", past.head)
        lives = lives_of(past, transaction_id, until=until, ring=ring, payloads=payloads)
        if as_json:
            click.echo(msgspec.json.encode(lives))
        else:
            for life in lives:
                life_table(life, payloads)


@click.command()
@_DATA
@_times
@click.option("--queue", help="of this queue alone")
@click.option("--partition", help="of partitions of this name alone")
@click.option("--group", help="of this consumer group alone; '' is the default group")
@click.option("--transaction-id", help="of messages of this transactionId alone")
@click.option("--type", "types", multiple=True, help=f"of this type alone (repeatable): {', '.join(TYPES)}")
@click.option("--format", "shape", type=click.Choice(["table", "ndjson", "csv"]), default="table", show_default=True)
@click.option("--payloads", is_flag=True, help="show payloads (NDJSON)")
@_KEYS
@click.option("--follow", is_flag=True, help="go on with what happens from now on, until Ctrl-C")
def replay(
    data: Path,
    since: str | None,
    until: str | None,
    shape: str,
    payloads: bool,
    key_file: str,
    follow: bool,
    **filters: Any,
) -> None:
    """Print the journal's events in order, one a line.

    \b
    Examples:
      queen replay --queue orders --from -1h
      queen replay --type dead_letter --format ndjson --from 2026-11-30 | jq .transactionIds
    """
    with reading(data) as past:
        ring = encryption_keys(Settings(encryption_key_file=key_file)) if payloads else None
        stream = Replay(past, Wanted(**filters), before(past, since), ring=ring)
        last = seq_of(past, until, "--to", past.head)
        lines = lines_of(shape)
        _print(lines, stream, last)
        while follow:
            Event().wait(FOLLOW_S)
            last = seq_of(past, until, "--to", past.head)
            _print(lines, stream, last)


def _print(lines: Lines, stream: Replay, until: int) -> None:
    out = sys.stdout.buffer
    for told in stream.more(until):
        out.write(lines.line(told))
    out.flush()


@click.command()
@_DATA
@_JSON
@click.option("--rebuild", is_flag=True, help="make the projections anew first; for a folder that nobody serves")
def verify(data: Path, as_json: bool, rebuild: bool) -> None:
    """Check that the record is complete and that everything follows from it.

    Looks at the chain of all records, at each event against what was before, and at every projection against what the
    records say. A fault is named with the record where it shows, its time, and its queue and partition.

    \b
    Examples:
      queen verify --data /var/lib/queen
      queen verify --json | jq -r .digest      keep it elsewhere: it proves later what the record was
      queen verify --rebuild --data /var/lib/queen
    """
    if rebuild:
        _rebuild(data)
    with reading(data) as past:
        verdict = _verdict(past)
        if as_json:
            click.echo(msgspec.json.encode(verdict))
        else:
            verdict_text(verdict)
    if not verdict.fine:
        raise SystemExit(WRONG)


def _verdict(past: Beside) -> Verdict:
    if not past.served:
        try:
            past.check_pages()  # not while somebody writes them
        except Corrupt as error:
            return Verdict.unreadable(str(error))
    with progress("verifying") as tell:
        return verified(past, tell)


def _rebuild(data: Path) -> None:
    """Without a checkpoint, a start drops all projections and folds the journal anew."""
    with reading(data):
        pass  # it is a folder of ours
    try:
        forget_projections(data)
        trio.run(_open_and_close, data)
    except QueenError as error:
        end(str(error), UNREADABLE)


async def _open_and_close(data: Path) -> None:
    async with open_broker(data):
        pass


COMMANDS: Final = (history, replay, verify)
"""What `queen` adds to its commands."""
