"""Carrying out one piece of work: here the order is written down once, for all commands: decide, evolve, record,
announce, and tell only when the writer calls back.

No rules and no waiting: all of it is one step of the event loop, and so all of it is in one commit.
"""

from typing import TYPE_CHECKING, Any

import structlog

from queen.actors.core import Core
from queen.actors.decision import Decision
from queen.actors.mailbox import Work
from queen.errors import QueenError, QueueGone, Unavailable, traced
from queen.events import ClockShifted
from queen.messages import Caller

if TYPE_CHECKING:
    from queen.actors.partition import PartitionActor
    from queen.actors.residents import Residents

log = structlog.get_logger()

FAILED = "the partition's actor failed and is being rebuilt; nothing was changed"
GONE = "the queue was deleted meanwhile; nothing was done"
_SERVER = Caller("server")


class Fatal(Exception):
    """This incarnation of the engine can't go on: it is to be started anew from the journal."""


def carry_out(core: Core, house: "Residents", work: Work) -> None:
    """Decide all, then change and record all: in one step and so in one commit. Refused or crashed: nothing."""
    actors: list[PartitionActor] = []
    for part in work.parts:
        if part.slot.number not in core.catalogue.slots:
            work.fail(QueueGone(GONE))
            return
        actors.append(house.awake(part.slot))
    distinct = actors if len(actors) == 1 else list(dict.fromkeys(actors))
    now, shift = core.clock.now(), core.clock.shift()
    replies: list[Any] | None = None
    refusal: QueenError | None = None
    culprit: PartitionActor | None = None
    changing = False
    before = [actor.recorded_seq for actor in distinct] if work.asks else None
    try:
        for culprit in distinct:
            culprit.catch_up(now)
        decisions: list[Decision] = []
        for culprit, part in zip(actors, work.parts, strict=True):
            decisions.append(culprit.decide(part.command, now))
        culprit = None
        if work.admit is not None:
            work.admit(decisions)
        changing = True
        for culprit, decision in zip(actors, decisions, strict=True):
            culprit.apply(decision, now, shift)
    except QueenError as error:
        refusal = error
    except Exception as error:
        _crashed(distinct if changing else [], culprit, error)
        for actor in distinct:
            if not actor.broken:
                _announce(actor)  # the others may have caught up with time
        work.fail(Unavailable(FAILED))
        return
    else:
        _record(core, work, actors, decisions, now, shift)
        replies = [decision.reply for decision in decisions]
    if before is None or before != [actor.recorded_seq for actor in distinct]:
        for actor in distinct:
            _announce(actor)
    if work.done is not None:
        work.done.set()
    if work.decided is not None:
        work.decided(replies, refusal)
    told = work.told
    if told is not None:
        core.writer.then(lambda failure: told(None if failure else replies, failure or refusal))


def _crashed(changed: "list[PartitionActor]", culprit: "PartitionActor | None", error: Exception) -> None:
    """The one that crashed answers for it; others whose states may be half changed are rebuilt without blame."""
    for actor in changed:
        actor.distrust()
    if culprit is not None:
        culprit.crashed(error)
    else:
        log.error("a piece of work failed", exception=traced(error))


def _announce(actor: "PartitionActor") -> None:
    """What was recorded stands, whatever becomes of the announcement."""
    try:
        actor.tell()
    except Exception as error:
        actor.crashed(error)


def _record(
    core: Core, work: Work, actors: "list[PartitionActor]", decisions: list[Decision], now: int, shift: int
) -> None:
    try:
        for actor, decision in zip(actors, decisions, strict=True):
            shown = actor.record(decision, work.caller, now, shift)
            actor.succeeded()
            if shown != shift:
                # T6: the journal's last word on the wall clock is the clock's own, see `Clock.resume`.
                core.record_catalogue(ClockShifted(shift), _SERVER)
    except Exception as error:
        # Some of the records may be handed in already, and the states are ahead of them: only a new start is safe.
        core.writer.stop(Unavailable("recording failed; nothing was changed"))
        raise Fatal from error
