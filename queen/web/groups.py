"""The routes of consumer groups (G1 to G3)."""

from queen.broker import Broker
from queen.messages import GroupPlace, GroupStatus
from queen.web import parse, render
from queen.web.exchange import Answer, Asked


async def listed(broker: Broker, asked: Asked) -> Answer:
    """`GET /api/v1/consumer-groups`: every group, its queues, how far it has got and how far it lags behind."""
    found = await broker.groups.list(asked.query.get("queue"))
    return render.document({"groups": [_group(status) for status in found]})


async def delete(broker: Broker, asked: Asked) -> Answer:
    """`DELETE /api/v1/consumer-groups/:group`: everywhere, or in the queue that the query names."""
    group = asked.name("group")
    queues = await broker.groups.delete(group, asked.query.get("queue"), caller=asked.caller)
    return render.document({"deleted": True, "consumerGroup": group, "queues": list(queues)})


async def seek(broker: Broker, asked: Asked) -> Answer:
    """`POST /api/v1/consumer-groups/:group/queues/:queue/seek` (G3, Z14)."""
    group, queue = asked.name("group"), asked.name("queue")
    position = await broker.groups.seek(group, queue, parse.target(asked.body), caller=asked.caller)
    return render.document({"moved": True, "consumerGroup": group, "queue": queue, "position": position})


def _group(status: GroupStatus) -> dict[str, object]:
    return {
        "consumerGroup": status.name,
        "queues": [_place(place) for place in status.queues],
        "lag": {"messages": status.lag, "seconds": status.lag_seconds},
    }


def _place(place: GroupPlace) -> dict[str, object]:
    return {
        "queue": place.queue,
        "position": place.position,
        "end": place.end,
        "lag": {
            "messages": place.pending + place.processing,
            "pending": place.pending,
            "processing": place.processing,
            "seconds": place.lag_seconds,
        },
    }
