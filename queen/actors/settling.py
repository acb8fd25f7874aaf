"""A request of acknowledgements taken apart by partition and group, and put together again (A5). No waiting."""

from collections.abc import Iterator, Sequence
from typing import Any

from queen.actors.catalogue_state import Slot
from queen.actors.core import Core
from queen.actors.mailbox import Part
from queen.commands import Ack, AckEntry
from queen.messages import Acknowledgement
from queen.names import uuid_number
from queen.replies import Settlement

MAX_ERROR = 4096
"""Characters of an error that are kept. It stands in its partition's state, which is written again and again."""


class AckPlan:
    """What the entries ask of each partition. Those whose message can't be found have their answer at once."""

    def __init__(self, core: Core, entries: Sequence[Acknowledgement]) -> None:
        self._core = core
        self._results: list[Settlement | None] = [None] * len(entries)
        self._gathered: dict[tuple[Slot, int], list[tuple[int, AckEntry]]] = {}
        # A delivery is acknowledged together: few partitions, groups and leases among many entries.
        leases: dict[str | None, bytes | None] = {None: None}
        lists: dict[tuple[int, str | None], list[tuple[int, AckEntry]]] = {}
        find = core.projections.find
        for index, entry in enumerate(entries):
            place = find(entry.transaction_id)
            if place is None:
                self._results[index] = _not_found(entry)
                continue
            listed = lists.get((place.partition, entry.consumer_group))
            if listed is None:
                slot = core.catalogue.slots[place.partition]
                group = slot.queue.groups.get(entry.consumer_group)
                if group is None:
                    self._results[index] = Settlement("conflict", error="the queue has no such consumer group")
                    continue
                listed = lists[place.partition, entry.consumer_group] = self._gathered[slot, group.number] = []
            if entry.lease_id not in leases and entry.lease_id is not None:
                leases[entry.lease_id] = lease_bytes(entry.lease_id)
            error = entry.error if entry.error is None else _kept(entry.error)
            listed.append((index, AckEntry(place.position, entry.status, error, leases[entry.lease_id])))

    def parts(self) -> list[Part]:
        """The commands."""
        return [
            Part(slot, Ack(group, tuple([command for _, command in listed])))
            for (slot, group), listed in self._gathered.items()
        ]

    def refusals(self, replies: Sequence[Any] = ()) -> Iterator[tuple[int, Settlement]]:
        """Entries that are refused, with their places in the request: those not found, and by these replies."""
        yield from ((index, found) for index, found in enumerate(self._results) if found is not None)
        for reply, listed in zip(replies, self._gathered.values(), strict=False):
            for settlement, (index, _) in zip(reply, listed, strict=True):
                if not settlement.accepted:
                    yield index, settlement

    def settlements(self, replies: Sequence[Any]) -> list[Settlement]:
        """The answer, in the order of the request, from the partitions' durable replies in the order of `parts`."""
        shift = self._core.clock.shift()
        for reply, listed in zip(replies, self._gathered.values(), strict=True):
            for settlement, (index, _) in zip(reply, listed, strict=True):
                self._results[index] = Settlement(
                    settlement.status, settlement.retry_count, settlement.at + shift, settlement.error
                )
        settlements = [result for result in self._results if result is not None]
        self._core.meter.acked([settlement.status for settlement in settlements])
        return settlements


def _not_found(entry: Acknowledgement) -> Settlement:
    return Settlement("not_found", error=f"there is no message of transactionId {entry.transaction_id!r}")


def lease_bytes(lease_id: str) -> bytes:
    """A lease id as rules know it; one that is no id of ours matches none."""
    number = uuid_number(lease_id)
    return b"" if number is None else number.to_bytes(16)


def _kept(error: str) -> str:
    """The error, or as much of its beginning as is kept. A failure is not refused because it says a lot."""
    return error if len(error) <= MAX_ERROR else error[: MAX_ERROR - 1] + "…"
