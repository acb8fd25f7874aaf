"""What a legal name is (N1), the kinds of number that the code hands around, and how instants and ids are spelled.

Imports nothing of ours but the errors; pure.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NewType

from queen.errors import Invalid

MAX_NAME_BYTES = 255
DEFAULT_PARTITION = "Default"

Instant = NewType("Instant", int)
"""Microseconds since 1970-01-01T00:00Z."""

SECOND = 1_000_000
MILLISECOND = 1_000

DEFAULT_GROUP = 0
"""The number of the group that a pop without `consumerGroup` belongs to."""

_LAST_DIGITS = [f"{number:03x}" for number in range(0x1000)]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
FIRST_INSTANT = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
LAST_INSTANT = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
"""What can be spelled: the years 1 to 9999 in UTC."""


def name_fault(text: str) -> str | None:
    """Say what makes `text` no legal name (N1, Z17), or None if it is one."""
    if 2 < len(text) <= MAX_NAME_BYTES and text.isascii() and text.isprintable():
        return None  # nearly all there are; what follows says what is wrong with the others
    if not text:
        return "must not be empty"
    if text.isascii():
        if len(text) > MAX_NAME_BYTES:
            return f"must be at most {MAX_NAME_BYTES} bytes of UTF-8, is {len(text)}"
    else:
        try:
            size = len(text.encode())
        except UnicodeEncodeError:
            return "must not contain lone surrogates"
        if size > MAX_NAME_BYTES:
            return f"must be at most {MAX_NAME_BYTES} bytes of UTF-8, is {size}"
    if not text.isprintable() and any(char < " " or char == "\x7f" for char in text):
        return "must not contain control characters"
    if text in {".", ".."}:
        return "must not be '.' or '..', which URLs can't carry"
    return None


@lru_cache(maxsize=4096, typed=True)
def _is_name(text: str) -> bool:
    return name_fault(text) is None


def is_known_name(text: object) -> bool:
    """Whether `text` is a legal name; for those that come again and again, as the names of queues do."""
    return type(text) is str and _is_name(text)


def check_name(text: str, where: str) -> str:
    """Return `text` if it is a legal name; raise `Invalid` naming `where` otherwise, also where it is no text."""
    if not isinstance(text, str):
        raise Invalid(where, f"must be text, is {type(text).__name__}")
    fault = name_fault(text)
    if fault is not None:
        raise Invalid(where, fault)
    return text


def instant_text(at: int) -> str:
    """ISO 8601 in UTC with milliseconds and a trailing Z (N4), cut off below the millisecond.

    Every number has a spelling: one outside the years 1 to 9999, as old records may hold, that of the nearest end."""
    if not FIRST_INSTANT <= at <= LAST_INSTANT:
        at = max(FIRST_INSTANT, min(at, LAST_INSTANT))
    return (_EPOCH + timedelta(milliseconds=at // MILLISECOND)).isoformat(timespec="milliseconds")[:-6] + "Z"


def parse_instant(text: str) -> int:
    """Read an ISO 8601 time, UTC where it names no zone; raise `ValueError` if it is none, or if in UTC it lies outside
    the years 1 to 9999."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    at = (moment - _EPOCH) // _MICROSECOND
    if not FIRST_INSTANT <= at <= LAST_INSTANT:
        raise ValueError("lies outside the years 1 to 9999 of UTC")
    return at


def check_instant(at: object, where: str) -> int:
    """Return `at` if it is an instant in µs that can be spelled; raise `Invalid` naming `where` otherwise."""
    if type(at) is not int:
        raise Invalid(where, f"must be an instant in µs, is {type(at).__name__}")
    if not FIRST_INSTANT <= at <= LAST_INSTANT:
        raise Invalid(where, "lies outside the years 1 to 9999 of UTC")
    return at


def uuid_text(number: int) -> str:
    """Spell a 128-bit number as a UUID."""
    digits = f"{number:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def uuid_texts(numbers: Iterable[int]) -> Iterator[str]:
    """Spell many numbers; cheap where neighbours share all but the last three digits, as ids of one push do."""
    block = -1
    start = ""
    for number in numbers:
        if number >> 12 != block:
            block = number >> 12
            start = uuid_text(number)[:-3]
        yield start + _LAST_DIGITS[number & 0xFFF]


def uuid_pairs(numbers: Iterable[int]) -> Iterator[tuple[str, str]]:
    """Spell each number and the one behind it: a message's id and its generated transactionId (N2)."""
    block = -1
    start = ""
    for number in numbers:
        last = number & 0xFFF
        if last == 0xFFF:
            yield uuid_text(number), uuid_text(number + 1)
            continue
        if number >> 12 != block:
            block = number >> 12
            start = uuid_text(number)[:-3]
        yield start + _LAST_DIGITS[last], start + _LAST_DIGITS[last + 1]


def uuid_number(text: str) -> int | None:
    """The number of a UUID in the spelling of `uuid_text`, or None for any other text."""
    if len(text) != 36 or text[8] != "-" or text[13] != "-" or text[18] != "-" or text[23] != "-":
        return None
    try:
        number = int(text.replace("-", ""), 16)
    except ValueError:
        return None
    return number if uuid_text(number) == text else None


def message_id(base: int, index: int) -> int:
    """The id of the `index`-th message of a push whose ids start at `base`."""
    return base + 2 * index


def generated_transaction_id(base: int, index: int) -> int:
    """The transactionId of a message whose client gave none (N2): the number after its id."""
    return base + 2 * index + 1
