"""Transactions: pushes and acknowledgements that are all in one commit, or not done at all.

The same commands as those of a push and of an ack batch, in one piece of work; an acknowledgement that would be
refused refuses the whole.
"""

from collections.abc import Sequence
from typing import Any

from queen.actors.admission import Plan, admit_pushes
from queen.actors.decision import Decision
from queen.actors.engine import Engine
from queen.actors.settling import AckPlan
from queen.errors import TransactionRefused
from queen.messages import Acknowledgement, Caller, NewMessage
from queen.replies import Receipt, Settlement

Items = list[tuple[NewMessage, bytes]]
"""The checked messages of one push, with their payloads as JSON text."""


async def carry_out(
    engine: Engine, operations: Sequence[Items | Acknowledgement], caller: Caller
) -> list[list[Receipt] | Settlement]:
    """What became of each operation, in order. Raises `TransactionRefused`, and what a push raises; nothing was done
    then, except that a queue that the push needed may exist now. Cancelled: it may or may not have happened, whole."""
    engine.check_open()
    acks = [(index, operation) for index, operation in enumerate(operations) if isinstance(operation, Acknowledgement)]
    settling = AckPlan(engine.core, [operation for _, operation in acks])
    _refuse(acks, settling, ())
    items = [item for operation in operations if not isinstance(operation, Acknowledgement) for item in operation]
    plan = Plan(items, engine.core.ids.block())
    pushes = engine.push_parts(plan, caller) if items else []

    def admit(decisions: list[Decision]) -> None:
        _refuse(acks, settling, [decision.reply for decision in decisions[len(pushes) :]])
        admit_pushes(pushes, decisions)

    replies = await engine.carry([*pushes, *settling.parts()], caller, admit)
    receipts = plan.receipts(replies[: len(pushes)])
    engine.core.meter.receipts(receipts)
    settlements = iter(settling.settlements(replies[len(pushes) :]))
    results: list[list[Receipt] | Settlement] = []
    for operation in operations:
        if isinstance(operation, Acknowledgement):
            results.append(next(settlements))
        else:
            results.append(receipts[: len(operation)])
            receipts = receipts[len(operation) :]
    return results


def _refuse(acks: list[tuple[int, Acknowledgement]], settling: AckPlan, replies: Sequence[Any]) -> None:
    """Raise for the first operation that is refused."""
    first = min(settling.refusals(replies), key=_index, default=None)
    if first is not None:
        place, refusal = first
        index, entry = acks[place]
        raise TransactionRefused(index, refusal.status, f"{entry.transaction_id!r}: {refusal.error}")


def _index(refusal: tuple[int, Settlement]) -> int:
    return refusal[0]
