"""A pipeline of three stages that is killed again and again: orders → priced → taxed → invoices, each exactly once.

    python examples/pipeline.py            # about ten seconds; prints what it killed and what it found

Each stage hands its result on by ``message.settle(push=...)``: the result is pushed and the message completed in one
commit, or neither. So no crash loses an order, and none is invoiced twice, without an id of the program's own. A
stage that can't keep up holds the one before it through `maxSize`, and the backlog stays bounded.
"""

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

import msgspec
import trio

import queen
from queen import LeasedMessage, NewMessage

ORDERS = 2_000
CUSTOMERS = 20
ROOM = 200
"""Messages that may wait between two stages."""
OPTIONS = {"leaseTime": 2, "retryLimit": 20}
"""What a killed process held is there again after two seconds, and that counts as an attempt."""


@dataclass
class Order:
    number: int
    pieces: int


@dataclass
class Priced:
    number: int
    cents: int


@dataclass
class Invoice:
    number: int
    cents: int
    tax: int


def _next(queue: str, message: queen.Message, payload: object) -> list[NewMessage]:
    """The result in the partition of the same name: what is in order in one stage is in order in the next."""
    return [NewMessage(queue=queue, partition=message.partition, payload=payload)]


async def price(message: LeasedMessage[Order]) -> None:
    order = message.data
    await message.settle(push=_next("priced", message, Priced(order.number, order.pieces * 250)))


async def tax(message: LeasedMessage[Priced]) -> None:
    priced = message.data
    taxed = Invoice(priced.number, priced.cents, priced.cents * 19 // 100)
    await message.settle(push=_next("taxed", message, taxed))


async def work(path: str) -> None:
    """Run all stages in this process until every order has its invoice."""
    async with queen.open_broker(path) as broker, trio.open_nursery() as nursery:
        for queue in ("orders", "priced", "taxed"):
            await broker.configure(queue, OPTIONS | ({"maxSize": ROOM} if queue != "orders" else {}))
        await broker.configure("invoices")
        # The transactionIds make the filling harmless to repeat: this process may have died in the midst of it.
        for first in range(0, ORDERS, 500):
            await broker.push_many([_order(number) for number in range(first, min(first + 500, ORDERS))])
        nursery.start_soon(lambda: broker.consume("orders", type=Order).run(price, concurrency=8))
        nursery.start_soon(lambda: broker.consume("priced", type=Priced).run(tax, concurrency=8))
        done = trio.Event()

        async def invoice(message: LeasedMessage[Invoice]) -> None:
            """The last stage keeps its results in a queue as well, for whoever reads them."""
            await message.settle(push=_next("invoices", message, message.data))
            if await _complete(broker):
                done.set()

        nursery.start_soon(lambda: broker.consume("taxed", type=Invoice).run(invoice, concurrency=8))
        if not await _complete(broker):
            await done.wait()
        nursery.cancel_scope.cancel()


async def _complete(broker: queen.Broker) -> bool:
    return (await broker.statistics.queue("invoices")).counts.pending == ORDERS


def _order(number: int) -> NewMessage:
    partition = f"customer-{number % CUSTOMERS}"
    payload = Order(number, 1 + number % 7)
    return NewMessage(queue="orders", partition=partition, payload=payload, transaction_id=f"order-{number}")


async def audit(path: str) -> list[str]:
    """What is wrong with the invoices; nothing, one hopes."""
    found: dict[str, list[Invoice]] = {}
    async with queen.open_broker(path) as broker:
        while delivery := await broker.pop("invoices", batch=1000):
            for message in delivery:
                found.setdefault(message.partition, []).append(msgspec.json.decode(message.payload, type=Invoice))
        left = [name for name in ("orders", "priced", "taxed") if (await broker.statistics.queue(name)).counts.pending]
    numbers = sorted(entry.number for entries in found.values() for entry in entries)
    faults = [f"{name} is not empty" for name in left]
    if numbers != list(range(ORDERS)):
        faults.append(f"{len(numbers)} invoices for {len(set(numbers))} of {ORDERS} orders")
    for partition, entries in found.items():
        if [entry.number for entry in entries] != sorted(entry.number for entry in entries):
            faults.append(f"{partition} is out of order")
    return faults


def kill_and_finish(path: str, kills: int, chance: random.Random) -> None:
    """Start the pipeline, kill it after a moment, and so on; then let it finish."""
    for number in range(kills + 1):
        child = subprocess.Popen([sys.executable, __file__, "--work", path])
        if number < kills:
            time.sleep(chance.uniform(0.4, 1.2))
            child.send_signal(signal.SIGKILL)
            child.wait()
            print(f"killed {number + 1} of {kills}", flush=True)
        elif child.wait():
            raise SystemExit("the pipeline has failed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", metavar="FOLDER", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        trio.run(work, given.work)
    else:
        with tempfile.TemporaryDirectory() as folder:
            kill_and_finish(folder, given.kills, random.Random(given.seed))
            faults = trio.run(audit, folder)
        print("\n".join(faults) or f"{ORDERS} orders, {ORDERS} invoices, each once and in order")
        sys.exit(bool(faults))
