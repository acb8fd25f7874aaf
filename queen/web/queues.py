"""The routes that shape queues: configure, delete."""

from queen.broker import Broker
from queen.options import as_dict
from queen.web import parse, render
from queen.web.exchange import Answer, Asked


async def delete(broker: Broker, asked: Asked) -> Answer:
    """`DELETE /api/v1/resources/queues/:queue`: with everything in it."""
    queue = asked.name("queue")
    await broker.delete_queue(queue, caller=asked.caller)
    return render.document({"deleted": True, "queue": queue})


async def configure(broker: Broker, asked: Asked) -> Answer:
    """`POST /api/v1/configure` (C1 to C3): answers with every option the queue has now, defaults included."""
    wanted = parse.configuration(asked.body)
    found = await broker.configure(
        wanted.queue, wanted.options or {}, namespace=wanted.namespace, task=wanted.task, caller=asked.caller
    )
    return render.document(
        {
            "queue": wanted.queue,
            "namespace": found.namespace,
            "task": found.task,
            "configured": True,
            "options": as_dict(found.options),
        }
    )
