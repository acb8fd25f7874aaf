"""`queen resend`: arguments, one call to choose and one to push, and what became of it."""

import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, get_args

import click
import msgspec

from queen.audit.choosing import Choice, choose
from queen.audit.times import FORMS, parse_time
from queen.cli_audit import DATA, JSON, KEYS, WRONG, NumberRange, end, moment, now, reading, times
from queen.cli_keys import encryption_keys
from queen.cli_tables import counted, progress
from queen.commands import Status
from queen.errors import Invalid, NotFound, Unavailable
from queen.names import instant_text
from queen.resend import Resent, Sent, Target, check_run, to_send
from queen.settings import Settings

AGAIN: Final = "again"
_URL: Final = "http://127.0.0.1:6632"
CAFILE = click.option(
    "--cafile",
    type=click.Path(exists=True, dir_okay=False),
    help="certificates to trust at https instead of the machine's (SSL_CERT_FILE does the same)",
)


@click.command("resend")
@DATA
@click.option("--queue", help="of this queue alone")
@click.option("--partition", help="of partitions of this name alone")
@click.option("--namespace", help="of queues of this namespace alone")
@click.option("--transaction-id", "transaction_ids", multiple=True, help="of this transactionId (repeatable)")
@times
@click.option("--status", type=click.Choice(get_args(Status)), help="that are so, for the group")
@click.option("--group", help="the consumer group whose status counts; without it, the default group's")
@click.option("--at", default="now", show_default=True, help=f"the instant at which they are so: {FORMS}")
@click.option(
    "--url", default=_URL, envvar="QUEEN_URL", show_default=True, show_envvar=True, help="the server to push to"
)
@click.option("--to-queue", help="the queue to push into; without it, the one that each was in")
@click.option("--token", envvar="QUEEN_TOKEN", show_envvar=True, help="that lets push, where the server asks for one")
@CAFILE
@click.option("--rate", type=NumberRange(min=0, min_open=True), help="messages a second at most")
@click.option(
    "--run", help=f"a name for this: under one name, nothing is pushed twice  [default: --to-queue or {AGAIN}]"
)
@click.option("--dry-run", is_flag=True, help="list what would be pushed, and push nothing")
@KEYS
@JSON
def resend_command(
    data: Path,
    since: str | None,
    until: str | None,
    at: str,
    url: str,
    to_queue: str | None,
    token: str | None,
    cafile: str | None,
    rate: float | None,
    run: str | None,
    dry_run: bool,
    key_file: str,
    as_json: bool,
    **filters: Any,
) -> None:
    """Push messages of the past again: to their queue or another, on this server or another.

    --from and --to are about when they were pushed. Each keeps its payload, partition and traceId; its new
    transactionId is resend:ITS-OWN:RUN, so whatever ends the command, the same command again pushes what is left and
    nothing twice. Deleted messages have no payload any more: they are counted. Every consumer group of the queue gets
    what is pushed. What was encrypted is opened, and encrypted again if the queue that it is pushed into says so.

    \b
    Examples:
      queen resend --queue orders --status dead_letter --dry-run
      queen resend --queue orders --status dead_letter --from -1d --rate 50
      queen resend --transaction-id order-7 --to-queue orders-again --url http://other:6632
    """
    with reading(data) as past:
        name = check_run(run if run is not None else to_queue if to_queue is not None else AGAIN)
        target = Target(url, to_queue, token, trust=trusting(cafile))
        ring = encryption_keys(Settings(encryption_key_file=key_file))
        first, last = _instant(since, "--from"), _instant(until, "--to")
        choice = Choice(since=first, until=last, **filters)
        with progress("reading") as tell:
            chosen = choose(past, choice, moment(past, at, "--at").seq, ring, tell)
            resent = to_send(chosen, name)
        if dry_run:
            _list(resent, as_json)
        else:
            _send(target, resent, rate, as_json)


def trusting(cafile: str | None) -> ssl.SSLContext:
    """Whose certificates count: those in a file, or the machine's."""
    try:
        return ssl.create_default_context(cafile=cafile)
    except ssl.SSLError:
        raise click.UsageError(f"--cafile: there is no certificate in {cafile}") from None


def _instant(text: str | None, where: str) -> int | None:
    if text is None:
        return None
    when = parse_time(text, now(), where)
    if when.seq is not None:
        raise Invalid(where, "must be a time here, not a record")
    return when.at


def _list(resent: Iterable[Resent], as_json: bool) -> None:
    sent = Sent()
    for entry in resent:
        message = entry.message
        if message.payload is not None:
            sent.pushed += 1
        elif message.deleted:
            sent.deleted += 1
        else:
            sent.unreadable += 1
        click.echo(msgspec.json.encode(_document(entry)) if as_json else _line(entry))
    if not as_json:
        click.echo(f"{counted(sent.pushed, 'message')} would be pushed{_left_out(sent)}. Nothing was.", err=True)


def _document(entry: Resent) -> dict[str, Any]:
    message = entry.message
    found = {
        "seq": message.seq,
        "at": instant_text(message.at),
        "queue": message.queue,
        "partition": message.partition,
        "position": message.position,
        "transactionId": message.transaction_id,
        "status": message.status,
        "newTransactionId": entry.transaction_id,
    }
    return found if message.missing is None else {**found, "missing": message.missing}


def _line(entry: Resent) -> str:
    message = entry.message
    where = f"{message.queue}/{message.partition}"
    becomes = f"not pushed: {message.missing}" if message.missing else f"as {entry.transaction_id}"
    status = message.status or "-"
    return f"{message.seq:>9} {instant_text(message.at)} {where:<24} {status:<11} {message.transaction_id} {becomes}"


def _send(target: Target, resent: Iterable[Resent], rate: float | None, as_json: bool) -> None:
    sent = Sent()
    try:
        with progress("pushing") as tell:
            target.send(resent, rate, lambda so_far: tell(*[so_far.pushed + so_far.there_already] * 2), sent)
    except (NotFound, Unavailable) as error:
        _tell(sent, as_json)
        end(
            f"{error} The same command again goes on from here." if isinstance(error, Unavailable) else str(error),
            WRONG,
        )
    _tell(sent, as_json)
    if sent.deleted or sent.unreadable:
        raise SystemExit(WRONG)


def _tell(sent: Sent, as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.encode(sent))
        return
    there = (
        f", {sent.there_already:,} {'was' if sent.there_already == 1 else 'were'} there already"
        if sent.there_already
        else ""
    )
    were = "was" if sent.pushed == 1 else "were"
    click.echo(f"{counted(sent.pushed, 'message')} {were} pushed{there}{_left_out(sent)}.")


def _left_out(sent: Sent) -> str:
    deleted = f"; {sent.deleted:,} {'is' if sent.deleted == 1 else 'are'} deleted" if sent.deleted else ""
    unreadable = f"; {sent.unreadable:,} can't be opened without their key" if sent.unreadable else ""
    return deleted + unreadable
