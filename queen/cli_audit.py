"""The audit on the command line: arguments, one call into `queen.audit`, and the shape of what it says.

Exit codes: 0 for an answer that finds nothing wrong, 1 where something is wrong or missing, 2 for wrong usage, 3 where
the folder can't be read, or is in use.
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
from queen.audit.differences import difference
from queen.audit.figures_then import overview_then, queue_then
from queen.audit.happenings import TYPES
from queen.audit.reading import Moment, Past, check_there, moment_at, seq_at
from queen.audit.replaying import Replay, Wanted
from queen.audit.restoring import world_at
from queen.audit.times import FORMS, parse_time
from queen.audit.verifying import Verdict
from queen.audit.verifying import verify as verified
from queen.cli_keys import encryption_keys
from queen.cli_state import difference_tables, state_document, state_tables
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

DATA = click.option(
    "--data",
    default=DEFAULTS.data,
    envvar="QUEEN_DATA",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="a data folder: that of a server that runs, or a copy; it is only read",
)
JSON = click.option("--json", "as_json", is_flag=True, help="JSON instead of a table")
KEYS = click.option("--encryption-key-file", "key_file", default="", help="to open encrypted payloads with")


class NumberRange(click.FloatRange):
    """A number in a range, which NaN is not: it compares with no bound."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, or wrong usage."""
        number = super().convert(value, param, ctx)
        if number != number:
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


def times(command: Command) -> Command:
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


def moment(past: Past, text: str | None, where: str) -> Moment:
    """What an option asks for; the last record there is, without one. Raises `Invalid`, also for a record that is yet
    to come."""
    when = parse_time(text or "now", now(), where)
    check_there(past, when, where)
    return moment_at(past, when)


def _last(past: Past, text: str | None) -> int | None:
    """The number of the last record that `--to` lets through, which may be yet to come; None without one."""
    return None if text is None else moment_at(past, parse_time(text, now(), "--to")).seq


def before(past: Past, text: str | None) -> int:
    """The number of the record in front of the first one from that time on."""
    if text is None:
        return 0
    when = parse_time(text, now(), "--from")
    return seq_at(past, when.at - 1) if when.seq is None else max(0, when.seq - 1)


@click.command()
@click.argument("transaction_id")
@DATA
@click.option("--at", help=f"as of then: {FORMS}")
@click.option("--payloads", is_flag=True, help="show the payload too")
@KEYS
@JSON
def history(transaction_id: str, data: Path, at: str | None, payloads: bool, key_file: str, as_json: bool) -> None:
    """Tell the life of a message: its push, each delivery, each failure, what operators did, and how it ended.

    One that was deleted is told as well, and so is every message that had the transactionId before.

    \b
    Example:
      queen history order-4711 --data /var/lib/queen
    """
    with reading(data) as past:
        ring = encryption_keys(Settings(encryption_key_file=key_file))
        until = None if at is None else moment(past, at, "--at").seq
        lives = lives_of(past, transaction_id, until=until, ring=ring, payloads=payloads)
        if as_json:
            click.echo(msgspec.json.encode(lives))
        else:
            for life in lives:
                life_table(life, payloads)


@click.command()
@DATA
@times
@click.option("--queue", help="of this queue alone")
@click.option("--partition", help="of partitions of this name alone")
@click.option("--group", help="of this consumer group alone; '' is the default group")
@click.option("--transaction-id", help="of messages of this transactionId alone")
@click.option("--type", "types", multiple=True, help=f"of this type alone (repeatable): {', '.join(TYPES)}")
@click.option("--format", "shape", type=click.Choice(["table", "ndjson", "csv"]), default="table", show_default=True)
@click.option("--payloads", is_flag=True, help="show payloads (NDJSON)")
@KEYS
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
        lines = lines_of(shape)
        try:
            _print(lines, stream, _last(past, until))
            while follow:
                Event().wait(FOLLOW_S)
                _print(lines, stream, _last(past, until))
        except KeyboardInterrupt:
            if not follow:
                raise  # it was to print everything, and has not


def _print(lines: Lines, stream: Replay, until: int | None) -> None:
    out = sys.stdout.buffer
    for told in stream.more(until):
        out.write(lines.line(told))
    out.flush()


@click.command()
@DATA
@click.option("--at", default="now", show_default=True, help=f"the instant: {FORMS}")
@click.option("--queue", help="this queue alone, partition by partition")
@JSON
def state(data: Path, at: str, queue: str | None, as_json: bool) -> None:
    """Show queues, partitions, counts and leases as they were at an instant; with --json as the resources API does.

    \b
    Examples:
      queen state --at 2026-11-30T10:04
      queen state --at -5m --queue orders --json
    """
    with reading(data) as past:
        then = moment(past, at, "--at")
        with progress("reading") as tell:
            world = world_at(past, then, tell)
        names = [queue] if queue is not None else list(world.catalogue.queues)
        queues = [queue_then(past, world, name) for name in names]
        leases = [lease for lease in world.leases() if queue in (None, lease.queue)]
        found = overview_then(world, then.at)
        if as_json:
            click.echo(msgspec.json.encode(state_document(then, found, queues, leases)))
        else:
            state_tables(then, found, queues, leases, detailed=queue is not None)


@click.command()
@DATA
@click.option("--from", "since", required=True, help=f"the first instant: {FORMS}")
@click.option("--to", "until", default="now", show_default=True, help="the second instant")
@JSON
def diff(data: Path, since: str, until: str, as_json: bool) -> None:
    """Show what changed between two instants: queues, options, partitions, counts, and what was done to messages.

    \b
    Example:
      queen diff --from -1h --to now
    """
    with reading(data) as past:
        first, last = moment(past, since, "--from"), moment(past, until, "--to")
        if first.seq > last.seq:
            raise Invalid("--to", "must not be before --from")
        with progress("reading") as tell:
            found = difference(past, first, last, tell)
        if as_json:
            click.echo(msgspec.json.encode(found))
        else:
            difference_tables(found)


@click.command()
@DATA
@JSON
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


COMMANDS: Final = (history, replay, state, diff, verify)
"""What `queen` adds to its commands."""
