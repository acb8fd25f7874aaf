"""Judges a history of crash.py: what the server must not have done, whatever became of requests without an answer.

What is certain: what was answered before something was sent, came before it. A lease certainly holds from its pop's
answer until the first acknowledgement under it is sent, or until its time is over, counted from when its pop was sent.
What lies outside of that proves nothing.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from tests.campaigns.crash_history import LEASE_S, Ack, Got, History, Item, Place, Pop, Settled

TOLERANCE_S = 0.05
"""Between the client's clock and the server's instants, which are rounded to ms."""
ACCEPTED = {"completed": "completed", "failed": "retry_scheduled", "retry": "retry_scheduled"}


class Delivery(NamedTuple):
    """A message in the hands of a consumer, and what the consumer did with it."""

    pop: Pop
    got: Got
    acks: list[Ack]
    certain_until: float

    @property
    def asked(self) -> str:
        return self.acks[0].asked[self.got.name] if self.acks else "nothing"

    @property
    def late(self) -> bool:
        """Whether the lease may have been over before an acknowledgement was heard of."""
        return any(ack.at > self.certain_until for ack in self.acks)

    @property
    def completed(self) -> Ack | None:
        """The acknowledgement that surely completed it."""
        return next((ack for ack in self.acks if _result(ack, self.got.name) == "completed"), None)

    @property
    def perhaps_completed(self) -> bool:
        return any(
            ack.asked[self.got.name] == "completed" and _result(ack, self.got.name) in (None, "completed")
            for ack in self.acks
        )

    @property
    def ended(self) -> float:
        """Until when the lease certainly held this message."""
        return min(min((ack.sent for ack in self.acks), default=math.inf), self.certain_until)


class Judge:
    """One history, sorted by what it is about. `strict` names the queues of strict order."""

    def __init__(self, history: History, strict: set[str], groups: dict[str, tuple[str | None, ...]]) -> None:
        self._history = history
        self._strict = strict
        self._groups = groups
        self._stored: dict[str, Item] = {}
        self._ids: dict[str, str] = {}
        self._deliveries: dict[tuple[str, str | None], list[Delivery]] = {}

    def violations(self) -> Iterator[str]:
        """Each a sentence that begins with its kind."""
        yield from self._history.faults
        yield from self._pushes()
        yield from self._transactions()
        self._sort()
        yield from self._contents()
        yield from self._settled_once()
        yield from self._refused()
        yield from self._auto()
        for place, deliveries in self._places().items():
            yield from self._exclusive(place, deliveries)
            if place.queue in self._strict:
                yield from self._ordered(place, deliveries)
        yield from self._retry_counts()
        yield from self._counted()

    # -- pushes -------------------------------------------------------------------------------------------

    def _pushes(self) -> Iterator[str]:
        """P1, P4: whole or not at all, and once, under one id. Fills `_stored`."""
        queued: set[str] = set()
        for push in sorted(self._history.pushes, key=lambda push: push.at):
            if push.answers is not None:
                statuses = {each.status for each in push.answers}
                if len(statuses) > 1:
                    yield f"torn push: {push.items[0].name} and what came with it are {sorted(statuses)}"
                if statuses == {"duplicate"} and not push.again:
                    yield f"false duplicate: {push.items[0].name} was never pushed before"
                for item, answer in zip(push.items, push.answers, strict=True):
                    known = self._ids.setdefault(item.name, answer.id)
                    if known != answer.id or (answer.status == "queued" and item.name in queued):
                        yield f"pushed twice: {item.name} is {known}, then {answer.status} as {answer.id}"
                    queued.add(item.name)
                    self._stored[item.name] = item
            elif push.stored is None:
                yield f"not looked up: {push.items[0].name}"
            elif len(set(push.stored)) > 1:
                yield f"torn push: of {push.items[0].name} and what came with it, some are stored and some not"
            elif all(push.stored):
                self._stored.update((item.name, item) for item in push.items)

    def _transactions(self) -> Iterator[str]:
        """Acknowledgement and pushes together, or nothing. Where there was no answer, what is stored tells."""
        for ack in self._history.acks:
            push = ack.with_push
            if push is None or push.stored is None or ack.results is not None:
                if push is not None and push.stored is not None and any(self._stored_now(push.items)):
                    yield f"torn transaction: refused, yet {push.items[0].name} is stored"
                continue
            status = "completed" if all(push.stored) else "conflict"
            ack.results = {name: Settled(status, 0) for name in ack.asked}

    def _stored_now(self, items: list[Item]) -> Iterable[bool]:
        return (item.name in self._stored for item in items)

    # -- deliveries ---------------------------------------------------------------------------------------

    def _sort(self) -> None:
        acks: defaultdict[tuple[str, str], list[Ack]] = defaultdict(list)
        for ack in self._history.acks:
            for name in ack.asked:
                acks[ack.lease, name].append(ack)
        extended = {e.lease: e.sent + e.seconds for e in self._history.extends if e.answered}
        for pop in sorted(self._history.pops, key=lambda pop: pop.at):
            until = max(pop.sent + LEASE_S, extended.get(pop.lease, 0.0)) - TOLERANCE_S
            for got in pop.messages:
                delivery = Delivery(pop, got, acks[pop.lease, got.name], until)
                self._deliveries.setdefault((got.name, pop.group), []).append(delivery)

    def _places(self) -> dict[Place, list[Delivery]]:
        places: defaultdict[Place, list[Delivery]] = defaultdict(list)
        for deliveries in self._deliveries.values():
            for delivery in deliveries:
                pop = delivery.pop
                places[Place(pop.queue, pop.partition, pop.group)].append(delivery)
        return places

    def _contents(self) -> Iterator[str]:
        """What is delivered is what was pushed, where it was pushed to."""
        for (name, _), deliveries in self._deliveries.items():
            item = self._stored.get(name)
            if item is None:
                yield f"never accepted: {name} was delivered"
                continue
            for delivery in deliveries:
                pop, got = delivery.pop, delivery.got
                if (pop.queue, pop.partition, got.number) != (item.queue, item.partition, item.number):
                    yield f"changed: {item} was delivered as {got} from {pop.queue}/{pop.partition}"
                if self._ids.setdefault(name, got.id) != got.id:
                    yield f"doubled: {name} is {self._ids[name]} and {got.id}"

    def _settled_once(self) -> Iterator[str]:
        """Everything stored is completed in each group, by one lease, and does not come back afterwards."""
        for name, item in self._stored.items():
            for group in self._groups[item.queue]:
                deliveries = self._deliveries.get((name, group), [])
                if item.queue != "auto" and not any(each.perhaps_completed for each in deliveries):
                    yield f"lost: {name} of {item.queue} was never completed in group {group}"
                done = [each for each in deliveries if each.completed]
                if len(done) > 1:
                    yield f"doubled: {name} was completed by {len(done)} leases of group {group}"
                for each in done:
                    assert each.completed is not None
                    if any(other.pop.sent > each.completed.at for other in deliveries):
                        yield f"came back: {name} was delivered to group {group} after it was completed"

    def _refused(self) -> Iterator[str]:
        """A1 to A4: who certainly holds a message is not refused, and hears what becomes of it."""
        for (name, _), deliveries in self._deliveries.items():
            for each in deliveries:
                for number, ack in enumerate(each.acks):
                    result = _result(ack, name)
                    if result == "conflict" and number == 0 and ack.at < each.certain_until and ack.with_push is None:
                        yield f"refused: {name} was leased, and '{ack.asked[name]}' was answered with a conflict"
                    elif result not in (None, "conflict", ACCEPTED[ack.asked[name]]):
                        yield f"wrong answer: '{ack.asked[name]}' of {name} was answered '{result}'"

    def _auto(self) -> Iterator[str]:
        """O7: completed at delivery, so delivered at most once; unseen only where an answer was lost."""
        seen: Counter[str] = Counter()
        for pop in self._history.pops:
            if pop.auto:
                seen.update(got.name for got in pop.messages)
        yield from (f"came back: {name} was delivered by autoAck {n} times" for name, n in seen.items() if n > 1)
        unseen = [item for item in self._stored.values() if item.queue == "auto" and item.name not in seen]
        room = sum(pop.batch for pop in self._history.pops if pop.auto and not pop.answered)
        if len(unseen) > room:
            yield f"lost: {len(unseen)} messages of auto were never seen; lost answers explain {room}"

    def _exclusive(self, place: Place, deliveries: list[Delivery]) -> Iterator[str]:
        """L1, L2: of a strict partition there is one lease at a time, of a message anyway."""
        if place.queue == "auto":
            return
        spans: dict[tuple[str, str], tuple[float, float]] = {}
        for each in deliveries:
            what = "" if place.queue in self._strict else each.got.name
            _, end = spans.get((what, each.pop.lease), (0.0, 0.0))
            spans[what, each.pop.lease] = (each.pop.at, max(end, each.ended))
        held: dict[str, float] = {}
        for (what, lease), (start, end) in sorted(spans.items(), key=lambda span: span[1]):
            if start < held.get(what, 0.0):
                yield f"held twice: {what or 'a partition'} of {place} was given away as {lease} while it was held"
            held[what] = max(end, held.get(what, 0.0))

    def _ordered(self, place: Place, deliveries: list[Delivery]) -> Iterator[str]:
        """L1: a lease holds messages in order, and whatever is before them may have been completed by then."""
        members = sorted(item.number for item in self._stored.values() if (item.queue, item.partition) == place[:2])
        since: dict[int, float] = {}
        leases: dict[int, Pop] = {}
        for each in deliveries:
            leases[id(each.pop)] = each.pop
            if each.perhaps_completed or place.queue == "auto":
                done = min((ack.sent for ack in each.acks), default=each.pop.sent)
                since[each.got.number] = min(done, since.get(each.got.number, math.inf))
        worst, before = -math.inf, {}
        for number in members:
            before[number] = worst
            # Of autoAck, what nobody saw went out with a lost answer, nobody knows when.
            worst = max(worst, since.get(number, -math.inf if place.queue == "auto" else math.inf))
        for pop in leases.values():
            numbers = [got.number for got in pop.messages]
            if any(later <= earlier for earlier, later in pairwise(numbers)):
                yield f"order: one lease of {place} held {numbers}"
            if before.get(numbers[0], -math.inf) > pop.at:
                yield f"order: {numbers[0]} of {place} was delivered before all that is in front of it was completed"
            inside = [n for n in members if numbers[0] < n < numbers[-1]] if numbers[-1] - numbers[0] > 1 else []
            for number in set(inside) - set(numbers):
                if since.get(number, math.inf) > pop.at and place.queue != "auto":
                    yield f"order: {numbers[-1]} of {place} was delivered before {number}"

    def _retry_counts(self) -> Iterator[str]:
        """L5, R1, Z3: +1 for a failure or an ended lease, 0 for `retry`; leases that nobody saw count too."""
        lost: defaultdict[tuple[str, str | None], list[Pop]] = defaultdict(list)
        for pop in self._history.pops:
            if not pop.answered:
                lost[pop.queue, pop.group].append(pop)
        for (name, group), deliveries in self._deliveries.items():
            low, high, start = 0, 0, 0.0
            for each in deliveries:
                unseen = sum(pop.at > start and pop.sent < each.pop.at for pop in lost[each.pop.queue, group])
                if not low <= each.got.retry_count <= high + unseen:
                    yield f"count: {name} has retryCount {each.got.retry_count}, not {low} to {high + unseen}"
                low, high = _count_after(each)
                start = each.pop.sent

    def _counted(self) -> Iterator[str]:
        """S1, S2: in the end the server counts what is there."""
        stored = Counter(item.queue for item in self._stored.values())
        for queue, counts in self._history.counts.items():
            wanted = {"pending": 0, "processing": 0, "completed": stored[queue], "total": stored[queue]}
            if counts != wanted:
                yield f"statistics: {queue} counts {counts}, not {wanted}"


def _result(ack: Ack, name: str) -> str | None:
    return None if ack.results is None else ack.results[name].status


def _count_after(delivery: Delivery) -> tuple[int, int]:
    """The least and the greatest retryCount that the next delivery may have."""
    count = delivery.got.retry_count
    sure = delivery.acks and delivery.acks[0].results is not None and not delivery.late
    if delivery.asked == "retry":
        return count, count if sure else count + 1
    if delivery.asked == "failed":
        return count + 1, count + 1 if sure else count + 2
    return count + 1, count + 1
