"""Queen's edge when it answers without storing: `python -m bench.edge PORT`. W1 must reach half of what this does.

Everything is Queen's own, from the listening socket to the encoded answer, except that the engine's part of a push is
left out: items are decoded and checked, ids are made, and nothing is kept.
"""

import gc
import sys
from collections.abc import Sequence

import trio

from queen.actors.engine import Engine
from queen.clock import Ids, SystemClock
from queen.messages import Caller, NewMessage
from queen.names import uuid_text
from queen.opening import open_broker
from queen.replies import Receipt
from queen.reply import Reply
from queen.settings import Settings
from queen.web.serve import serve

_SWITCH_INTERVAL_S = 0.0005  # as `queen serve` has it


async def _run(port: int) -> None:
    ids = Ids(SystemClock())

    def push(self: Engine, items: Sequence[tuple[NewMessage, bytes]], caller: Caller) -> Reply[list[Receipt]]:
        base = ids.block()
        answer: Reply[list[Receipt]] = Reply()
        numbers = range(base, base + 2 * len(items), 2)
        answer.set([Receipt(uuid_text(number), uuid_text(number + 1), "queued") for number in numbers])
        return answer

    Engine.push = push  # type: ignore[method-assign]
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
