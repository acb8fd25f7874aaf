"""Hostile bytes straight into everything that decodes: bodies, queries, names, frames, records, rows, files, headers.

Each may take them or refuse them with a `QueenError`, and nothing else. Guided by coverage where atheris is installed,
else by chance alone.

    python -m tests.campaigns.hostile_decoding RUNS SEED
"""

import random
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote_from_bytes
from zlib import crc32

try:
    import atheris
except ImportError:
    atheris = None

# What is to guide by its coverage must be imported under atheris' eyes.
with nullcontext() if atheris is None else atheris.instrument_imports(include=["queen"], enable_loader_override=False):
    from queen.errors import QueenError
    from queen.settings import Settings
    from queen.store import format as records
    from queen.store.keyring import read_keys
    from queen.tokens import _parsed
    from queen.web import parse
    from queen.web.access import Access
    from queen.web.dashboard import said
    from queen.web.exchange import Asked, Callers
    from queen.web.text import decoded, parameters

ACCESS: Final = Access(Settings(), lambda: 0)


def record(data: bytes) -> None:
    """As a record whose checksum is right, so that what it guards is read."""
    if len(data) < 10:
        data += bytes(10)
    rest = b"".join((data[:48], (max(len(data) - 60, 0)).to_bytes(4), data[48:]))
    flags = data[-1] & 1
    guarded = crc32(rest, crc32(records._GUARD.pack(1, records.VERSION, flags)))
    record = records.unpack(1, records._START.pack(records.VERSION, flags, guarded) + rest)
    records.digest_of(record)


def name(data: bytes) -> None:
    """As a segment of a path, in both spellings."""
    asked = Asked("GET", (("queue", quote_from_bytes(data)),), data, [(b"queen-worker", data)], b"", Callers().new(""))
    for call in (lambda: asked.name("queue"), lambda: asked.query, lambda: asked.header(b"queen-worker")):
        try:
            call()
        except QueenError:
            pass
    decoded(data.decode("latin-1"), "queue")


def headers(data: bytes) -> None:
    """As the headers that access looks at."""
    first, _, rest = data.partition(b"\n")
    ACCESS.closed = bool(len(data) & 1)
    ACCESS.identify([(b"host", first), (b"origin", rest), (b"authorization", data), (b"sec-fetch-site", rest)])


DECODERS: Final[tuple[Callable[[bytes], Any], ...]] = (
    parse.messages,
    parse.acknowledgement,
    parse.acknowledgements,
    parse.operations,
    parse.configuration,
    parse.extension,
    parse.target,
    parameters,
    name,
    headers,
    record,
    records.unpack_row,
    lambda data: records.unpack(1, data),
    lambda data: said(data.decode("utf-8", "surrogateescape")),
    lambda data: _parsed(data, Path("tokens")),
    lambda data: read_keys(data.decode("latin-1"), "keys"),
)
SEEDS: Final = (
    b'{"items":[{"queue":"q","payload":{"a":[1,2.5,"\\u00e9",null]},"transactionId":"t","delaySeconds":1}]}',
    b'{"transactionId":"t","status":"completed","leaseId":"x","error":"e","consumerGroup":"g"}',
    b'{"acknowledgments":[{"transactionId":"t","status":"failed"}]}',
    b'{"operations":[{"type":"push","items":[{"queue":"q"}]},{"type":"ack","transactionId":"t","status":"retry"}]}',
    b'{"queue":"q","options":{"leaseTime":1,"retryBackoff":1.5,"ordering":"relaxed"},"namespace":null}',
    b'{"timestamp":"2026-01-01T00:00:00Z","toEnd":false,"seconds":5}',
    b"batch=1&wait=true&timeout=5&consumerGroup=g%C3%A9&subscriptionFrom=2026-01-01",
    b'{"type":"subscribe","queues":["a"]}',
    b"\x84\x00\x63who\x42id\x81\x86\x18\x20\x01\x50" + bytes(16) + b"\x81\x02\x80\xf6",
    bytes.fromhex("c11a514b67b0d81c8101a16161f97e00fb7ff00000000000005f41ff"),
)


def one(data: bytes) -> None:
    """The first byte chooses who decodes the rest."""
    if data:
        try:
            DECODERS[data[0] % len(DECODERS)](data[1:])
        except QueenError:
            pass


def by_chance(runs: int, seed: int) -> None:
    """Seeds with a few changes each, for every decoder."""
    chance = random.Random(seed)
    for number in range(runs):
        data = bytearray(chance.choice(SEEDS))
        for _ in range(chance.randint(0, 6)):
            at = chance.randrange(len(data) + 1)
            match chance.randrange(4):
                case 0:
                    data[at : at + 1] = chance.randbytes(1)
                case 1:
                    data[at:at] = data[: chance.randint(0, 30)]
                case 2:
                    del data[at : at + chance.randint(1, 9)]
                case _:
                    data[at:at] = chance.choice((b"[" * 500, b"\xff", b"\\ud800", b"1e999", b"\0", b"NaN", b'"', b"%"))
        one(bytes([number % len(DECODERS)]) + bytes(data))


def main() -> None:
    """Exits with 0 if nothing was wrong; atheris exits by itself."""
    runs, seed = int(sys.argv[1]), int(sys.argv[2])
    by_chance(runs, seed)
    print(f"decoding: {runs} inputs by chance, no fault", flush=True)
    if atheris is None:
        print("decoding: atheris is not installed: nothing was guided by coverage")
        return
    corpus = Path(sys.argv[3])
    corpus.mkdir(parents=True, exist_ok=True)
    for number in range(len(DECODERS) * len(SEEDS)):
        file = corpus / f"seed-{number}"
        file.write_bytes(bytes([number % len(DECODERS)]) + SEEDS[number // len(DECODERS)])
    atheris.Setup([sys.argv[0], str(corpus), f"-runs={runs}", f"-seed={seed}", "-max_len=4096", "-verbosity=0"], one)
    print(f"decoding: {runs} inputs guided by coverage", flush=True)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
