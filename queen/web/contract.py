"""What a route takes and answers, as one row: the vocabulary of `contract_*.py`, which have a row for each route of
`app.py`. `openapi.py` makes the document from them.

A test holds that there is a row for every route and a route for every row; the tests of the routes hold every answer
they get against its row.
"""

from typing import Any, Final, NamedTuple

from queen.tokens import Role
from queen.web.schemas import NAME, Schema


class Parameter(NamedTuple):
    """A parameter of the query, or a header."""

    name: str
    schema: Schema
    meaning: str = ""
    place: str = "query"
    example: Any = None


class Link(NamedTuple):
    """Another operation, by its summary, that goes on from an answer: its path's segments, or its body, in OpenAPI's
    expressions for what comes from the answer."""

    summary: str
    segments: dict[str, str] = {}  # noqa: RUF012
    body: Any = None


class Operation(NamedTuple):
    """One route. `answers` are the good ones: struct, media type of plain text, or None for an empty body; `refuses`
    the statuses it has beyond those that every route has.

    The examples of all rows, in their order, are a walk through the server that works as it stands, which a test takes:
    `example` is the body, `segments` say what is else than usual in the path, and `before` is a line of shell that the
    command needs ahead of it, with HOST where the server is."""

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
    links: tuple[Link, ...] = ()
    segments: dict[str, str] = {}  # noqa: RUF012
    before: str = ""
    role: Role | None = Role.ADMIN


QUEUE: Final = Parameter("queue", NAME, "Only this queue.")
NAMESPACE: Final = Parameter("namespace", NAME, "Only queues of this namespace.")
TASK: Final = Parameter("task", NAME, "Only queues of this task.")
GROUP: Final = Parameter("consumerGroup", NAME, "On behalf of this consumer group; the default group where left out.")
