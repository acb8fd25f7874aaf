"""Deciding acknowledgements, and the one policy for every failed attempt, whoever notices it. Pure.

A1-A5, R1, R2, L5 and the readings Z2-Z4. Each message of a batch has its own outcome; a refusal is a value.
"""

from operator import itemgetter
from typing import Literal, NamedTuple

from queen.actors.decision import Decision, runs_of
from queen.actors.partition_state import GroupView, Open, Partition
from queen.commands import Ack, AckEntry
from queen.events import Because, Event, MessagesReturned, MessagesSettled, Outcome, Run
from queen.history import History
from queen.names import MILLISECOND
from queen.options import QueueOptions
from queen.replies import Settlement

_MAX_DELAY_MS = 2**31 - 1
# What an ack of this status may have led to: the same ack again finds one of these and answers it again (A3).
_FINAL = {
    "completed": ("completed",),
    "failed": ("failed", "dead_letter"),
    "dead_letter": ("dead_letter",),
    "retry": (),
}


# Outcome, status asked for, error, last lease, and whether that lease still runs: messages that share all of these
# are settled by one event. A plain tuple, since one is made for every message of a batch.
_Ending = tuple[Outcome, str | None, str | None, bytes | None, bool]


class _Return(NamedTuple):
    because: Because
    available_at: int
    error: str | None
    failed_at: int | None


class Outcomes:
    """Gathers what becomes of single messages into as few events as say it."""

    def __init__(self, group: int, now: int, options: QueueOptions) -> None:
        self._group = group
        self._now = now
        self._options = options
        self._endings: dict[_Ending, list[tuple[int, Open]]] = {}
        self._returns: dict[_Return, list[tuple[int, int]]] = {}

    def end(self, position: int, message: Open, outcome: Outcome, asked: str | None, error: str | None) -> None:
        """The message is settled."""
        ending = (outcome, asked, error, message.last_lease, message.lease is not None)
        messages = self._endings.get(ending)
        if messages is None:
            messages = self._endings[ending] = []
        messages.append((position, message))

    def give_back(self, position: int, message: Open, error: str | None) -> None:
        """The message is available again, uncounted."""
        self._returns.setdefault(_Return("retried", self._now, error, None), []).append((position, message.retry_count))

    def fail(
        self, position: int, message: Open, asked: str | None, error: str | None, delayed: bool
    ) -> tuple[Outcome | Literal["retry_scheduled"], int]:
        """An attempt failed: retry (R1) or give up (R2). Returns the status that says which, and the retry count."""
        options = self._options
        # L5 has counted the attempt already where the lease ended before its consumer spoke.
        counted = message.lease is None and message.because == "expired"
        if not counted and message.retry_count >= options.retry_limit:
            outcome: Outcome = "dead_letter" if options.dlq_after_max_retries else "failed"
            self.end(position, message, outcome, asked, error)
            return outcome, message.retry_count
        count = message.retry_count + (not counted)
        wait = _retry_delay_ms(options, count) if delayed else 0
        because: Because = "failed" if delayed else "expired"
        key = _Return(because, self._now + wait * MILLISECOND, error, self._now)
        self._returns.setdefault(key, []).append((position, count))
        return "retry_scheduled", count

    def events(self) -> tuple[Event, ...]:
        """Everything gathered."""
        events: list[Event] = []
        for (outcome, asked, error, last_lease, _), messages in self._endings.items():
            messages.sort(key=itemgetter(0))
            lease = messages[0][1].lease  # the same for all of them
            events.append(
                MessagesSettled(
                    self._group,
                    outcome,
                    _runs(messages),
                    asked=asked,
                    lease=last_lease,
                    leased_at=lease.leased_at if lease else None,
                    worker=lease.worker if lease else None,
                    error=error,
                    retry_counts={place: message.retry_count for place, message in messages if message.retry_count},
                )
            )
        for key, returned in self._returns.items():
            returned.sort()
            events.append(
                MessagesReturned(
                    self._group,
                    key.because,
                    tuple([position for position, _ in returned]),
                    tuple([count for _, count in returned]),
                    key.available_at,
                    key.error,
                    key.failed_at,
                )
            )
        return tuple(events)


def ack(state: Partition, command: Ack, now: int, options: QueueOptions, history: History) -> Decision:
    """Each entry in turn; one that repeats an earlier entry is judged by what that one did."""
    outcomes = Outcomes(command.group, now, options)
    view = state.groups.get(command.group)
    held = {} if view is None else view.open
    done: dict[int, tuple[AckEntry, Settlement]] = {}
    replies = []
    for entry in command.entries:
        position = entry.position
        message = held.get(position)
        if position in done:
            reply = _repeat(entry, *done[position], _lease_of(message, position, command.group, history))
        elif message is not None and message.lease is not None:
            if entry.lease is None or entry.lease == message.lease.id:
                reply = _settle(entry, message, now, outcomes)
                done[position] = entry, reply
            else:
                reply = _conflict("that lease does not hold the message now")
        else:
            reply = _ack_unheld(state, view, message, entry, now, outcomes, command.group, history)
            if reply.accepted:
                done[position] = entry, reply
        replies.append(reply)
    return Decision(outcomes.events(), tuple(replies))


def _ack_unheld(
    state: Partition,
    view: GroupView | None,
    message: Open | None,
    entry: AckEntry,
    now: int,
    outcomes: Outcomes,
    group: int,
    history: History,
) -> Settlement:
    """An ack of a message that is not leased to anybody."""
    position = entry.position
    if not 1 <= position < state.next_position or position in state.deleted:
        return Settlement("not_found", error="there is no such message")
    if view is None:
        return _conflict("the consumer group has not been given this message")
    if message is None:
        return _ack_closed(view, entry, group, history)
    refusal = _ack_waiting(message, entry, now)
    return _settle(entry, message, now, outcomes) if refusal is None else refusal


def _settle(entry: AckEntry, message: Open, now: int, outcomes: Outcomes) -> Settlement:
    position, status = entry.position, entry.status
    if status == "failed":
        result, count = outcomes.fail(position, message, status, entry.error, delayed=True)
        return Settlement(result, count, now)
    if status == "retry":
        outcomes.give_back(position, message, entry.error)
        return Settlement("retry_scheduled", message.retry_count, now)
    outcomes.end(position, message, status, status, entry.error)
    return Settlement(status, message.retry_count, now)


def _ack_waiting(message: Open, entry: AckEntry, now: int) -> Settlement | None:
    """An ack of a message that nobody holds: None where it may still be settled (A4, Z2)."""
    if message.last_lease is None:
        return _conflict("the message is pending and has not been leased")
    if entry.lease is not None and entry.lease != message.last_lease:
        return _conflict("the lease is not the message's last one")
    if message.because in ("expired", "released"):
        return None
    if entry.status == {"failed": "failed", "retried": "retry"}.get(message.because or ""):
        return Settlement("retry_scheduled", message.retry_count, message.failed_at or now)
    return _conflict("the message waits for another attempt")


def _ack_closed(view: GroupView, entry: AckEntry, group: int, history: History) -> Settlement:
    """An ack of a message that is not open: pending, or settled before (A3 goes before A4, Z2)."""
    if entry.position >= view.cursor:
        return _conflict("the message is pending and has not been leased")
    ended = history.settled(group, entry.position)
    if ended is None:
        return _conflict("the message was never given to this consumer group")
    if ended.asked == entry.status and ended.outcome in _FINAL[entry.status]:
        if entry.lease is None or entry.lease == ended.lease:
            return Settlement(ended.outcome, ended.retry_count, ended.at)
        return _conflict("the message was settled under another lease")
    return _conflict(f"the message is already settled: {ended.outcome}")


def _repeat(entry: AckEntry, before: AckEntry, reply: Settlement, lease: bytes | None) -> Settlement:
    """An entry for a message that an earlier entry was accepted for: as if both had come one after the other."""
    if entry.status == before.status and (entry.lease is None or entry.lease == lease):
        return reply
    return _conflict("an earlier entry of the same request says otherwise")


def _lease_of(message: Open | None, position: int, group: int, history: History) -> bytes | None:
    """The lease that an accepted acknowledgement of the message settled; the first entry may not have named it."""
    if message is not None:
        return message.last_lease
    ended = history.settled(group, position)
    return None if ended is None else ended.lease


def _conflict(reason: str) -> Settlement:
    return Settlement("conflict", error=reason)


def _retry_delay_ms(options: QueueOptions, count: int) -> int:
    """R1: retryDelay x retryBackoff ^ (count - 1), bounded so that the deadline stays a date."""
    try:
        delay = options.retry_delay * options.retry_backoff ** (count - 1)
    except OverflowError:
        return _MAX_DELAY_MS
    return min(int(delay), _MAX_DELAY_MS)


def _runs(messages: list[tuple[int, Open]]) -> tuple[Run, ...]:
    return runs_of((position, message.pushed_at) for position, message in messages)
