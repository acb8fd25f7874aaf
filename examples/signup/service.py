"""People sign up and are sent a welcome mail, which is tried again for ten minutes when the mail server is down."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from queen import Broker, LeasedMessage

OPTIONS = {"retryLimit": 10, "retryDelay": 60_000, "dlqAfterMaxRetries": True}
"""Ten more attempts, a minute apart, then the dead letters."""


@dataclass
class Welcome:
    address: str


class Signups:
    """What the program does; how mails are sent is given to it."""

    def __init__(self, broker: Broker, send: Callable[[str], Awaitable[None]]) -> None:
        self._broker = broker
        self._send = send

    async def sign_up(self, address: str) -> bool:
        """Whether this address is new. Signing up twice sends one mail."""
        receipt = await self._broker.push("welcomes", Welcome(address), transaction_id=f"welcome-{address}")
        return receipt.status == "queued"

    async def run(self) -> None:
        """Send mails until cancelled."""
        await self._broker.configure("welcomes", OPTIONS)
        await self._broker.consume("welcomes", type=Welcome, deadline=60).run(self._welcome)

    async def _welcome(self, message: LeasedMessage[Welcome]) -> None:
        await self._send(message.data.address)
