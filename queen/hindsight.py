"""Questions about the past, asked of the journal in a thread beside the event loop, a few at a time.

What they read is durable, in short reads, so that nobody who pushes or pops waits for them. A question whose asker has
gone ends soon.
"""

from collections.abc import Callable
from typing import TypeVar

import trio

from queen.actors.engine import Engine
from queen.audit.reading import Moment, Past, check_there, moment_at
from queen.audit.restoring import Progress, world_at
from queen.audit.times import When, parse_time
from queen.audit.world import World
from queen.errors import Invalid, Unavailable
from queen.names import check_instant, instant_text

T = TypeVar("T")

AT_ONCE = 2
"""Questions that are answered at the same time; others wait."""
_LIMITER = trio.CapacityLimiter(AT_ONCE)


class Hindsight:
    """Asks. Raises what the question raises."""

    def __init__(self, running: Callable[[], Engine]) -> None:
        self._running = running

    async def at(self, when: int | str, question: Callable[[Past, World, Moment], T]) -> T:
        """The answer of `question(past, world, moment)`, where `world` is as everything was at the instant `when`: µs,
        or a text as `queen.audit.times` reads it. Raises `Invalid`, also for what is yet to come."""
        clock = self._running().core.clock
        now = clock.now() + clock.shift()
        then = parse_time(when, now, "at") if isinstance(when, str) else When(check_instant(when, "at"))
        if then.at > now:
            raise Invalid("at", f"lies in the future; it is {instant_text(now)}")

        def answer(past: Past, go_on: Progress) -> T:
            check_there(past, then, "at")
            moment = moment_at(past, then)
            return question(past, world_at(past, moment, go_on), moment)

        return await self.ask(answer)

    async def ask(self, question: Callable[[Past, Progress], T]) -> T:
        """The answer of `question(past, progress)`, which calls `progress` now and then. Cancelled, it is dropped."""
        engine = self._running()
        await engine.durable(None)
        past = engine.core.journal.aside()
        if past is None:
            return question(engine.core.journal, lambda seq, last: None)
        gone = False

        def go_on(seq: int, last: int) -> None:
            if gone:
                raise Unavailable("nobody waits for the answer any more")

        try:
            return await trio.to_thread.run_sync(question, past, go_on, abandon_on_cancel=True, limiter=_LIMITER)
        finally:
            gone = True
