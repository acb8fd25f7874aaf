"""The tests of `service.py`: a queue in memory, on a clock that jumps to what comes next. Minutes take milliseconds.

Run with pytest and pytest-trio, `trio_mode = true`. `autojump_clock` is pytest-trio's; with `queen.TrioClock`, the
queue lives on it too, so that leases, delays and retries happen when the test says so. Each test has to ask for the
clock itself: where only a fixture does, pytest-trio runs the test in real time.
"""

from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock

import queen
from signup.service import Signups

MINUTE = 60


class MailServer:
    """Down until `up_at`, on Trio's clock."""

    def __init__(self) -> None:
        self.up_at = 0.0
        self.sent: list[str] = []

    async def send(self, address: str) -> None:
        await trio.sleep(1)
        if trio.current_time() < self.up_at:
            raise ConnectionError("no answer")
        self.sent.append(address)


@pytest.fixture
async def broker() -> AsyncIterator[queen.Broker]:
    async with queen.open_broker(None, clock=queen.TrioClock()) as broker:
        yield broker


@pytest.fixture
def mails() -> MailServer:
    return MailServer()


@pytest.fixture
def signups(broker: queen.Broker, mails: MailServer, nursery: trio.Nursery) -> Signups:
    signups = Signups(broker, mails.send)
    nursery.start_soon(signups.run)
    return signups


async def test_a_mail_is_sent_once_to_everybody(signups: Signups, mails: MailServer, autojump_clock: MockClock) -> None:
    assert await signups.sign_up("ada@example.org")
    assert await signups.sign_up("bob@example.org")
    assert not await signups.sign_up("ada@example.org")
    await trio.sleep(10)
    assert mails.sent == ["ada@example.org", "bob@example.org"]


async def test_it_is_tried_again_every_minute(signups: Signups, mails: MailServer, autojump_clock: MockClock) -> None:
    mails.up_at = trio.current_time() + 5 * MINUTE
    await signups.sign_up("ada@example.org")
    await trio.sleep(5 * MINUTE)
    assert mails.sent == []
    await trio.sleep(MINUTE)
    assert mails.sent == ["ada@example.org"]


async def test_after_ten_minutes_it_is_a_dead_letter(
    signups: Signups, mails: MailServer, broker: queen.Broker, autojump_clock: MockClock
) -> None:
    mails.up_at = float("inf")
    await signups.sign_up("ada@example.org")
    await trio.sleep(12 * MINUTE)
    (message,), total = await broker.messages.dead_letters("welcomes")
    assert total == 1
    assert (message.data, message.error) == ({"address": "ada@example.org"}, "ConnectionError: no answer")
