"""`queen whatif`: arguments, one call, and the comparison as a table or JSON."""

from pathlib import Path
from typing import Final

import click
import msgspec
from rich.table import Table
from rich.text import Text

from queen.audit.times import FORMS
from queen.audit.whatif import Changes, Compared, WhatIf, whatif
from queen.cli_audit import DATA, JSON, moment, reading
from queen.cli_tables import console, counted, progress
from queen.errors import Invalid

_FIGURES: Final = {
    "deliveries": "delivered",
    "retries": "attempts that failed and were followed by another",
    "leases_ended": "leases that ended unanswered",
    "completed": "completed",
    "failed": "failed for good",
    "dead_letters": "dead letters",
    "expired": "past their ttl (failed or dead)",
    "dropped": "deleted by a retention",
    "pending": "pending at the end",
    "processing": "with consumers at the end",
}
_SHOWN: Final = 20


@click.command("whatif")
@DATA
@click.option("--set", "settings", multiple=True, metavar="QUEUE.OPTION=VALUE", help="an option to change (repeatable)")
@click.option("--from", "since", default="#0", help=f"from then on, at first the beginning: {FORMS}")
@click.option("--to", "until", default="now", show_default=True, help="up to then")
@JSON
def whatif_command(data: Path, settings: tuple[str, ...], since: str, until: str, as_json: bool) -> None:
    """Tell how deliveries, retries and dead letters would have differed under other options.

    What is recorded is played again by the rules, in memory. Pushes, operators' commands, and when consumers came and
    for how many messages are held fixed. A consumer does with a message what was done at its delivery of the same
    count; at deliveries beyond those, what was done at the last. Without --set the re-run is what happened.

    \b
    Examples:
      queen whatif --set orders.retryLimit=10 --from -1d
      queen whatif --set orders.ttl=0 --set orders.leaseTime=60 --json | jq .messages
    """
    with reading(data) as past:
        changes = Changes.parse(settings)
        first, last = moment(past, since, "--from"), moment(past, until, "--to")
        if first.seq > last.seq:
            raise Invalid("--to", "must not be before --from")
        with progress("playing again") as tell:
            found = whatif(past, first, last, changes, tell)
        if as_json:
            click.echo(msgspec.json.encode(found))
        else:
            _tables(found)


def _tables(found: WhatIf) -> None:
    out = console()
    for compared in found.queues:
        out.print(_table(compared))
        out.print()
    if not found.queues:
        out.print("There was nothing.")
    for message in found.messages[:_SHOWN]:
        group = "" if message.group is None else f" for group {message.group}"
        where = f"{message.queue}/{message.partition}{group}"
        ends = f"{message.rerun or 'deleted'} instead of {message.recorded or 'deleted'}"
        out.print(Text(f"{message.transaction_id} in {where}: {ends}"), soft_wrap=True)
    count = len(found.messages)
    if count > _SHOWN:
        out.print(Text(f"and {count - _SHOWN:,} more; --json has them all"))
    differ = (
        f"{counted(count, 'message')} would have been otherwise in the end."
        if count
        else "No message would be otherwise."
    )
    out.print(
        Text(f"Records {found.first_record + 1:,} to {found.last_record:,}. {differ}", style="bold"), soft_wrap=True
    )
    if found.assumed:
        beyond = f"{found.assumed:,} deliveries are beyond those recorded: taken to go as the last one, or well."
        out.print(Text(beyond), soft_wrap=True)
    if found.refused:
        out.print(Text(f"{found.refused:,} commands or acknowledgements would have been refused."), soft_wrap=True)


def _table(compared: Compared) -> Table:
    group = "" if compared.group is None else f", group {compared.group}"
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column(Text(f"{compared.queue}{group}"), overflow="fold")
    for name in ("recorded", "what if", "difference"):
        table.add_column(name, justify="right")
    for field, meaning in _FIGURES.items():
        before, after = getattr(compared.recorded, field), getattr(compared.rerun, field)
        if before or after:
            change = f"{after - before:+,}" if after != before else ""
            table.add_row(meaning, f"{before:,}", f"{after:,}", Text(change, style="bold"))
    return table
