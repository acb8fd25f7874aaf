"""A producer: pushes its partitions' orders in order, in requests of several, and repeats what got no answer."""

import random
import time
from pathlib import Path

from shop.client import Client, Lost
from shop.records import QUEUE, Book, Fault, Item, Pushed, now, order, transaction_id

BATCH = 40
AGAIN = 0.05  # so many requests are sent a second time although they were answered
TWICE = 0.05  # so many requests name their first order twice


def run(port: int, book: Path, seed: str, numbers: list[int], partitions: int, pause_s: float) -> None:
    """Push the orders with these numbers, each to partition number % partitions, with a pause after each request."""
    chance = random.Random(seed)
    shop = _Producer(Client(port), Book(book), partitions)
    start = 0
    while start < len(numbers):
        size = chance.randint(1, BATCH)
        batch = numbers[start : start + size]
        start += size
        time.sleep(chance.random() * pause_s)
        if chance.random() < TWICE:
            batch.append(batch[0])
        shop.push(batch)
        if chance.random() < AGAIN:
            shop.push(batch, again=True)


class _Producer:
    def __init__(self, client: Client, book: Book, partitions: int) -> None:
        self._client = client
        self._book = book
        self._partitions = partitions

    def push(self, numbers: list[int], again: bool = False) -> None:
        """Push until answered. The transactionIds make the repetition harmless: what is stored reads "duplicate"."""
        items = [
            {
                "queue": QUEUE,
                "partition": self._partition(number),
                "transactionId": transaction_id(number),
                "payload": order(number),
            }
            for number in numbers
        ]
        lost = 0
        while True:
            sent = now()
            try:
                status, answer = self._client.request("POST", "/api/v1/push", {"items": items})
            except Lost:
                lost += 1
                continue
            if status != 201:
                self._book.write(Fault(now(), f"push answered {status}: {answer}"))
                return
            rows = [
                Item(number, self._partition(number), message["id"], message["status"])
                for number, message in zip(numbers, answer["messages"], strict=True)
            ]
            self._book.write(Pushed(sent, now(), lost, again, rows))
            return

    def _partition(self, number: int) -> str:
        return f"customer-{number % self._partitions}"
