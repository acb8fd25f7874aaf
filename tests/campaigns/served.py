"""A server of a campaign's own, and a client that is honest about what it does not know. Everything under trio."""

import json
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import trio

ROOT: Final = Path(__file__).parents[2]
READY_S: Final = 30.0
TIMEOUT_S: Final = 120.0
"""Longer than a pop may wait, also on a machine with too much to do."""
PAUSE_S: Final = 0.02
_MOST: Final = 2**16


class Lost(Exception):
    """The request was sent, perhaps in part, and its outcome is unknown."""


class NotReady(Exception):
    """The server ended by itself, or was not ready in time."""


class Server:
    """A `queen serve` process on a data folder, ended by its own process id alone."""

    def __init__(self, folder: Path, *options: str, limits: dict[int, int] | None = None) -> None:
        self.port = _free_port()
        self._command = [sys.executable, "-m", "queen", "serve", "--port", str(self.port)]
        self._command += ["--data", str(folder / "data"), *options]
        self._limits = limits or {}
        self.log = folder / "server.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process that was started last."""
        assert self.process is not None
        return self.process.pid

    def spawn(self) -> None:
        """Start the process, and don't wait."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=ROOT, preexec_fn=self._limit
            )

    async def start(self, limit_s: float = READY_S) -> float:
        """Start, wait until it takes work; returns how long that took, s, without what it waited for a processor that
        others used. Raises `NotReady`."""
        self.spawn()
        began = time.monotonic()
        while not await self.ready():
            if self.process is not None and self.process.poll() is not None:
                raise NotReady(f"the server ended by itself with exit code {self.process.returncode}")
            if time.monotonic() - began - self.waited() > limit_s:
                raise NotReady(f"the server was not ready within {limit_s:.0f} s")
            await trio.sleep(0.01)
        return time.monotonic() - began - self.waited()

    def waited(self) -> float:
        """Seconds that its main thread could have run and others did."""
        return waited(str(self.pid))

    async def ready(self) -> bool:
        """Whether it takes work now."""
        client = Client(self.port)
        try:
            return (await client.once("GET", "/health/ready"))[0] == 200
        except (OSError, Lost):
            return False
        finally:
            client.close()

    async def end(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End it and wait for that."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(how)
            await trio.to_thread.run_sync(self.process.wait)

    def words(self) -> str:
        """What it has logged, all starts together."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def _limit(self) -> None:
        import resource

        for kind, most in self._limits.items():
            resource.setrlimit(kind, (most, most))


class Client:
    """One keep-alive connection, made anew whenever it broke."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._stream: trio.SocketStream | None = None
        self._unread = b""

    async def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """(status, decoded body or None). Waits for a server that is down; raises `Lost`, also for 503."""
        while self._stream is None:
            try:
                self._stream = await trio.open_tcp_stream("127.0.0.1", self._port)
            except OSError:
                await trio.sleep(PAUSE_S)
        status, answer = await self.once(method, path, body)
        if status == 503:
            await trio.sleep(PAUSE_S)
            raise Lost(f"503: {answer}")
        return status, answer

    async def once(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """The same without waiting for a server, and with 503 as an answer. Raises `Lost` and `OSError`."""
        if self._stream is None:
            self._stream = await trio.open_tcp_stream("127.0.0.1", self._port)
        content = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(content)}\r\n"
        if content:
            head += "content-type: application/json\r\n"
        try:
            with trio.fail_after(TIMEOUT_S):
                await self._stream.send_all(head.encode() + b"\r\n" + content)
                return await self._answer()
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError, EOFError) as error:
            raise Lost(repr(error)) from error
        finally:
            if not self._whole:
                self.close()

    def close(self) -> None:
        """Let go of the connection."""
        if self._stream is not None:
            self._stream.socket.close()
            self._stream = None

    _whole = False

    async def _answer(self) -> tuple[int, Any]:
        self._whole = False
        while b"\r\n\r\n" not in self._unread:
            await self._more()
        head, _, rest = self._unread.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines[1:])}
        size = int(fields.get(b"content-length", b"0"))
        self._unread = rest
        while len(self._unread) < size:
            await self._more()
        content, self._unread = self._unread[:size], self._unread[size:]
        self._whole = fields.get(b"connection") != b"close"
        return int(lines[0].split()[1]), json.loads(content) if content else None

    async def _more(self) -> None:
        assert self._stream is not None
        data = await self._stream.receive_some(_MOST)
        if not data:
            self._unread = b""
            raise EOFError
        self._unread += data


def waited(process: str = "self") -> float:
    """Seconds that a process's main thread was ready to run and didn't, as the kernel counts them (schedstat)."""
    try:
        return int(Path(f"/proc/{process}/schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return 0.0


def _free_port() -> int:
    """A free port below the range from which the system takes ports for clients: none of them may be given it as its
    source, connect to itself, and so keep a server from coming back."""
    while True:
        port = random.SystemRandom().randrange(20_000, 30_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
