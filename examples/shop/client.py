"""A small HTTP client on the standard library that is honest about what it does not know.

A request has one of three ends: an answer, `Lost` (the server may or may not have done it), or, where not even a
connection came about, another try. What to do about `Lost` is the caller's decision: it is the heart of this example.
"""

import http.client
import json
import time
from typing import Any

RECONNECT_S = 0.05
TIMEOUT_S = 30.0
UNSURE = (502, 503, 504)


class Lost(Exception):
    """The request was sent, perhaps in part, and its outcome is unknown."""


class Client:
    """One keep-alive connection to the server, made anew whenever it broke."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection: http.client.HTTPConnection | None = None

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Send and return (status, decoded body or None). Raises `Lost`; waits for a server that is down."""
        self.send(method, path, body)
        assert self._connection is not None
        try:
            response = self._connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Lost(repr(error)) from error
        if response.status in UNSURE:
            time.sleep(RECONNECT_S)
            raise Lost(f"status {response.status}: {text!r}")
        return response.status, json.loads(text) if text else None

    def send(self, method: str, path: str, body: Any = None) -> None:
        """Send a request without waiting for its answer. Raises `Lost`."""
        connection = self._connected()
        text = None if body is None else json.dumps(body)
        try:
            connection.request(method, path, text, {} if text is None else {"Content-Type": "application/json"})
        except OSError as error:
            self.close()
            raise Lost(repr(error)) from error

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> http.client.HTTPConnection:
        while self._connection is None:
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT_S)
            try:
                connection.connect()
                self._connection = connection
            except OSError:  # nobody listens: the server is being started again
                time.sleep(RECONNECT_S)
        return self._connection
