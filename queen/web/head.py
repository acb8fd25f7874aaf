"""The heads of requests that the fast lane takes on: bytes to a route and what has to follow. Pure.

A client that keeps its connection sends the same head again and again, so the last ones are remembered by their
bytes: no parser is made, and nothing is called back, for a head that was read before.
"""

from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

import httptools

from queen.web.app import SOON, Route, fast_table
from queen.web.exchange import Headers

_find: Final = fast_table()

STARTS: Final = (b"GET /api/v1/pop", b"POST /api/v1/")
"""What every fast request begins with; anything else is none from its first bytes on."""

_REMEMBERED: Final = 1024
_LONGEST: Final = 1024
"""Bytes of a head that is remembered: all of them together take some MB at most, whatever clients send."""


class Head(NamedTuple):
    """What a request's line and headers say. `soon`: its route returns a `Reply`."""

    method: str
    target_size: int
    query: bytes
    headers: Headers
    route: Route
    names: tuple[tuple[str, str], ...]
    length: int
    close: bool
    waits: bool
    soon: bool


def read_head(text: bytes) -> Head | None:
    """The head, `text` being all of it with the empty line; None if it is none for the lane, for whatever reason."""
    return _remembered(text) if len(text) <= _LONGEST else _read(text)


def _read(text: bytes) -> Head | None:
    # With a bare LF in it, others may see the head end earlier, and what follows as another request.
    if text.count(b"\n") != text.count(b"\r\n"):
        return None
    lines = _Lines()
    parser = httptools.HttpRequestParser(lines)
    try:
        parser.feed_data(text)
    except (httptools.HttpParserError, httptools.HttpParserUpgrade):
        return None
    if not lines.complete or parser.get_http_version() != "1.1" or not lines.target.isascii():
        return None
    path, _, query = lines.target.partition(b"?")
    method = parser.get_method().decode()
    found = _find(method, path.decode())
    if found is None:
        return None
    length = hosts = 0
    close = False
    for name, value in lines.headers:
        if name == b"content-length":
            length = int(value)
        elif name == b"host":
            hosts += 1
        elif name == b"connection":
            close = close or b"close" in value.lower()
        elif name in (b"transfer-encoding", b"expect", b"upgrade"):
            return None
    if hosts != 1:
        return None
    route, names = found
    waits = method == "GET" and b"wait=" in unquote_to_bytes(query)
    return Head(method, len(lines.target), query, lines.headers, route, names, length, close, waits, route in SOON)


_remembered: Final = lru_cache(maxsize=_REMEMBERED)(_read)


class _Lines:
    """A request's line and headers, as httptools reads them."""

    def __init__(self) -> None:
        self.target = b""
        self.headers: Headers = []
        self.complete = False

    def on_url(self, part: bytes) -> None:
        """Called by the parser."""
        self.target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser."""
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        self.complete = True
