"""An incident, recorded: payments that nobody took in time became dead letters, and one of them was deleted in a hurry.

    python examples/incident.py FOLDER

makes FOLDER/data, the record of it, and FOLDER/nightly.queen, a backup that was made in between. docs/audit.md finds
out from them what happened, and repairs it.
"""

import sys
from pathlib import Path

import trio

from queen import Broker, open_broker
from queen.messages import Caller, NewMessage

TILL = Caller("till-3")
ANN = Caller("operator ann")


async def main(folder: Path) -> None:
    """Some four seconds."""
    async with open_broker(folder / "data") as broker:
        await broker.configure("payments", {"ttl": 2, "dlqAfterMaxRetries": True}, caller=ANN)
        await push(broker, 1, 5)
        await work(broker, "billing-1")
        # billing-1 is being replaced, and its successor does not come up.
        await push(broker, 5, 9)
        await back_up(folder)
        await trio.sleep(2.2)
        await push(broker, 9, 12)
        await work(broker, "billing-2")
        await broker.messages.delete("payment-5", caller=ANN)
        # Deleted payloads leave their records within seconds.
        await trio.sleep(1)


async def push(broker: Broker, first: int, stop: int) -> None:
    """Payments `first` to `stop - 1`."""
    payments = [
        NewMessage(
            queue="payments",
            payload={"amount": 10 * number, "card": f"card-{number}"},
            transaction_id=f"payment-{number}",
        )
        for number in range(first, stop)
    ]
    await broker.push_many(payments, caller=TILL)


async def work(broker: Broker, worker: str) -> None:
    """Take and complete what there is."""
    while got := await broker.pop("payments", worker=worker, caller=Caller("10.0.0.7")):
        for message in got:
            await broker.ack(message.transaction_id, lease_id=message.lease_id, caller=Caller("10.0.0.7"))


async def back_up(folder: Path) -> None:
    """As a timer would, from another process, beside the one that works."""
    command = [sys.executable, "-m", "queen", "backup", str(folder / "nightly.queen"), "--data", str(folder / "data")]
    await trio.run_process(command, capture_stdout=True)


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]))
