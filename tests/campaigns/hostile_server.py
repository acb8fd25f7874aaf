"""What the parts of the hostile campaign share: a server as a process, raw connections to it, and the canary, a client
that behaves and whose waits are measured."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import trio

ROOT = Path(__file__).parents[2]
LIMIT_S = 30.0
"""A connection that is neither answered nor closed by then hangs."""
SHORT = ("--keep-alive", "2", "--body-time", "1", "--write-time", "2", "--ping-time", "1")
"""So that every connection ends by itself, and each case with it."""


class Target(NamedTuple):
    """A server to be attacked."""

    port: int
    pid: int
    log: Path

    def resident(self) -> int:
        """Bytes of memory, mapped files left out."""
        _, resident, shared, *_ = Path(f"/proc/{self.pid}/statm").read_text().split()
        return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")

    def accidents(self) -> list[str]:
        """Lines of its log that tell of what should not have happened."""
        return [line for line in self.log.read_text().splitlines() if '"error"' in line or "Traceback" in line]

    async def exchange(self, *pieces: bytes, pause: float = 0.0, opening: bytes = b"") -> tuple[bytes, bool]:
        """Send the pieces over a connection of their own, after the answer to `opening` if there is one; what comes
        back until the server closes it, and whether it did so in time."""
        received = bytearray()
        with trio.move_on_after(LIMIT_S):
            stream = await trio.open_tcp_stream("127.0.0.1", self.port)
            async with stream, trio.open_nursery() as nursery:
                if opening:
                    await stream.send_all(opening)
                    received += await stream.receive_some(65536)
                nursery.start_soon(_send, stream, pieces, pause)
                try:
                    while data := await stream.receive_some(65536):
                        received += data
                except trio.BrokenResourceError:
                    pass  # closed with some of ours unread
                nursery.cancel_scope.cancel()
            return bytes(received), True
        return bytes(received), False


async def _send(stream: trio.SocketStream, pieces: tuple[bytes, ...], pause: float) -> None:
    try:
        for piece in pieces:
            await stream.send_all(piece)
            if pause:
                await trio.sleep(pause)
    except trio.BrokenResourceError:
        pass  # the server has heard enough


@asynccontextmanager
async def target(*options: str) -> AsyncIterator[Target]:
    """A server on a fresh folder, until the block ends. Raises `AssertionError` if it then doesn't stop soundly."""
    with tempfile.TemporaryDirectory(prefix="queen-hostile-") as name:
        log = Path(name) / "log"
        command = [sys.executable, "-m", "queen", "serve", "--port", "0", "--data", f"{name}/data", *options]
        with log.open("wb") as file:
            environment = os.environ | {"PYTHONPATH": str(ROOT), "QUEEN_LOG_FORMAT": "json"}
            process = subprocess.Popen(command, stderr=file, stdout=file, env=environment)
        try:
            with trio.fail_after(60):
                while not (match := re.search(rb'"listening".*?:(\d+)"|:(\d+)".*?"listening"', log.read_bytes())):
                    assert process.poll() is None, log.read_text()
                    await trio.sleep(0.05)
            yield Target(int(match[1] or match[2]), process.pid, log)
            process.send_signal(signal.SIGTERM)
            with trio.fail_after(30):
                await trio.to_thread.run_sync(process.wait, abandon_on_cancel=True)
            assert process.returncode == 0, f"the server ended with {process.returncode}"
        finally:
            if process.poll() is not None and process.returncode:
                print(log.read_text()[-6000:], file=sys.stderr)
            process.kill()
            process.wait()


class Canary:
    """A client that pushes, pops and acknowledges all the time, and keeps the longest wait."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.rounds = 0
        self.longest = 0.0

    async def run(self) -> None:
        """Until cancelled. Raises `AssertionError` for an answer that is wrong."""
        stream = await trio.open_tcp_stream("127.0.0.1", self._port)
        async with stream:
            while True:
                name = f"canary-{self.rounds}"
                item = {"queue": "canary", "transactionId": name, "payload": self.rounds}
                await self._ask(stream, "POST", "/api/v1/push", {"items": [item]}, 201)
                popped = await self._ask(stream, "GET", "/api/v1/pop/queue/canary", None, 200)
                assert [one["transactionId"] for one in popped["messages"]] == [name], popped
                settled = {"transactionId": name, "status": "completed"}
                await self._ask(stream, "POST", "/api/v1/ack", settled, 200)
                self.rounds += 1
                await trio.sleep(0.05)

    async def _ask(
        self, stream: trio.SocketStream, method: str, path: str, body: object, wanted: int
    ) -> dict[str, list[dict[str, object]]]:
        content = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(content)}\r\n\r\n"
        begun = trio.current_time()
        await stream.send_all(head.encode() + content)
        data = b""
        while not (found := replies(data)) or found[0].body is None:
            more = await stream.receive_some(65536)
            assert more, f"the canary's connection was closed after {data!r}"
            data += more
        self.longest = max(self.longest, trio.current_time() - begun)
        assert found[0].status == wanted, found[0]
        return json.loads(found[0].body or b"{}")


class Reply(NamedTuple):
    """A response as it was read; `body` is None where it was cut off."""

    status: int
    headers: dict[str, str]
    body: bytes | None


def replies(data: bytes) -> list[Reply]:
    """The responses that are in these bytes; raises `ValueError` for what is none."""
    found: list[Reply] = []
    while data:
        head, separator, rest = data.partition(b"\r\n\r\n")
        if not separator:
            return found
        first, *lines = head.decode("latin-1").split("\r\n")
        match = re.fullmatch(r"HTTP/1\.1 (\d{3}) .*", first)
        if match is None:
            raise ValueError(f"no response: {data[:100]!r}")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        status = int(match[1])
        size = 0 if status == 204 or status < 200 else int(headers.get("content-length", "0"))
        found.append(Reply(status, headers, rest[:size] if len(rest) >= size else None))
        data = rest[size:]
    return found
