"""A run with a little of everything, recorded in a data folder, for the audit to look at."""

import random
from pathlib import Path

import trio

from queen import Broker, open_broker
from queen.errors import QueenError
from queen.messages import Acknowledgement, NewMessage

QUEUES = ("orders", "mails", "odd/name")
GROUPS = (None, None, "books")


async def record(path: Path, seed: int = 1, steps: int = 150) -> None:
    """Pushes, deliveries, failures, deletions, seeks, and queues that come and go; the same for the same seed, but for
    the times."""
    chance = random.Random(seed)
    async with open_broker(path) as broker:
        for queue in QUEUES:
            options = {"retryLimit": 1, "dlqAfterMaxRetries": True, "leaseTime": 1}
            await broker.configure(queue, options | ({"ordering": "relaxed"} if queue == "mails" else {}))
        for step in range(steps):
            await _step(broker, chance, step)
        await trio.sleep(1.1)  # leases end
        await broker.push("orders", "last", partition="p0")
        engine = broker._running()
        await engine.keeper.flush()
        await engine.eraser.sweep()


async def _step(broker: Broker, chance: random.Random, step: int) -> None:
    queue = chance.choice(QUEUES)
    try:
        match chance.randrange(12):
            case 0 | 1 | 2 | 3:
                count = chance.randint(1, 9)
                names = [f"m{chance.randrange(80)}" if chance.random() < 0.7 else None for _ in range(count)]
                await broker.push_many(
                    [
                        NewMessage(
                            queue=queue,
                            payload={"step": step},
                            partition=f"p{chance.randrange(3)}",
                            transaction_id=name,
                            delay_seconds=chance.choice([None, None, None, 1]),
                        )
                        for name in names
                    ]
                )
            case 4 | 5 | 6 | 7 | 8:
                await _consume(broker, chance, queue)
            case 9:
                await broker.messages.delete(f"m{chance.randrange(80)}")
            case 10:
                dead, _ = await broker.messages.dead_letters(queue)
                for message in dead[:2]:
                    await broker.messages.retry(message.transaction_id)
            case 11 if step % 3 == 0:
                await broker.groups.seek("books", queue, chance.choice([None, 1]))
            case 11 if step % 29 == 0:
                await broker.delete_queue(queue)
    except QueenError:
        pass


async def _consume(broker: Broker, chance: random.Random, queue: str) -> None:
    auto = chance.random() < 0.2
    group = chance.choice(GROUPS)
    got = await broker.pop(queue, batch=chance.randint(1, 8), group=group, auto_ack=auto, worker="w")
    if auto or not got or chance.random() < 0.1:
        return
    if chance.random() < 0.2:
        await broker.extend(got.messages[0].lease_id, 2)
    await broker.ack_many(
        [
            Acknowledgement(
                transaction_id=message.transaction_id,
                status=chance.choice(["completed", "completed", "failed", "retry"]),
                error="no luck",
                lease_id=message.lease_id,
                consumer_group=group,
            )
            for message in got
        ]
    )
