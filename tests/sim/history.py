"""What clients asked for and were told, when, and what broke meanwhile: what a checker knows beside the journal."""

from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple

from queen import Acknowledgement, NewMessage
from queen.broker import QueueConfiguration
from queen.notices import Notice
from queen.replies import Receipt, Settlement


class Stamp(NamedTuple):
    """An instant: simulated seconds, the engine that ran, the last record handed in and the last one that the disk had
    confirmed, the server's time and how far the wall clock was off it, in µs, and which process it was."""

    time: float
    epoch: int
    seq: int
    synced: int
    now: int
    shift: int
    process: int


@dataclass(eq=False)
class Attempt:
    """One request of one client. `outcome` "unknown": it went away, or the server did."""

    number: int
    who: str
    what: str
    asked: dict[str, Any]
    began: Stamp
    ended: Stamp | None = None
    outcome: str = "unknown"
    result: Any = None
    error: Exception | None = None

    @property
    def request(self) -> bytes:
        """What stands in its records."""
        return self.number.to_bytes(4)

    @property
    def answered(self) -> bool:
        """Whether it was told what came of it, and not refused."""
        return self.outcome == "answered"

    def __str__(self) -> str:
        asked = " ".join(f"{name}={_brief(value)}" for name, value in self.asked.items() if value not in (None, False))
        until = "" if self.ended is None else f"–{self.ended.time:.6f}"
        became = self.outcome if self.error is None else f"{self.outcome}: {type(self.error).__name__}: {self.error}"
        told = _told(self.result)
        return f"{self.began.time:.6f}{until} {self.who} {self.what} #{self.number} {asked} → {became} {told}"


class Epoch(NamedTuple):
    """One engine: since when it took work, and the last record that was there when it was made."""

    number: int
    began: Stamp
    head: int


@dataclass
class History:
    """Everything, in order."""

    attempts: list[Attempt] = field(default_factory=list)
    epochs: list[Epoch] = field(default_factory=list)
    ends: dict[int, Stamp] = field(default_factory=dict)
    faults: list[tuple[Stamp, str]] = field(default_factory=list)
    crashes: list[Stamp] = field(default_factory=list)
    heard: list[tuple[Stamp, list[tuple[Stamp, Notice]]]] = field(default_factory=list)
    """What each subscriber of the feed was told since it came."""
    all_told: Stamp | None = None
    """When everything must have been told."""
    released: dict[str, Stamp] = field(default_factory=dict)
    """Leases that clients gave back, by id, and when."""

    def transcript(self) -> list[str]:
        """Lines in the order of time: what was asked when it began, what broke."""
        lines = [(attempt.began.time, attempt.number, str(attempt)) for attempt in self.attempts]
        lines += [(stamp.time, 0, f"{stamp.time:.6f} ✗ {text}") for stamp, text in self.faults]
        lines += [(e.began.time, 0, f"{e.began.time:.6f} ● engine {e.number} runs") for e in self.epochs]
        return [text for _, _, text in sorted(lines)]

    def digest(self, frames: list[bytes]) -> str:
        """The whole of it in one number, to compare two runs."""
        total = sha256()
        for line in self.transcript():
            total.update(line.encode())
        for _, heard in self.heard:
            total.update(str(heard).encode())
        for frame in frames:
            total.update(frame)
        return total.hexdigest()


def _brief(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_brief, value)) + "]"
    if isinstance(value, NewMessage):
        delay = "" if value.delay_seconds is None else f" in {value.delay_seconds} s"
        return f"{value.queue}/{value.partition}:{value.trace_id} as {value.transaction_id}{delay}"
    if isinstance(value, Acknowledgement):
        under = "" if value.lease_id is None else f" under …{value.lease_id[-6:]}"
        return f"{value.status} {value.transaction_id}{under}"
    return str(value)


def _told(result: Any) -> str:
    if isinstance(result, list):
        return "[" + ", ".join(map(_told, result)) + "]"
    if type(result).__name__ == "Delivery":
        held = f"nothing ({result.because})" if not result.messages else ""
        return held + " ".join(
            f"{m.queue}/{m.partition}:{m.trace_id}(retry {m.retry_count}, lease …{m.lease_id[-6:]})" for m in result
        )
    if isinstance(result, Receipt):
        return f"{result.status} {result.transaction_id}"
    if isinstance(result, Settlement):
        return f"{result.status} (retry {result.retry_count})"
    if isinstance(result, QueueConfiguration | tuple):
        return ""
    return "" if result is None else str(result)
