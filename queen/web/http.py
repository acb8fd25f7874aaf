"""How the lane spells an answer in HTTP/1.1: the same bytes as Hypercorn's, apart from the headers' order."""

from functools import lru_cache
from http import HTTPStatus
from typing import Final

import trio
from hypercorn.config import Config

from queen.web.exchange import CORS, Answer, Headers

_STATUS_LINES: Final = {status.value: b"HTTP/1.1 %d \r\n" % status.value for status in HTTPStatus}


class Date:
    """The `date` header, as Hypercorn writes it, made once a second."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._second = -1
        self._line = b""

    def line(self) -> bytes:
        """The header's line."""
        second = int(trio.current_time())
        if second != self._second:
            self._second = second
            self._line = _lines(self._config.response_headers("h11"))
        return self._line


def spelled(answer: Answer, date: Date, *, close: bool) -> bytes:
    """All bytes of an answer."""
    length = b"" if answer.status == 204 else b"content-length: %d\r\n" % len(answer.body)
    last = b"connection: close\r\n\r\n" if close else b"\r\n"
    head = _head(answer.status, answer.kind, answer.headers)
    return b"".join((head, length, date.line(), last, answer.body))


@lru_cache(maxsize=256)
def _head(status: int, kind: bytes, headers: tuple[tuple[bytes, bytes], ...]) -> bytes:
    """What answers of a kind have in common. A 204 has no body and thus nothing to say about one."""
    typed = [] if status == 204 else [(b"content-type", kind)]
    return _STATUS_LINES[status] + _lines([*typed, *headers, *CORS])


def _lines(headers: Headers) -> bytes:
    return b"".join([b"%s: %s\r\n" % header for header in headers])
