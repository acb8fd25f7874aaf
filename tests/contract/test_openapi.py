"""The OpenAPI document against the routes, the types and itself (W4)."""

import json
import re
from pathlib import Path
from typing import Any, get_args

import jsonschema
import msgspec
import pytest

from queen.commands import AckStatus
from queen.errors import Invalid
from queen.names import parse_instant
from queen.options import DEFAULTS, OPTIONS, as_dict
from queen.web import parse, wire
from queen.web.app import MANUALS, OPERATION, ROUTES
from queen.web.meanings import ANYWHERE, MEANINGS
from queen.web.openapi import OPERATIONS, OUTSIDE, REFUSALS, document, refusals
from queen.web.status import STATUS
from tests.contract.client import Client
from tests.contract.documented import faults, schema_faults
from tests.contract.reply import Reply

DOCUMENT = document()
SCHEMAS = DOCUMENT["components"]["schemas"]
DECODED: dict[str, Any] = {
    "/api/v1/push": parse.push_decoder,
    "/api/v1/ack": parse.ack_decoder,
    "/api/v1/ack/batch": parse.ack_batch_decoder,
    "/api/v1/transaction": parse.transaction_decoder,
    "/api/v1/consumer-groups/{group}/queues/{queue}/seek": parse.seek_decoder,
    "/api/v1/configure": parse.configure_decoder,
    "/api/v1/lease/{leaseId}/extend": parse.extend_decoder,
}


def operations() -> list[tuple[str, str, Any]]:
    return [
        (method.upper(), path, operation)
        for path, methods in DOCUMENT["paths"].items()
        for method, operation in methods.items()
    ]


async def test_the_server_tells_it(client: Client) -> None:
    reply = await client.request("GET", "/openapi.json")
    assert reply.status == 200
    assert reply.headers["content-type"] == "application/json"
    assert reply.json == DOCUMENT


def test_every_route_is_in_it_and_nothing_else() -> None:
    routes = {(row.method, row.path) for row in ROUTES} | {("GET", path) for path in OPERATION | MANUALS}
    assert {(method, path.replace("{", "<").replace("}", ">")) for method, path, _ in operations()} == routes


async def test_every_operation_is_answered_by_a_route(client: Client) -> None:
    for method, path, _ in operations():
        reply = await client.request(method, re.sub(r"\{\w+\}", "x", path), b"")
        assert "no such path: " not in reply.body.decode(), path
        assert reply.status != 405


def test_it_is_openapi() -> None:
    """Its schemas are JSON Schema 2020-12, every reference leads somewhere, and every operation has a name."""
    for schema in SCHEMAS.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    for reference in re.findall(r'"\$ref": "#/components/(\w+)/(\w+)"', json.dumps(DOCUMENT)):
        assert reference[1] in DOCUMENT["components"][reference[0]]
    names = [operation["operationId"] for _, _, operation in operations()]
    assert len(set(names)) == len(names)
    for _, path, operation in operations():
        segments = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
        assert segments == set(re.findall(r"\{(\w+)\}", path))


def test_links_lead_to_operations_and_fill_their_segments() -> None:
    known = {operation["operationId"]: (path, operation) for _, path, operation in operations()}
    links = [
        link
        for _, _, operation in operations()
        for response in operation["responses"].values()
        for link in response.get("links", {}).values()
    ]
    assert links
    for link in links:
        path, operation = known[link["operationId"]]
        assert set(link.get("parameters", {})) == set(re.findall(r"\{(\w+)\}", path))
        assert ("requestBody" in link) <= ("requestBody" in operation)


@pytest.mark.parametrize("path", DECODED)
def test_bodies_are_described_by_the_types_that_decode_them(path: str) -> None:
    """Every field, and which of them must be there."""
    [body] = [each["post"]["requestBody"] for where, each in DOCUMENT["paths"].items() if where == path]
    name = body["content"]["application/json"]["schema"]["$ref"].rsplit("/", 1)[1]
    struct: Any = DECODED[path].type
    assert name == struct.__name__
    fields = msgspec.structs.fields(struct)
    assert list(SCHEMAS[name]["properties"]) == [field.encode_name for field in fields]
    assert SCHEMAS[name].get("required", []) == [field.encode_name for field in fields if field.required]


def test_every_body_has_its_decoder() -> None:
    assert {path for _, path, operation in operations() if "requestBody" in operation} == set(DECODED)


def test_examples_are_taken_by_their_own_schema() -> None:
    for _, path, operation in operations():
        for content in operation.get("requestBody", {}).get("content", {}).values():
            assert list(schema_faults(content["schema"], content["example"], path)) == []


def test_every_option_is_described() -> None:
    """C1, C3: names, defaults, ranges."""
    described = SCHEMAS["Options"]["properties"]
    assert {name: schema["default"] for name, schema in described.items()} == as_dict(DEFAULTS)
    assert SCHEMAS["Options"]["required"] == list(OPTIONS)
    assert list(SCHEMAS["OptionChanges"]["properties"]) == list(OPTIONS)
    assert list(schema_faults(SCHEMAS["OptionChanges"], {"leaseTime": None, "ordering": "relaxed"}, "")) == []
    for bad in ({"leaseTime": 0}, {"leaseTim": 1}, {"ttl": -1}, {"ordering": "loose"}, {"retryBackoff": 0.5}):
        assert list(schema_faults(SCHEMAS["OptionChanges"], bad, "")), bad


def test_which_fields_go_together_is_described() -> None:
    """G3."""
    at = "2026-01-31T09:30:00.000Z"
    goods: list[dict[str, Any]] = [
        {"timestamp": at},
        {"toEnd": True},
        {"timestamp": at, "toEnd": False},
        {"timestamp": None, "toEnd": True},
    ]
    bads: list[dict[str, Any]] = [{}, {"toEnd": False}, {"timestamp": None}, {"timestamp": at, "toEnd": True}]
    for good in goods:
        assert list(schema_faults(SCHEMAS["SeekBody"], good, "")) == []
        assert parse.target(msgspec.json.encode(good)) == (parse_instant(at) if good.get("timestamp") else None)
    for bad in bads:
        assert list(schema_faults(SCHEMAS["SeekBody"], bad, ""))
        with pytest.raises(Invalid):
            parse.target(msgspec.json.encode(bad))


def test_every_status_of_an_error_is_described() -> None:
    assert {row.status for row in STATUS.values()} <= set(REFUSALS)
    assert {status for row in OPERATIONS for status in refusals(row)} | {*OUTSIDE} == set(REFUSALS)
    assert rows_of_errors() == set(REFUSALS)


def rows_of_errors() -> set[int]:
    """Those in the table of docs/http.md."""
    text = (Path(__file__).parents[2] / "docs" / "http.md").read_text().split("## Errors")[1].split("## ")[0]
    rows = re.findall(r"^\| ([\d, ]+) \|", text, re.MULTILINE)
    return {int(status) for row in rows for status in row.split(",")}


def test_every_field_of_a_request_has_a_meaning() -> None:
    """And no meaning is of a field that isn't there."""
    bodies = {row.body.__name__ for row in OPERATIONS if row.body} | {"PushItem", "AckOperation", "PushOperation"}
    for name in bodies:
        for field, schema in SCHEMAS[name]["properties"].items():
            assert field == "type" or schema.get("description"), f"{name}.{field}"
    fields = {(name, field) for name, schema in SCHEMAS.items() for field in schema.get("properties", ())}
    assert MEANINGS.keys() <= fields
    assert ANYWHERE.keys() <= {field for _, field in fields}
    assert not [text for text in (*MEANINGS.values(), *ANYWHERE.values()) if not text.endswith(".")]


def test_acknowledgements_have_the_statuses_that_there_are() -> None:
    assert SCHEMAS["AckBody"]["properties"]["status"]["enum"] == list(get_args(AckStatus)) == [*parse.ACK_STATUSES]


def test_descriptions_describe_and_check_nothing() -> None:
    """Annotations must not turn into a second place where values are judged."""
    assert msgspec.json.decode(b'{"items": [{"queue": ""}]}', type=wire.PushBody).items[0].queue == ""
    assert msgspec.json.decode(b'{"items": []}', type=wire.PushBody).items == []
    assert msgspec.json.decode(b'{"transactionId": "", "status": "x"}', type=wire.AckBody).status == "x"


@pytest.mark.parametrize(
    ("method", "target", "status", "kind", "body"),
    [
        ("GET", "/api/v1/resources/tasks", 200, "application/json", b'{"tasks": [{"task": "t"}]}'),
        ("GET", "/api/v1/resources/tasks", 200, "application/json", b'{"tasks": [], "more": 1}'),
        ("GET", "/api/v1/resources/tasks", 200, "text/html", b'{"tasks": []}'),
        ("GET", "/api/v1/resources/tasks", 404, "application/json", b'{"error": "no"}'),
        ("GET", "/api/v1/resources/queues/x", 404, "application/json", b'{"errors": "no"}'),
        ("GET", "/api/v1/resources/overvieuw", 200, "application/json", b"{}"),
        ("GET", "/api/v1/pop/queue/x", 204, "application/json", b"{}"),
    ],
)
def test_a_planted_fault_is_seen(method: str, target: str, status: int, kind: str, body: bytes) -> None:
    """Of the check that all tests' answers go through."""
    assert list(faults(method, target, Reply(status, {"content-type": kind}, body)))
    sound = Reply(200, {"content-type": "application/json"}, b'{"tasks": []}')
    assert list(faults("GET", "/api/v1/resources/tasks", sound)) == []
