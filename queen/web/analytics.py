"""The routes of the API page's section 5: figures about queues, minute by minute and by how long messages take."""

from typing import Any

from queen.broker import Broker
from queen.web import render_figures as figures
from queen.web.exchange import Answer, Asked
from queen.web.render import document


async def queue(broker: Broker, asked: Asked) -> Answer:
    """`GET /api/v1/analytics/queue/:queue` (5.1): 404 for an unknown one (Z11)."""
    return document(figures.statistics(await broker.statistics.queue(asked.name("queue"), ages=False)))


async def queues(broker: Broker, asked: Asked) -> Answer:
    """`GET /api/v1/analytics/queues?namespace=…&task=…` (5.2)."""
    return await _statistics(broker, asked, "namespace", "task")


async def queue_stats(broker: Broker, asked: Asked) -> Answer:
    """`GET /api/v1/analytics/queue-stats?queue=…&namespace=…&task=…` (5.6), in the shape of 5.2 (Z13)."""
    return await _statistics(broker, asked, "queue", "namespace", "task")


async def filtered(broker: Broker, asked: Asked) -> Answer:
    """`GET /api/v1/analytics?namespace=…&task=…` (5.7), in the shape of 5.2 (Z13)."""
    return await _statistics(broker, asked, "namespace", "task")


async def depths(broker: Broker, asked: Asked) -> Answer:
    """`GET /api/v1/analytics/queue-depths` (5.3)."""
    return document({"depths": [figures.depth(each) for each in await broker.statistics.queues()]})


async def throughput(broker: Broker, asked: Asked) -> Answer:
    """`GET /api/v1/analytics/throughput` (5.4, S3)."""
    return document({"throughput": [figures.minute(each) for each in await broker.statistics.throughput()]})


async def lag(broker: Broker, asked: Asked) -> Answer:
    """`GET /api/v1/analytics/queue-lag?queue=…&namespace=…&task=…` (5.5, S4, Z6)."""
    found = await broker.statistics.lag(**chosen(asked, "queue", "namespace", "task"))
    return document({"queues": [figures.queue_lag(each) for each in found]})


async def _statistics(broker: Broker, asked: Asked, *filters: str) -> Answer:
    found = await broker.statistics.queues(**chosen(asked, *filters))
    return document({"queues": [figures.statistics(each) for each in found]})


def chosen(asked: Asked, *filters: str) -> dict[str, Any]:
    """Those of the filters that the query gives; other parameters are ignored, as everywhere."""
    return {name: asked.query[name] for name in filters if name in asked.query}
