"""The rows of the routes that tell what happened, and why nothing does."""

from typing import Final

from queen.tokens import Role
from queen.web import answers_past
from queen.web.contract import GROUP, Operation, Parameter
from queen.web.contract_stored import MESSAGE, MESSAGES, PAGE
from queen.web.schemas import NAME

HISTORY: Final = (
    Operation(
        "GET",
        f"{MESSAGE}/history",
        MESSAGES,
        "Tell the life of a message",
        {200: answers_past.History},
        refuses=(404,),
        role=Role.READ,
        about="Its push, each delivery and failure, what operators did, how it ended, in every consumer group; also of "
        "deleted messages, and of those that had the transactionId before.",
    ),
)

EXPLANATION: Final = (
    Operation(
        "GET",
        "/api/v1/explain/pop",
        "Messages on their way",
        "Explain what a pop would get",
        {200: answers_past.Explained},
        (
            Parameter("queue", NAME, "The queue; needed.", example="orders"),
            Parameter("partition", NAME, "Only this partition."),
            GROUP,
            *PAGE,
        ),
        refuses=(404,),
        role=Role.READ,
        about="For each partition, those with pending messages first: whether it would deliver now, and why not.",
    ),
)
