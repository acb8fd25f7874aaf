"""A broker behind a real socket, for what talks to a server from a thread or a process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from queen import Broker, open_broker
from queen.settings import Settings
from queen.store.keyring import NO_KEYS, KeyRing
from queen.web.serve import serve


@asynccontextmanager
async def serving(folder: Path | None, keys: KeyRing = NO_KEYS) -> AsyncIterator[tuple[Broker, str]]:
    """The broker, and its server's URL."""
    async with open_broker(folder, keys=keys) as broker, trio.open_nursery() as nursery:
        (url,) = await nursery.start(
            serve, broker, Settings(port=0) if folder is None else Settings(port=0, data=str(folder))
        )
        try:
            yield broker, url
        finally:
            nursery.cancel_scope.cancel()
