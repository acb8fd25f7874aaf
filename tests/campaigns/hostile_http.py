"""Hostile HTTP: what is malformed, ambiguous, cut in pieces or far too long, sent to a server with the fast lane and to
one without. Both must give the same answers, none of them 500, and end each connection; nobody else may notice.
"""

import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import trio
import trio.lowlevel

from tests.campaigns.hostile_server import LIMIT_S, SHORT, Canary, Reply, Target, replies, target

STALL_S = 2.0
"""The canary may wait so long, on a machine that others use as well."""
GROWTH = 48 << 20
"""Bytes of memory that a server may have more afterwards."""
AT_ONCE = 24
SMUGGLED = "smuggled"
"""No message may ever get into this queue: whoever puts one there has been taken for a second request."""


class Case(NamedTuple):
    """What is sent over one connection. `hidden`: it ends with a request that nobody may see as one."""

    name: str
    pieces: tuple[bytes, ...]
    hidden: bool = False

    @property
    def split(self) -> bool:
        """Whether it comes in pieces."""
        return len(self.pieces) > 1


def push(queue: str, head: str = "", body: bytes | None = None) -> bytes:
    """A push with further header lines."""
    content = b'{"items":[{"queue":"%s","payload":1}]}' % queue.encode() if body is None else body
    length = "" if "length" in head.lower() or "chunked" in head.lower() else f"Content-Length: {len(content)}\r\n"
    return f"POST /api/v1/push HTTP/1.1\r\nHost: localhost\r\n{length}{head}\r\n".encode() + content


HIDDEN = push(SMUGGLED)
SECOND = push("q")
POP = b"GET /api/v1/pop/queue/q HTTP/1.1\r\nHost: localhost\r\n"


def chunked(*chunks: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    """A chunked body."""
    return b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + end


CLEAR = (
    *("CL tab, plain", "CL folded, plain", "TE tab, chunks", "TE folded, chunks", "chunk size with space", "trailers"),
    "chunk extension, long",
)
"""These have one reading: white space round a value, lines that are unfolded (RFC 9112, 5.2), sizes as they stand."""


def smuggling() -> Iterator[tuple[str, bytes]]:
    """Requests whose end two readers might see in two places, each followed by one that nobody may see; or, where all
    readers must see the same (RFC 9112), by an ordinary one."""
    content = b'{"items":[{"queue":"q"}]}'
    size = len(content)
    te = "Transfer-Encoding: chunked\r\n"
    heads = {
        "TE and CL": f"Content-Length: {size}\r\n{te}",
        "CL and TE": f"{te}Content-Length: 4\r\n",
        "CL twice": f"Content-Length: {size}\r\nContent-Length: {size + 1}\r\n",
        "CL list": f"Content-Length: {size}, {size + 1}\r\n",
        "CL sign": f"Content-Length: +{size}\r\n",
        "CL minus": "Content-Length: -1\r\n",
        "CL hex": f"Content-Length: {size:#x}\r\n",
        "CL space": f"Content-Length : {size}\r\n",
        "CL tab": f"Content-Length:\t{size}\t\r\n",
        "CL inner space": f"Content-Length: {size // 10} {size % 10}\r\n",
        "CL underscore": f"Content-Length: {size // 10}_{size % 10}\r\n",
        "CL other digits": f"Content-Length: {chr(0x661)}{chr(0x660)}\r\n",
        "CL huge": "Content-Length: 99999999999999999999999\r\n",
        "CL empty": "Content-Length: \r\n",
        "CL folded": f"Content-Length:\r\n {size}\r\n",
        "CL NUL": f"Content-Length: {size}\0\r\n",
        "TE identity": f"Transfer-Encoding: identity\r\nContent-Length: {size}\r\n",
        "TE twice": te + te,
        "TE list": "Transfer-Encoding: gzip, chunked\r\n",
        "TE reversed": "Transfer-Encoding: chunked, identity\r\n",
        "TE xchunked": "Transfer-Encoding: xchunked\r\n",
        "TE tab": "Transfer-Encoding:\tchunked\r\n",
        "TE space": "Transfer-Encoding : chunked\r\n",
        "TE vertical tab": "Transfer-Encoding: \x0bchunked\r\n",
        "TE folded": "Transfer-Encoding:\r\n chunked\r\n",
        "TE quoted": 'Transfer-Encoding: "chunked"\r\n',
        "TE after CR": f"X: y\rTransfer-Encoding: chunked\r\nContent-Length: {size}\r\n",
        "TE after LF": f"X: y\nTransfer-Encoding: chunked\r\nContent-Length: {size}\r\n",
        "header without colon": f"Content-Length: {size}\r\nTransfer-Encoding chunked\r\n",
        "space before the first": f" Transfer-Encoding: chunked\r\nContent-Length: {size}\r\n",
    }
    for name, head in heads.items():
        line = f"POST /api/v1/push HTTP/1.1\r\nHost: localhost\r\n{head}\r\n".encode("utf-8", "surrogateescape")
        for kind, body in (("plain", content), ("chunks", chunked(content))):
            whole = f"{name}, {kind}"
            yield whole, line + body + (SECOND if whole in CLEAR else HIDDEN)
    for name, body in {
        "chunk size with sign": b"+19\r\n" + content + b"\r\n0\r\n\r\n",
        "chunk size with 0x": b"0x19\r\n" + content + b"\r\n0\r\n\r\n",
        "chunk size with space": b"19 \r\n" + content + b"\r\n0\r\n\r\n",
        "chunk size overflow": b"10000000000000019\r\n" + content + b"\r\n0\r\n\r\n",
        "chunk size of LF": b"19\n" + content + b"\n0\n\n",
        "chunk without CRLF": b"19\r\n" + content + b"0\r\n\r\n",
        "chunk too short": b"20\r\n" + content + b"\r\n0\r\n\r\n",
        "chunk extension": b'19;a="b\r\n"\r\n' + content + b"\r\n0\r\n\r\n",
        "chunk extension, long": b"19;" + b"a" * 20000 + b"\r\n" + content + b"\r\n0\r\n\r\n",
        "trailers": chunked(content, end=b"0\r\nContent-Length: 5\r\nTransfer-Encoding: x\r\n\r\n"),
        "last chunk twice": chunked(content) + b"0\r\n\r\n",
    }.items():
        yield name, push("q", te, body) + (SECOND if name in CLEAR else HIDDEN)


def malformed() -> Iterator[tuple[str, bytes]]:
    """Requests that are wrong, strange, or too long."""
    ok = b"Host: localhost\r\n\r\n"
    for name, line in {
        "no method": b" /health HTTP/1.1",
        "no version": b"GET /health",
        "version 0.9": b"GET /health HTTP/0.9",
        "version 1.0": b"GET /health HTTP/1.0",
        "version 2.0": b"GET /health HTTP/2.0",
        "version 1.10": b"GET /health HTTP/1.10",
        "lower case": b"get /health http/1.1",
        "two spaces": b"GET  /health HTTP/1.1",
        "tab": b"GET\t/health\tHTTP/1.1",
        "absolute": b"GET http://localhost/health HTTP/1.1",
        "absolute pop": b"GET http://localhost/api/v1/pop/queue/q HTTP/1.1",
        "absolute, other": b"GET http://evil.example/api/v1/pop/queue/q HTTP/1.1",
        "authority": b"CONNECT localhost:80 HTTP/1.1",
        "asterisk": b"OPTIONS * HTTP/1.1",
        "asterisk get": b"GET * HTTP/1.1",
        "fragment": b"GET /api/v1/pop/queue/q#x HTTP/1.1",
        "NUL in path": b"GET /api/v1/pop/queue/q\0 HTTP/1.1",
        "NUL encoded": b"GET /api/v1/pop/queue/q%00 HTTP/1.1",
        "bad percent": b"GET /api/v1/pop/queue/%zz HTTP/1.1",
        "cut percent": b"GET /api/v1/pop/queue/% HTTP/1.1",
        "not UTF-8": b"GET /api/v1/pop/queue/%ff%fe HTTP/1.1",
        "surrogate": b"GET /api/v1/pop/queue/%ed%a0%80 HTTP/1.1",
        "overlong": b"GET /api/v1/pop/queue/%c0%af HTTP/1.1",
        "raw bytes": b"GET /api/v1/pop/queue/\xff\xfe HTTP/1.1",
        "dots": b"GET /api/v1/pop/queue/.. HTTP/1.1",
        "climbing": b"GET /api/v1/pop/queue/../../../health HTTP/1.1",
        "backslash": b"GET \\api\\v1\\pop HTTP/1.1",
        "query of NULs": b"GET /api/v1/pop/queue/q?batch=%00&wait=\0 HTTP/1.1",
        "query, endless": b"GET /api/v1/pop/queue/q?" + b"a=b&" * 1000 + b" HTTP/1.1",
        "target too long": b"GET /api/v1/pop/queue/" + b"q" * 9000 + b" HTTP/1.1",
        "unknown method": b"BREW /api/v1/push HTTP/1.1",
        "method of bytes": b"\x80\xff /api/v1/push HTTP/1.1",
        "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM",
        "upgrade h2c": b"GET /health HTTP/1.1\r\nUpgrade: h2c\r\nConnection: upgrade",
        "upgrade on pop": POP + b"Upgrade: websocket\r\nConnection: upgrade",
    }.items():
        yield name, line + b"\r\n" + ok
    for name, head in {
        "no host": b"",
        "two hosts": b"Host: localhost\r\nHost: localhost\r\n",
        "empty name": b"Host: localhost\r\n: x\r\n",
        "obs-fold": b"Host: localhost\r\nX: a\r\n b\r\n",
        "NUL in value": b"Host: localhost\r\nX: a\0b\r\n",
        "CR in value": b"Host: localhost\r\nX: a\rb\r\n",
        "bytes in value": b"Host: localhost\r\nX: \xff\xfe\r\n",
        "bytes in name": b"Host: localhost\r\n\xff: x\r\n",
        "worker of bytes": b"Host: localhost\r\nQueen-Worker: \xff\r\n",
        "worker of control": b"Host: localhost\r\nQueen-Worker: a\x01b\r\n",
        "many headers": b"Host: localhost\r\n" + b"A: b\r\n" * 2000,
        "long header": b"Host: localhost\r\nX: " + b"x" * 17000 + b"\r\n",
        "expect": b"Host: localhost\r\nExpect: 100-continue\r\n",
        "expect other": b"Host: localhost\r\nExpect: x\r\n",
        "connection of much": b"Host: localhost\r\nConnection: close, keep-alive, upgrade\r\n",
        "range": b"Host: localhost\r\nRange: bytes=0-1\r\n",
    }.items():
        for path in (b"/api/v1/pop/queue/q", b"/health"):
            yield f"{name} {path.decode()}", b"GET " + path + b" HTTP/1.1\r\n" + head + b"\r\n"
    yield "bare LF", b"GET /api/v1/pop/queue/q HTTP/1.1\nHost: localhost\n\n"
    yield "mixed ends", b"GET /api/v1/pop/queue/q HTTP/1.1\r\nHost: localhost\n\r\n"
    yield "empty lines first", b"\r\n\r\n\r\n" + POP + b"\r\n"
    yield "garbage after", POP + b"\r\n" + bytes(range(256))
    yield "pipelined", (POP + b"\r\n") * 50 + push("q") * 20 + POP + b"\r\n"
    yield "pipelined, then wrong", POP + b"\r\n" + push("q") + b"nonsense\r\n\r\n" + HIDDEN
    yield "body of a get", POP + b"Content-Length: 5\r\n\r\nhello" + POP + b"\r\n"
    yield "nothing but NULs", bytes(40000)


def mutated(count: int, chance: random.Random) -> Iterator[Case]:
    """Sound requests with a few bytes changed, in random pieces."""
    sound = [
        push("q"),
        POP + b"\r\n",
        POP.replace(b"queue/q", b"queue/q?batch=10&wait=false&timeout=20") + b"Queen-Worker: w\r\n\r\n",
        push("q", "Transfer-Encoding: chunked\r\n", chunked(b'{"items":[', b'{"queue":"q"}]}')),
        push("q", body=b'{"transactionId":"t","status":"completed"}').replace(b"push", b"ack"),
        b"GET /api/v1/messages?limit=5&status=pending HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ]
    tokens = [
        b"\r\n",
        b"\n",
        b"\r",
        b" ",
        b"\t",
        b"\0",
        b":",
        b",",
        b"0",
        b"chunked",
        b"Content-Length: 3\r\n",
        b"\xff",
        b"%",
    ]
    for number in range(count):
        data = bytearray(chance.choice(sound))
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(data) + 1)
            match chance.randrange(4):
                case 0:
                    data[at : at + 1] = bytes([chance.randrange(256)])
                case 1:
                    data[at:at] = chance.choice(tokens)
                case 2:
                    del data[at : at + chance.randint(1, 8)]
                case _:
                    data[at:at] = data[at : at + chance.randint(1, 40)]
        yield Case(f"mutation {number}", pieces_of(bytes(data), chance))


def pieces_of(data: bytes, chance: random.Random) -> tuple[bytes, ...]:
    """The bytes cut at random places."""
    cuts = sorted(chance.randrange(len(data) + 1) for _ in range(chance.randrange(5)))
    return tuple(part for part in map(bytes, _between(data, [0, *cuts, len(data)])) if part)


def _between(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    for start, stop in pairwise(cuts):
        yield data[start:stop]


def cases(count: int, chance: random.Random) -> Iterator[Case]:
    """All fixed cases whole and in pieces, and `count` mutations."""
    for name, data in smuggling():
        hidden = data.endswith(HIDDEN)
        yield Case(name, (data,), hidden)
        yield Case(f"{name}, in pieces", pieces_of(data, chance), hidden)
    for name, data in malformed():
        yield Case(name, (data,))
        yield Case(f"{name}, in pieces", pieces_of(data, chance))
    yield from mutated(count, chance)


# -- judging ------------------------------------------------------------------------------------------------


def faults(case: Case, lane: tuple[bytes, bool], plain: tuple[bytes, bool]) -> Iterator[str]:
    """What is wrong with the two servers' answers to a case."""
    found: list[list[Reply]] = []
    for who, (data, ended) in (("lane", lane), ("quart", plain)):
        if not ended:
            yield f"{who} neither answers nor closes within {LIMIT_S} s"
        try:
            found.append(replies(data))
        except ValueError as error:
            yield f"{who}: {error}"
            return
        if any(reply.status == 500 for reply in found[-1]):
            yield f"{who} answers 500"
        if any(reply.status >= 400 and not (reply.body or b"").startswith(b'{"error":') for reply in found[-1]):
            yield f"{who} refuses without saying so in JSON"
    # Whether a pop finds another case's message is no difference.
    told = [[200 if reply.status == 204 else reply.status for reply in one] for one in found]
    if case.split:
        told = [_coarse(one) for one in told]
    if case.hidden and any(sum(status < 300 for status in one) > 1 for one in told):
        yield f"the hidden request was served: {told}"
    if told[0] != told[1]:
        yield f"the lane answers {told[0]}, the other {told[1]}"


def _coarse(statuses: list[int]) -> list[int]:
    """What must agree whatever piece comes first: what was done. Which fault of several is refused first may differ,
    and so may whether a few bytes behind the last request are refused or merely left to wait."""
    return [status for status in statuses if status < 400]


async def run(count: int, seed: int, report: Callable[[str], None] = print) -> bool:
    """All cases and `count` mutations against both servers; whether all went well."""
    chance = random.Random(seed)
    wrong = tried = 0
    async with target(*SHORT) as lane, target(*SHORT, "--no-fast-lane") as plain, trio.open_nursery() as nursery:
        canaries = [Canary(lane.port), Canary(plain.port)]
        for canary in canaries:
            nursery.start_soon(canary.run)
        places = trio.CapacityLimiter(AT_ONCE)
        before = [server.resident() for server in (lane, plain)]

        async def attempt(case: Case) -> None:
            nonlocal wrong, tried
            async with places:
                results: dict[int, tuple[bytes, bool]] = {}

                async def one(number: int, server: Target) -> None:
                    results[number] = await server.exchange(*case.pieces, pause=0.002)

                async with trio.open_nursery() as both:
                    both.start_soon(one, 0, lane)
                    both.start_soon(one, 1, plain)
                tried += 1
                for fault in faults(case, results[0], results[1]):
                    wrong += 1
                    report(f"FAULT {case.name}: {fault}; sent {b''.join(case.pieces)[:300]!r}")

        async with trio.open_nursery() as attempts:
            for case in cases(count, chance):
                async with places:
                    pass
                attempts.start_soon(attempt, case)
                await trio.lowlevel.checkpoint()
        for who, server, canary, start in zip(("lane", "quart"), (lane, plain), canaries, before, strict=True):
            growth = server.resident() - start
            data, _ = await server.exchange(
                b"GET /api/v1/resources/queues/smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
            )
            for bad, text in (
                (replies(data)[0].status != 404, "a smuggled request was served"),
                (growth > GROWTH, "memory has grown"),
                (canary.longest > STALL_S, "the canary was held up"),
                (canary.rounds == 0, "the canary never got round"),
                (bool(server.accidents()), f"its log tells of accidents: {server.accidents()[:2]}"),
            ):
                wrong += bad
                if bad:
                    report(f"FAULT {who}: {text}")
            report(
                f"http: {who}: memory {growth / 1e6:+.1f} MB, the canary's longest wait {canary.longest * 1000:.0f} ms "
                f"in {canary.rounds} rounds"
            )
        nursery.cancel_scope.cancel()
    report(f"http: {tried} connections to each, {wrong} faults")
    return not wrong
