"""Values as the OpenAPI document describes them. The annotations describe and check nothing: what a value must be is
decided where it is read (`parse.py`, `queen/checks.py`, `queen/options.py`)."""

from typing import Annotated, Any, Final, get_args

import msgspec
from msgspec import Meta

from queen.commands import AckStatus
from queen.commands import Status as MessageStatus
from queen.names import MAX_NAME_BYTES
from queen.options import DEFAULTS, OPTIONS, RELAXED, STRICT, Option, as_dict

Schema = dict[str, Any]

MAX_BATCH: Final = 1000
MAX_SPAN_S: Final = 2**31 - 1


def option_schema(option: Option) -> Schema:
    """What `configure` accepts for the option."""
    unit = f" ({option.unit})" if option.unit else ""
    about = {"description": option.meaning + unit, "default": as_dict(DEFAULTS)[option.name]}
    if option.kind == "boolean":
        return {"type": "boolean", **about}
    if option.kind == "ordering":
        return {"enum": [STRICT, RELAXED], **about}
    return {"type": option.kind, "minimum": option.low, "maximum": option.high, **about}


COMPONENTS: Final[dict[str, Schema]] = {
    "Name": {
        "type": "string",
        # JSON Schema counts characters where N1 counts bytes; the description says what really holds.
        "description": f"1 to {MAX_NAME_BYTES} bytes of UTF-8 without control characters, neither `.` nor `..`.",
        "minLength": 1,
        "maxLength": MAX_NAME_BYTES,
        "pattern": r"^(?!\.{1,2}$)[^\x00-\x1f\x7f]+$",
        "examples": ["orders"],
    },
    "Instant": {
        "type": "string",
        "format": "date-time",
        "description": "UTC, in milliseconds.",
        "examples": ["2026-01-31T09:30:00.000Z"],
    },
    "Options": {
        "type": "object",
        "description": "All options of a queue.",
        "properties": {name: option_schema(option) for name, option in OPTIONS.items()},
        "required": list(OPTIONS),
    },
    "OptionChanges": {
        "type": "object",
        "description": "Those that are left out keep their value, null resets one to its default.",
        "properties": {name: {"anyOf": [option_schema(option), {"type": "null"}]} for name, option in OPTIONS.items()},
        "additionalProperties": False,
    },
}
"""Schemas with a name of their own in the document, beside those of the structs."""


NARROWER: Final[dict[str, Schema]] = {
    "SeekBody": {
        "oneOf": [
            {"required": ["timestamp"], "properties": {"timestamp": {"type": "string"}}},
            {"required": ["toEnd"], "properties": {"toEnd": {"const": True}}},
        ]
    }
}
"""What the struct of this name can't say: which fields go together."""


def _component(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


NAME: Final = _component("Name")
UUID: Final[Schema] = {"type": "string", "format": "uuid"}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
OUTCOMES: Final = ["completed", "retry_scheduled", "failed", "dead_letter"]
STATUSES: Final = list(get_args(MessageStatus))
BOOLEAN: Final[Schema] = {"enum": ["true", "false", "1", "0"], "default": "false"}


def _delivered() -> Schema:
    names = ("leaseTime", "retryLimit")
    return {
        "type": "object",
        "properties": {name: option_schema(OPTIONS[name]) for name in names},
        "required": list(names),
    }


Name = Annotated[str, Meta(extra_json_schema=NAME)]
Instant = Annotated[str, Meta(extra_json_schema=_component("Instant"))]
Uuid = Annotated[str, Meta(extra_json_schema=UUID)]
Count = Annotated[int, Meta(extra_json_schema=COUNT)]
Amount = Annotated[float, Meta(extra_json_schema={"minimum": 0})]
Duration = Annotated[str, Meta(extra_json_schema={"description": "As text.", "examples": ["2.5s", "7m 17s"]})]
Delay = Annotated[int, Meta(extra_json_schema={"minimum": 0, "maximum": MAX_SPAN_S, "description": "Seconds."})]
Span = Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": MAX_SPAN_S, "description": "Seconds."})]
Text = Annotated[str, Meta(extra_json_schema={"description": "Any text."})]
Json = Annotated[msgspec.Raw, Meta(extra_json_schema={"description": "Any JSON value, kept to the character."})]
LeaseName = Annotated[str, Meta(extra_json_schema={"minLength": 1, "description": "The leaseId of a pop."})]
Status = Annotated[str, Meta(extra_json_schema={"enum": STATUSES})]
PushStatus = Annotated[str, Meta(extra_json_schema={"enum": ["queued", "duplicate"]})]
Settling = Annotated[str, Meta(extra_json_schema={"enum": list(get_args(AckStatus))})]
Outcome = Annotated[str, Meta(extra_json_schema={"enum": OUTCOMES})]
BatchOutcome = Annotated[str, Meta(extra_json_schema={"enum": [*OUTCOMES, "not_found", "conflict"]})]
OptionChanges = Annotated[dict[str, Any], Meta(extra_json_schema=_component("OptionChanges"))]
Options = Annotated[dict[str, Any], Meta(extra_json_schema=_component("Options"))]
Batch = Meta(extra_json_schema={"minItems": 1, "maxItems": MAX_BATCH})
DeliveredOptions = Annotated[msgspec.Raw, Meta(extra_json_schema=_delivered())]
