"""One request and its answer as plain values: what the routes are handed and what they return. No framework here."""

import os
from collections.abc import Callable
from itertools import count
from typing import Final, NamedTuple

import msgspec

from queen.errors import Invalid, QueenError, ShuttingDown
from queen.messages import Caller
from queen.names import check_name
from queen.web.status import row_of
from queen.web.text import decoded, parameters

Headers = list[tuple[bytes, bytes]]

CLOSE: Final = (b"connection", b"close")
CORS: Final[Headers] = [
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-methods", b"GET, POST, PUT, DELETE, OPTIONS"),
    (b"access-control-allow-headers", b"Content-Type, Authorization, Queen-Worker"),
    (b"access-control-expose-headers", b"Queen-Blocked, Retry-After"),
    (b"access-control-max-age", b"86400"),
]
"""On every answer (W3), those included that never reach a route."""


class Callers:
    """Makes the `Caller` of each request: the client's address, and an id that no other request has."""

    def __init__(self) -> None:
        self._prefix = os.urandom(4)
        self._numbers = count()

    def new(self, address: str) -> Caller:
        """The caller of a new request from `address`."""
        return Caller(address, self._prefix + (next(self._numbers) & 0xFFFF_FFFF).to_bytes(4, "big"))


class Asked:
    """A request: the names in its path, its query, headers and whole body."""

    __slots__ = ("_query", "body", "caller", "headers", "method", "names", "query_string")

    def __init__(
        self,
        method: str,
        names: tuple[tuple[str, str], ...],
        query_string: bytes,
        headers: Headers,
        body: bytes,
        caller: Caller,
    ) -> None:
        self.method = method
        self.names = names
        self.query_string = query_string
        self.headers = headers
        self.body = body
        self.caller = caller
        self._query: dict[str, str] | None = None

    def name(self, which: str) -> str:
        """The path segment `which`, decoded once and strictly (N1). Raises `Invalid`."""
        for key, raw in self.names:
            if key == which:
                return check_name(decoded(raw, which), which)
        raise AssertionError(f"the route has no segment {which}")

    @property
    def query(self) -> dict[str, str]:
        """The query's parameters, decoded strictly. Raises `Invalid`."""
        if self._query is None:
            self._query = parameters(self.query_string)
        return self._query

    def header(self, name: bytes) -> str | None:
        """A header's value as text; `name` in lower case. Raises `Invalid` for bytes that are no UTF-8."""
        for key, value in self.headers:
            if key == name:
                try:
                    return value.decode()
                except UnicodeDecodeError:
                    raise Invalid(name.decode().title(), "is not valid UTF-8") from None
        return None


class Answer(NamedTuple):
    """A response. `undo` takes back what the asker was given, should the answer never reach it (L8)."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    undo: Callable[[], None] | None = None
    kind: bytes = b"application/json"

    def fields(self) -> Headers:
        """The headers that describe this answer. A 204 has no body and thus nothing to say about one."""
        if self.status == 204:
            return list(self.headers)
        return [(b"content-type", self.kind), (b"content-length", b"%d" % len(self.body)), *self.headers]


def refusal(status: int, sentence: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> Answer:
    """An error as every error is told: JSON with one member, `error` (W4)."""
    # A sentence may quote a name with a lone surrogate; an error about bad text must not fail on it.
    sound = sentence.encode(errors="backslashreplace").decode()
    return Answer(status, msgspec.json.encode({"error": sound}), headers)


def refused(error: QueenError) -> Answer:
    """The answer that tells of `error`."""
    row = row_of(error)
    back = () if row.retry_after is None else ((b"retry-after", b"%d" % row.retry_after),)
    return refusal(row.status, str(error), back)


def shutting_down() -> Answer:
    """What every request but `/health` is told from the moment that the server stops."""
    return refused(ShuttingDown("the server is shutting down"))


def too_large(limit: int) -> Answer:
    """413 (P2)."""
    return refusal(413, f"body: is larger than {limit} bytes")


def too_slow(limit: float) -> Answer:
    """408."""
    return refusal(408, f"body: did not arrive within {limit:g} seconds")
