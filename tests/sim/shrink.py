"""Cutting a plan down to what it needs to break the same rule (delta debugging)."""

from collections.abc import Callable
from typing import Any

from tests.sim.judge import judge
from tests.sim.plan import Plan

TRIES = 400


def shrink(plan: Plan, rule: str, tries: int = TRIES) -> Plan:
    """The smallest plan found with `tries` worlds that breaks `rule`, as `plan` does. The order of tasks comes from the
    seed and follows what is left, so a part may be needed for nothing but the dice."""

    def breaks(parts: list[Any]) -> bool:
        nonlocal tries
        tries -= 1
        return judge(plan.only(parts)).broken == rule

    return plan.only(_minimal(list(plan.parts), breaks, lambda: tries > 0))


def _minimal(parts: list[Any], breaks: Callable[[list[Any]], bool], goes_on: Callable[[], bool]) -> list[Any]:
    """Take away ever smaller slices, as long as the rest still breaks."""
    size = max(1, len(parts) // 2)
    while goes_on():
        start, smaller = 0, False
        while start < len(parts) and goes_on():
            rest = parts[:start] + parts[start + size :]
            if rest and breaks(rest):
                parts, smaller = rest, True
            else:
                start += size
        if size == 1 and not smaller:
            break
        size = size if smaller and size == 1 else max(1, size // 2)
    return parts
