"""The judge: from the records of producers and consumers alone, what happened and which promise was broken.

Everything it says is certain. A request's effect falls somewhere between sending it and having its answer; an effect
that may have happened, or may not, is counted both ways; only what is wrong in every reading is a violation. The server
shares the clock of the consumers, up to TOLERANCE_S (its times are cut to milliseconds, and it forgives the wall clock
small jumps).
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from shop.records import (
    AckAnswered,
    AckLost,
    AckSent,
    Died,
    Fault,
    Item,
    Leased,
    PopLost,
    Pushed,
    Record,
    Taken,
    order,
)

TOLERANCE_S = 0.3
ACCEPTED = {"completed": "completed", "failed": "retry_scheduled", "retry": "retry_scheduled"}


class Attempt(NamedTuple):
    """One sending of one message's acknowledgement, which was effective, if at all, between `sent` and `end`.

    `result` None: whether it was is not known."""

    asked: str
    sent: float
    end: float
    result: str | None
    retry_count: int | None


@dataclass
class Delivery:
    """One message in one lease, and what its consumer said about it."""

    lease: Leased
    message: Taken
    attempts: list[Attempt]

    @property
    def late(self) -> bool:
        """Whether an acknowledgement may have arrived after the lease's end, so that the end may have come first."""
        return any(attempt.end > self.lease.expires - TOLERANCE_S for attempt in self.attempts)

    @property
    def completed(self) -> Attempt | None:
        return next((a for a in self.attempts if a.asked == "completed" and a.result == "completed"), None)

    @property
    def perhaps_completed(self) -> bool:
        return any(a.asked == "completed" and a.result in (None, "completed") for a in self.attempts)


@dataclass
class Evidence:
    """All records, sorted by what they are about."""

    pushes: list[Pushed] = field(default_factory=list)
    leases: list[Leased] = field(default_factory=list)
    lost_pops: list[PopLost] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    sendings: dict[tuple[str, int], AckSent] = field(default_factory=dict)
    answers: dict[tuple[str, int], AckAnswered | AckLost] = field(default_factory=dict)
    deaths: int = 0

    def add(self, book: str, record: Record) -> None:
        match record:
            case Pushed():
                self.pushes.append(record)
            case Leased():
                self.leases.append(record)
            case PopLost():
                self.lost_pops.append(record)
            case AckSent():
                self.sendings[book, record.attempt] = record
            case AckAnswered() | AckLost():
                self.answers[book, record.attempt] = record
            case Fault():
                self.faults.append(record)
            case Died():
                self.deaths += 1

    def deliveries(self) -> dict[int, list[Delivery]]:
        """By order number; each order's deliveries in the order in which the server made them."""
        attempts: defaultdict[tuple[str, int], list[Attempt]] = defaultdict(list)
        for key, sending in self.sendings.items():
            answer = self.answers.get(key)
            results = {r.number: r for r in answer.results} if isinstance(answer, AckAnswered) else {}
            for number, asked in sending.status.items():
                result = results.get(int(number))
                attempts[sending.lease, int(number)].append(
                    Attempt(
                        asked,
                        sending.sent,
                        math.inf if answer is None else answer.at,
                        result and result.status,
                        result and result.retry_count,
                    )
                )
        found: defaultdict[int, list[Delivery]] = defaultdict(list)
        # All leases are equally long, so the ends come in the order of the grants.
        for lease in sorted(self.leases, key=lambda lease: (lease.expires, lease.at)):
            for message in lease.messages:
                found[message.number].append(Delivery(lease, message, attempts[lease.lease, message.number]))
        return dict(found)


class Verdict(NamedTuple):
    """What was counted, and each violation as a sentence that begins with its kind."""

    counts: dict[str, int]
    violations: list[str]


def judge(records: Iterable[tuple[str, Record]]) -> Verdict:
    """Judge a finished run from (name of the book, record) pairs."""
    evidence = Evidence()
    for book, record in records:
        evidence.add(book, record)
    accepted: dict[int, Item] = {}
    deliveries = evidence.deliveries()
    violations = [
        *(f"fault: {fault.what}" for fault in evidence.faults),
        *_pushes(evidence.pushes, accepted),
        *_contents(deliveries, accepted),
        *_completions(deliveries, accepted),
        *_answers(deliveries),
        *_overlaps(deliveries),
        *_order(deliveries, accepted),
        *_retry_counts(deliveries, evidence.lost_pops),
    ]
    return Verdict(_counts(evidence, accepted, deliveries), violations)


def _pushes(pushes: list[Pushed], accepted: dict[int, Item]) -> Iterator[str]:
    """P1, P4: a push is stored whole or not at all, once. Fills `accepted` with what was stored."""
    for push in sorted(pushes, key=lambda push: push.at):
        first: dict[int, Item] = {}
        for item in push.items:
            earlier = first.get(item.number) or accepted.get(item.number)
            if earlier is None:
                first[item.number] = item
                continue
            if item.status != "duplicate" or item.id != earlier.id:
                yield f"pushed twice: order {item.number} was {earlier.id}, the second time {item.status} {item.id}"
        statuses = {item.status for item in first.values()}
        if len(statuses) > 1:
            yield f"torn push: of one request with order {min(first)}, some were stored before and some not"
        elif statuses == {"duplicate"} and not push.lost:
            yield f"false duplicate: orders from {min(first)} on were never sent before"
        accepted.update(first)


def _contents(deliveries: dict[int, list[Delivery]], accepted: dict[int, Item]) -> Iterator[str]:
    """What is delivered is what was accepted: that message, in that partition, with that content."""
    for number, several in deliveries.items():
        item = accepted.get(number)
        if item is None:
            yield f"never accepted: order {number} was delivered"
            continue
        for delivery in several:
            if delivery.message.data != order(number):
                yield f"changed: order {number} was delivered as {delivery.message.data}"
            if (delivery.message.id, delivery.lease.partition) != (item.id, item.partition):
                yield f"changed: order {number} was delivered as {delivery.message.id} in {delivery.lease.partition}"


def _completions(deliveries: dict[int, list[Delivery]], accepted: dict[int, Item]) -> Iterator[str]:
    """Each accepted order is completed, by one lease, and is not seen again afterwards."""
    for number in accepted:
        several = deliveries.get(number, [])
        # Of unknown outcomes only the last delivery's can be true: after a completion there is no delivery.
        if not any(delivery.completed for delivery in several) and not (several and several[-1].perhaps_completed):
            yield f"lost: order {number} was accepted and never completed"
    for number, several in deliveries.items():
        done = [delivery for delivery in several if delivery.completed]
        if len(done) > 1:
            yield f"doubled: order {number} was completed by {len(done)} leases"
        for delivery in several:
            if any(first.completed and first.completed.end < delivery.lease.sent for first in done):
                yield f"doubled: order {number} was delivered after its completion had been confirmed"


def _answers(deliveries: dict[int, list[Delivery]]) -> Iterator[str]:
    """A1-A4: who holds a lease is not refused, and hears what became of the message."""
    for number, several in deliveries.items():
        for delivery in several:
            for i, attempt in enumerate(delivery.attempts):
                held = attempt.end < delivery.lease.expires - TOLERANCE_S and i == 0
                if attempt.result == "conflict" and held:
                    yield f"refused: order {number} was leased, and its '{attempt.asked}' was answered with a conflict"
                elif attempt.result not in (None, "conflict", ACCEPTED[attempt.asked]):
                    yield f"wrong answer: '{attempt.asked}' of order {number} was answered '{attempt.result}'"


def _overlaps(deliveries: dict[int, list[Delivery]]) -> Iterator[str]:
    """L1: at no time do two leases hold messages of one partition.

    A lease was certainly there from the moment its pop was answered until the last of its messages was first
    acknowledged (nothing before that sending can have ended it), or until it expired. Two such spans of one
    partition must not meet; what lies outside of them proves nothing.
    """
    ends: dict[str, float] = defaultdict(float)
    leases: dict[str, Leased] = {}
    for several in deliveries.values():
        for delivery in several:
            leases[delivery.lease.lease] = delivery.lease
            sent = min((attempt.sent for attempt in delivery.attempts), default=math.inf)
            ends[delivery.lease.lease] = max(ends[delivery.lease.lease], sent)
    latest: dict[str, tuple[float, str]] = {}
    for lease in sorted(leases.values(), key=lambda lease: lease.at):
        end, other = latest.get(lease.partition, (0.0, ""))
        if lease.at < end:
            yield f"overlap: {lease.partition} was given away as {lease.lease} while {other} held it"
        own = min(ends[lease.lease], lease.expires - TOLERANCE_S)
        latest[lease.partition] = max((end, other), (own, lease.lease))


def _order(deliveries: dict[int, list[Delivery]], accepted: dict[int, Item]) -> Iterator[str]:
    """What is delivered has nothing unfinished before it, and completions come in the order of the pushes."""
    partitions: defaultdict[str, list[int]] = defaultdict(list)
    for number, item in sorted(accepted.items()):  # a partition's orders were pushed by rising number
        partitions[item.partition].append(number)
    # From when on each order may have been completed.
    since = {
        number: min((a.sent for d in several if d.perhaps_completed for a in d.attempts), default=math.inf)
        for number, several in deliveries.items()
    }
    leases = {d.lease.lease: d.lease for several in deliveries.values() for d in several}
    for lease in leases.values():
        numbers = [message.number for message in lease.messages]
        if any(later <= earlier for earlier, later in pairwise(numbers)):
            yield f"order: one lease of {lease.partition} held {numbers}"
        for number in partitions[lease.partition]:
            if number < max(numbers) and number not in numbers and since.get(number, math.inf) > lease.at:
                yield f"order: {max(numbers)} was delivered before {number} of {lease.partition} was completed"
    for partition, members in partitions.items():
        begun, first = 0.0, None
        for number in members:
            done = next((d for d in deliveries.get(number, []) if d.completed), None)
            if done is None or done.completed is None or done.late:  # too late to say which came first
                continue
            if done.completed.end < begun:
                yield f"order: {number} of {partition} was completed before {first}"
            begun, first = max((begun, first or 0), (done.attempts[0].sent, number))


def _retry_counts(deliveries: dict[int, list[Delivery]], lost_pops: list[PopLost]) -> Iterator[str]:
    """L5, R1, Z3: `retryCount` is that of the delivery before, plus 1 for a failure or an ended lease, 0 for `retry`.

    A pop without an answer may have left a lease that nobody saw, whose end counts too. One such lease explains one
    more for each of its messages, if it fits in between; and there are at most as many of them as lost pops.
    """
    unseen: defaultdict[str, int] = defaultdict(int)
    for number, several in deliveries.items():
        low = high = 0
        extra = 0
        before: Delivery | None = None
        for delivery in several:
            if before is not None:
                low, high, sentence = _count_after(before)
                if sentence:
                    yield f"count: order {number}: {sentence}"
            start = before.lease.sent if before else 0.0
            count = delivery.message.retry_count
            if not low <= count <= high:
                fitting = sum(1 for pop in lost_pops if pop.at > start and pop.sent < delivery.lease.at)
                extra += max(0, count - high)
                if count < low or count > high + fitting:
                    yield f"count: order {number} was delivered with retryCount {count}, not {low} to {high + fitting}"
            before = delivery
        partition = several[0].lease.partition
        unseen[partition] = max(unseen[partition], extra)
    if sum(unseen.values()) > len(lost_pops):
        yield f"count: {sum(unseen.values())} leases that nobody saw, but only {len(lost_pops)} pops without an answer"


def _count_after(delivery: Delivery) -> tuple[int, int, str]:
    """The least and greatest retryCount that may follow this delivery, and what is wrong with its answer."""
    count = delivery.message.retry_count
    attempts = delivery.attempts
    asked = attempts[0].asked if attempts else "nothing"
    if asked == "retry":
        sure = attempts[-1].result == "retry_scheduled" and not delivery.late
        low, high = count, count if sure else count + 1
    elif asked == "failed":
        low, high = count + 1, count + 1 + delivery.late
    else:  # nothing, or a completion that did not happen: only its end can have ended the lease
        low, high = count + 1, count + 1
    told = attempts[0].retry_count if attempts and attempts[0].result == "retry_scheduled" else None
    if told is None:
        return low, high, ""
    if not low <= told <= high:
        return low, high, f"'{asked}' after retryCount {count} was answered with {told}"
    return told, told, ""


def _counts(evidence: Evidence, accepted: dict[int, Item], deliveries: dict[int, list[Delivery]]) -> dict[str, int]:
    each = [delivery for several in deliveries.values() for delivery in several]
    became = Counter(_became(delivery) for delivery in each)
    confirmed = sum(any(d.completed for d in several) for several in deliveries.values())
    perhaps = sum(any(d.perhaps_completed for d in several[-1:]) for several in deliveries.values())
    return {
        "orders accepted": len(accepted),
        "orders completed": perhaps,
        "of which the confirmation was lost": perhaps - confirmed,
        "pushes answered": len(evidence.pushes),
        "pushes sent again though answered": sum(push.again for push in evidence.pushes),
        "pushes repeated for want of an answer": sum(push.lost for push in evidence.pushes),
        "duplicates recognised": sum(item.status == "duplicate" for push in evidence.pushes for item in push.items),
        "leases": len(evidence.leases),
        "deliveries": len(each),
        "deliveries failed": became["failed"],
        "deliveries given back": became["retry"],
        "deliveries never acknowledged": became["nothing"],
        "deliveries whose acknowledgement came too late": became["conflict"],
        "deliveries whose acknowledgement went unanswered": became["unknown"],
        "pops without an answer": len(evidence.lost_pops),
        "acknowledgements without an answer": sum(isinstance(a, AckLost) for a in evidence.answers.values()),
        "consumers that died with a lease": evidence.deaths,
        "highest retryCount": max((d.message.retry_count for d in each), default=0),
    }


def _became(delivery: Delivery) -> str:
    if not delivery.attempts:
        return "nothing"
    last = delivery.attempts[-1]
    if last.result is None:
        return "unknown"
    return "conflict" if last.result == "conflict" else last.asked
