"""A server of the benchmark's own on a fresh store, and what the system says about its process."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PATIENCE_S = 120.0


class Served:
    """A `queen serve` process on `data`."""

    def __init__(self, data: Path, arguments: tuple[str, ...] = ()) -> None:
        self.data = data
        self.port = _free_port()
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> float:
        """Start it; return the seconds until it answered /health with 200."""
        command = [sys.executable, "-m", "queen", "serve", "--data", str(self.data), "--port", str(self.port)]
        began = time.perf_counter()
        with self.data.with_suffix(".log").open("ab") as log:
            self._process = subprocess.Popen([*command, *self._arguments], stdout=log, stderr=log)
        while not self._healthy():
            if self._process.poll() is not None or time.perf_counter() > began + _PATIENCE_S:
                raise SystemExit(f"the server did not start; see {self.data.with_suffix('.log')}")
            time.sleep(0.005)
        return time.perf_counter() - began

    def stop(self, how: signal.Signals = signal.SIGTERM) -> float:
        """End it; return the seconds that it took."""
        began = time.perf_counter()
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(how)
            self._process.wait(_PATIENCE_S)
        return time.perf_counter() - began

    def cpu_s(self) -> float:
        """Processor time used so far, all threads, user and system."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def memory_mb(self) -> dict[str, float]:
        """Resident memory in MB (10^6 bytes): all of it, and the parts that are its own and that are mapped files."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        sizes = {name: value.split()[0] for name, _, value in (line.partition(":") for line in lines) if value.split()}
        return {name: int(sizes[name]) * 1024 / 1e6 for name in ("VmRSS", "RssAnon", "RssFile")}

    def disk_mb(self) -> float:
        """What the data folder takes on the disk, in MB."""
        return sum(path.stat().st_blocks * 512 for path in self.data.rglob("*") if path.is_file()) / 1e6

    def _healthy(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                return connection.recv(1000)[9:12] == b"200"
        except OSError:
            return False


@contextmanager
def served(folder: Path, *arguments: str) -> Iterator[Served]:
    """A running server with its store in a temporary folder inside `folder`, on whose disk all depends."""
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=folder) as temporary:
        server = Served(Path(temporary) / "data", arguments)
        try:
            server.start()
            yield server
        finally:
            server.stop(signal.SIGKILL)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
