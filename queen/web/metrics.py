"""Figures for machines: the page's JSON (7.2), and Prometheus' text. Both are read off plain counts when asked for;
`docs/metrics.md` says what each one means.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import trio
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder

from queen.broker import Broker
from queen.errors import QueenError
from queen.figures import Counts, QueueFigures, sum_of
from queen.meter import Histogram, Meter
from queen.web import process, render
from queen.web.exchange import Answer, Asked
from queen.web.operation import Traffic

QUEUES: Final = 1_000
"""Queues with series of their own, the oldest; all others are summed up under the empty name, which no queue has."""
_PATIENCE_S: Final = 1.0


async def metrics(broker: Broker, traffic: Traffic, asked: Asked) -> Answer:
    """`GET /metrics`: JSON, or text for those who would rather have it."""
    if wants_text(asked.header(b"accept") or ""):
        return await prometheus(broker, traffic, asked)
    uptime = traffic.uptime
    seconds = max(uptime, 1.0)
    health = broker.health()
    memory, cpu = process.memory(), process.cpu()
    return render.document(
        {
            "uptime": int(uptime),
            "requests": {"total": traffic.requests, "rate": round(traffic.requests / seconds, 2)},
            "messages": {"total": health.messages, "rate": round(health.messages / seconds, 2)},
            "database": {
                "poolSize": health.pool.total,
                "idleConnections": health.pool.idle,
                "waitingRequests": health.pool.waiting,
            },
            "memory": {
                "rss": memory.resident,
                "heapTotal": memory.reserved,
                "heapUsed": memory.anonymous,
                "external": memory.mapped,
                "arrayBuffers": health.buffered,
            },
            "cpu": {"user": round(cpu.user * 1e6), "system": round(cpu.system * 1e6)},
        }
    )


async def prometheus(broker: Broker, traffic: Traffic, asked: Asked) -> Answer:
    """`GET /metrics/prometheus`: text, in the form that was asked for."""
    encode, kind = choose_encoder(asked.header(b"accept") or "")
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(broker, traffic, await _queues(broker)))
    return Answer(200, encode(registry), kind=kind.encode())


def wants_text(accept: str) -> bool:
    """Whether an Accept header names Prometheus' text and prefers it to JSON."""
    best = {"text": 0.0, "json": 0.0, "any": 0.0}
    for part in accept.split(","):
        kind, *parameters = (piece.strip().lower() for piece in part.split(";"))
        quality = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    quality = float(parameter[2:])
                except ValueError:
                    quality = 0.0
        name = _KINDS.get(kind)
        if name is not None:
            best[name] = max(best[name], quality)
    return best["text"] > (best["json"] or best["any"])


_KINDS: Final = {
    "text/plain": "text",
    "application/openmetrics-text": "text",
    "application/json": "json",
    "application/*": "any",
    "*/*": "any",
}


async def _queues(broker: Broker) -> list[QueueFigures] | None:
    """The queues, None where they can't be had now: a scrape is answered also while the disk hangs."""
    with trio.move_on_after(_PATIENCE_S):
        try:
            return await broker.statistics.queues(partitions=False)
        except QueenError:
            return None
    return None


class _Collector:
    """One scrape's figures, as prometheus-client wants them."""

    def __init__(self, broker: Broker, traffic: Traffic, queues: list[QueueFigures] | None) -> None:
        self._broker = broker
        self._traffic = traffic
        self._queues = queues

    def collect(self) -> Iterator[Metric]:
        """Called by the registry."""
        yield from _done(self._broker.meter)
        yield from _store(self._broker)
        yield from _edge(self._traffic, len(self._broker.feed.subscribers))
        yield from _process()
        if self._queues is not None:
            yield from _depths(self._queues)


def _done(meter: Meter) -> Iterator[Metric]:
    yield _counter("queen_messages_pushed", "Messages stored by pushes.", meter.pushed)
    yield _counter("queen_messages_duplicate", "Pushed messages that were there already.", meter.duplicates)
    yield _counter("queen_messages_popped", "Messages delivered by pops.", meter.delivered)
    acked = CounterMetricFamily("queen_acknowledgements", "Acknowledgements, by outcome.", labels=["outcome"])
    for outcome, count in sorted(meter.acknowledged.items()):
        acked.add_metric([outcome], count)
    yield acked
    yield _histogram("queen_commit_seconds", "Time that a commit takes, sync included.", meter.commit_s)
    yield _histogram("queen_commit_records", "Records in a commit.", meter.commit_records)
    yield _histogram("queen_pop_wait_seconds", "From a pop's arrival to its messages.", meter.pop_wait_s)
    yield _histogram("queen_message_lag_seconds", "From a message's push to its completion.", meter.lag_s)
    yield _counter("queen_events_dropped", "Events that slow subscribers did not get.", meter.dropped)


def _store(broker: Broker) -> Iterator[Metric]:
    health, readiness = broker.health(), broker.readiness()
    yield _gauge("queen_ready", "1 while work is taken.", int(readiness.ready))
    yield _gauge("queen_store_full", "1 while pushes are refused for want of room.", int(readiness.store == "full"))
    yield _gauge("queen_pops_waiting", "Pops that wait for messages.", health.parked)
    yield _gauge("queen_partitions", "Partitions.", health.partitions)
    yield _gauge("queen_partitions_awake", "Partitions that have an actor now.", health.awake)
    yield _gauge("queen_partitions_quarantined", "Partitions out of service.", health.quarantined)
    yield _gauge("queen_answers_waiting", "Answers that wait for a commit.", health.pool.waiting)
    if health.records is not None and health.free is not None and health.used is not None:
        yield _counter("queen_journal_records", "Records in the journal.", health.records)
        yield _gauge("queen_store_free_bytes", "Bytes that pushes may still write.", health.free)
        yield _gauge("queen_store_used_bytes", "Bytes of the store's file in use.", health.used)


def _edge(traffic: Traffic, subscribers: int) -> Iterator[Metric]:
    answers = CounterMetricFamily("queen_http_requests", "Answered requests.", labels=["route", "status"])
    for (route, status), count in sorted(traffic.answers.items()):
        answers.add_metric([route, str(status)], count)
    yield answers
    yield _gauge("queen_http_connections", "Open connections, WebSockets included.", traffic.connections)
    yield _gauge("queen_http_requests_in_flight", "Requests being answered.", traffic.in_flight)
    yield _gauge("queen_websockets", "Open WebSockets.", traffic.sockets)
    yield _gauge("queen_feed_subscribers", "Subscribers of the feed, WebSockets included.", subscribers)


def _process() -> Iterator[Metric]:
    memory, cpu = process.memory(), process.cpu()
    yield _gauge("process_resident_memory_bytes", "Resident memory.", memory.resident)
    yield _counter("process_cpu_seconds", "CPU time, user and system.", cpu.user + cpu.system)
    yield _gauge("process_open_fds", "Open file descriptors.", process.open_files())


def _depths(queues: Sequence[QueueFigures]) -> Iterator[Metric]:
    yield _gauge("queen_queues", "Queues.", len(queues))
    messages = GaugeMetricFamily("queen_messages", "Messages by status.", labels=["queue", "status"])
    named: dict[str, Counts] = {queue.name: queue.counts for queue in queues[:QUEUES]}
    if len(queues) > QUEUES:
        named[""] = sum_of(queue.counts for queue in queues[QUEUES:])
    for name, counts in named.items():
        for status, count in _by_status(counts).items():
            messages.add_metric([name, status], count)
    yield messages


def _by_status(counts: Counts) -> Mapping[str, int]:
    return counts._asdict()


def _counter(name: str, meaning: str, value: float) -> Metric:
    return CounterMetricFamily(name, meaning, value=value)


def _gauge(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(name, meaning, value=value)


def _histogram(name: str, meaning: str, histogram: Histogram) -> Metric:
    return HistogramMetricFamily(name, meaning, buckets=list(_buckets(histogram)), sum_value=histogram.sum)


def _buckets(histogram: Histogram) -> Iterable[tuple[str, float]]:
    below = 0
    for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
        below += count
        yield ("+Inf" if bound == float("inf") else str(bound)), below
