"""The server under test: started on a free port with its data in a folder, killed by its own process id alone."""

import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from shop.client import Client, Lost
from shop.records import QUEUE

START_S = 30.0


class Server:
    """A `queen serve` process that can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.port = _free_port()
        self.kills = 0
        self._data = folder / "data"
        self._log = folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it is healthy. Raises `TimeoutError`."""
        command = [sys.executable, "-m", "queen", "serve", "--data", str(self._data), "--port", str(self.port)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + START_S
        while not self._healthy():
            if self._process.poll() is not None:
                raise TimeoutError(f"the server ended by itself with exit code {self._process.returncode}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"the server was not healthy within {START_S:.0f} s")
            time.sleep(0.02)

    def kill(self) -> None:
        """SIGKILL: no goodbye, no flush."""
        self.end()
        self.kills += 1

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def configure(self, **options: int) -> None:
        client = Client(self.port)
        status, answer = client.request("POST", "/api/v1/configure", {"queue": QUEUE, "options": options})
        client.close()
        if status != 200:
            raise TimeoutError(f"configure answered {status}: {answer}")

    def last_words(self) -> str:
        return self._log.read_text(errors="replace")[-2000:] if self._log.exists() else ""

    def _healthy(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                pass
            client = Client(self.port)
            try:
                return client.request("GET", "/health")[0] == 200
            finally:
                client.close()
        except (OSError, Lost):
            return False


def _free_port() -> int:
    """A free port below the range from which the system takes ports for clients.

    Within that range, a client that keeps trying to reach a server that is down may be given the server's own port as
    its source, connect to itself, and so keep the server from coming back.
    """
    while True:
        port = random.SystemRandom().randrange(20_000, 30_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
