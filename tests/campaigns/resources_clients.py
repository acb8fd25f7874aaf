"""resources.py: too many clients, too slow ones, too large requests."""

import resource
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio

from tests.campaigns.resources_report import MIB, NotAllowed, Report, ask, resident, serving, settled_memory, until
from tests.campaigns.served import Client, Server, waited

UPGRADE = (
    b"GET /ws/dashboard HTTP/1.1\r\nhost: 127.0.0.1\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
FILES = 160
STALL_S = 5.0
"""A push that takes longer was held up by others, and not by a busy machine."""
PUSH = {"items": [{"queue": "q", "payload": 1}]}


@asynccontextmanager
async def streams(server: Server, count: int, first: bytes = b"") -> AsyncIterator[list[trio.SocketStream]]:
    """So many connections, on which `first` has been sent."""
    opened: list[trio.SocketStream] = []
    try:
        for _ in range(count):
            stream = await trio.open_tcp_stream("127.0.0.1", server.port)
            opened.append(stream)
            if first:
                await stream.send_all(first)
        yield opened
    finally:
        for stream in opened:
            stream.socket.close()


async def no_files(folder: Path, small: bool, report: Report) -> None:
    """Few file descriptors: who is served goes on, new clients get in at the cost of idle ones, the log stays quiet."""
    count = 300 if small else 2_000
    async with serving(folder, report, limits={resource.RLIMIT_NOFILE: FILES}) as server:
        regular = Client(server.port)
        report.answer("a push", await regular.once("POST", "/api/v1/push", PUSH), 201)
        before = _cpu_s(server)
        worst = 0.0
        async with streams(server, count):
            for _ in range(30):
                began = time.monotonic() - server.waited() - waited()
                report.answer("a push by a new client", await ask(server, "POST", "/api/v1/push", PUSH), 201)
                worst = max(worst, time.monotonic() - server.waited() - waited() - began)
                await trio.sleep(0.1)
            # All of them wait for a message now: nobody is idle, so nobody makes room.
            held = [await _polling(server) for _ in range(FILES)]
            await trio.sleep(2)
            for stream in held:
                stream.socket.close()
        report.answer("a push afterwards", await ask(server, "POST", "/api/v1/push", PUSH), 201)
        regular.close()
        used = _cpu_s(server) - before
    lines = [line for line in server.words().splitlines() if "no room" in line]
    report.expect(0 < len(lines) <= 2, f"{len(lines)} lines of the log say that there is no room")
    report.expect(len(server.words().splitlines()) < 20, f"the log has {len(server.words().splitlines())} lines")
    report.expect(worst < STALL_S, f"a new client waited {worst:.1f} s")
    report.tell(
        f"{FILES} file descriptors, {count} idle connections: a new client waited {worst * 1000:.0f} ms at most"
    )
    report.tell(f"{len(lines)} lines in the log, {used:.1f} s of processor time for all of it")


async def _polling(server: Server) -> trio.SocketStream:
    stream = await trio.open_tcp_stream("127.0.0.1", server.port)
    await stream.send_all(b"GET /api/v1/pop/queue/empty?wait=true&timeout=60000 HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
    return stream


async def many_connections(folder: Path, small: bool, report: Report) -> None:
    """Idle ones and long polls: what they cost, that the others don't notice, and that their memory is used again."""
    count = 500 if small else 10_000
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < count + 200:
        raise NotAllowed(f"{count} connections take more file descriptors than one process may have here")
    poll = b"GET /api/v1/pop/queue/e?wait=true&timeout=60000 HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
    async with serving(folder, report) as server:
        await _warm(server)
        idle = resident(server)
        peaks = []
        for what, first in (("idle connections", b""), ("idle connections again", b""), ("long polls", poll)):
            async with streams(server, count, first):
                await trio.sleep(1)
                peaks.append(resident(server))
                worst = await _worst_push(server)
            left = await settled_memory(server, idle + MIB, 3)
            each = (peaks[-1] - idle) / count / 1024
            report.tell(
                f"{count} {what}: {idle >> 20} MiB before the first, {peaks[-1] >> 20} MiB with them ({each:.1f} KiB "
                f"each), {left >> 20} MiB after; a push took {worst * 1000:.0f} ms at most"
            )
            report.expect(each < 64, f"{what} take {each:.0f} KiB each")
            report.expect(worst < STALL_S, f"a push took {worst:.2f} s beside {count} {what}")
        report.expect(peaks[1] < 1.2 * peaks[0] + 8 * MIB, f"connections that come again take more: {peaks}")


async def _warm(server: Server) -> None:
    for _ in range(50):
        await ask(server, "POST", "/api/v1/push", PUSH)
    await trio.sleep(1)


async def _worst_push(server: Server) -> float:
    """The longest of 50 pushes, s, without what either side waited for a processor that other programs used."""
    client = Client(server.port)
    worst = 0.0
    for _ in range(50):
        began = time.monotonic() - server.waited() - waited()
        await client.once("POST", "/api/v1/push", PUSH)
        worst = max(worst, time.monotonic() - server.waited() - waited() - began)
    client.close()
    return worst


async def many_sockets(folder: Path, small: bool, report: Report) -> None:
    """1,000 WebSockets, the next ones get 503, and once some have left there is room again, also in memory. W2."""
    most = 50 if small else 1_000
    async with serving(folder, report, "--max-sockets", str(most), "--ping-time", "3600") as server:
        await _warm(server)
        idle = resident(server)
        peaks = []
        for what in ("WebSockets", "WebSockets again"):
            peaks.append(await _full_of_sockets(server, most, report))
            left = await settled_memory(server, idle + (peaks[-1] - idle) // 2 + 4 * MIB)
            each = (peaks[-1] - idle) / most / 1024
            report.tell(
                f"{most} {what}: {idle >> 20} MiB before the first, {peaks[-1] >> 20} MiB with them ({each:.0f} KiB "
                f"each), {left >> 20} MiB after; the next ones were answered 503"
            )
        report.expect(peaks[1] < 1.2 * peaks[0] + 8 * MIB, f"sockets that come again take more: {peaks}")


async def _full_of_sockets(server: Server, most: int, report: Report) -> int:
    """As many WebSockets as there may be; returns the memory that the server has with them."""
    async with streams(server, most, UPGRADE) as opened:
        statuses = [await _status(stream) for stream in opened]
        report.expect(set(statuses) == {101}, f"sockets were answered {set(statuses)}")
        held = resident(server)
        async with streams(server, 20, UPGRADE) as more:
            statuses = [await _status(stream) for stream in more]
            report.expect(set(statuses) == {503}, f"sockets past the limit were answered {set(statuses)}")
        for _ in range(20):
            report.answer("a push", await ask(server, "POST", "/api/v1/push", PUSH), 201)
        opened[0].socket.close()
        report.expect(await until(partial(_gets_in, server), 5), "there was no room again after one had left")
    return held


async def _status(stream: trio.SocketStream) -> int:
    with trio.fail_after(30):
        return int((await stream.receive_some(4096)).split()[1])


async def _gets_in(server: Server) -> bool:
    async with streams(server, 1, UPGRADE) as (stream,):
        return await _status(stream) == 101


async def slow_clients(folder: Path, small: bool, report: Report) -> None:
    """A byte a second in the line, the headers and the body, on both lanes; and answers that nobody reads. They are cut
    off in time, and the others don't notice."""
    options = ("--keep-alive", "3", "--body-time", "3", "--write-time", "3")
    count = 20 if small else 300
    for lane in ("--fast-lane", "--no-fast-lane"):
        async with serving(folder, report, *options, lane) as server:
            large = {"items": [{"queue": "big", "payload": "x" * MIB} for _ in range(9)]}
            for _ in range(2):
                await ask(server, "POST", "/api/v1/push", large)
            beginnings = {
                "line": b"",
                "headers": b"POST /api/v1/push HTTP/1.1\r\nhost: 127.0.0.1\r\n",
                "headers of another route": b"GET /api/v1/analytics HTTP/1.1\r\nhost: 127.0.0.1\r\n",
                "body": b"POST /api/v1/push HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1000\r\n\r\n",
                "body of another route": b"POST /api/v1/configure HTTP/1.1\r\nhost: 127.0.0.1\r\n"
                b"content-length: 1000\r\n\r\n",
                "chunks": b"POST /api/v1/push HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n3e8\r\n",
            }
            lasted: dict[str, float] = {}
            async with trio.open_nursery() as nursery:
                for what, first in beginnings.items():
                    for _ in range(count // len(beginnings) + 1):
                        nursery.start_soon(_dribble, server, what, first, lasted)
                nursery.start_soon(partial(_read_nothing, server, lasted))
                worst = await _worst_push(server)
            for what, seconds in lasted.items():
                report.expect(seconds < 8, f"{lane}: a client slow with its {what} was served for {seconds:.0f} s")
            report.expect(worst < STALL_S, f"{lane}: a push took {worst:.2f} s beside slow clients")
            longest = max(lasted, key=lambda what: lasted[what])
            report.tell(
                f"{lane}: {count} slow clients cut off after {lasted[longest]:.1f} s at most ({longest}; the limits "
                f"are 3 s), a push took {worst * 1000:.0f} ms at most"
            )


async def _dribble(server: Server, what: str, first: bytes, lasted: dict[str, float]) -> None:
    began = time.monotonic()
    async with streams(server, 1, first) as (stream,):
        with trio.move_on_after(15):
            try:
                while not await _ended(stream):
                    await stream.send_all(b"x")
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass
    lasted[what] = max(lasted.get(what, 0.0), time.monotonic() - began)


async def _ended(stream: trio.SocketStream) -> bool:
    """Whether the server closes within a second; an answer before that is read."""
    with trio.move_on_after(1):
        while await stream.receive_some(4096):
            pass
        return True
    return False


async def _read_nothing(server: Server, lasted: dict[str, float]) -> None:
    request = b"GET /api/v1/pop/queue/big?batch=100&autoAck=true HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
    began = time.monotonic()
    async with streams(server, 1) as (stream,):
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await stream.send_all(request)
        await until(partial(_closed_by, server, stream), 15)
    lasted["answer"] = time.monotonic() - began


async def _closed_by(server: Server, stream: trio.SocketStream) -> bool:
    """Whether the server's end of a connection is established no more, as the kernel's table has it."""
    local = stream.socket.getsockname()[1]
    table = await trio.to_thread.run_sync(Path("/proc/net/tcp").read_text)
    return not any(f":{server.port:04X} " in line and f":{local:04X} 01 " in line for line in table.splitlines())


async def large_bodies(folder: Path, small: bool, report: Report) -> None:
    """Bodies at a limit are taken and one byte over it refused; many at a time; their memory comes back."""
    limit = 10 * MIB
    head = b'{"items": [{"queue": "q", "payload": "'
    tail = b'"}]}'
    async with serving(folder, report) as server:
        await _warm(server)
        idle = resident(server)
        at = head + b"x" * (limit - len(head) - len(tail)) + tail
        report.answer("a body at the limit", await _raw(server, at), 201)
        report.answer("a body one byte over the limit", await _raw(server, at + b" "), 413)
        report.answer("an announced body over the limit", await _raw(server, at + b" ", unsent=True), 413)
        peaks = []
        for _ in range(2):
            statuses: list[int] = []
            async with trio.open_nursery() as nursery:
                for number in range(4 if small else 30):
                    body = at if number % 2 else at + b" "
                    nursery.start_soon(_collect, server, body, statuses)
                worst = await _worst_push(server)
            # 503: more is waiting for the disk than may wait.
            report.expect({201, 413} <= set(statuses) <= {201, 413, 503}, f"bodies were answered {set(statuses)}")
            peaks.append(await settled_memory(server, idle + 16 * MIB, 5))
            report.tell(
                f"{len(statuses)} bodies of 10 MiB at once, half of them a byte over: {idle >> 20} MiB before, "
                f"{peaks[-1] >> 20} MiB afterwards; a push took {worst * 1000:.0f} ms at most"
            )
        # LMDB keeps the memory of its largest commit, the writer lets no more than 64 MiB wait for one, and the C
        # library keeps blocks of this size for the next ones once it has seen some.
        report.expect(peaks[1] < idle + 320 * MIB, f"{(peaks[1] - idle) >> 20} MiB stayed after large bodies")
        report.expect(peaks[1] < peaks[0] + 48 * MIB, f"large bodies that come again take more: {peaks}")


async def _collect(server: Server, body: bytes, statuses: list[int]) -> None:
    statuses.append((await _raw(server, body))[0])


async def _raw(server: Server, body: bytes, *, unsent: bool = False) -> tuple[int, dict[str, str]]:
    """A push of these very bytes; (status, {"error": …} as far as it came)."""
    head = b"POST /api/v1/push HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: %d\r\n\r\n" % len(body)
    async with streams(server, 1, head) as (stream,):
        answer = b""
        async with trio.open_nursery() as nursery:

            async def send() -> None:
                try:
                    await stream.send_all(body)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    pass

            if not unsent:
                nursery.start_soon(send)
            with trio.fail_after(60):
                while b"\r\n\r\n" not in answer or not answer.endswith(b"}"):
                    data = await stream.receive_some(65536)
                    if not data:
                        break
                    answer += data
            nursery.cancel_scope.cancel()
        return int(answer.split()[1]), {"error": answer.partition(b"\r\n\r\n")[2].decode()}


def _cpu_s(server: Server) -> float:
    fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100
