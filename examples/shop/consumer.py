"""A consumer: takes batches, fails some orders, sometimes dies or oversleeps with a lease in its hands, and
writes down all that it sees.

It keeps order by two habits. When an order fails, the rest of the batch is given back with `retry`, so that nothing
overtakes the failed one. And what it acknowledges, it acknowledges before the lease ends: after that the orders may be
with somebody else. (An oversleeper breaks the second habit on purpose, to see that the server is not confused by it.)
"""

import os
import random
import time
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from shop.client import Client, Lost
from shop.records import (
    QUEUE,
    AckAnswered,
    AckLost,
    AckSent,
    Book,
    Died,
    Fault,
    Leased,
    PopLost,
    Result,
    Taken,
    now,
    transaction_id,
)

DIED = 17  # the exit code of a consumer that ended itself on purpose
BATCH = 25
FAIL = 1 / 50  # of the messages
SINGLY = 1 / 5  # of the batches are acknowledged message by message
MARGIN_S = 0.5  # no acknowledgement is sent so shortly before the lease's end
WORK_S = 0.005


class Habits(NamedTuple):
    """How often, in leases, a consumer dies or oversleeps."""

    die: float
    oversleep: float


def run(port: int, book: Path, seed: str, habits: Habits) -> None:
    """Consume until the process is ended from outside, or by itself."""
    consumer = _Consumer(Client(port), Book(book), random.Random(seed), habits)
    while True:
        lease = consumer.pop()
        if lease is not None:
            consumer.work(lease)


class _Consumer:
    def __init__(self, client: Client, book: Book, chance: random.Random, habits: Habits) -> None:
        self._client = client
        self._book = book
        self._chance = chance
        self._habits = habits
        self._attempts = 0

    def pop(self) -> Leased | None:
        batch = self._chance.randint(1, BATCH)
        sent = now()
        try:
            status, answer = self._client.request(
                "GET", f"/api/v1/pop/queue/{QUEUE}?batch={batch}&wait=true&timeout=1000"
            )
        except Lost:
            self._book.write(PopLost(sent, now()))
            return None
        if status == 204:
            return None
        if status != 200:
            self._book.write(Fault(now(), f"pop answered {status}: {answer}"))
            time.sleep(0.1)
            return None
        at = now()
        messages = answer["messages"]
        first = messages[0]
        lease = Leased(
            sent,
            at,
            first["leaseId"],
            datetime.fromisoformat(first["leaseExpiresAt"]).timestamp(),
            first["partition"],
            [Taken(_number(message), message["id"], message["retryCount"], message["data"]) for message in messages],
        )
        self._book.write(lease)
        if len(messages) > batch or any(message["leaseId"] != lease.lease for message in messages):
            self._book.write(Fault(at, f"pop of at most {batch} got {len(messages)}, or several leases"))
        return lease

    def work(self, lease: Leased) -> None:
        time.sleep(self._chance.random() * WORK_S)
        numbers = [message.number for message in lease.messages]
        failed = next((i for i in range(len(numbers)) if self._chance.random() < FAIL), len(numbers))
        wanted = {
            number: "completed" if i < failed else "failed" if i == failed else "retry"
            for i, number in enumerate(numbers)
        }
        fate = self._chance.random()
        if fate < self._habits.die:
            self._die(lease, wanted)
        elif fate < self._habits.die + self._habits.oversleep:
            time.sleep(max(0.0, lease.expires - now()) + self._chance.random())
            # Only the first one: all orders before it are done with, so it can't overtake any.
            self._ack(lease, {numbers[0]: wanted[numbers[0]]}, late=True)
        elif self._chance.random() < SINGLY:
            for number in numbers[: failed + 1]:
                if not self._ack(lease, {number: wanted[number]}):
                    return
            if numbers[failed + 1 :]:
                self._ack(lease, {number: "retry" for number in numbers[failed + 1 :]})
        else:
            self._ack(lease, wanted)

    def _die(self, lease: Leased, wanted: dict[int, str]) -> None:
        """End this process: before any acknowledgement, in the middle of them, or before the answer is here."""
        how = self._chance.randrange(3)
        half = len(wanted) // 2
        if how == 1 and half:
            self._ack(lease, dict(list(wanted.items())[:half]))
        if how == 2:
            self._write_attempt(lease, wanted)
            try:
                self._client.send("POST", "/api/v1/ack/batch", _body(lease, wanted))
            except Lost:
                pass  # dying anyway
        self._book.write(Died(now()))
        os._exit(DIED)

    def _ack(self, lease: Leased, wanted: dict[int, str], late: bool = False) -> bool:
        """Acknowledge, and repeat the same until answered or too late; say whether all of it was accepted."""
        while late or now() < lease.expires - MARGIN_S:
            attempt = self._write_attempt(lease, wanted)
            try:
                results = self._acknowledged(lease, wanted)
            except Lost:
                self._book.write(AckLost(attempt, now()))
                continue
            self._book.write(AckAnswered(attempt, now(), results))
            return all(result.status != "conflict" for result in results)
        return False

    def _acknowledged(self, lease: Leased, wanted: dict[int, str]) -> list[Result]:
        """Send one request, to the single or to the batch route, and read its answer. Raises `Lost`."""
        body = _body(lease, wanted)
        numbers = list(wanted)
        if len(numbers) > 1:
            status, answer = self._client.request("POST", "/api/v1/ack/batch", body)
            rows = answer["results"] if status == 200 else []
        else:
            status, answer = self._client.request("POST", "/api/v1/ack", body["acknowledgments"][0])
            refusals = {409: "conflict", 404: "not_found"}
            rows = [{**answer, "status": refusals[status]} if status in refusals else answer]
        if len(rows) != len(numbers) or (status != 200 and len(numbers) > 1) or status not in (200, 404, 409):
            self._book.write(Fault(now(), f"ack of {len(numbers)} answered {status}: {answer}"))
            raise Lost(f"status {status}")
        return [Result(number, row["status"], row.get("retryCount")) for number, row in zip(numbers, rows, strict=True)]

    def _write_attempt(self, lease: Leased, wanted: dict[int, str]) -> int:
        self._attempts += 1
        status = {str(number): asked for number, asked in wanted.items()}
        self._book.write(AckSent(self._attempts, now(), lease.lease, status))
        return self._attempts


def _number(message: dict[str, Any]) -> int:
    """The order's number by its transactionId, not by its content: whether that is right, the judge says."""
    return int(message["transactionId"].removeprefix("order-"))


def _body(lease: Leased, wanted: dict[int, str]) -> dict[str, Any]:
    return {
        "acknowledgments": [
            {
                "transactionId": transaction_id(number),
                "status": asked,
                "leaseId": lease.lease,
                **({"error": "card refused"} if asked == "failed" else {}),
            }
            for number, asked in wanted.items()
        ]
    }
