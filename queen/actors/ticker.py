"""The ticker: owns the heaps of partitions' deadlines, and has partitions look at what time has brought.

However many deadlines come at one instant, a few partitions tick at a time, and their records are durable before the
next ones do: so what is due can't fill a commit or the event loop. What pops wait for has a task of its own; what
falls to a retention has time (T4), and takes turns with other work in the background (`Core.turn`).
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
"""Ticks that go together, each some tenths of a millisecond and at most 1000 messages."""
PATIENCE_S = 0.02
"""How long the next ticks wait for those before, in seconds: a partition may have much else to do, a disk be slow."""
TURNS = 128
"""How many rounds of ticks an asker waits for at most, however much is due."""
_SERVER = Caller("server")


class _Round:
    """Ticks that have been sent together; `left` are not carried out yet."""

    __slots__ = ("carried_out", "left")

    def __init__(self) -> None:
        self.left = 0
        self.carried_out = trio.Event()


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
        self._wake = trio.Event()
        self._wake_sweeps = trio.Event()

    def expect(self, slot: Slot, deadline: int | None, sweep: int | None) -> None:
        """The partition is to tick by `deadline`, for others' sake, and at `sweep` or later for that of room (T4)."""
        if deadline is not None and self._deadlines.set(slot, deadline):
            self._wake.set()
        if sweep is not None and self._sweeps.set(slot, sweep):
            self._wake_sweeps.set()

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
        """Have partitions tick for others' sake until cancelled. Late are these only where a slow disk and very many
        ticks meet: the next few don't wait for it for ever."""
        while True:
            now = self._core.clock.now()
            if self._is_urgent(now):
                await self._tick_some(self._due(now), urgent=True)
                for asker in self._askers:
                    asker.turns -= 1
                self._answer()
                with trio.move_on_after(PATIENCE_S):
                    await self._core.writer.flushed()
            else:
                self._answer()
                self._wake = trio.Event()
                await self._sleep(self._deadlines, self._wake)

    async def sweep(self) -> None:
        """Have partitions tick for the sake of room until cancelled: work in the background, as other such work."""
        while True:
            now = self._core.clock.now()
            if self._sweeps.is_due(now):
                async with self._core.turn:
                    await self._tick_some(self._sweeps.due(now), urgent=False)
                    await self._core.writer.flushed()
            else:
                self._wake_sweeps = trio.Event()
                await self._sleep(self._sweeps, self._wake_sweeps)

    async def _sleep(self, timers: Timers[Slot], wake: trio.Event) -> None:
        at = timers.next()
        with trio.move_on_after(float("inf") if at is None else max(0, at - self._core.clock.now()) / SECOND):
            await wake.wait()

    async def _tick_some(self, slots: Iterator[Slot], *, urgent: bool) -> None:
        """Have a few partitions tick, and wait for it, but not for long."""
        sent = _Round()
        for slot in islice(slots, AT_ONCE):
            self._tick(slot, sent, urgent=urgent)
            await trio.lowlevel.checkpoint()
        if sent.left:
            sent.carried_out = trio.Event()
            with trio.move_on_after(PATIENCE_S):
                await sent.carried_out.wait()

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

    def _tick(self, slot: Slot, sent: _Round, *, urgent: bool) -> None:
        if slot.number not in self._core.catalogue.slots or slot in self._ticking:
            return  # one that is ticking says afterwards when it is to tick again
        work = Work((Part(slot, Tick()),), _SERVER, decided=partial(self._ticked, slot, sent, urgent))
        self._ticking.add(slot)
        sent.left += 1
        self._urgent += urgent
        try:
            self._house.awake(slot).put(work)
        except QueenError as error:
            # A full mailbox ticks with its next command, and says then when it is to tick again.
            self._ticked(slot, sent, urgent, None, error)

    def _ticked(
        self, slot: Slot, sent: _Round, urgent: bool, replies: list[Any] | None, error: BaseException | None
    ) -> None:
        self._ticking.discard(slot)
        self._urgent -= urgent
        sent.left -= 1
        if not sent.left:
            sent.carried_out.set()
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
