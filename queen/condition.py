"""How a broker is: nouns, and the looks at an engine that fill them. At no cost, and never waiting for anything."""

from typing import Literal

import msgspec

from queen.actors.engine import Engine
from queen.errors import QueenError, StoreFailed
from queen.meter import Meter

STUCK_S = 5.0
"""A commit that takes longer means that the disk does not answer."""


class Pool(msgspec.Struct, frozen=True):
    """What stands for a connection pool here: the one writer. `waiting` counts answers that wait for its commits."""

    total: int
    idle: int
    waiting: int


class Health(msgspec.Struct, frozen=True):
    """How the broker is. `messages` counts those pushed since it was opened, `parked` the pops that wait,
    `partitions` all and `awake` those that have an actor now. `records` is the number of the journal's last record,
    `free` and `used` are bytes of its file; None while there is no engine. `buffered` counts bytes that wait for the
    disk or are kept because they may be asked for again."""

    status: str
    messages: int
    pool: Pool
    parked: int = 0
    partitions: int = 0
    awake: int = 0
    quarantined: int = 0
    buffered: int = 0
    records: int | None = None
    free: int | None = None
    used: int | None = None


class Readiness(msgspec.Struct, frozen=True):
    """Whether the broker takes work now, and why not. `store` "full": pushes are refused, everything else goes on."""

    status: Literal["ready", "starting", "stopping", "failed"]
    store: Literal["writable", "full", "unwritable"]
    reason: str | None = None

    @property
    def ready(self) -> bool:
        """Whether work is taken."""
        return self.status == "ready"


def health_of(engine: Engine | None, meter: Meter) -> Health:
    """See `Health`."""
    if engine is None or not engine.accepting:
        return Health("unhealthy", meter.pushed, Pool(1, 0, 0))
    writer = engine.core.writer
    room = engine.core.journal.room()
    return Health(
        "healthy",
        meter.pushed,
        Pool(1, int(not writer.busy), writer.waiting),
        engine.router.parked,
        len(engine.core.catalogue.slots),
        engine.house.awake_count,
        len(engine.house.quarantined),
        writer.pending_bytes + engine.core.records.kept_bytes,
        writer.seq,
        max(0, room.free),
        room.used,
    )


def readiness_of(engine: Engine | None, failure: QueenError | None, closed: bool) -> Readiness:
    """See `Readiness`."""
    if closed:
        return Readiness("stopping", "unwritable", "the server is shutting down")
    if engine is None or not engine.accepting:
        if isinstance(failure, StoreFailed):
            return Readiness("failed", "unwritable", str(failure))
        return Readiness("starting", "unwritable", str(failure) if failure else "the journal is being read")
    writer = engine.core.writer
    if writer.failure is not None:
        return Readiness("failed", "unwritable", str(writer.failure))
    if writer.busy_s > STUCK_S:
        return Readiness("failed", "unwritable", f"the disk has not answered for {writer.busy_s:.0f} s")
    if engine.core.journal.room().free <= 0:
        return Readiness("ready", "full", "pushes are refused until there is room")
    return Readiness("ready", "writable")
