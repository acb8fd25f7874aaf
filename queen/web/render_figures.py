"""Figures as the API page spells them. Pure; only here and in `render.py` stand their wire names."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from queen.figures import (
    Counts,
    GroupFigures,
    LagFigures,
    MinuteFigures,
    Overview,
    PartitionFigures,
    QueueFigures,
    QueueLag,
)
from queen.names import SECOND, instant_text
from queen.options import QueueOptions, as_dict

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR

Document = dict[str, Any]


def duration_text(duration: int) -> str:
    """A duration of so many µs as the API page spells it (S4): under a minute rounded to tenths, `2.5s`; from there on
    in its two largest units, cut off, `7m 17s`, `1h 5m`, `2d 3h`."""
    tenths = (10 * duration + SECOND // 2) // SECOND
    if tenths < 10 * _MINUTE:
        return f"{tenths // 10}.{tenths % 10}s"
    seconds = max(duration // SECOND, _MINUTE)  # 59.97 s are a minute, rounded
    if seconds < _HOUR:
        return f"{seconds // _MINUTE}m {seconds % _MINUTE}s"
    if seconds < _DAY:
        return f"{seconds // _HOUR}h {seconds % _HOUR // _MINUTE}m"
    return f"{seconds // _DAY}d {seconds % _DAY // _HOUR}h"


# -- section 5 --------------------------------------------------------------------------------------------


def statistics(queue: QueueFigures) -> Document:
    """5.1, 5.2, and by Z13 queue-stats and /analytics."""
    return {
        "queue": queue.name,
        "namespace": queue.namespace,
        "task": queue.task,
        "totals": _counts(queue.counts),
        "partitions": [{"name": partition.name, "stats": _counts(partition.counts)} for partition in queue.partitions],
    }


def depth(queue: QueueFigures) -> Document:
    """5.3."""
    return {
        "queue": queue.name,
        "depth": queue.counts.pending,
        "processing": queue.counts.processing,
        "partitions": [
            {"name": partition.name, "depth": partition.counts.pending, "processing": partition.counts.processing}
            for partition in queue.partitions
        ],
    }


def minute(figures: MinuteFigures) -> Document:
    """5.4, S3: seconds are the minute's 60th part, rounded (Z1)."""
    milliseconds = round(figures.lag / 1000)
    return {
        "timestamp": instant_text(figures.at),
        "incoming": _rate(figures.incoming),
        "completed": _rate(figures.completed),
        "processing": _rate(figures.leased),
        "failed": _rate(figures.failed),
        "lag": {
            "avgSeconds": milliseconds / 1000,
            "avgMilliseconds": milliseconds,
            "sampleCount": figures.completed,
        },
    }


def queue_lag(queue: QueueLag) -> Document:
    """5.5."""
    return {
        "queue": queue.name,
        "namespace": queue.namespace,
        "task": queue.task,
        "partitions": [{"name": name, "stats": _lag(figures)} for name, figures in queue.partitions],
        "totals": _lag(queue.totals),
    }


def _rate(count: int) -> Document:
    return {"messagesPerMinute": count, "messagesPerSecond": (count + 30) // 60}


def _lag(figures: LagFigures) -> Document:
    average, median, p95 = figures.average, figures.median, figures.p95
    backlog = figures.backlog
    return {
        "pendingCount": figures.pending,
        "processingCount": figures.processing,
        "totalBacklog": backlog,
        "completedMessages": figures.completed,
        "avgProcessingTimeSeconds": average / SECOND,
        "medianProcessingTimeSeconds": median / SECOND,
        "p95ProcessingTimeSeconds": p95 / SECOND,
        "estimatedLagSeconds": backlog * average / SECOND,
        "medianLagSeconds": backlog * median / SECOND,
        "p95LagSeconds": backlog * p95 / SECOND,
        "estimatedLag": duration_text(backlog * average),
        "medianLag": duration_text(backlog * median),
        "p95Lag": duration_text(backlog * p95),
        "avgProcessingTime": duration_text(average),
        "medianProcessingTime": duration_text(median),
        "p95ProcessingTime": duration_text(p95),
    }


# -- section 8 --------------------------------------------------------------------------------------------


def summary(queue: QueueFigures) -> Document:
    """8.1."""
    counts = queue.counts
    return {
        **_head(queue),
        "partitions": queue.partition_count,
        "messages": {"total": counts.total, "pending": counts.pending, "processing": counts.processing},
    }


def detail(queue: QueueFigures) -> Document:
    """8.2."""
    options = _options(queue.options)
    return {
        **_head(queue),
        "partitions": [
            {
                **_partition_head(partition, queue.options, options),
                "stats": _counts(partition.counts),
                "oldestMessage": None if partition.oldest is None else instant_text(partition.oldest),
                "newestMessage": None if partition.newest is None else instant_text(partition.newest),
            }
            for partition in queue.partitions
        ],
        "totals": _counts(queue.counts),
    }


def partitions(queue: QueueFigures, least: int) -> Iterator[Document]:
    """8.3: the queue's partitions with at least so many pending messages."""
    options = _options(queue.options)
    for partition in queue.partitions:
        counts = partition.counts
        if counts.pending >= least:
            yield {
                **_partition_head(partition, queue.options, options),
                "queue": queue.name,
                "namespace": queue.namespace,
                "task": queue.task,
                "depth": counts.pending,
                "processing": counts.processing,
                "total": counts.total,
            }


def group(kind: str, figures: GroupFigures) -> Document:
    """8.4 and 8.5: `kind` is "namespace" or "task"."""
    return {
        kind: figures.name,
        "queues": figures.queues,
        "partitions": figures.partitions,
        "messages": {"total": figures.counts.total, "pending": figures.counts.pending},
    }


def overview(figures: Overview) -> Document:
    """8.6."""
    return {
        "queues": figures.queues,
        "partitions": figures.partitions,
        "namespaces": figures.namespaces,
        "tasks": figures.tasks,
        "messages": _counts(figures.counts),
        "timestamp": instant_text(figures.at),
    }


def _head(queue: QueueFigures) -> Document:
    return {
        "id": queue.id,
        "name": queue.name,
        "namespace": queue.namespace,
        "task": queue.task,
        "createdAt": instant_text(queue.created_at),
    }


def _partition_head(partition: PartitionFigures, options: QueueOptions, encoded: msgspec.Raw) -> Document:
    return {
        "id": partition.id,
        "name": partition.name,
        "priority": options.priority,
        "options": encoded,
        "createdAt": instant_text(partition.created_at),
    }


def _options(options: QueueOptions) -> msgspec.Raw:
    # Encoded once for all partitions of the queue, whose options they are.
    return msgspec.Raw(msgspec.json.encode(as_dict(options)))


def _counts(counts: Counts) -> Document:
    return {
        "total": counts.total,
        "pending": counts.pending,
        "processing": counts.processing,
        "completed": counts.completed,
        "failed": counts.failed,
        "deadLetter": counts.dead_letter,
    }
