"""The routes of the API page's section 8: what there is, with sums; with `at=…`, what there was at that instant.
Reading them; queues are shaped in `queues.py`."""

from queen.broker import Broker
from queen.errors import Invalid
from queen.web import parse
from queen.web import render_figures as figures
from queen.web.analytics import chosen
from queen.web.exchange import Answer, Asked
from queen.web.render import document


async def queues(broker: Broker, asked: Asked) -> Answer:
    """`GET /api/v1/resources/queues?namespace=…&task=…` (8.1)."""
    found = await broker.statistics.queues(**chosen(asked, "namespace", "task", "at"), partitions=False)
    return document({"queues": [figures.summary(each) for each in found]})


async def queue(broker: Broker, asked: Asked) -> Answer:
    """`GET /api/v1/resources/queues/:queue` (8.2): 404 for an unknown one (Z11)."""
    return document(figures.detail(await broker.statistics.queue(asked.name("queue"), **chosen(asked, "at"))))


async def partitions(broker: Broker, asked: Asked) -> Answer:
    """`GET /api/v1/resources/partitions?queue=…&minDepth=…` (8.3)."""
    least = parse.integer(asked.query, "minDepth", 0)
    if least < 0:
        raise Invalid("minDepth", "must be 0 or more")
    found = await broker.statistics.queues(**chosen(asked, "queue", "at"))
    return document({"partitions": [line for each in found for line in figures.partitions(each, least)]})


async def namespaces(broker: Broker, asked: Asked) -> Answer:
    """`GET /api/v1/resources/namespaces` (8.4)."""
    found = await broker.statistics.namespaces(**chosen(asked, "at"))
    return document({"namespaces": [figures.group("namespace", each) for each in found]})


async def tasks(broker: Broker, asked: Asked) -> Answer:
    """`GET /api/v1/resources/tasks` (8.5)."""
    found = await broker.statistics.tasks(**chosen(asked, "at"))
    return document({"tasks": [figures.group("task", each) for each in found]})


async def overview(broker: Broker, asked: Asked) -> Answer:
    """`GET /api/v1/resources/overview` (8.6)."""
    return document(figures.overview(await broker.statistics.overview(**chosen(asked, "at"))))
