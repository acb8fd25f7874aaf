"""Queen's edge when it answers without storing: `python -m bench.edge PORT`. W1 must reach half of what this does.

Everything is Queen's own, from the listening socket to the encoded answer, except that the engine's part of a push is
left out: items are decoded and checked, ids are made, and nothing is kept.
"""

import gc
import sys
from collections.abc import Sequence

import trio

from queen.broker import Broker
from queen.checks import payload_of
from queen.clock import Ids, SystemClock
from queen.messages import Caller, NewMessage
from queen.names import uuid_text
from queen.opening import open_broker
from queen.replies import Receipt
from queen.settings import Settings
from queen.web.serve import serve

_SWITCH_INTERVAL_S = 0.0005  # as `queen serve` has it


async def _run(port: int) -> None:
    ids = Ids(SystemClock())

    async def push_many(self: Broker, items: Sequence[NewMessage], *, caller: Caller) -> list[Receipt]:
        for index, item in enumerate(items):
            payload_of(item, f"items[{index}].")
        base = ids.block()
        return [
            Receipt(uuid_text(base + 2 * index), uuid_text(base + 2 * index + 1), "queued")
            for index, _ in enumerate(items)
        ]

    Broker.push_many = push_many  # type: ignore[assignment,method-assign]
    async with open_broker(None) as broker, trio.open_nursery() as nursery:
        await nursery.start(serve, broker, Settings(port=port, log_level="warning"))
        gc.collect()
        gc.freeze()


def main() -> None:
    """Serve."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    trio.run(_run, int(sys.argv[1]))


if __name__ == "__main__":
    main()
