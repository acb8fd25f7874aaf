"""States and their differences, as tables and in the shapes of the resources API."""

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from queen.audit.differences import Difference, QueueChange
from queen.audit.reading import Moment
from queen.audit.world import LeaseThen
from queen.cli_tables import console, counted
from queen.figures import Counts, Overview, QueueFigures
from queen.names import instant_text, uuid_text
from queen.web import render_figures

STATUSES = ("pending", "processing", "completed", "failed", "dead letter")


def state_document(
    moment: Moment, overview: Overview, queues: Sequence[QueueFigures], leases: Sequence[LeaseThen]
) -> dict[str, Any]:
    """The overview (8.6), each queue in full (8.2), and the leases that ran."""
    return {
        "record": moment.seq,
        "overview": render_figures.overview(overview),
        "queues": [render_figures.detail(queue) for queue in queues],
        "leases": [_lease(lease) for lease in leases],
    }


def _lease(lease: LeaseThen) -> dict[str, Any]:
    return {
        "leaseId": _id(lease),
        "queue": lease.queue,
        "partition": lease.partition,
        "consumerGroup": lease.group,
        "workerId": lease.worker,
        "lockedAt": instant_text(lease.leased_at),
        "leaseExpiresAt": instant_text(lease.expires_at),
        "positions": list(lease.positions),
    }


def state_tables(
    moment: Moment,
    overview: Overview,
    queues: Sequence[QueueFigures],
    leases: Sequence[LeaseThen],
    *,
    detailed: bool,
) -> None:
    """The same to look at; `detailed` lists partitions instead of queues."""
    out = console()
    total = ", ".join(
        counted(number, noun)
        for number, noun in (
            (overview.queues, "queue"),
            (overview.partitions, "partition"),
            (overview.counts.total, "message"),
        )
    )
    out.print(Text(f"{instant_text(moment.at)}, behind record {moment.seq}: {total}", style="bold"), soft_wrap=True)
    table = _table("partition" if detailed else "queue", *STATUSES, "total")
    for queue in queues:
        lines = [(part.name, part.counts) for part in queue.partitions] if detailed else [(queue.name, queue.counts)]
        for name, counts in lines:
            table.add_row(Text(name), *_numbers(counts))
    out.print(table)
    if leases:
        table = _table("lease", "where", "group", "worker", "since", "until", "messages")
        for lease in leases:
            table.add_row(
                *map(
                    Text,
                    (
                        _id(lease),
                        f"{lease.queue}/{lease.partition}",
                        lease.group or "",
                        lease.worker or "",
                        instant_text(lease.leased_at),
                        instant_text(lease.expires_at),
                        str(len(lease.positions)),
                    ),
                )
            )
        out.print(table)


def difference_tables(found: Difference) -> None:
    """What changed, queue by queue."""
    out = console()
    out.print(Text(f"from {found.since}, record {found.first}, to {found.until}, record {found.last}", style="bold"))
    if not found.queues:
        out.print(Text("Nothing changed."))
    for change in found.queues:
        out.print(Text(f"{change.queue} {_shape_of(change)}".rstrip(), style="bold"), soft_wrap=True)
        for name, (before, after) in change.settings.items():
            out.print(Text(f"  {name}: {before!r} is {after!r} now"), soft_wrap=True)
        for name, before, after in zip(STATUSES, change.before, change.after, strict=True):
            if before != after:
                out.print(Text(f"  {name}: {before:,} → {after:,} ({after - before:+,})"), soft_wrap=True)
        for doings in change.doings:
            done = ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in doings.messages.items())
            group = "" if doings.group is None else f"group {doings.group}: "
            out.print(Text(f"  {group}{done}"), soft_wrap=True)


def _shape_of(change: QueueChange) -> str:
    words = [f"was {change.change}"] if change.change else []
    if change.partitions_before != change.partitions_after:
        words.append(f"{change.partitions_before} → {change.partitions_after} partitions")
    return ", ".join(words)


def _table(first: str, *names: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column(first, overflow="fold")
    for name in names:
        table.add_column(name, justify="right" if name in (*STATUSES, "total", "messages") else "left", overflow="fold")
    return table


def _numbers(counts: Counts) -> list[str]:
    return [f"{number:,}" for number in (*counts, counts.total)]


def _id(lease: LeaseThen) -> str:
    return uuid_text(int.from_bytes(lease.id))
