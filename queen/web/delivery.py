"""The routes that move messages: push, pop, ack, transaction, lease. Arguments in, one call, answer out."""

from functools import partial
from typing import NamedTuple

from queen.broker import Broker
from queen.errors import Invalid, TransactionRefused
from queen.messages import Delivery, Wanted
from queen.names import check_name
from queen.reply import Reply
from queen.web import parse, render
from queen.web.exchange import Answer, Asked


def push(broker: Broker, asked: Asked) -> Reply[Answer]:
    """`POST /api/v1/push`: all items or none (P1). Not waited for, it may have happened; ids make repeats safe."""
    return broker.push_soon(parse.messages(asked.body), caller=asked.caller).map(render.pushed)


def pop_partition(broker: Broker, asked: Asked) -> Reply[Answer]:
    """`GET /api/v1/pop/queue/:queue/partition/:partition`."""
    return _pop(broker, asked, Scope(asked.name("queue"), asked.name("partition")))


def pop_queue(broker: Broker, asked: Asked) -> Reply[Answer]:
    """`GET /api/v1/pop/queue/:queue`: the partition that waits longest (O3)."""
    return _pop(broker, asked, Scope(asked.name("queue")))


def pop_filtered(broker: Broker, asked: Asked) -> Reply[Answer]:
    """`GET /api/v1/pop`: over all queues of a namespace, a task, or both (O4)."""
    query = asked.query
    if "namespace" not in query and "task" not in query:
        raise Invalid("namespace", "or task is required, or a queue in the path")
    return _pop(broker, asked, Scope(None, None, query.get("namespace"), query.get("task")))


class Scope(NamedTuple):
    """Where a pop looks."""

    queue: str | None = None
    partition: str | None = None
    namespace: str | None = None
    task: str | None = None


def _pop(broker: Broker, asked: Asked, scope: Scope) -> Reply[Answer]:
    query = asked.query
    auto_ack = parse.boolean(query, "autoAck")
    wanted = Wanted(
        queue=scope.queue,
        partition=scope.partition,
        namespace=scope.namespace,
        task=scope.task,
        auto_ack=auto_ack,
        group=query.get("consumerGroup"),
        batch=parse.count(query, "batch"),
        partitions=parse.count(query, "partitions"),
        worker=_worker(asked),
        subscription_mode=query.get("subscriptionMode"),
        subscription_from=parse.subscription_from(query),
    )
    wait, timeout = parse.boolean(query, "wait"), parse.timeout(query)
    delivery = broker.pop_soon(wanted, wait=wait, timeout=timeout, caller=asked.caller)
    return delivery.map(partial(_delivered, broker, auto_ack))


def _delivered(broker: Broker, auto_ack: bool, delivery: Delivery) -> Answer:
    # Completed at delivery (O7) is settled: there is no lease that could be given back.
    undo = None if auto_ack else partial(broker.release_nowait, delivery)
    try:
        return render.delivered(delivery, undo)
    except BaseException:
        broker.release_nowait(delivery)
        raise


def _worker(asked: Asked) -> str | None:
    """Who works on the messages, as the client calls itself (Z13)."""
    for where, worker in (("Queen-Worker", asked.header(b"queen-worker")), ("workerId", asked.query.get("workerId"))):
        if worker is not None:
            return check_name(worker, where)
    return None


def ack(broker: Broker, asked: Asked) -> Reply[Answer]:
    """`POST /api/v1/ack` (A1 to A4)."""
    wanted = parse.acknowledgement(asked.body)
    return broker.ack_soon(wanted, caller=asked.caller).map(partial(render.settled, wanted.transaction_id))


def ack_batch(broker: Broker, asked: Asked) -> Reply[Answer]:
    """`POST /api/v1/ack/batch`: one commit, an outcome for each entry (A5)."""
    entries = parse.acknowledgements(asked.body)
    return broker.ack_many_soon(entries, caller=asked.caller).map(partial(render.batch_settled, entries))


async def transaction(broker: Broker, asked: Asked) -> Answer:
    """`POST /api/v1/transaction`: pushes and acknowledgements, all in one commit; 200 also where all is refused."""
    operations = parse.operations(asked.body)
    try:
        results = await broker.transaction(operations, caller=asked.caller)
    except TransactionRefused as error:
        refused = {"success": False, "error": str(error), "reason": error.reason, "failedIndex": error.index}
        return render.document(refused)
    return render.transacted(operations, results)


async def extend(broker: Broker, asked: Asked) -> Answer:
    """`POST /api/v1/lease/:leaseId/extend` (L6)."""
    lease_id = asked.name("leaseId")
    expires_at = await broker.extend(lease_id, parse.extension(asked.body), caller=asked.caller)
    return render.extended(lease_id, expires_at)
