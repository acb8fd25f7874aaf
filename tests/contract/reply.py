"""A response, as the tests' client has read it."""

import json
from typing import Any


class Reply:
    """A response, read to its end."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        assert list(self.json) == ["error"], self.body
        return str(self.json["error"])

    def __repr__(self) -> str:
        return f"<{self.status} {self.headers} {self.body[:300]!r}>"
