"""The routes that move messages: push, pop, ack, transaction, lease. Arguments in, one call, answer out."""

from functools import partial

from queen.broker import Broker
from queen.errors import Invalid, TransactionRefused
from queen.names import check_name
from queen.web import parse, render
from queen.web.exchange import Answer, Asked


async def push(broker: Broker, asked: Asked) -> Answer:
    """`POST /api/v1/push`: all items or none (P1). Cancelled, it may have happened; ids make repeats safe."""
    return render.pushed(await broker.push_many(parse.messages(asked.body), caller=asked.caller))


async def pop_partition(broker: Broker, asked: Asked) -> Answer:
    """`GET /api/v1/pop/queue/:queue/partition/:partition`."""
    return await _pop(broker, asked, asked.name("queue"), asked.name("partition"))


async def pop_queue(broker: Broker, asked: Asked) -> Answer:
    """`GET /api/v1/pop/queue/:queue`: the partition that waits longest (O3)."""
    return await _pop(broker, asked, asked.name("queue"), None)


async def pop_filtered(broker: Broker, asked: Asked) -> Answer:
    """`GET /api/v1/pop`: over all queues of a namespace, a task, or both (O4)."""
    query = asked.query
    if "namespace" not in query and "task" not in query:
        raise Invalid("namespace", "or task is required, or a queue in the path")
    return await _pop(broker, asked, None, None, query.get("namespace"), query.get("task"))


async def _pop(
    broker: Broker,
    asked: Asked,
    queue: str | None,
    partition: str | None,
    namespace: str | None = None,
    task: str | None = None,
) -> Answer:
    query = asked.query
    auto_ack = parse.boolean(query, "autoAck")
    delivery = await broker.pop(
        queue,
        partition,
        namespace=namespace,
        task=task,
        group=query.get("consumerGroup"),
        batch=parse.count(query, "batch"),
        wait=parse.boolean(query, "wait"),
        timeout=parse.timeout(query),
        auto_ack=auto_ack,
        partitions=parse.count(query, "partitions"),
        worker=_worker(asked),
        subscription_mode=query.get("subscriptionMode"),
        subscription_from=parse.subscription_from(query),
        caller=asked.caller,
    )
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


async def ack(broker: Broker, asked: Asked) -> Answer:
    """`POST /api/v1/ack` (A1 to A4)."""
    wanted = parse.acknowledgement(asked.body)
    settlement = await broker.ack(
        wanted.transaction_id,
        wanted.status,
        error=wanted.error,
        lease_id=wanted.lease_id,
        group=wanted.consumer_group,
        caller=asked.caller,
    )
    return render.settled(wanted.transaction_id, settlement)


async def ack_batch(broker: Broker, asked: Asked) -> Answer:
    """`POST /api/v1/ack/batch`: one commit, an outcome for each entry (A5)."""
    entries = parse.acknowledgements(asked.body)
    return render.batch_settled(entries, await broker.ack_many(entries, caller=asked.caller))


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
