"""Answers as the OpenAPI document describes them, where `wire.py` has no struct because a route renders plain dicts.

Nothing is encoded through these: `render.py`, `render_figures.py` and the routes write the answers themselves, and
the tests hold every answer against the document, field by field.
"""

from typing import Literal

import msgspec

from queen.web.schemas import Amount, Count, Instant, Name, Options, Text, Uuid


class Body(msgspec.Struct, rename="camel"):
    """What all answers have in common: the spelling of their fields."""


class Error(Body):
    """A sentence; about a field, it begins with the field's place, such as `items[3].queue`."""

    error: Text


class Extended(Body):
    """The lease's new end."""

    lease_id: Uuid
    lease_expires_at: Instant
    extended: bool


class Configured(Body):
    """The queue as it is now."""

    queue: Name
    namespace: Name | None
    task: Name | None
    configured: bool
    options: Options


# -- the server itself ------------------------------------------------------------------------------------


class Entrance(Body):
    """Where the manual is, and the same for programs."""

    name: Text
    docs: Text
    openapi: Text
    asyncapi: Text


class WriterPool(Body):
    """The one writer; `waiting` counts answers that wait for the disk."""

    total: Count
    idle: Count
    waiting: Count


class HealthStatistics(Body):
    """Since the start."""

    requests: Count
    messages: Count
    requests_per_second: str
    messages_per_second: str
    pool: WriterPool


class Health(Body):
    """How the server is."""

    status: Literal["healthy", "unhealthy"]
    uptime: str
    connections: Count
    stats: HealthStatistics
    reason: str | msgspec.UnsetType = msgspec.UNSET


class Readiness(Body):
    """Whether work is taken, and why not."""

    ready: bool
    status: Literal["ready", "starting", "stopping", "failed"]
    store: Literal["writable", "full", "unwritable"]
    reason: str | None


class Totals(Body):
    """Since the start; `rate` is per second."""

    total: Count
    rate: Amount


class Database(Body):
    """The writer, under the names of a connection pool."""

    pool_size: Count
    idle_connections: Count
    waiting_requests: Count


class Memory(Body):
    """Bytes; docs/metrics.md says what each one is here."""

    rss: Count
    heap_total: Count
    heap_used: Count
    external: Count
    array_buffers: Count


class Cpu(Body):
    """Microseconds of computing."""

    user: Count
    system: Count


class Metrics(Body):
    """Figures about the process."""

    uptime: Count
    requests: Totals
    messages: Totals
    database: Database
    memory: Memory
    cpu: Cpu


class Compacted(Body):
    """Done; the file's size in bytes."""

    compacted: bool
    bytes_before: Count
    bytes_after: Count
