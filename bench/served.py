"""The processes that are measured, each on a free port: Queen on a fresh store, its edge alone, an echo."""

import json
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
_PATIENCE_S: Final = 300.0


class Server:
    """A process that listens on `port`. `command` gets the port as its last argument."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self.port = _free_port()
        self._command = [sys.executable, "-m", *command, str(self.port)]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    def launch(self) -> None:
        """Start it, without waiting for it to listen."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, cwd=ROOT)

    def await_answer(self, request: bytes) -> float:
        """Ask again and again until the answer is a 2xx; return the seconds that it took."""
        assert self._process is not None
        began = time.perf_counter()
        while not 200 <= self.ask(request) < 300:
            if self._process.poll() is not None or time.perf_counter() > began + _PATIENCE_S:
                raise SystemExit(f"no answer to {request[:60]!r}: {self._log.read_text()[-2000:]}")
            time.sleep(0.002)
        return time.perf_counter() - began

    def ask(self, request: bytes) -> int:
        """The status that a request on a connection of its own is answered with; 0 if it is not."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
                connection.sendall(request)
                return int(connection.recv(1000)[9:12] or 0)
        except (OSError, ValueError):
            return 0

    def stop(self, how: signal.Signals = signal.SIGTERM) -> float:
        """End it; return the seconds that it took."""
        began = time.perf_counter()
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(how)
            self._process.wait(_PATIENCE_S)
        return time.perf_counter() - began


class Queen(Server):
    """`queen serve` on the data folder `data`."""

    def __init__(self, data: Path, options: Sequence[str] = ()) -> None:
        self.data = data
        super().__init__(["queen", "serve", "--data", str(data), *options, "--port"], data.with_suffix(".log"))

    def start(self) -> float:
        """Start it; return the seconds until it took work."""
        began = time.perf_counter()
        self.launch()
        self.await_answer(b"GET /health/ready HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return time.perf_counter() - began

    def memory_mb(self) -> dict[str, float]:
        """Resident memory in MB (10^6 bytes): all of it, its own, and that of mapped files, which the kernel takes back
        when it needs it."""
        lines = Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines()[1:]
        kb = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
        own, whole = kb["Anonymous"] * 1024 / 1e6, kb["Rss"] * 1024 / 1e6
        return {"resident": whole, "own": own, "files": whole - own}

    def disk_mb(self) -> float:
        """What the data folder takes on the disk, in MB."""
        return sum(path.stat().st_blocks * 512 for path in self.data.rglob("*") if path.is_file()) / 1e6


@contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """A temporary folder inside `folder`, on whose disk all depends."""
    place = Path(tempfile.mkdtemp(prefix=".bench-", dir=folder))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def queen(folder: Path, options: Sequence[str] = ()) -> Iterator[Queen]:
    """A running server on a fresh store."""
    with scratch(folder) as place:
        server = Queen(place / "data", options)
        try:
            server.start()
            yield server
        finally:
            server.stop(signal.SIGKILL)


@contextmanager
def other(folder: Path, *command: str) -> Iterator[Server]:
    """Another of the servers: `bench.echo` with its arguments, or `bench.edge`."""
    with scratch(folder) as place:
        server = Server(command, place / "log")
        try:
            server.launch()
            server.await_answer(b"GET /health/ready HTTP/1.1\r\nHost: localhost\r\n\r\n")
            yield server
        finally:
            server.stop(signal.SIGKILL)


def child(*command: str) -> dict[str, Any]:
    """What a Python module of the benchmark's prints as JSON, run in a process of its own."""
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise SystemExit(f"failed: {' '.join(command)}")
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def allow_many_files() -> None:
    """Let this process and its children have as many open files as the system permits them."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
