"""Requests to the broker's arguments. Types, syntax and queries are judged here, naming the place (O1, Z7).

What the values themselves must be (names, payload text, spans, options) the broker checks for all its callers; it
names places as they are called on the wire.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from queen import rawjson
from queen.checks import Checked, checked_parts
from queen.commands import AckStatus, Status
from queen.errors import Invalid
from queen.messages import Acknowledgement, NewMessage
from queen.names import DEFAULT_PARTITION, parse_instant
from queen.web.schemas import MAX_BATCH
from queen.web.wire import (
    AckBatchBody,
    AckBody,
    ConfigureBody,
    ExtendBody,
    PushBody,
    PushItem,
    PushOperation,
    SeekBody,
    TransactionBody,
)

MAX_TIMEOUT_MS: Final = 60_000
DEFAULT_TIMEOUT_MS: Final = 30_000
STATUSES: Final[tuple[Status, ...]] = ("pending", "processing", "completed", "failed", "dead_letter")
ACK_STATUSES: Final[tuple[AckStatus, ...]] = ("completed", "failed", "retry", "dead_letter")

_KNOWN: Final[dict[str, AckStatus]] = {status: status for status in ACK_STATUSES}
_INTEGER = re.compile(r"-?[0-9]{1,40}")
_PATH = re.compile(r"^(?P<reason>.*?) - at `(?P<path>.*)`$", re.DOTALL)
_MISSING = re.compile(r"^Object missing required field `(?P<field>.*)`$")
_EXPECTED = re.compile(r"^Expected `(?P<wanted>[^`]*)`, got `(?P<got>[^`]*)`$")
_NOUNS: Final = {"str": "a string", "int": "an integer", "float": "a number", "bool": "true or false",
                 "object": "an object", "array": "an array", "null": "null"}  # fmt: skip
# Finding the guilty item again costs a slow parse; bodies above this are refused without it.
_SEARCHED = 256 * 1024

_INFINITE: Final = (float("inf"), float("-inf"))

Body = TypeVar("Body")

push_decoder: Final = msgspec.json.Decoder(PushBody)
ack_decoder: Final = msgspec.json.Decoder(AckBody)
ack_batch_decoder: Final = msgspec.json.Decoder(AckBatchBody)
configure_decoder: Final = msgspec.json.Decoder(ConfigureBody)
transaction_decoder: Final = msgspec.json.Decoder(TransactionBody)
seek_decoder: Final = msgspec.json.Decoder(SeekBody)
extend_decoder: Final = msgspec.json.Decoder(ExtendBody)


def body(decoder: msgspec.json.Decoder[Body], text: bytes) -> Body:
    """The body as `decoder`'s type. Raises `Invalid`, its `where` spelled as the sender spells it."""
    if not text:
        raise Invalid("body", "must be a JSON object, is empty")
    rawjson.check_utf8(text, "body")
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as fault:
        refusal = _named(str(fault))
        if refusal.where == "options":
            # A number that no float holds: the decoder does not say which one.
            place = next((where for where, value in _fields(text) if value in _INFINITE), "options")
            refusal = Invalid(place, refusal.reason)
        raise refusal from None
    except msgspec.DecodeError as fault:
        if rawjson.has_lone_surrogate(text):
            raise Invalid(_surrogate_place(text), "holds an unpaired surrogate escape") from None
        raise Invalid("body", _sentence(str(fault))) from None
    except RecursionError:
        raise Invalid(_deep_place(text), f"nests deeper than {rawjson.MAX_NESTING} levels") from None


def messages(text: bytes) -> Checked:
    """The messages of a push (P1, P2, P5, P7)."""
    items = body(push_decoder, text).items
    if not 1 <= len(items) <= MAX_BATCH:
        raise Invalid("items", f"must hold 1 to {MAX_BATCH} messages, holds {len(items)}")
    return checked_parts([_message(item) for item in items], text)


def _message(item: PushItem) -> NewMessage:
    return NewMessage(
        queue=item.queue,
        payload=item.payload,
        partition=DEFAULT_PARTITION if item.partition is None else item.partition,
        transaction_id=item.transaction_id,
        trace_id=item.trace_id,
        delay_seconds=item.delay_seconds,
        namespace=item.namespace,
        task=item.task,
    )


def acknowledgement(text: bytes) -> Acknowledgement:
    """A single acknowledgement (A1)."""
    return _acknowledgement(body(ack_decoder, text), "".format)


def acknowledgements(text: bytes) -> list[Acknowledgement]:
    """A batch of acknowledgements (A5)."""
    entries = body(ack_batch_decoder, text).acknowledgments
    if not 1 <= len(entries) <= MAX_BATCH:
        raise Invalid("acknowledgments", f"must hold 1 to {MAX_BATCH} entries, holds {len(entries)}")
    return [_acknowledgement(entry, "acknowledgments[{}].".format, index) for index, entry in enumerate(entries)]


def operations(text: bytes) -> list[list[NewMessage] | Acknowledgement]:
    """The operations of a transaction."""
    return [
        [_message(item) for item in operation.items]
        if isinstance(operation, PushOperation)
        else _acknowledgement(operation, "operations[{}].".format, index)
        for index, operation in enumerate(body(transaction_decoder, text).operations)
    ]


def _acknowledgement(entry: AckBody, at: Callable[[object], str], index: int = 0) -> Acknowledgement:
    """`at` says how the place of the entry of that index is called, should anybody ask."""
    status = _KNOWN.get(entry.status)
    if status is None:
        raise Invalid(f"{at(index)}status", f"must be one of {', '.join(ACK_STATUSES)}")
    if entry.lease_id == "":
        raise Invalid(f"{at(index)}leaseId", "must not be empty")
    return Acknowledgement(
        transaction_id=entry.transaction_id,
        status=status,
        error=entry.error,
        lease_id=entry.lease_id,
        consumer_group=entry.consumer_group,
    )


def configuration(text: bytes) -> ConfigureBody:
    """What `configure` is asked for (C1, C2, Z14)."""
    return body(configure_decoder, text)


def extension(text: bytes) -> int | None:
    """The seconds of an extension, None where the body leaves it to the queue's leaseTime (L6)."""
    return body(extend_decoder, text).seconds if text else None


def target(text: bytes) -> int | None:
    """Where a group is to go: the instant in µs, None for the end (G3)."""
    wanted = body(seek_decoder, text)
    if wanted.timestamp is None:
        if not wanted.to_end:
            raise Invalid("timestamp", "or toEnd: true is required")
        return None
    if wanted.to_end:
        raise Invalid("toEnd", "does not go with timestamp")
    try:
        return parse_instant(wanted.timestamp)
    except ValueError:
        raise Invalid("timestamp", "must be an ISO 8601 time in the years 1 to 9999 of UTC") from None


def integer(query: Mapping[str, str], name: str, default: int) -> int:
    """A whole number of any size. Raises `Invalid`."""
    text = query.get(name)
    if text is None:
        return default
    if _INTEGER.fullmatch(text) is None:
        raise Invalid(name, "must be an integer")
    return int(text)


def count(query: Mapping[str, str], name: str, default: int = 1, high: int = MAX_BATCH) -> int:
    """A number from 1 to `high` (Z7)."""
    value = integer(query, name, default)
    if not 1 <= value <= high:
        raise Invalid(name, f"must be from 1 to {high}")
    return value


def boolean(query: Mapping[str, str], name: str) -> bool:
    """true, false, 1 or 0 (O1)."""
    text = query.get(name, "false")
    if text in ("true", "1"):
        return True
    if text in ("false", "0"):
        return False
    raise Invalid(name, "must be true, false, 1 or 0")


def timeout(query: Mapping[str, str]) -> float:
    """Seconds to wait; given in ms and clamped to 0..60000 (O1)."""
    return max(0, min(MAX_TIMEOUT_MS, integer(query, "timeout", DEFAULT_TIMEOUT_MS))) / 1000


def subscription_from(query: Mapping[str, str]) -> int | str | None:
    """Where a consumer group that is new to the queue begins (G2): "now", an instant in µs, or unsaid."""
    start = query.get("subscriptionFrom")
    if start is None or start == "now":
        return start
    try:
        return parse_instant(start)
    except ValueError:
        raise Invalid("subscriptionFrom", "must be now or an ISO 8601 time in the years 1 to 9999 of UTC") from None


def _named(fault: str) -> Invalid:
    match = _PATH.match(fault)
    reason, path = (match["reason"], match["path"]) if match else (fault, "$")
    where = path.removeprefix("$").removeprefix(".").replace("[...]", "")
    missing = _MISSING.match(reason)
    if missing:
        return Invalid(f"{where}.{missing['field']}" if where else missing["field"], "is required")
    return Invalid(where or "body", _sentence(reason))


def _sentence(fault: str) -> str:
    match = _EXPECTED.match(fault)
    if match:
        wanted = match["wanted"].removesuffix(" | null")
        return f"must be {_NOUNS.get(wanted, wanted)}, is {_NOUNS.get(match['got'], match['got'])}"
    return fault[0].lower() + fault[1:] if fault.startswith(("Object", "Expected", "Input", "Invalid")) else fault


def _surrogate_place(text: bytes) -> str:
    """Name the field with the unpaired surrogate; only ever called for a request that is refused anyway."""
    for where, value in _fields(text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            return where
    return "body"


def _deep_place(text: bytes) -> str:
    """Name the field that nests too deep; it stops there, so this is quick for what is deep from the start."""
    keys = {1: "body", 2: "", 3: ""}
    index = depth = 0
    for token in re.finditer(rb'"(?:[^"\\]|\\.)*"|[\[\]{},]', text[:_SEARCHED], re.DOTALL):
        sign = token[0]
        if sign in b"[{":
            depth += 1
            if depth > rawjson.MAX_NESTING:
                break
        elif sign in b"]}":
            depth -= 1
        elif sign == b"," and depth == 2:
            index += 1
        elif depth in keys:
            keys[depth] = sign[1:-1].decode()
    if keys[1] in ("items", "acknowledgments"):
        return f"{keys[1]}[{index}].{keys[3]}"
    return f"options.{keys[2]}" if keys[1] == "options" and keys[2] else keys[1]


def _fields(text: bytes) -> list[tuple[str, Any]]:
    if len(text) > _SEARCHED:
        return []
    try:
        whole = json.loads(text)  # lets unpaired surrogates pass, which is what is wanted here
    except (ValueError, RecursionError):
        return []
    found: list[tuple[str, Any]] = []
    for key, value in whole.items() if isinstance(whole, dict) else ():
        if key in ("items", "acknowledgments") and isinstance(value, list):
            for index, item in enumerate(value):
                at = f"{key}[{index}]"
                fields = item.items() if isinstance(item, dict) else ()
                found += [(f"{at}.{name}", inner) for name, inner in fields] or [(at, item)]
        elif key == "options" and isinstance(value, dict):
            found += [(f"options.{name}", inner) for name, inner in value.items()]
        else:
            found.append((key, value))
    return found
