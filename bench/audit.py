"""How fast the audit is: a store of batches and one of single messages, made in a temporary folder.

    python bench/audit.py [--batches 1000000] [--singles 100000]

Counts messages: an event of a record of a thousand messages counts as a thousand. Processor time of one thread.
"""

import argparse
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import trio

from queen import open_broker
from queen.audit.biography import history
from queen.audit.reading import Past, moment_at
from queen.audit.replaying import Replay, Wanted
from queen.audit.restoring import kept_before, world_at
from queen.audit.times import When
from queen.audit.verifying import verify
from queen.cli_tables import lines_of
from queen.messages import Acknowledgement, NewMessage
from queen.store.beside import Beside

PAYLOAD = msgspec.Raw(b'{"text":"' + b"x" * 50 + b'"}')
PARTITIONS = 100


async def fill(folder: Path, messages: int, batch: int) -> None:
    """Push all, deliver and complete a fifth of them."""
    async with open_broker(folder) as broker:

        async def push(start: int) -> None:
            for number in range(start, messages // batch, 16):
                item = NewMessage(queue="q", payload=PAYLOAD, partition=f"p{number % PARTITIONS}")
                await broker.push_many([item] * batch)

        async def consume() -> None:
            for _ in range(messages // batch // 5 // 16):
                got = await broker.pop("q", batch=batch, worker="w")
                acks = [Acknowledgement(transaction_id=each.transaction_id, lease_id=each.lease_id) for each in got]
                if acks:
                    await broker.ack_many(acks)

        async with trio.open_nursery() as nursery:
            for start in range(16):
                nursery.start_soon(push, start)
        async with trio.open_nursery() as nursery:
            for _ in range(16):
                nursery.start_soon(consume)


def names_of(past: Past, count: int) -> list[str]:
    """Some of the transactionIds."""
    told = [name for each in Replay(past, Wanted(types=["pushed"])).more(20_000) for name in each.transaction_ids or ()]
    return random.Random(1).sample(told, min(count, len(told)))


def timed(what: str, count: int, call: Callable[[], object]) -> None:
    """Say how long the call took, and how many messages a second that were."""
    start = time.process_time()
    call()
    taken = time.process_time() - start
    print(f"  {what}: {taken:.2f} s, {count / taken:,.0f} messages/s")


def measure(folder: Path) -> None:
    with Beside(folder) as past:
        head = past.head
        whole = verify(past)
        print(f"  {head:,} records, {whole.messages:,} messages, {whole.count} faults")
        taken = []
        for name in names_of(past, 300):
            start = time.perf_counter()
            history(past, name)
            taken.append(1000 * (time.perf_counter() - start))
        taken.sort()
        print(
            f"  biography: median {taken[len(taken) // 2]:.1f} ms, 99th percentile {taken[-len(taken) // 100]:.1f} ms"
        )
        stream = Replay(past, Wanted())
        lines = lines_of("ndjson")
        start = time.process_time()
        for told in stream.more():
            lines.line(told)
        spent = time.process_time() - start
        rates = f"{stream.messages / spent:,.0f} messages/s, {head / spent:,.0f} records/s"
        print(f"  replay as NDJSON: {spent:.2f} s, {rates}")
        kept = kept_before(past, head - 1)
        print(f"  the nearest moment is {0 if kept is None else kept.seq}")
        timed(
            "state before the last record", whole.messages, lambda: world_at(past, moment_at(past, When(seq=head - 1)))
        )
        timed("verify", whole.messages, lambda: verify(past))
    size = sum(file.stat().st_size for file in folder.rglob("data.mdb"))
    print(f"  on disk: {size / 1e6:.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=1_000_000, help="messages pushed a thousand at a time")
    parser.add_argument("--singles", type=int, default=100_000, help="messages pushed one by one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="queen-audit-") as temporary:
        for what, messages, batch in (("batches", options.batches, 1000), ("singles", options.singles, 1)):
            print(what)
            folder = Path(temporary) / what
            trio.run(fill, folder, messages, batch)
            measure(folder)


if __name__ == "__main__":
    main()
