"""Pushing messages of the past again, to a server over HTTP: in order, at a rate, and never twice under a run's name.

What makes a repetition harmless is the transactionId: it follows from the message's own and the run's name, and a
server stores one message of a transactionId (P4).
"""

from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from http.client import HTTPException
from ssl import SSLContext
from threading import Event
from typing import Any, Final, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import msgspec

from queen.audit.choosing import Chosen
from queen.errors import Busy, Invalid, Unavailable
from queen.names import MAX_NAME_BYTES, check_name

PREFIX: Final = "resend:"
MAX_RUN_BYTES: Final = 100
"""So that the longest transactionId's digest fits beside it."""
BATCH: Final = 100
BATCH_BYTES: Final = 1 << 20
"""One push at most; a message that is larger goes alone."""
TRIES: Final = 60
"""How often a push is tried while the server says that it can't take it now, or can't be reached."""
_MAX_WAIT_S: Final = 30
_TIMEOUT_S: Final = 60.0
_NOT_NOW: Final = frozenset({429, 503})

Pause = Callable[[float], object]
"""Waits that many seconds."""
_sleep: Final = Event().wait


class Sent(msgspec.Struct, rename="camel"):
    """What has become of the chosen messages, as numbers."""

    pushed: int = 0
    there_already: int = 0
    deleted: int = 0
    unreadable: int = 0


class Resent(NamedTuple):
    """A message and the transactionId that it is pushed under."""

    message: Chosen
    transaction_id: str


def check_run(name: str) -> str:
    """The name of a run. Raises `Invalid`."""
    check_name(name, "--run")
    if len(name.encode()) > MAX_RUN_BYTES:
        raise Invalid("--run", f"must be at most {MAX_RUN_BYTES} bytes of UTF-8")
    return name


def renamed(transaction_id: str, run: str) -> str:
    """`resend:<its own>:<run>`; a digest stands for what is too long (N1)."""
    name = f"{PREFIX}{transaction_id}:{run}"
    if len(name.encode()) <= MAX_NAME_BYTES:
        return name
    return f"{PREFIX}sha256-{sha256(transaction_id.encode()).hexdigest()}:{run}"


def to_send(chosen: Iterable[Chosen], run: str) -> Iterator[Resent]:
    """Everything but what the same run has pushed before, which a filter may well find again."""
    for message in chosen:
        own = message.transaction_id.startswith(PREFIX) and message.transaction_id.endswith(f":{run}")
        if not own:
            yield Resent(message, renamed(message.transaction_id, run))


class Target:
    """A server to push to, and there a queue to push into (None: the one that each message was in)."""

    def __init__(
        self,
        url: str,
        queue: str | None,
        token: str | None,
        pause: Pause = _sleep,
        trust: SSLContext | None = None,
    ) -> None:
        """`trust` says whose certificates count at https; None: whom the machine trusts. Raises `Invalid`."""
        if not url.startswith(("http://", "https://")):
            raise Invalid("--url", f"must begin with http:// or https://, is {url!r}")
        self.url = url.rstrip("/")
        self._queue = None if queue is None else check_name(queue, "--to-queue")
        self._token = token
        self._pause = pause
        self._trust = trust
        self._reached = False

    def send(
        self, resent: Iterable[Resent], rate: float | None, progress: Callable[[Sent], None], sent: Sent | None = None
    ) -> Sent:
        """Push in order, at most `rate` messages a second. Whatever is raised, what was counted in `sent` is done.

        Raises `Unavailable` where the server can't be reached or refuses; the same call again goes on from there."""
        sent = sent or Sent()
        for batch in _batches(resent, sent, BATCH if rate is None else min(BATCH, max(1, int(rate)))):
            for status in self._push(batch):
                if status == "duplicate":
                    sent.there_already += 1
                else:
                    sent.pushed += 1
            progress(sent)
            if rate is not None:
                self._pause(len(batch) / rate)
        progress(sent)
        return sent

    def _push(self, batch: list[Resent]) -> list[str]:
        items = [self._item(message, name) for message, name in batch]
        answer = self._ask(msgspec.json.encode({"items": items}), batch[0])
        return [entry["status"] for entry in answer["messages"]]

    def _item(self, message: Chosen, name: str) -> dict[str, Any]:
        assert message.payload is not None, "what has no payload was left out"
        item = {
            "queue": message.queue if self._queue is None else self._queue,
            "partition": message.partition,
            "payload": msgspec.Raw(message.payload),
            "transactionId": name,
        }
        return item if message.trace_id is None else {**item, "traceId": message.trace_id}

    def _ask(self, body: bytes, first: Resent) -> Any:
        tries = 1
        while True:
            try:
                return self._ask_once(body, first)
            except Busy as error:
                if tries == TRIES:
                    raise Unavailable(str(error)) from None
                tries += 1
                self._pause(error.retry_after)

    def _ask_once(self, body: bytes, first: Resent) -> Any:
        """Raises `Busy` for what may pass, `Unavailable` for what won't."""
        headers = {"Content-Type": "application/json", "User-Agent": "queen-resend"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        asked = Request(f"{self.url}/api/v1/push", body, headers, method="POST")
        try:
            with urlopen(asked, timeout=_TIMEOUT_S, context=self._trust) as reply:
                self._reached = True
                return msgspec.json.decode(reply.read())
        except HTTPError as error:
            with error:
                said = error.read().decode(errors="replace")
            fault = f"{self.url} answers {error.code} to a push from {first.message.transaction_id!r} on: {said}"
            if error.code in _NOT_NOW:
                raise Busy(fault, _seconds(error.headers.get("Retry-After"))) from None
            raise Unavailable(fault) from None
        except (URLError, HTTPException, OSError) as error:
            fault = f"{self.url} can't be reached: {getattr(error, 'reason', error)}."
            if self._reached:
                raise Busy(fault) from None
            raise Unavailable(fault) from None  # more likely a wrong address than a restart


def _batches(resent: Iterable[Resent], sent: Sent, length: int) -> Iterator[list[Resent]]:
    """As many as go into one push; what can't be pushed is counted and left out."""
    batch: list[Resent] = []
    size = 0
    for entry in resent:
        message = entry.message
        if message.payload is None:
            if message.deleted:
                sent.deleted += 1
            else:
                sent.unreadable += 1
            continue
        if batch and (len(batch) == length or size + len(message.payload) > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(entry)
        size += len(message.payload)
    if batch:
        yield batch


def _seconds(text: str | None) -> int:
    """What `Retry-After` says, within reason."""
    return min(int(text), _MAX_WAIT_S) if text is not None and text.isdecimal() else 1
