"""Hostile WebSocket frames: what the protocol forbids, what is too large, too many, or cut off. The server closes such
a connection with the right code, or bears it; a client that behaves goes on being told everything.
"""

import base64
import json
import os
import random
import struct
from collections.abc import Callable, Iterator
from typing import Final

import trio

from tests.campaigns.hostile_server import LIMIT_S, SHORT, Canary, Target, replies, target

SHAKE: Final = (
    "GET /ws/dashboard HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n{more}\r\n"
)
GROWTH: Final = 32 << 20
STALL_S: Final = 2.0
FINE: Final = frozenset({None, *range(1000, 1004), *range(1007, 1015)})
"""How a connection may be closed; None without a code. A client's own code is sent back to it, also 1011; where that is
the server's, its log tells of the accident."""
LARGEST: Final = 16 * 1024
AT_ONCE: Final = 16


def frame(
    opcode: int, payload: bytes = b"", *, fin: bool = True, rsv: int = 0, mask: bool = True, length: int | None = None
) -> bytes:
    """A frame as a client sends it; `length` lies about the payload's."""
    size = len(payload) if length is None else length
    first = (fin << 7) | (rsv << 4) | opcode
    masked = 0x80 if mask else 0
    if size < 126:
        head = struct.pack(">BB", first, masked | size)
    elif size < 1 << 16:
        head = struct.pack(">BBH", first, masked | 126, size)
    else:
        head = struct.pack(">BBQ", first, masked | 127, size)
    if not mask:
        return head + payload
    key = b"\x11\x22\x33\x44"
    pattern = (key * (len(payload) // 4 + 1))[: len(payload)]
    mixed = int.from_bytes(payload) ^ int.from_bytes(pattern)
    return head + key + mixed.to_bytes(len(payload))


TEXT, BYTES, CLOSE, PING, PONG = 1, 2, 8, 9, 10
SUBSCRIBE: Final = frame(TEXT, b'{"type":"subscribe","queues":["q"]}')


def cases() -> Iterator[tuple[str, bytes]]:
    """Frames and sequences of frames."""
    for opcode in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15):
        yield f"opcode {opcode}", frame(opcode, b"x")
    for rsv in range(1, 8):
        yield f"reserved bits {rsv}", frame(TEXT, b"x", rsv=rsv)
    yield "unmasked", frame(TEXT, b"ping", mask=False)
    yield "continues nothing", frame(0, b"x")
    yield "text within text", frame(TEXT, b"a", fin=False) + frame(TEXT, b"b")
    yield "ping in pieces", frame(PING, b"a", fin=False) + frame(0, b"b")
    yield "long ping", frame(PING, b"x" * 126)
    yield "long close", frame(CLOSE, struct.pack(">H", 1000) + b"x" * 200)
    yield "close of one byte", frame(CLOSE, b"x")
    for code in (0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535):
        yield f"close {code}", frame(CLOSE, struct.pack(">H", code))
    yield "close, then more", frame(CLOSE, struct.pack(">H", 1000)) + SUBSCRIBE * 10
    yield "close of bad text", frame(CLOSE, struct.pack(">H", 1000) + b"\xff\xfe")
    yield "not UTF-8", frame(TEXT, b"\xff\xfe")
    yield "surrogate", frame(TEXT, b"\xed\xa0\x80")
    yield "cut UTF-8", frame(TEXT, b"\xe2\x82")
    yield "UTF-8 over a cut", frame(TEXT, b"\xe2\x82", fin=False) + frame(0, b"\xac")
    yield "bytes", frame(BYTES, b"ping")
    yield "as large as may be", frame(TEXT, b"x" * LARGEST)
    yield "too large", frame(TEXT, b"x" * (LARGEST + 1))
    yield "much too large", frame(TEXT, b"x" * 2_000_000)
    yield "too large in pieces", frame(TEXT, b"x" * 9000, fin=False) + frame(0, b"x" * 9000)
    yield "says too large", frame(TEXT, b"x", length=2**40)
    yield "says impossible", frame(TEXT, b"x", length=2**63)
    yield "says far more", frame(TEXT, b"x", length=2**62)
    yield "size in too many bytes", b"\x81\xfe\x00\x01\x11\x22\x33\x44x"
    yield "cut off", frame(TEXT, b"ping")[:3]
    yield "empty pieces", frame(TEXT, fin=False) + frame(0, fin=False) * 20000 + frame(0)
    yield "many small", frame(TEXT, b"x") * 5000
    yield "many pings", frame(PING, b"x" * 125) * 5000
    yield "many pongs", frame(PONG) * 20000
    yield "many subscriptions", SUBSCRIBE * 500
    yield "nesting", frame(TEXT, b"[" * 16000)
    yield "nested subscription", frame(TEXT, b'{"type":"subscribe","queues":' + b"[" * 8000 + b"]" * 8000 + b"}")
    yield "numbers", frame(TEXT, b'{"type":"subscribe","queues":[' + b"1," * 8000 + b"1]}")
    yield "names", frame(TEXT, json.dumps({"type": "subscribe", "queues": ["\x00", "a/b", "x" * 300, ""]}).encode())
    yield "many names", frame(TEXT, json.dumps({"type": "subscribe", "queues": [str(n) for n in range(2500)]}).encode())
    yield "authenticate", frame(TEXT, b'{"type":"authenticate","token":"\\ud800"}')
    yield "HTTP", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    yield "deflated", frame(TEXT, bytes.fromhex("4a4c4c4c040000"), rsv=4)


def mutated(count: int, chance: random.Random) -> Iterator[tuple[str, bytes]]:
    """Some of the above with bytes changed, or nothing but chance."""
    known = [data for _, data in cases() if len(data) < 400]
    for number in range(count):
        data = bytearray(b"".join(chance.choices(known, k=chance.randint(1, 5))))
        for _ in range(chance.randint(1, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        yield f"mutation {number}", bytes(data) if number % 5 else chance.randbytes(chance.randint(1, 300))


def shake(more: str = "") -> bytes:
    """A handshake with further header lines."""
    return SHAKE.format(key=base64.b64encode(os.urandom(16)).decode(), more=more).encode()


def handshakes() -> Iterator[tuple[str, bytes]]:
    """Handshakes that are wrong."""
    sound = shake()
    yield "no key", sound.replace(b"Sec-WebSocket-Key", b"X")
    yield "no version", sound.replace(b"Sec-WebSocket-Version", b"X")
    yield "version 8", sound.replace(b"Version: 13", b"Version: 8")
    yield "HTTP/1.0", sound.replace(b"HTTP/1.1", b"HTTP/1.0")
    yield "post", sound.replace(b"GET", b"POST")
    yield "no upgrade", sound.replace(b"Connection: Upgrade\r\n", b"")
    yield "elsewhere", sound.replace(b"/ws/dashboard", b"/health")
    yield "key of bytes", sound.replace(b"Sec-WebSocket-Key: ", b"Sec-WebSocket-Key: \xff\xfe")
    yield "frames at once", sound + SUBSCRIBE
    yield "body", shake("Content-Length: 5\r\n") + b"hello"
    yield "chunks", shake("Transfer-Encoding: chunked\r\n") + b"5\r\nhello\r\n0\r\n\r\n"
    yield "extension", shake("Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=99\r\n")
    yield "protocol", shake("Sec-WebSocket-Protocol: \xe9\r\n")


def close_code(data: bytes) -> int | None:
    """The code of the close frame among the server's frames; raises `ValueError` for what is no frame."""
    while data:
        opcode, size = data[0] & 15, data[1] if len(data) > 1 else 0
        if data[0] & 0x70 or opcode not in (0, TEXT, BYTES, CLOSE, PING, PONG) or size & 0x80:
            raise ValueError(f"no frame of a server: {data[:20]!r}")
        start = 2
        if size == 126:
            size, start = int.from_bytes(data[2:4]), 4
        elif size == 127:
            size, start = int.from_bytes(data[2:10]), 10
        if opcode == CLOSE:
            return int.from_bytes(data[start : start + 2]) if size else None
        data = data[start + size :]
    return None


async def attack(server: Target, name: str, data: bytes, report: Callable[[str], None]) -> int:
    """One connection; how many faults."""
    received, ended = await server.exchange(data, frame(CLOSE, struct.pack(">H", 1000)), opening=shake())
    head, _, frames = received.partition(b"\r\n\r\n")
    fault = ""
    if not ended:
        fault = f"neither answered nor closed within {LIMIT_S} s"
    elif not head.startswith(b"HTTP/1.1 101 "):
        fault = f"not even a handshake: {head[:60]!r}"
    else:
        try:
            code = close_code(frames)
            fault = "" if code in FINE or (code or 0) in range(3000, 5000) else f"closed with {code}"
        except ValueError as error:
            fault = str(error)
    if fault:
        report(f"FAULT WebSocket, {name}: {fault}; sent {data[:100]!r}")
    return bool(fault)


async def run(count: int, seed: int, report: Callable[[str], None] = print) -> bool:
    """All cases and `count` mutations; whether all went well."""
    chance = random.Random(seed)
    attacks = [*cases(), *mutated(count, chance)]
    tried = wrong = 0
    async with target(*SHORT) as server, trio.open_nursery() as nursery:
        canary = Canary(server.port)
        nursery.start_soon(canary.run)
        told = await listener(server, nursery)
        before = server.resident()
        places = trio.CapacityLimiter(AT_ONCE)

        async def attempt(name: str, data: bytes) -> None:
            nonlocal tried, wrong
            async with places:
                tried += 1
                found = await attack(server, name, data, report)
                wrong += found

        async with trio.open_nursery() as attempts:
            for name, data in attacks:
                attempts.start_soon(attempt, name, data)
        for name, data in handshakes():
            received, ended = await server.exchange(data, frame(CLOSE, struct.pack(">H", 1000)), pause=0.01)
            status = replies(received)[0].status if received.startswith(b"HTTP") else 0
            tried += 1
            if not ended or not (status == 101 or 400 <= status < 500):
                wrong += 1
                report(f"FAULT handshake, {name}: {status}, ended {ended}")
        growth = server.resident() - before
        for bad, text in (
            (growth > GROWTH, "memory has grown"),
            (canary.longest > STALL_S, "the canary was held up"),
            (told.rounds < canary.rounds // 2, f"the listener heard of {told.rounds} of {canary.rounds} pushes"),
            (bool(server.accidents()), f"its log tells of accidents: {server.accidents()[:2]}"),
        ):
            wrong += bad
            if bad:
                report(f"FAULT WebSocket: {text}")
        nursery.cancel_scope.cancel()
    report(
        f"sockets: {tried} connections, {wrong} faults, memory {growth / 1e6:+.1f} MB, the canary's longest wait "
        f"{canary.longest * 1000:.0f} ms"
    )
    return not wrong


class Listener:
    """A client of the dashboard that behaves, and counts the canary's messages."""

    rounds = 0


async def listener(server: Target, nursery: trio.Nursery) -> Listener:
    """Listen from now on, until the nursery is cancelled."""
    heard = Listener()
    stream = await trio.open_tcp_stream("127.0.0.1", server.port)
    await stream.send_all(shake())
    await stream.receive_some(4096)

    async def listen() -> None:
        async with stream:
            async for data in stream:
                heard.rounds += data.count(b'"message.pushed"')
                if frame(PING, mask=False) in data:
                    await stream.send_all(frame(PONG))

    nursery.start_soon(listen)
    return heard
