"""Time and chance. The only module that imports `time` and `random`; everything else is handed one of these.

Two time axes (T6): `now` runs on the monotonic clock from a fixed start, and every deadline lives on it; the wall
clock is shown to people as `now + shift`, and a jump of it changes `shift` alone.
"""

import random
import time
from typing import Protocol

import trio

from queen.names import MILLISECOND, SECOND

_JUMP = 250 * MILLISECOND
# UUIDv7 (RFC 9562, section 5.7): 48 bits of milliseconds, version, 12 bits, variant, 62 bits.
_VERSION = 0x7 << 76
_VARIANT = 0b10 << 62
_BLOCK = 1 << 12


class Clock(Protocol):
    """The server's time, in µs since the epoch."""

    def now(self) -> int:
        """An instant that never runs backwards and never jumps while the process lives."""

    def shift(self) -> int:
        """What to add to `now` to get what the wall clock shows."""

    def resume(self, now: int, shift: int) -> None:
        """Go on from a stored past: `now` is the last recorded instant, `shift` the last recorded shift."""


class SystemClock:
    """The machine's clocks. While the server was down the wall clock counts, while it is up the monotonic one."""

    def __init__(self) -> None:
        self._shift = 0
        self._base = time.time_ns() // 1000 - time.monotonic_ns() // 1000

    def now(self) -> int:
        return self._base + time.monotonic_ns() // 1000

    def shift(self) -> int:
        actual = time.time_ns() // 1000 - self.now()
        if abs(actual - self._shift) > _JUMP:
            self._shift = actual
        return self._shift

    def resume(self, now: int, shift: int) -> None:
        wall = time.time_ns() // 1000
        self._shift = shift
        self._base = max(wall - shift, now + 1) - time.monotonic_ns() // 1000


class TrioClock:
    """Trio's own clock as the server's time: under a `MockClock`, time moves only as the test lets it."""

    def __init__(self, start: int = 1_750_000_000 * SECOND) -> None:
        self._base = start
        self.wall_shift = 0

    def now(self) -> int:
        return self._base + int(trio.current_time() * SECOND)

    def shift(self) -> int:
        return self.wall_shift

    def resume(self, now: int, shift: int) -> None:
        self.wall_shift = shift
        self._base += max(0, now + 1 - self.now())


class Ids:
    """Time-ordered UUIDs (version 7), each greater than the one before, in blocks of 4096 consecutive numbers."""

    def __init__(self, clock: Clock, chance: random.Random | None = None) -> None:
        self._clock = clock
        self._chance = chance or random.SystemRandom()
        self._last = 0

    def block(self) -> int:
        """The first number of a block that nobody else gets: a whole push is numbered from one."""
        milliseconds = (self._clock.now() + self._clock.shift()) // MILLISECOND
        bits = self._chance.getrandbits(62)
        number = (
            (milliseconds & (2**48 - 1)) << 80 | _VERSION | (bits >> 50) << 64 | _VARIANT | (bits & (2**50 - 1)) << 12
        )
        if number <= self._last:
            number = self._last + _BLOCK
        self._last = number
        return number
