"""The OpenAPI 3.1 document (`GET /openapi.json`), made from the rows of `contract.py` and the structs of the bodies."""

import re
from collections.abc import Iterator
from functools import cache
from http import HTTPStatus
from typing import Any, Final

import msgspec

from queen.broker import Broker
from queen.tokens import Role
from queen.web import answers
from queen.web.contract import Link, Operation, Parameter
from queen.web.contract_delivery import CONFIGURE, DELIVERY
from queen.web.contract_figures import ANALYTICS, DOCUMENT, RESOURCES, SERVER, YAML
from queen.web.contract_past import EXPLANATION, HISTORY
from queen.web.contract_stored import CONSUMER_GROUPS, DELETION, STORED
from queen.web.exchange import Answer, Asked
from queen.web.meanings import meaning
from queen.web.operation import Traffic
from queen.web.schemas import COMPONENTS, NAME, NARROWER, Schema

VERSION: Final = "0.1.0"
"""Of the contract, not of the program."""

OPERATIONS: Final = (
    *(CONFIGURE, *RESOURCES, *DELIVERY, *EXPLANATION, *STORED, *HISTORY),
    *(*CONSUMER_GROUPS, *ANALYTICS, *DELETION, *SERVER),
)
"""The row of every route, in the order in which their examples work."""
EVERYWHERE: Final = (400, 408, 413, 414, 431, 500, 503)
"""What any request may be refused with, whatever it asks for."""
WRITING: Final = (409, 507)
"""And those that change something: the queue may be deleted meanwhile, or the disk full."""
GUARDED: Final = (401, 403)
"""And those that are not open to everybody."""

OUTSIDE: Final = (404, 405, 426, 501)
"""And what no route answers: what is asked for is none."""

REFUSALS: Final = {
    400: "The request is wrong; a field that is wrong stands at the beginning of the sentence.",
    401: "A token is needed, and this one is none, or has expired.",
    403: "The token's role does not suffice, or a page of another site asks.",
    404: "There is no such path, queue, message, lease or group.",
    405: "The path has no such method.",
    408: "The body did not arrive in time.",
    409: "The message's state refuses, the lease is another's, or the queue is being deleted.",
    413: "The body is larger than the server takes.",
    414: "The request's path and query are longer than the server takes.",
    426: "The path is a WebSocket.",
    429: "The queue is at its maxSize.",
    431: "The request's headers are longer than the server takes.",
    500: "A fault of the server, which its log describes.",
    501: "The body is transferred in another way than whole or in chunks.",
    503: "The server is starting, stopping, overloaded, can't write, can't read its tokens, or can't decrypt the "
    "message.",
    507: "The disk is full. Acknowledgements go on.",
}
_RULES: Final = re.compile(r" \([A-Z]\d+(?:(?:, | to )[A-Z]\d+)*\)")
_RETRY: Final = {
    "Retry-After": {"description": "Seconds after which to try again.", "schema": {"type": "integer", "minimum": 1}}
}
_HEADERS: Final[dict[int, Schema]] = {
    401: {"WWW-Authenticate": {"description": "Bearer, and what is wrong.", "schema": {"type": "string"}}},
    204: {
        "Queen-Blocked": {
            "description": "What holds pending messages back; absent where there are none.",
            "schema": {"enum": ["leased", "delayed", "buffered", "retry"]},
        },
        **_RETRY,
    },
    405: {"Allow": {"description": "The methods that it has.", "schema": {"type": "string"}}},
    426: {"Upgrade": {"description": "What it is.", "schema": {"const": "websocket"}}},
    429: _RETRY,
    503: _RETRY,
    507: _RETRY,
}
_SEGMENTS: Final = {
    "queue": ("The queue, percent-encoded.", "orders"),
    "partition": ("The partition, percent-encoded.", "Default"),
    "transactionId": ("The message's transactionId, percent-encoded.", "order-1"),
    "group": ("The consumer group, percent-encoded.", "billing"),
    "leaseId": ("The lease, as a pop has told it.", "LEASE"),
}
"""Meaning and example of a path's segments. An example of a leaseId could only be wrong."""
TOKEN: Final = "token"
_ROLES: Final = (
    "Needed where the server has tokens. Each operation names the role that the token must have at least: "
    + ", ".join(f"`{role.word}`" for role in Role)
    + "."
)
_ABOUT: Final = (
    "A durable message queue. A 2xx is sent when the change is on disk, not before. Bodies are JSON, whatever "
    "`Content-Type` says. Fields and parameters that are not known are ignored, except among options. Every error is "
    "JSON with one field, `error`. Beside what is listed, every path answers OPTIONS with 204 (what browsers ask for "
    "ahead of a request from another site), and HEAD where it answers GET, except pops. What `/ws/dashboard` tells is "
    "described in AsyncAPI, at `/asyncapi.yaml`."
)


@cache
def document() -> Schema:
    """The whole document as plain values; not to be changed."""
    structs = dict.fromkeys(kind for row in OPERATIONS for kind in _structs(row))
    references, components = msgspec.json.schema_components(
        [answers.Error, *structs], ref_template="#/components/schemas/{name}"
    )
    named = dict(zip([answers.Error, *structs], references, strict=True))
    paths: dict[str, Schema] = {}
    for row in OPERATIONS:
        paths.setdefault(template(row.path), {})[row.method.lower()] = _operation(row, named)
    refusals = {f"Error{status}": _refusal(status, named[answers.Error]) for status in REFUSALS}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Queen",
            "version": VERSION,
            "description": _ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "externalDocs": {"description": "AsyncAPI of the WebSocket /ws/dashboard", "url": "/asyncapi.yaml"},
        "tags": [{"name": group} for group in dict.fromkeys(row.group for row in OPERATIONS)],
        "paths": paths,
        "components": {
            "schemas": COMPONENTS | {name: _told(schema) for name, schema in components.items()},
            "responses": refusals,
            "securitySchemes": {TOKEN: {"type": "http", "scheme": "bearer", "description": _ROLES}},
        },
    }


@cache
def _encoded() -> bytes:
    return msgspec.json.encode(document())


async def openapi(broker: Broker, traffic: Traffic, asked: Asked) -> Answer:
    """`GET /openapi.json`."""
    return Answer(200, _encoded())


def template(path: str) -> str:
    """A route's path as OpenAPI spells it."""
    return re.sub(r"<(\w+)>", r"{\1}", path)


def refusals(row: Operation) -> tuple[int, ...]:
    """All statuses that the route refuses with, in order."""
    writes = row.method != "GET" or row.path.startswith("/api/v1/pop")
    guarded = () if row.role is None else GUARDED
    return tuple(sorted({*EVERYWHERE, *guarded, *row.refuses, *(WRITING if writes else ())} - row.answers.keys()))


def _told(schema: Schema) -> Schema:
    """The struct's schema; the numbers of rules in its docstring say nothing to those who read the document."""
    title = schema["title"]
    told = {**schema, **NARROWER.get(title, {}), "description": _RULES.sub("", schema["description"])}
    if "properties" in schema:
        told["properties"] = {name: _meant(title, name, field) for name, field in schema["properties"].items()}
    return told


def _meant(struct: str, name: str, field: Schema) -> Schema:
    text = meaning(struct, name)
    return field if text is None else {**field, "description": text}


def _structs(row: Operation) -> Iterator[type]:
    if row.body is not None:
        yield row.body
    for answer in row.answers.values():
        yield from (kind for kind in _kinds(answer) if isinstance(kind, type))


def _kinds(answer: Any) -> tuple[Any, ...]:
    if answer is None:
        return ()
    return answer if isinstance(answer, tuple) else (answer,)


def _operation(row: Operation, named: dict[type, Schema]) -> Schema:
    responses: Schema = {str(status): _response(status, answer, named) for status, answer in row.answers.items()}
    if row.links:
        links = {f"{_identifier(link.summary)}{number}": _link(link) for number, link in enumerate(row.links)}
        responses[str(min(row.answers))]["links"] = links
    responses |= {str(status): {"$ref": f"#/components/responses/Error{status}"} for status in refusals(row)}
    found: Schema = {
        "tags": [row.group],
        "summary": row.summary,
        "operationId": _identifier(row.summary),
        "parameters": [
            *[_segment(name, row.segments) for name in re.findall(r"<(\w+)>", row.path)],
            *map(_parameter, row.parameters),
        ],
        "responses": responses,
        # Either: a server without tokens asks for none.
        "security": [] if row.role is None else [{TOKEN: [row.role.word]}, {}],
    }
    if row.about:
        found["description"] = row.about
    if row.body is not None:
        content: Schema = {"schema": named[row.body]}
        if row.example is not None:
            content["example"] = row.example
        found["requestBody"] = {"content": {"application/json": content}, "required": row.body_required}
    return found


def _response(status: int, answer: Any, named: dict[type, Schema]) -> Schema:
    found: Schema = {"description": HTTPStatus(status).phrase}
    if status in _HEADERS:
        found["headers"] = _HEADERS[status]
    content: Schema = {}
    for kind in _kinds(answer):
        if isinstance(kind, type):
            several = content.get("application/json")
            content["application/json"] = {
                "schema": {"anyOf": [several["schema"], named[kind]]} if several else named[kind]
            }
        else:
            content[kind] = {"schema": {"type": "object" if kind in (DOCUMENT, YAML) else "string"}}
    if content:
        found["content"] = content
    return found


def _refusal(status: int, error: Schema) -> Schema:
    found: Schema = {"description": REFUSALS[status], "content": {"application/json": {"schema": error}}}
    if status in _HEADERS:
        found["headers"] = _HEADERS[status]
    return found


def _link(link: Link) -> Schema:
    found: Schema = {"operationId": _identifier(link.summary)}
    if link.segments:
        found["parameters"] = link.segments
    if link.body is not None:
        found["requestBody"] = link.body
    return found


def _segment(name: str, examples: dict[str, str]) -> Schema:
    about, example = _SEGMENTS[name]
    told = {"description": about, "schema": NAME, "example": examples.get(name, example)}
    return {"name": name, "in": "path", "required": True, **told}


def _parameter(parameter: Parameter) -> Schema:
    found: Schema = {"name": parameter.name, "in": parameter.place, "schema": parameter.schema}
    if parameter.meaning:
        found["description"] = parameter.meaning
    if parameter.example is not None:
        found["example"] = parameter.example
    return found


def _identifier(summary: str) -> str:
    first, *others = (str(word) for word in re.findall(r"\w+", summary))
    return first.lower() + "".join(word.capitalize() for word in others)
