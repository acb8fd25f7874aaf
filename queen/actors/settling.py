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


class AckPlan:
    """What the entries ask of each partition. Those whose message can't be found have their answer at once."""

    def __init__(self, core: Core, entries: Sequence[Acknowledgement]) -> None:
        self._core = core
        self._results: list[Settlement | None] = [None] * len(entries)
        self._gathered: dict[tuple[Slot, int], list[tuple[int, AckEntry]]] = {}
        leases: dict[str, bytes] = {}
        for index, entry in enumerate(entries):
            found = _locate(core, entry)
            if isinstance(found, Settlement):
                self._results[index] = found
            else:
                slot, group, position = found
                lease = None if entry.lease_id is None else leases.get(entry.lease_id)
                if lease is None and entry.lease_id is not None:
                    lease = leases[entry.lease_id] = lease_bytes(entry.lease_id)
                command = AckEntry(position, entry.status, entry.error, lease)
                self._gathered.setdefault((slot, group), []).append((index, command))

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


def _locate(core: Core, entry: Acknowledgement) -> tuple[Slot, int, int] | Settlement:
    place = core.projections.find(entry.transaction_id)
    if place is None:
        return Settlement("not_found", error=f"there is no message of transactionId {entry.transaction_id!r}")
    slot = core.catalogue.slots[place.partition]
    group = slot.queue.groups.get(entry.consumer_group)
    if group is None:
        return Settlement("conflict", error="the queue has no such consumer group")
    return slot, group.number, place.position


def lease_bytes(lease_id: str) -> bytes:
    """A lease id as rules know it; one that is no id of ours matches none."""
    number = uuid_number(lease_id)
    return b"" if number is None else number.to_bytes(16)
