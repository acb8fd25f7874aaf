"""From what a pop was granted to the messages themselves, read from their durable records."""

from collections.abc import Iterator

from queen.actors.core import Core
from queen.actors.mailbox import Granted
from queen.messages import Message
from queen.names import generated_transaction_id, message_id, uuid_text
from queen.store.tail import is_generated


def read_granted(core: Core, granted: list[Granted], group: str | None) -> Iterator[Message]:
    """The messages, in order; those that were deleted in the meantime are left out."""
    shift = core.clock.shift()
    for slot, grant in granted:
        options = slot.queue.options
        lease = uuid_text(int.from_bytes(grant.lease))
        partition_id = uuid_text(int.from_bytes(slot.id))
        stop = 0
        for position, _, retry_count in grant.taken:
            if position >= stop:
                run = next(core.projections.runs(slot.number, position))
                stop = run.first + run.length
                record = core.records.read(run.seq)
                pushed = record.pushed
                assert pushed is not None, "a run points at its record"
                base = int.from_bytes(pushed.base)
            index = position - run.first
            payload = record.payload(index)
            if payload is None or position in slot.deleted:
                continue
            if is_generated(pushed, index):
                name = uuid_text(generated_transaction_id(base, index))
            else:
                name = str(pushed.transaction_ids[index])
            yield Message(
                id=uuid_text(message_id(base, index)),
                transaction_id=name,
                queue=slot.queue.name,
                partition=slot.name,
                partition_id=partition_id,
                payload=payload,
                retry_count=retry_count,
                priority=options.priority,
                created_at=run.shown_at,
                locked_at=grant.leased_at + shift,
                lease_id=lease,
                lease_expires_at=grant.expires_at + shift,
                consumer_group=group,
                trace_id=pushed.trace_ids[index] if pushed.trace_ids else None,
                lease_time=options.lease_time,
                retry_limit=options.retry_limit,
            )
