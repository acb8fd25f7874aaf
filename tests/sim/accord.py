"""The clients against the journal: whatever anybody was told is there, durable when it was told, and was true at some
moment between the question and the answer; and what nobody was told has happened as a whole or not at all.
"""

from bisect import bisect_left
from copy import deepcopy
from typing import Any

from queen import Acknowledgement
from queen.actors.settling import lease_bytes
from queen.errors import Busy, Conflict, Invalid, NotFound, Quarantined, StoreFull
from queen.names import SECOND, uuid_text
from queen.options import QueueOptions
from tests.model.reference import Copy, ReferenceQueue, Refused
from tests.sim.clients import payload_of
from tests.sim.history import Attempt, Stamp
from tests.sim.ledger import Entry, Lease, Ledger, Part, Version, Window
from tests.sim.violation import Violation, demand
from tests.sim.world import World

NOTHING_DONE = (Busy, Conflict, Invalid, NotFound, Quarantined, StoreFull)
"""Refusals after which nothing of the request may be in the journal."""


class Accord:
    """`run` raises the first violation."""

    def __init__(self, world: World, ledger: Ledger) -> None:
        self._world = world
        self._history = world.history
        self._ledger = ledger
        self._commits = world.platter.commits
        self._windows: list[Window] = [window for part in ledger.parts.values() for window in part.windows]
        self._given: dict[bytes, Attempt] = {}

    def run(self) -> None:
        """Judge everything."""
        checks = {
            "push": self._push,
            "pop": self._pop,
            "ack": self._ack,
            "transact": self._transact,
            "extend": self._extend,
            "look": self._look,
            "delete": self._delete,
            "retry": self._operated,
            "bury": self._operated,
            "clear": self._clear,
            "count": self._count,
            "delete_queue": self._queue_missing,
        }
        for attempt in self._history.attempts:
            self._whole(attempt)
            self._in_time(attempt)
            if attempt.what in checks:
                checks[attempt.what](attempt)
        self._leases()
        self._statuses()
        self._minutes()

    # -- what holds for every request ---------------------------------------------------------------------------

    def _records(self, attempt: Attempt) -> list[int]:
        return self._ledger.by_request.get(attempt.request, [])

    def _whole(self, attempt: Attempt) -> None:
        """P1, A5: all records of a request are in one commit; none of one that was refused."""
        seqs = self._records(attempt)
        if attempt.what == "pop":  # its group may have met the queue with it, whatever it got (G2)
            seqs = [seq for seq in seqs if seq not in self._ledger.made]
        if not seqs:
            return
        if attempt.what not in ("pop", "delete_group"):
            commits = {bisect_left(self._commits, seq) for seq in seqs if seq not in self._ledger.made}
            demand(len(commits) < 2, "P1", f"#{attempt.number} is in two commits: records {seqs}")
        made = attempt.what in ("push", "transact")  # the queue and the partition may have been made
        refused = isinstance(attempt.error, NOTHING_DONE) and not made
        demand(not refused, "refusal", f"#{attempt.number} was refused ({attempt.error}), and is in {seqs}")
        if attempt.answered:
            self._durable(attempt, seqs[-1])

    def _durable(self, attempt: Attempt, seq: int) -> None:
        """Law 3: nobody is told what is not durable."""
        synced = self._end(attempt).synced
        demand(seq <= synced, "law 3", f"#{attempt.number} was told of record {seq} when the disk had {synced}")

    def _in_time(self, attempt: Attempt) -> None:
        """Nothing is decided after its answer."""
        for seq in self._records(attempt):
            at = self._ledger.ats[seq - 1]
            late = attempt.answered and at > self._end(attempt).now
            demand(not late, "W5", f"#{attempt.number} was answered before record {seq}")

    def _end(self, attempt: Attempt) -> Stamp:
        assert attempt.ended is not None
        return attempt.ended

    # -- pushes -------------------------------------------------------------------------------------------------

    def _push(self, attempt: Attempt) -> None:
        items = attempt.asked["items"]
        stored = [self._ledger.traces.get(item.trace_id) for item in items]
        if any(stored):
            self._torn(attempt, stored)
        if not attempt.answered:
            gone = isinstance(attempt.error, NOTHING_DONE) and any(stored)
            demand(not gone, "P1", f"#{attempt.number} was refused ({attempt.error}), and is stored")
            return
        receipts = attempt.result if attempt.what == "push" else attempt.result[-1]
        for item, entry, receipt in zip(items, stored, receipts, strict=True):
            if receipt.status == "queued":
                if entry is None:
                    raise Violation("P1", f"{item.trace_id} was pushed by #{attempt.number}, and is lost")
                same = receipt.id == entry.id and receipt.transaction_id == entry.name
                demand(same, "P3", f"{item.trace_id} is {entry.id}, and not {receipt.id}")
                self._durable(attempt, entry.seq)
            else:
                demand(entry is None, "P4", f"{item.trace_id} was a duplicate for #{attempt.number}, and is stored")
                first, last = attempt.began.seq, self._end(attempt).seq
                holders = self._ledger.stored_during(receipt.transaction_id, first, last)
                found = any(holder.id == receipt.id and holder.seq <= self._end(attempt).synced for holder in holders)
                demand(found, "P4", f"{item.trace_id} was a duplicate of {receipt.id}, which is none")

    def _torn(self, attempt: Attempt, stored: list[Entry | None]) -> None:
        """P1: with one item of a request all of them are there, but for duplicates."""
        seq = max(entry.seq for entry in stored if entry is not None)
        names: set[str] = set()
        for item, entry in zip(attempt.asked["items"], stored, strict=True):
            name = item.transaction_id
            if entry is None:
                taken = name in names or (name is not None and self._ledger.stored_during(name, seq - 1, seq))
                demand(taken, "P1", f"#{attempt.number} is torn: {item.trace_id} is missing")
            elif name is not None:
                names.add(name)

    # -- pops ---------------------------------------------------------------------------------------------------

    def _pop(self, attempt: Attempt) -> None:
        if attempt.answered and attempt.result:
            self._delivered(attempt)
        if attempt.answered or attempt.error is None:
            self._served(attempt)

    def _delivered(self, attempt: Attempt) -> None:
        """L4, O3, N5: what a consumer gets is what the journal says that it got, all of it, in order."""
        asked, messages = attempt.asked, attempt.result.messages
        places: dict[bytes, list[Any]] = {}
        for message in messages:
            places.setdefault(lease_bytes(message.lease_id), []).append(message)
        demand(len(messages) <= asked["batch"], "O1", f"#{attempt.number} got more than it asked for")
        demand(len(places) <= asked["partitions"], "O3", f"#{attempt.number} got from too many partitions")
        for id, given in places.items():
            lease = self._ledger.leases.get(id)
            if lease is None:
                raise Violation("O8", f"#{attempt.number} was given a lease that nobody has recorded")
            demand(lease.request == attempt.request, "O8", f"#{attempt.number} was given another's lease")
            self._durable(attempt, lease.seq)
            self._given[id] = attempt
            demand(_matches(asked["scope"], lease.place), "O3", f"#{attempt.number} got from {lease.place.name}")
            entries = [lease.place.entries[position - 1] for position in lease.positions]
            leased = list(zip(entries, lease.counts, strict=True))
            names = [message.transaction_id for message in given]
            last = self._end(attempt).seq  # what was deleted before it could be handed on is left out (R5)
            leased = [(e, c) for e, c in leased if e.name in names or e.deleted_seq is None or e.deleted_seq > last]
            expected = [entry.name for entry, _ in leased]
            demand(names == expected, "L4", f"#{attempt.number} got {names} of {expected}")
            for message, (entry, count) in zip(given, leased, strict=True):
                whole = payload_of(message) == entry.trace == message.trace_id and message.id == entry.id
                demand(whole, "N5", f"#{attempt.number} got {message.payload!r} for {entry.trace}")
                demand(message.retry_count == count, "R1", f"{entry.trace}: retry {message.retry_count}, not {count}")
                demand(message.created_at == entry.shown_at, "N4", f"{entry.trace}: created {message.created_at}")
                if not lease.auto:
                    end = lease.ends[0][1] + message.locked_at - lease.at
                    demand(message.lease_expires_at == end, "L4", f"{entry.trace}: {message.lease_expires_at}")

    def _served(self, attempt: Attempt) -> None:
        """O5, W5: nothing was available all the while that the pop got nothing."""
        began, end = attempt.began, attempt.ended
        if end is None or end.epoch != began.epoch:
            return
        epoch, until = began.epoch, end.now
        waits = attempt.asked.get("wait")
        if attempt.answered and attempt.result:
            lease = self._ledger.leases[lease_bytes(attempt.result.messages[0].lease_id)]
            until = lease.at
        if any(stamp.epoch == epoch and stamp.now >= began.now - SECOND for stamp in self._history.crashes):
            return
        if not waits and (not attempt.answered or attempt.result or began.now == until):
            return
        for window in self._windows:
            part = window.part
            group = part.store.groups[window.group].name
            if window.epoch != epoch or group != attempt.asked["group"] or not _matches(attempt.asked["scope"], part):
                continue
            since, to = max(window.since, began.now), min(window.until, until)
            where = f"{part.store.name}/{part.name} has had something since {window.since}"
            if waits:
                late = to - since > self._world.plan.slack
                demand(not late, "O5", f"#{attempt.number} waits from {began.now} to {until}, and {where}")
            else:
                missed = window.since < began.now and window.until > until
                demand(not missed, "W5", f"#{attempt.number} gets nothing, and {where}")

    # -- acknowledgements -----------------------------------------------------------------------------------------

    def _ack(self, attempt: Attempt) -> None:
        if attempt.answered:
            for entry, settlement in zip(attempt.asked["entries"], attempt.result, strict=True):
                self._settled(attempt, entry, settlement)

    def _transact(self, attempt: Attempt) -> None:
        self._push(attempt)
        if attempt.answered:
            for entry, settlement in zip(attempt.asked["entries"], attempt.result[:-1], strict=True):
                self._settled(attempt, entry, settlement)
                demand(settlement.accepted, "transaction", f"#{attempt.number} was done though {entry} was refused")

    def _settled(self, attempt: Attempt, entry: Acknowledgement, settlement: Any) -> None:
        """A2-A5: the answer is the reference's, for the message as it was at some moment meanwhile."""
        first, last = attempt.began.seq, self._end(attempt).seq
        said = settlement.status, settlement.retry_count
        messages = self._ledger.stored_during(entry.transaction_id, first, last)
        true = [(version, message) for message in messages for version in self._during(message, entry, first, last)]
        answers = [
            (answer, version)
            for version, message in true
            for options in message.place.store.options_during(first, last)
            for answer in _answers(version.copy, entry, options, self._end(attempt).now)
        ]
        if settlement.status in ("not_found", "conflict"):
            refused = [answer[0] for answer, _ in answers] or ["conflict"]
            gone = any(message.deleted_seq is not None for message in messages) or not messages
            fits = settlement.status in refused or (settlement.status == "not_found" and gone)
            demand(fits, "A3", f"#{attempt.number} was told {said} of {entry.transaction_id}, which is {refused}")
            return
        fits = any(answer == said for answer, _ in answers)
        demand(
            fits,
            "A2",
            f"#{attempt.number} was told {said} of {entry.transaction_id}: {sorted({a for a, _ in answers})}",
        )
        synced = self._end(attempt).synced
        kept = any(_repeats(version.copy, entry, said[0]) and version.seq <= synced for version, _ in true)
        demand(kept, "law 3", f"#{attempt.number} was told {said} of {entry.transaction_id} before it was durable")

    def _during(self, message: Entry, entry: Acknowledgement, first: int, last: int) -> list[Version]:
        groups = message.place.store.numbers_of(entry.consumer_group, first, last)
        return [version for group in groups for version in message.during(group, first, last)]

    # -- leases -------------------------------------------------------------------------------------------------

    def _extend(self, attempt: Attempt) -> None:
        lease = self._ledger.leases.get(lease_bytes(attempt.asked["lease"]))
        first, last = attempt.began.seq, (attempt.ended or attempt.began).seq
        if attempt.answered:
            demand(lease is not None, "L6", f"#{attempt.number} has extended a lease that nobody has recorded")
            assert lease is not None
            over = lease.ended is not None and lease.ended[0] <= first
            demand(not over, "L6", f"#{attempt.number} has extended a lease that ended with record {lease.ended}")
            until = attempt.result - self._end(attempt).shift
            same = any(end == until for seq, end in lease.ends if seq <= self._end(attempt).synced)
            moved = self._end(attempt).shift != attempt.began.shift
            demand(same or moved, "L6", f"#{attempt.number} was told {until}, and not one of {lease.ends}")
        elif isinstance(attempt.error, NotFound) and lease is not None:
            running = lease.seq <= first and (lease.ended is None or lease.ended[0] > last)
            demand(not running, "L6", f"#{attempt.number} was told that there is no such lease")

    def _leases(self) -> None:
        """L8: what nobody got is given back at once; what somebody has is not given back unless it asks for it."""
        for id, lease in self._ledger.leases.items():
            if lease.auto or lease.ended is None:
                continue
            _, at, why = lease.ended
            holder = self._given.get(id)
            attempt = self._history.attempts[int.from_bytes(lease.request)]
            if holder is not None and why == "released":
                asked = uuid_text(int.from_bytes(id)) in self._history.released
                demand(asked, "L8", f"the lease of #{attempt.number} was given back, and nobody asked for it")
            elif holder is None and why != "released" and attempt.ended is not None:
                self._not_given_back(lease, attempt, at, why)

    def _not_given_back(self, lease: Lease, attempt: Attempt, at: int, why: str) -> None:
        end = self._end(attempt)
        epoch = self._history.ends.get(end.epoch)
        restarted = end.epoch != attempt.began.epoch or (epoch is not None and epoch.now < at)
        crashed = any(stamp.epoch == end.epoch for stamp in self._history.crashes)
        settled = why in ("deleted", "sought", "over") or end.now + self._world.plan.slack >= at
        demand(
            restarted or crashed or settled,
            "L8",
            f"#{attempt.number} went away at {end.now}, its lease ended at {at}: {why}",
        )

    # -- operators and lists ------------------------------------------------------------------------------------

    def _look(self, attempt: Attempt) -> None:
        first, last = attempt.began.seq, (attempt.ended or attempt.began).seq
        holders = self._ledger.stored_during(attempt.asked["name"], first, last)
        if attempt.answered and attempt.what == "look":
            message = attempt.result[0]
            states = [
                (v.copy.status, v.copy.retry_count)
                for holder in holders
                for v in holder.during(0, first, last)
                if v.copy is not None and v.seq <= self._end(attempt).synced
            ]
            said = message.status, message.retry_count
            demand(said in states, "S1", f"#{attempt.number} was told {said} of {message.transaction_id}: {states}")
        else:
            self._missing(attempt, [(holder.seq, holder.deleted_seq) for holder in holders])

    def _missing(self, attempt: Attempt, lives: list[tuple[int, int | None]]) -> None:
        """What was not found was not there at some moment meanwhile, and for good: who asks a second time after a
        deletion whose answer got lost takes it for done."""
        if attempt.ended is None or not isinstance(attempt.error, NotFound):
            return
        synced = attempt.ended.synced
        for seq, deleted_seq in lives:
            there = seq <= min(attempt.began.seq, synced) and (deleted_seq is None or deleted_seq > synced)
            demand(not there, "law 3", f"#{attempt.number} did not find what a restart would find again")

    def _queue_missing(self, attempt: Attempt) -> None:
        name = attempt.asked["queue"]
        stores = [store for store in self._ledger.stores.values() if store.name == name]
        self._missing(attempt, [(store.created_seq, store.deleted_seq) for store in stores])

    def _delete(self, attempt: Attempt) -> None:
        if attempt.answered:
            demand(self._records(attempt), "R5", f"#{attempt.number} was told that it has deleted, and has not")
        else:
            self._look(attempt)

    def _operated(self, attempt: Attempt) -> None:
        """R3, R4: what was answered was possible at some moment meanwhile, and so was what was refused."""
        if attempt.ended is None or not (attempt.answered or isinstance(attempt.error, Conflict | NotFound)):
            return
        first, last = attempt.began.seq, attempt.ended.seq
        self._look(attempt)
        said = "done" if attempt.answered else "not_found" if isinstance(attempt.error, NotFound) else "conflict"
        holders = self._ledger.stored_during(attempt.asked["name"], first, last)
        true = [] if holders and all(holder.deleted_seq is None for holder in holders) else ["not_found", "conflict"]
        for holder in holders:
            groups = holder.place.store.numbers_of(attempt.asked["group"], first, last)
            versions = [version for group in groups for version in holder.during(group, first, last)]
            true += [_operation(version.copy, attempt.what, holder.place.store.options) for version in versions]
            if not versions or versions[0].seq > first:
                true.append("conflict")  # the group, or the message, came later
        demand(said in true, "R3/R4", f"#{attempt.number} was told {said}: {attempt.asked['name']} was {true}")

    def _clear(self, attempt: Attempt) -> None:
        if attempt.answered:
            seqs = set(self._records(attempt))
            gone = sum(e.deleted_seq in seqs for part in self._ledger.parts.values() for e in part.entries)
            demand(gone == attempt.result, "R5", f"#{attempt.number} has deleted {gone}, and says {attempt.result}")

    def _count(self, attempt: Attempt) -> None:
        """S2: the total is what was stored at some moment meanwhile."""
        if not attempt.answered:
            self._queue_missing(attempt)
            return
        first, last = attempt.began.seq, self._end(attempt).seq
        stores = [store for store in self._ledger.stores.values() if store.name == attempt.asked["queue"]]
        totals = set()
        for seq in range(first, last + 1):
            for store in stores:
                entries = [entry for part in store.parts.values() for entry in part.entries]
                totals.add(sum(e.seq <= seq and (e.deleted_seq is None or e.deleted_seq > seq) for e in entries))
        total = attempt.result.counts.total
        demand(total in totals, "S2", f"#{attempt.number} counted {total}, and not {sorted(totals)}")

    def _statuses(self) -> None:
        """Conservation: in the end every message stands in the list as the journal tells it, and no other."""
        expected = {}
        for part in self._ledger.parts.values():
            for message in part.plain.messages:
                copy = message.copies[0]
                expected[part.entries[message.position - 1].name] = copy.status, copy.retry_count
        wrong = {
            name
            for name in expected.keys() | self._world.listed.keys()
            if expected.get(name) != self._world.listed.get(name)
        }
        # Retention has its time (T4): what it deleted behind the listing was in that, and rightly.
        told = self._world.history.all_told
        assert told is not None, "the listing comes behind it"
        wrong -= {
            entry.name
            for part in self._ledger.parts.values()
            for entry in part.entries
            if entry.deleted_seq is not None and entry.deleted_seq > told.seq
        }
        for name in sorted(wrong):
            raise Violation("S1", f"{name} is listed as {self._world.listed.get(name)}, and is {expected.get(name)}")

    def _minutes(self) -> None:
        """S3: a world takes less than an hour; where the wall clock was moved, a part of it may be in the future."""
        if any(fault.args.get("wall") or fault.kind == "wall" for fault in self._world.plan.faults):
            return
        said = [sum(figures) for figures in zip(*((m.incoming, m.completed) for m in self._world.minutes), strict=True)]
        pushed = sum(len(part.entries) for part in self._ledger.parts.values())
        expected = [pushed, self._ledger.completed]
        demand(said == expected, "S3", f"pushed and completed by minutes: {said}, and not {expected}")


def _matches(scope: dict[str, str], part: Part) -> bool:
    given = {
        "queue": part.store.name,
        "partition": part.name,
        "namespace": part.store.grouping[0],
        "task": part.store.grouping[1],
    }
    return all(given[name] == value for name, value in scope.items())


def _answers(copy: Copy | None, entry: Acknowledgement, options: QueueOptions, now: int) -> list[tuple[str, int]]:
    """What the reference answers for the message as it is."""
    if copy is None:
        return [("not_found", 0)]
    plain = ReferenceQueue(options, now)
    plain.push([(None, None)])
    plain.messages[0].copies[0] = deepcopy(copy)
    lease = None if entry.lease_id is None else lease_bytes(entry.lease_id)
    answer = plain.ack(0, 1, entry.status, lease)
    return [answer]


def _repeats(copy: Copy | None, entry: Acknowledgement, status: str) -> bool:
    """Whether that acknowledgement has been carried out."""
    if copy is None:
        return False
    if status == "retry_scheduled":
        return copy.status == "pending"
    return copy.status == status and copy.asked == entry.status


def _operation(copy: Copy | None, what: str, options: QueueOptions) -> str:
    if copy is None:
        return "not_found"
    plain = ReferenceQueue(options, 0)
    plain.push([(None, None)])
    plain.messages[0].copies[0] = deepcopy(copy)
    try:
        getattr(plain, what)(0, 1)
    except Refused as refusal:
        return str(refusal.args[0])
    return "done"
