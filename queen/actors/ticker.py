"""The ticker: the task that owns the heaps of partitions' deadlines, and has partitions look at what time has brought.

However many deadlines come at one instant, a few partitions tick at a time, and their records are durable before the
next ones do (`Core.turn`): so what is due can't fill a commit or the event loop. What pops wait for goes first; what
falls to a retention has time (T4).
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import trio

from queen.actors.catalogue_state import Queue, Slot
from queen.actors.core import Core
from queen.actors.lines import Timers
from queen.actors.mailbox import Part, Work
from queen.actors.residents import Residents
from queen.commands import Tick
from queen.errors import QueenError
from queen.messages import Caller
from queen.names import SECOND

AT_ONCE = 8
"""Ticks in one turn, each some tenths of a millisecond and at most 1000 messages."""
PATIENCE_S = 0.02
"""How long a turn waits for its ticks, in seconds: a partition may have much else to do before, and others may not."""
TURNS = 128
"""How many turns an asker waits for at most, however much is due."""
_SERVER = Caller("server")


class _Asker:
    """Somebody who wants to go on when what is due now has been looked at."""

    __slots__ = ("at", "tell", "turns")

    def __init__(self, at: int, tell: Callable[[], None]) -> None:
        self.at = at
        self.tell = tell
        self.turns = TURNS


class Ticker:
    """See the module."""

    def __init__(self, core: Core, house: Residents) -> None:
        self._core = core
        self._house = house
        self._deadlines: Timers[Slot] = Timers()
        self._sweeps: Timers[Slot] = Timers()
        self._visits: deque[Iterator[Slot]] = deque()
        self._askers: list[_Asker] = []
        self._ticking: set[Slot] = set()
        self._urgent = 0
        self._round: set[Slot] = set()
        self._wake = trio.Event()
        self._carried_out = trio.Event()

    def expect(self, slot: Slot, deadline: int | None, sweep: int | None) -> None:
        """The partition is to tick by `deadline`, for others' sake, and at `sweep` or later for that of room (T4)."""
        if deadline is not None and self._deadlines.set(slot, deadline):
            self._wake.set()
        if sweep is not None and self._sweeps.set(slot, sweep):
            self._wake.set()

    def visit(self, slots: Iterable[Slot]) -> None:
        """These partitions are to tick now, whatever they have said."""
        self._visits.append(iter(slots))
        self._wake.set()

    def forget(self, queue: Queue) -> None:
        """The queue is gone."""
        for timers in (self._deadlines, self._sweeps):
            timers.drop(queue.slots.values())

    def ask(self, tell: Callable[[], None]) -> bool:
        """Call back once what is due now for others' sake has been looked at; False, and no call, where nothing is."""
        now = self._core.clock.now()
        if not self._urgent and not self._is_urgent(now):
            return False
        self._askers.append(_Asker(now, tell))
        self._wake.set()
        return True

    async def run(self) -> None:
        """Tick until cancelled."""
        while True:
            now = self._core.clock.now()
            if self._is_urgent(now) or self._sweeps.is_due(now):
                async with self._core.turn:
                    await self._turn()
            else:
                self._answer()
                await self._sleep()

    async def _sleep(self) -> None:
        self._wake = trio.Event()
        following = [at for at in (self._deadlines.next(), self._sweeps.next()) if at is not None]
        limit = max(0, min(following) - self._core.clock.now()) / SECOND if following else float("inf")
        with trio.move_on_after(limit):
            await self._wake.wait()

    async def _turn(self) -> None:
        """Have some partitions tick, and wait until what they recorded is durable."""
        now = self._core.clock.now()
        self._round.clear()
        count = 0
        for slot in islice(self._due(now), AT_ONCE):
            self._tick(slot, urgent=True)
            count += 1
            await trio.lowlevel.checkpoint()
        for slot in islice(self._sweeps.due(now), max(1, AT_ONCE - count)):
            self._tick(slot, urgent=False)
            await trio.lowlevel.checkpoint()
        if self._round:
            self._carried_out = trio.Event()
            with trio.move_on_after(PATIENCE_S):
                await self._carried_out.wait()
        for asker in self._askers:
            asker.turns -= 1
        self._answer()
        await self._core.writer.flushed()

    def _is_urgent(self, now: int) -> bool:
        return bool(self._visits) or self._deadlines.is_due(now)

    def _due(self, now: int) -> Iterator[Slot]:
        """Take off what is to tick for others' sake."""
        while self._visits:
            slot = next(self._visits[0], None)
            if slot is None:
                self._visits.popleft()
            else:
                yield slot
        yield from self._deadlines.due(now)

    def _tick(self, slot: Slot, *, urgent: bool) -> None:
        if slot.number not in self._core.catalogue.slots or slot in self._ticking:
            return  # one that is ticking says afterwards when it is to tick again
        work = Work((Part(slot, Tick()),), _SERVER, decided=partial(self._ticked, slot, urgent))
        self._ticking.add(slot)
        self._round.add(slot)
        self._urgent += urgent
        try:
            self._house.awake(slot).put(work)
        except QueenError as error:
            # A full mailbox ticks with its next command, and says then when it is to tick again.
            self._ticked(slot, urgent, None, error)

    def _ticked(self, slot: Slot, urgent: bool, replies: list[Any] | None, error: BaseException | None) -> None:
        self._ticking.discard(slot)
        self._urgent -= urgent
        self._round.discard(slot)
        if not self._round:
            self._carried_out.set()
        if self._askers:
            self._wake.set()

    def _answer(self) -> None:
        """Let those go on who have waited for all that was due, or long enough."""
        still: list[_Asker] = []
        for asker in self._askers:
            if asker.turns and (self._urgent or self._is_urgent(asker.at)):
                still.append(asker)
            else:
                asker.tell()
        self._askers = still
