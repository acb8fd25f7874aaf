"""The rows of the routes on a message's way: push, pop, lease, ack, transaction; and of the one that shapes queues."""

from typing import Final

from queen.tokens import Role
from queen.web import answers, answers_stored, wire
from queen.web.contract import GROUP, NAMESPACE, TASK, Link, Operation, Parameter
from queen.web.parse import DEFAULT_TIMEOUT_MS
from queen.web.schemas import BOOLEAN, COUNT, MAX_BATCH, NAME

POP: Final = (
    Parameter("batch", {**COUNT, "minimum": 1, "maximum": MAX_BATCH, "default": 1}, "How many messages at most."),
    Parameter("wait", BOOLEAN, "Wait for a message if there is none."),
    Parameter(
        "timeout",
        {"type": "integer", "default": DEFAULT_TIMEOUT_MS},
        "How long to wait, in ms; brought into 0 to 60000.",
    ),
    Parameter(
        "autoAck",
        BOOLEAN,
        "Complete the messages at delivery, for good: nobody needs to acknowledge them, and nobody can.",
    ),
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

FIRST: Final = "$response.body#/messages/0/"
PUSHED: Final = tuple(
    Link(summary, {"transactionId": FIRST + "transactionId"})
    for summary in (
        "Show a message",
        "Delete a message",
        "Retry a message",
        "Make a message a dead letter",
        "Messages around a message",
    )
)
POPPED: Final = (
    *(
        Link("Acknowledge a message", body={"transactionId": f"{{{FIRST}transactionId}}", "status": status})
        for status in ("completed", "failed")
    ),
    Link("Extend a lease", {"leaseId": FIRST + "leaseId"}),
)

CONFIGURE: Final = Operation(
    "POST",
    "/api/v1/configure",
    "Queues",
    "Create or change a queue",
    {200: answers.Configured},
    body=wire.ConfigureBody,
    example={"queue": "orders", "namespace": "shop", "task": "checkout", "options": {"leaseTime": 600}},
    about="What is left out keeps its value; null resets an option, and takes a namespace or task away.",
    role=Role.ADMIN,
)

DELIVERY: Final = (
    Operation(
        "POST",
        "/api/v1/push",
        "Messages on their way",
        "Push messages",
        {201: wire.PushAnswer},
        body=wire.PushBody,
        example={
            "items": [
                {"queue": "orders", "transactionId": "order-1", "payload": {"amount": 99.9}},
                {"queue": "orders", "transactionId": "order-2", "partition": "customer-7", "payload": {"amount": 12.5}},
                {"queue": "orders", "transactionId": "order-3", "partition": "customer-8", "payload": {"amount": 3}},
                {"queue": "orders", "transactionId": "order-4", "payload": {"amount": 70}},
            ]
        },
        refuses=(429,),
        about=f"1 to {MAX_BATCH} messages, all or none. A transactionId that is there already: `duplicate`, nothing "
        "stored; so a push can be repeated safely. Queues and partitions come into being as needed, ahead of "
        "the messages: a push that is refused (429, 503, 507) may leave those that it names behind, empty.",
        links=PUSHED,
        role=Role.WRITE,
    ),
    Operation(
        "GET",
        "/api/v1/pop/queue/<queue>/partition/<partition>",
        "Messages on their way",
        "Pop from a partition",
        POP_ANSWERS,
        POP,
        about=POP_ABOUT,
        links=POPPED,
        role=Role.WRITE,
    ),
    Operation(
        "GET",
        "/api/v1/pop/queue/<queue>",
        "Messages on their way",
        "Pop from a queue",
        POP_ANSWERS,
        POP,
        about="From the partition whose first available message is oldest. " + POP_ABOUT,
        links=POPPED,
        role=Role.WRITE,
    ),
    Operation(
        "GET",
        "/api/v1/pop",
        "Messages on their way",
        "Pop from the queues of a namespace or task",
        POP_ANSWERS,
        (NAMESPACE._replace(example="shop"), TASK, *POP),
        about="One of the two is needed; with both, both must match. Highest `priority` first. " + POP_ABOUT,
        links=POPPED,
        role=Role.WRITE,
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
        role=Role.WRITE,
    ),
    Operation(
        "POST",
        "/api/v1/lease/<leaseId>/extend",
        "Messages on their way",
        "Extend a lease",
        {200: answers.Extended},
        body=wire.ExtendBody,
        example={"seconds": 1200},
        refuses=(404,),
        body_required=False,
        before='LEASE=$(curl -s HOST/api/v1/pop/queue/orders | grep -o \'"leaseId":"[^"]*\' | cut -d \'"\' -f 4)',
        about="To so many seconds from now, without a body to the queue's leaseTime from now; never earlier.",
        role=Role.WRITE,
    ),
    Operation(
        "POST",
        "/api/v1/ack/batch",
        "Messages on their way",
        "Acknowledge several messages",
        {200: wire.BatchSettled},
        body=wire.AckBatchBody,
        example={
            "acknowledgments": [
                {"transactionId": "order-2", "status": "failed", "error": "card refused"},
                {"transactionId": "order-3", "status": "completed"},
            ]
        },
        about=f"1 to {MAX_BATCH}, in one commit; what is refused reads `not_found` or `conflict` in its place.",
        role=Role.WRITE,
    ),
    Operation(
        "POST",
        "/api/v1/transaction",
        "Messages on their way",
        "Push and acknowledge in one commit",
        {200: (answers_stored.Transacted, answers_stored.NotTransacted)},
        body=wire.TransactionBody,
        example={
            "operations": [
                {"type": "ack", "transactionId": "order-4", "status": "completed"},
                {"type": "push", "items": [{"queue": "invoices", "transactionId": "invoice-1", "payload": {}}]},
            ]
        },
        refuses=(429,),
        about="All operations or none. Where an acknowledgement would be refused, no message is pushed or settled: "
        "`success` is false. Queues and partitions that the pushes name may be there all the same, empty.",
        role=Role.WRITE,
    ),
)
