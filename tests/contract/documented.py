"""Answers held against the OpenAPI document: the status, the content type, and the body, field by field.

Stricter than the document is to clients: there, an answer may grow fields; here, a field that no one has described is
a fault.
"""

import re
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from typing import Any

import jsonschema
from jsonschema.validators import validator_for

from queen.web.openapi import EVERYWHERE, GUARDED, OUTSIDE, document
from tests.contract.reply import Reply

FROM_NO_ROUTE = {*EVERYWHERE, *GUARDED, *OUTSIDE}
"""Statuses of requests that meet no route."""
LONG = 32 * 1024
"""A validator in Python is slow; longer bodies come from tests that push or pop thousands."""


def faults(method: str, target: str, reply: Reply) -> Iterator[str]:
    """What the document doesn't say, or says otherwise."""
    path = target.partition("?")[0]
    operation = operation_of(method, path)
    if operation is None:
        if reply.status not in FROM_NO_ROUTE:
            yield f"{method} {path}: {reply.status}, but it is not in the document"
        return
    response = operation["responses"].get(str(reply.status))
    if response is None:
        yield f"{method} {path}: {reply.status} is not among {list(operation['responses'])}"
        return
    if "$ref" in response:
        response = document()["components"]["responses"][response["$ref"].rsplit("/", 1)[1]]
    content = response.get("content", {})
    kind = reply.headers.get("content-type", "").partition(";")[0]
    if not content:
        if reply.body or kind:
            yield f"{method} {path}: {reply.status} has a body"
    elif kind not in content:
        yield f"{method} {path}: {kind!r} is not among {list(content)}"
    elif kind == "application/json" and len(reply.body) <= LONG:
        yield from schema_faults(content[kind]["schema"], reply.json, f"{method} {path}")
    for header in response.get("headers", {}).keys() & reply.headers.keys():
        yield from schema_faults(response["headers"][header]["schema"], reply.headers[header], header)


def operation_of(method: str, path: str) -> Any:
    """The document's operation for a request, fixed segments before others."""
    for pattern, operations in _patterns():
        if pattern.fullmatch(path):
            found = operations.get(method.lower())
            if found is not None:
                return found
    return None


def schema_faults(schema: Any, value: Any, where: str) -> Iterator[str]:
    """Where the value is not as the schema says."""
    for error in _validator(repr(schema), _Frozen(schema)).iter_errors(value):
        yield f"{where}{error.json_path[1:]}: {error.message[:300]}"


class _Frozen:
    """A schema as an argument of something that caches by another one."""

    def __init__(self, schema: Any) -> None:
        self.schema = schema

    def __hash__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Frozen)


@cache
def _validator(key: str, frozen: _Frozen) -> Any:
    whole = {**frozen.schema, "components": strict(document()["components"])}
    kind = validator_for({"$schema": "https://json-schema.org/draft/2020-12/schema"})
    return kind(whole, format_checker=jsonschema.FormatChecker())


def strict(schema: Any) -> Any:
    """The schema, with no fields but those it names."""
    copy = deepcopy(schema)
    todo = [copy]
    while todo:
        each = todo.pop()
        if isinstance(each, list):
            todo += each
        elif isinstance(each, dict):
            todo += each.values()
            if each.get("type") == "object" and isinstance(each.get("properties"), dict):
                each.setdefault("additionalProperties", False)
    return copy


@cache
def _patterns() -> list[tuple[re.Pattern[str], Any]]:
    paths = sorted(document()["paths"].items(), key=lambda item: "{" in item[0])
    return [(re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path))), operations) for path, operations in paths]
