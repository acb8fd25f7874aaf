"""What each route takes and answers: one row per route of `app.py`, from which `openapi.py` makes the document.

A test holds that there is a row for every route and a route for every row; the tests of the routes hold every answer
they get against its row.
"""

from typing import Any, Final, NamedTuple

from queen.web import answers, wire
from queen.web import answers_figures as figures
from queen.web.parse import DEFAULT_TIMEOUT_MS
from queen.web.schemas import BOOLEAN, COUNT, MAX_BATCH, NAME, Schema


class Parameter(NamedTuple):
    """A parameter of the query, or a header."""

    name: str
    schema: Schema
    meaning: str = ""
    place: str = "query"
    example: Any = None


class Operation(NamedTuple):
    """One route. `answers` are the good ones: struct, media type of plain text, or None for an empty body; `refuses`
    the statuses it has beyond those that every route has. `example` is a body that works as it stands."""

    method: str
    path: str
    group: str
    summary: str
    answers: dict[int, Any]
    parameters: tuple[Parameter, ...] = ()
    body: type | None = None
    example: Any = None
    refuses: tuple[int, ...] = ()
    body_required: bool = True
    about: str = ""


PROMETHEUS: Final = "text/plain"
OPENMETRICS: Final = "application/openmetrics-text"
DOCUMENT: Final = "application/json"

QUEUE: Final = Parameter("queue", NAME, "Only this queue.")
NAMESPACE: Final = Parameter("namespace", NAME, "Only queues of this namespace.")
TASK: Final = Parameter("task", NAME, "Only queues of this task.")
GROUP: Final = Parameter("consumerGroup", NAME, "On behalf of this consumer group; the default group where left out.")

POP: Final = (
    Parameter("batch", {**COUNT, "minimum": 1, "maximum": MAX_BATCH, "default": 1}, "How many messages at most."),
    Parameter("wait", BOOLEAN, "Wait for a message if there is none."),
    Parameter(
        "timeout",
        {"type": "integer", "default": DEFAULT_TIMEOUT_MS},
        "How long to wait, in ms; brought into 0 to 60000.",
    ),
    Parameter("autoAck", BOOLEAN, "Complete the messages at delivery."),
    Parameter(
        "partitions",
        {**COUNT, "minimum": 1, "maximum": MAX_BATCH, "default": 1},
        "From how many partitions the batch may come.",
    ),
    GROUP,
    Parameter("subscriptionMode", {"enum": ["all", "new"]}, "Where a group that is new to the queue begins."),
    Parameter(
        "subscriptionFrom",
        {"anyOf": [{"const": "now"}, {"type": "string", "format": "date-time"}]},
        "The same by time: at the first message pushed at or after it.",
    ),
    Parameter("workerId", NAME, "Who works on the messages; shown beside them."),
    Parameter("Queen-Worker", NAME, "The same; wins over workerId.", "header"),
)
POP_ANSWERS: Final = {200: wire.PopAnswer, 204: None}
POP_ABOUT: Final = (
    "The messages are leased: they are this consumer's until they are acknowledged or the lease ends. "
    "204: nothing to be had now; `Queen-Blocked` says what holds pending messages back, if any."
)

OPERATIONS: Final = (
    Operation(
        "POST",
        "/api/v1/push",
        "Messages on their way",
        "Push messages",
        {201: wire.PushAnswer},
        body=wire.PushBody,
        example={"items": [{"queue": "orders", "payload": {"amount": 99.9}, "transactionId": "order-1"}]},
        refuses=(429,),
        about=f"1 to {MAX_BATCH} messages, all or none. A transactionId that is there already: `duplicate`, nothing "
        "stored; so a push can be repeated safely. Queues and partitions come into being as needed.",
    ),
    Operation(
        "GET",
        "/api/v1/pop/queue/<queue>/partition/<partition>",
        "Messages on their way",
        "Pop from a partition",
        POP_ANSWERS,
        POP,
        about=POP_ABOUT,
    ),
    Operation(
        "GET",
        "/api/v1/pop/queue/<queue>",
        "Messages on their way",
        "Pop from a queue",
        POP_ANSWERS,
        POP,
        about="From the partition whose first available message is oldest. " + POP_ABOUT,
    ),
    Operation(
        "GET",
        "/api/v1/pop",
        "Messages on their way",
        "Pop from the queues of a namespace or task",
        POP_ANSWERS,
        (NAMESPACE._replace(example="shop"), TASK, *POP),
        about="One of the two is needed; with both, both must match. Highest `priority` first. " + POP_ABOUT,
    ),
    Operation(
        "POST",
        "/api/v1/ack",
        "Messages on their way",
        "Acknowledge a message",
        {200: wire.Settled},
        body=wire.AckBody,
        example={"transactionId": "order-1", "status": "completed"},
        refuses=(404, 409),
        about="The same acknowledgement again gets the same answer; another one for a settled message is refused.",
    ),
    Operation(
        "POST",
        "/api/v1/ack/batch",
        "Messages on their way",
        "Acknowledge several messages",
        {200: wire.BatchSettled},
        body=wire.AckBatchBody,
        example={"acknowledgments": [{"transactionId": "order-1", "status": "completed"}]},
        about=f"1 to {MAX_BATCH}, in one commit; what is refused reads `not_found` or `conflict` in its place.",
    ),
    Operation(
        "POST",
        "/api/v1/lease/<leaseId>/extend",
        "Messages on their way",
        "Extend a lease",
        {200: answers.Extended},
        body=wire.ExtendBody,
        example={"seconds": 60},
        refuses=(404,),
        body_required=False,
        about="To so many seconds from now, without a body to the queue's leaseTime from now; never earlier.",
    ),
    Operation(
        "POST",
        "/api/v1/configure",
        "Queues",
        "Create or change a queue",
        {200: answers.Configured},
        body=wire.ConfigureBody,
        example={"queue": "orders", "namespace": "shop", "options": {"leaseTime": 60, "retryLimit": 5}},
        about="What is left out keeps its value; null resets an option, and takes a namespace or task away.",
    ),
    Operation(
        "GET",
        "/api/v1/resources/queues",
        "Queues",
        "All queues",
        {200: figures.QueueSummaries},
        (NAMESPACE, TASK),
    ),
    Operation(
        "GET",
        "/api/v1/resources/queues/<queue>",
        "Queues",
        "A queue and its partitions",
        {200: figures.QueueDetail},
        refuses=(404,),
    ),
    Operation(
        "GET",
        "/api/v1/resources/partitions",
        "Queues",
        "All partitions",
        {200: figures.PartitionSummaries},
        (QUEUE, Parameter("minDepth", COUNT, "Only partitions with at least so many pending messages.")),
    ),
    Operation("GET", "/api/v1/resources/namespaces", "Queues", "All namespaces", {200: figures.Namespaces}),
    Operation("GET", "/api/v1/resources/tasks", "Queues", "All tasks", {200: figures.Tasks}),
    Operation("GET", "/api/v1/resources/overview", "Queues", "Everything in numbers", {200: figures.Overview}),
    Operation(
        "GET",
        "/api/v1/analytics/queue/<queue>",
        "Figures",
        "Counts of a queue",
        {200: figures.QueueStatistics},
        refuses=(404,),
    ),
    Operation(
        "GET",
        "/api/v1/analytics/queues",
        "Figures",
        "Counts of all queues",
        {200: figures.QueuesStatistics},
        (NAMESPACE, TASK),
    ),
    Operation(
        "GET",
        "/api/v1/analytics/queue-stats",
        "Figures",
        "Counts of the queues that match",
        {200: figures.QueuesStatistics},
        (QUEUE, NAMESPACE, TASK),
    ),
    Operation(
        "GET",
        "/api/v1/analytics",
        "Figures",
        "Counts of a namespace or task",
        {200: figures.QueuesStatistics},
        (NAMESPACE, TASK),
    ),
    Operation("GET", "/api/v1/analytics/queue-depths", "Figures", "How much waits", {200: figures.QueueDepths}),
    Operation(
        "GET",
        "/api/v1/analytics/throughput",
        "Figures",
        "The last hour by the minute",
        {200: figures.Throughput},
    ),
    Operation(
        "GET",
        "/api/v1/analytics/queue-lag",
        "Figures",
        "How long messages take",
        {200: figures.QueuesLag},
        (QUEUE, NAMESPACE, TASK),
        about="Of queues with at least 5 messages completed in the last 24 hours.",
    ),
    Operation(
        "GET",
        "/health",
        "The server",
        "How the server is",
        {200: answers.Health, 503: answers.Health},
    ),
    Operation(
        "GET",
        "/health/ready",
        "The server",
        "Whether it takes work",
        {200: answers.Readiness, 503: answers.Readiness},
        about="A full disk is 200 with `store` `full`: acknowledgements must get through.",
    ),
    Operation(
        "GET",
        "/metrics",
        "The server",
        "Figures about the process",
        {200: (answers.Metrics, PROMETHEUS, OPENMETRICS)},
        about="Prometheus' text where the Accept header prefers it to JSON.",
    ),
    Operation(
        "GET",
        "/metrics/prometheus",
        "The server",
        "Figures as Prometheus' text",
        {200: (PROMETHEUS, OPENMETRICS)},
    ),
    Operation("GET", "/openapi.json", "The server", "This document", {200: DOCUMENT}),
)
