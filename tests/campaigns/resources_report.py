"""What the parts of resources.py have in common: figures and violations, a server's memory, its log."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from tests.campaigns.served import Client, Server

MIB = 1 << 20


class NotAllowed(Exception):
    """This machine does not let the part be run; the sentence says why."""


@dataclass
class Report:
    """What a part has found."""

    figures: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def tell(self, figure: str) -> None:
        self.figures.append(figure)

    def expect(self, true: bool, sentence: str) -> None:
        """`sentence` is what is wrong otherwise."""
        if not true:
            self.violations.append(sentence)

    def answer(self, what: str, got: tuple[int, Any], *statuses: int) -> None:
        """An answer must have one of these statuses, and say what is wrong if it is a refusal."""
        status, body = got
        self.expect(status in statuses, f"{what} was answered {status}: {body}, not {statuses}")
        if status >= 400:
            self.expect(bool(body and isinstance(body.get("error"), str)), f"{what}: {status} without a text")


@asynccontextmanager
async def serving(
    folder: Path, report: Report, *options: str, limits: dict[int, int] | None = None
) -> AsyncIterator[Server]:
    """A server for a part; whatever happens, it may not log a traceback, and answers until the end."""
    server = Server(folder, *options, limits=limits)
    try:
        await server.start()
        yield server
        report.expect(await server.ready(), "the server is not ready in the end")
    finally:
        await server.end()
    for line in server.words().splitlines():
        if "Traceback" in line or '"level": "error"' in line:
            report.violations.append(f"logged: {line[:300]}")


async def ask(server: Server, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """One request on a connection of its own."""
    client = Client(server.port)
    try:
        return await client.once(method, path, body)
    finally:
        client.close()


def resident(server: Server) -> int:
    """The server's own memory, bytes: without the mapped pages of files."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    return int(fields["RssAnon"].split()[0]) * 1024


async def settled_memory(server: Server, below: int, patience_s: float = 10) -> int:
    """The server's memory once it is below a bound, or after a while."""

    async def below_it() -> bool:
        return resident(server) < below

    await until(below_it, patience_s)
    return resident(server)


async def until(true: Callable[[], Awaitable[bool]], patience_s: float) -> bool:
    """Wait for it; whether it came about in time."""
    with trio.move_on_after(patience_s):
        while True:
            if await true():
                return True
            await trio.sleep(0.1)
    return False
