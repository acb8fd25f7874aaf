"""One world from its plan to its verdict."""

from dataclasses import dataclass

from tests.sim.accord import Accord
from tests.sim.audit import Audit
from tests.sim.feed import follows
from tests.sim.plan import Plan
from tests.sim.violation import Violation
from tests.sim.world import World


@dataclass
class Verdict:
    """What came of a plan. `broken` is the rule that was broken, None for none; `why` says more."""

    world: World
    broken: str | None = None
    why: str = ""

    @property
    def digest(self) -> str:
        """Everything that happened, in one number."""
        return self.world.history.digest(self.world.platter.frames)


def judge(plan: Plan) -> Verdict:
    """Run the world of a plan and check it. The journal's audit speaks first: it names the cause."""
    world = World(plan)
    verdict = Verdict(world)
    try:
        world.run()
    except BaseException as error:  # a world that falls over is what we look for
        if isinstance(error, KeyboardInterrupt):
            raise
        found = _first(error)
        verdict.broken = found.rule if isinstance(found, Violation) else type(found).__name__
        verdict.why = str(found) if isinstance(found, Violation) else repr(found)
    try:
        audit = Audit(world.history, world.platter.frames, plan.slack)
        ledger = audit.run()
        follows(world.history, audit.told)
        if verdict.broken is None:
            Accord(world, ledger).run()
    except Violation as violation:
        verdict.broken, verdict.why = violation.rule, str(violation)
    return verdict


def _first(error: BaseException) -> BaseException:
    """The violation among what a world's tasks have raised, else whatever came first."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    found = [_first(each) for each in error.exceptions]
    return next((each for each in found if isinstance(each, Violation)), found[0])
