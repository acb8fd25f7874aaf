"""From what a pop was granted to the messages themselves, read from their durable records."""

from collections.abc import Iterator

from queen.actors.catalogue_state import Slot
from queen.actors.core import Core
from queen.actors.mailbox import Granted
from queen.history import Place, PushedRun
from queen.messages import Message
from queen.names import message_id, uuid_pairs, uuid_text
from queen.replies import Grant


def read_granted(core: Core, granted: list[Granted], group: str | None) -> Iterator[Message]:
    """The messages, in order; those that were deleted in the meantime are left out.

    Raises `SealBroken` for one that does not open."""
    shift = core.clock.shift()
    for slot, grant in granted:
        queue, partition, options = slot.queue.name, slot.name, slot.queue.options
        lease, partition_id = uuid_text(int.from_bytes(grant.lease)), uuid_text(int.from_bytes(slot.id))
        locked_at, expires_at = grant.leased_at + shift, grant.expires_at + shift
        for run, retry_counts in _by_record(core, slot, grant):
            record = core.records.read(run.seq)
            pushed = record.pushed
            assert pushed is not None, "a run points at its record"
            base = int.from_bytes(pushed.base)
            ids = [message_id(base, position - run.first) for position, _ in retry_counts]
            texts = uuid_pairs(ids)
            delivered: list[tuple[str, Place]] = []
            for (position, retry_count), number, (id, generated) in zip(retry_counts, ids, texts, strict=True):
                index = position - run.first
                payload = record.payload(index)
                if payload is None or position in slot.deleted:
                    continue
                if pushed.key is not None:
                    payload = core.ring.open(pushed.key, payload, number)
                given = pushed.transaction_ids[index] if pushed.transaction_ids else None
                name = generated if given is None else given
                delivered.append((name, Place(slot.number, position, number)))
                yield Message(
                    id=id,
                    transaction_id=name,
                    queue=queue,
                    partition=partition,
                    partition_id=partition_id,
                    payload=payload,
                    retry_count=retry_count,
                    priority=options.priority,
                    created_at=run.shown_at,
                    locked_at=locked_at,
                    lease_id=lease,
                    lease_expires_at=expires_at,
                    consumer_group=group,
                    trace_id=pushed.trace_ids[index] if pushed.trace_ids else None,
                    lease_time=options.lease_time,
                    retry_limit=options.retry_limit,
                )
            core.projections.delivered(delivered)


def _by_record(core: Core, slot: Slot, grant: Grant) -> Iterator[tuple[PushedRun, list[tuple[int, int]]]]:
    """The grant's messages as (position, retry count), gathered by the record that holds them."""
    run: PushedRun | None = None
    gathered: list[tuple[int, int]] = []
    for position, _, retry_count in grant.taken:
        if run is None or not run.first <= position < run.first + run.length:
            if run is not None:
                yield run, gathered
            run, gathered = next(core.projections.runs(slot.number, position)), []
        gathered.append((position, retry_count))
    if run is not None:
        yield run, gathered
