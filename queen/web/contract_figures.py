"""The rows of the routes that show figures: resources, analytics, and the server itself."""

from typing import Final

from queen.tokens import Role
from queen.web import answers
from queen.web import answers_figures as figures
from queen.web.contract import NAMESPACE, QUEUE, TASK, Operation, Parameter
from queen.web.schemas import COUNT

PROMETHEUS: Final = "text/plain"
OPENMETRICS: Final = "application/openmetrics-text"
HTML: Final = "text/html"
DOCUMENT: Final = "application/json"
YAML: Final = "application/yaml"

AT: Final = Parameter(
    "at",
    {"type": "string"},
    "As it was at that instant: an ISO 8601 time, `-5m`, or a record's number as `#123`. What is yet to come is 400.",
)

RESOURCES: Final = (
    Operation(
        "GET",
        "/api/v1/resources/queues",
        "Queues",
        "All queues",
        {200: figures.QueueSummaries},
        (NAMESPACE, TASK, AT),
        role=Role.READ,
    ),
    Operation(
        "GET",
        "/api/v1/resources/queues/<queue>",
        "Queues",
        "A queue and its partitions",
        {200: figures.QueueDetail},
        (AT,),
        refuses=(404,),
        role=Role.READ,
    ),
    Operation(
        "GET",
        "/api/v1/resources/partitions",
        "Queues",
        "All partitions",
        {200: figures.PartitionSummaries},
        (QUEUE, Parameter("minDepth", COUNT, "Only partitions with at least so many pending messages."), AT),
        role=Role.READ,
    ),
    Operation(
        "GET",
        "/api/v1/resources/namespaces",
        "Queues",
        "All namespaces",
        {200: figures.Namespaces},
        (AT,),
        role=Role.READ,
    ),
    Operation("GET", "/api/v1/resources/tasks", "Queues", "All tasks", {200: figures.Tasks}, (AT,), role=Role.READ),
    Operation(
        "GET",
        "/api/v1/resources/overview",
        "Queues",
        "Everything in numbers",
        {200: figures.Overview},
        (AT,),
        role=Role.READ,
    ),
)

ANALYTICS: Final = (
    Operation(
        "GET",
        "/api/v1/analytics/queue/<queue>",
        "Figures",
        "Counts of a queue",
        {200: figures.QueueStatistics},
        refuses=(404,),
        role=Role.READ,
    ),
    Operation(
        "GET",
        "/api/v1/analytics/queues",
        "Figures",
        "Counts of all queues",
        {200: figures.QueuesStatistics},
        (NAMESPACE, TASK),
        role=Role.READ,
    ),
    Operation(
        "GET",
        "/api/v1/analytics/queue-stats",
        "Figures",
        "Counts of the queues that match",
        {200: figures.QueuesStatistics},
        (QUEUE, NAMESPACE, TASK),
        role=Role.READ,
    ),
    Operation(
        "GET",
        "/api/v1/analytics",
        "Figures",
        "Counts of a namespace or task",
        {200: figures.QueuesStatistics},
        (NAMESPACE._replace(example="shop"), TASK),
        role=Role.READ,
    ),
    Operation(
        "GET", "/api/v1/analytics/queue-depths", "Figures", "How much waits", {200: figures.QueueDepths}, role=Role.READ
    ),
    Operation(
        "GET",
        "/api/v1/analytics/throughput",
        "Figures",
        "The last hour by the minute",
        {200: figures.Throughput},
        role=Role.READ,
    ),
    Operation(
        "GET",
        "/api/v1/analytics/queue-lag",
        "Figures",
        "How long messages take",
        {200: figures.QueuesLag},
        (QUEUE, NAMESPACE, TASK),
        about="Of queues with at least 5 messages completed in the last 24 hours.",
        role=Role.READ,
    ),
)

SERVER: Final = (
    Operation(
        "GET",
        "/health",
        "The server",
        "How the server is",
        {200: answers.Health, 503: answers.Health},
        role=None,
    ),
    Operation(
        "GET",
        "/health/ready",
        "The server",
        "Whether it takes work",
        {200: answers.Readiness, 503: answers.Readiness},
        about="A full disk is 200 with `store` `full`: acknowledgements must get through. Tokens that can't be read "
        "are 503: nobody gets in.",
        role=None,
    ),
    Operation(
        "GET",
        "/metrics",
        "The server",
        "Figures about the process",
        {200: (answers.Metrics, PROMETHEUS, OPENMETRICS)},
        about="Prometheus' text where the Accept header prefers it to JSON.",
        role=Role.READ,
    ),
    Operation(
        "GET",
        "/metrics/prometheus",
        "The server",
        "Figures as Prometheus' text",
        {200: (PROMETHEUS, OPENMETRICS)},
        role=Role.READ,
    ),
    Operation(
        "POST",
        "/api/v1/compact",
        "The server",
        "Compact the file",
        {200: answers.Compacted},
        about="Makes the file anew, without what is deleted, while everything goes on; answers when it is in use.",
        role=Role.ADMIN,
    ),
    Operation("GET", "/", "The server", "Where to begin", {200: answers.Entrance}, role=Role.READ),
    Operation("GET", "/docs", "The server", "The manual", {200: HTML}, role=Role.READ),
    Operation("GET", "/openapi.json", "The server", "The HTTP interface for programs", {200: DOCUMENT}, role=Role.READ),
    Operation("GET", "/asyncapi.yaml", "The server", "The WebSocket for programs", {200: YAML}, role=Role.READ),
)
