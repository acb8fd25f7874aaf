"""The routes that shape queues: configure."""

import msgspec

from queen.broker import Broker
from queen.options import as_dict
from queen.web import parse, render
from queen.web.exchange import Answer, Asked


async def configure(broker: Broker, asked: Asked) -> Answer:
    """`POST /api/v1/configure` (C1 to C3): answers with every option the queue has now, defaults included."""
    wanted = parse.configuration(asked.body)
    options = await broker.configure(
        wanted.queue, wanted.options or {}, namespace=wanted.namespace, task=wanted.task, caller=asked.caller
    )
    answer: dict[str, object] = {"queue": wanted.queue}
    if wanted.namespace is not msgspec.UNSET:
        answer["namespace"] = wanted.namespace
    if wanted.task is not msgspec.UNSET:
        answer["task"] = wanted.task
    return render.document(answer | {"configured": True, "options": as_dict(options)})
