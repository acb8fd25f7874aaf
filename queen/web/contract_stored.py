"""The rows of the routes for stored messages and for consumer groups."""

from typing import Final

from queen.tokens import Role
from queen.web import answers_stored, wire
from queen.web.contract import GROUP, NAMESPACE, QUEUE, TASK, Operation, Parameter
from queen.web.messages import DEFAULT_LIMIT
from queen.web.schemas import COUNT, MAX_BATCH, NAME, STATUSES

PAGE: Final = (
    Parameter("limit", {**COUNT, "minimum": 1, "maximum": MAX_BATCH, "default": DEFAULT_LIMIT}, "How many at most."),
    Parameter("offset", {**COUNT, "default": 0}, "How many to pass over."),
)
MESSAGE: Final = "/api/v1/messages/<transactionId>"
MESSAGES: Final = "Stored messages"
GROUPS: Final = "Consumer groups"
REMOVAL: Final = "Deletion"

STORED: Final = (
    Operation(
        "GET",
        "/api/v1/messages",
        MESSAGES,
        "List messages",
        {200: answers_stored.StoredMessages},
        (
            QUEUE,
            Parameter("partition", NAME, "Only this partition."),
            NAMESPACE,
            TASK,
            Parameter("status", {"enum": STATUSES}, "Only messages of this status."),
            *PAGE,
        ),
        about="Newest first. Statuses are those of the default consumer group.",
        role=Role.READ,
    ),
    Operation(
        "GET",
        MESSAGE,
        MESSAGES,
        "Show a message",
        {200: answers_stored.StoredMessageDetail},
        refuses=(404,),
        about="With the options of its queue.",
        role=Role.READ,
    ),
    Operation(
        "POST",
        f"{MESSAGE}/dlq",
        MESSAGES,
        "Make a message a dead letter",
        {200: answers_stored.MessageBuried},
        (GROUP,),
        refuses=(404, 409),
        about="One that has failed at least once.",
        segments={"transactionId": "order-2"},
        role=Role.WRITE,
    ),
    Operation(
        "GET",
        "/api/v1/dlq",
        MESSAGES,
        "List dead letters",
        {200: answers_stored.DeadLetters},
        (QUEUE, GROUP, *PAGE),
        about="Newest first.",
        role=Role.READ,
    ),
    Operation(
        "POST",
        f"{MESSAGE}/retry",
        MESSAGES,
        "Retry a message",
        {200: answers_stored.MessageRetried},
        (GROUP,),
        refuses=(404, 409),
        about="A failed message or a dead letter becomes pending at its old place; one that waits for its retry delay "
        "becomes available now.",
        segments={"transactionId": "order-2"},
        role=Role.WRITE,
    ),
    Operation(
        "GET",
        f"{MESSAGE}/related",
        MESSAGES,
        "Messages around a message",
        {200: answers_stored.RelatedMessages},
        PAGE,
        refuses=(404,),
        about="The others of its partition that were pushed within an hour of it, newest first; it is not among them.",
        role=Role.READ,
    ),
)

CONSUMER_GROUPS: Final = (
    Operation(
        "GET",
        "/api/v1/consumer-groups",
        GROUPS,
        "List consumer groups",
        {200: answers_stored.Groups},
        (QUEUE,),
        about="How far they have got, and how far they lag behind. A group comes into being with its first pop.",
        before="curl -s 'HOST/api/v1/pop/queue/orders?consumerGroup=billing'",
        role=Role.READ,
    ),
    Operation(
        "POST",
        "/api/v1/consumer-groups/<group>/queues/<queue>/seek",
        GROUPS,
        "Move a consumer group",
        {200: answers_stored.GroupMoved},
        body=wire.SeekBody,
        example={"toEnd": True},
        refuses=(404, 409),
        about="To the first message pushed at or after `timestamp`, or with `toEnd` past all there are. What was "
        "completed is delivered again; leases are released.",
        role=Role.ADMIN,
    ),
)

DELETION: Final = (
    Operation(
        "DELETE",
        MESSAGE,
        REMOVAL,
        "Delete a message",
        {200: answers_stored.MessageDeleted},
        refuses=(404,),
        about="In whatever status.",
        role=Role.ADMIN,
    ),
    Operation(
        "DELETE",
        "/api/v1/consumer-groups/<group>",
        REMOVAL,
        "Delete a consumer group",
        {200: answers_stored.GroupDeleted},
        (QUEUE._replace(meaning="Only in this queue; everywhere where left out."),),
        refuses=(404,),
        about="Its next contact with a queue starts anew.",
        role=Role.ADMIN,
    ),
    Operation(
        "DELETE",
        "/api/v1/queues/<queue>/clear",
        REMOVAL,
        "Clear a queue",
        {200: answers_stored.QueueCleared},
        (Parameter("partition", NAME, "Only this partition."),),
        refuses=(404,),
        about="Deletes all its messages.",
        role=Role.ADMIN,
    ),
    Operation(
        "DELETE",
        "/api/v1/resources/queues/<queue>",
        REMOVAL,
        "Delete a queue",
        {200: answers_stored.QueueDeleted},
        refuses=(404,),
        about="With all that it holds; a queue of the same name begins anew.",
        role=Role.ADMIN,
    ),
)
