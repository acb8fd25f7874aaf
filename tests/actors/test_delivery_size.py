"""A delivery holds as much payload as one answer should, and one message in any case (O1: `batch` is the most)."""

from typing import Any

import pytest
import trio

from queen import NewMessage
from queen.actors import mailbox
from queen.checks import acknowledgement_of
from tests.actors.world import opened

ROOM = 1000


@pytest.fixture(autouse=True)
def room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox, "DELIVERY_BYTES", ROOM)


@pytest.mark.parametrize("auto_ack", [True, False])
@pytest.mark.parametrize("written", [True, False])
@pytest.mark.parametrize("ordering", ["strict", "relaxed"])
async def test_what_does_not_fit_comes_next(ordering: str, written: bool, auto_ack: bool, autojump_clock: Any) -> None:
    """Each message once and in order, whether its record has a row yet or not."""
    async with opened() as queen:
        await queen.configure("q", {"ordering": ordering})
        for sizes in ([400, 400], [200, 2, 998, 1500], [3, 997]):
            await queen.push_many([NewMessage(queue="q", payload="x" * (size - 2)) for size in sizes])
        if written:
            await trio.sleep(3)
        found = []
        while delivery := await queen.pop("q", batch=1000, auto_ack=auto_ack):
            found.append([len(message.payload) for message in delivery])
            if not auto_ack:
                await queen.ack_many([acknowledgement_of(message, "completed") for message in delivery])
        assert found == [[400, 400, 200], [2, 998], [1500], [3, 997]]


async def test_messages_that_come_back_count_as_well(autojump_clock: Any) -> None:
    """R1: those first, then fresh ones as far as there is room."""
    async with opened() as queen:
        await queen.push_many([NewMessage(queue="q", payload="x" * 398) for _ in range(5)])
        for message in await queen.pop("q", batch=2):
            await queen.ack(message, "failed")
        delivery = await queen.pop("q", batch=5)
        assert [message.retry_count for message in delivery] == [1, 1]
        await queen.ack_many([acknowledgement_of(message, "completed") for message in delivery])
        assert [message.retry_count for message in await queen.pop("q", batch=5)] == [0, 0]


async def test_delayed_messages_behind_what_fits_are_not_passed(autojump_clock: Any) -> None:
    """L2, T2: relaxed order goes past delayed messages only to what it delivers."""
    async with opened() as queen:
        await queen.configure("q", {"ordering": "relaxed"})
        for delay in (0, 5, 0, 5, 0):
            await queen.push("q", "x" * 598, delay_seconds=delay)
        for expected in ([1], [1], [1], []):
            assert [1 for _ in await queen.pop("q", batch=9)] == expected
        await trio.sleep(6)
        for expected in ([1], [1], []):
            assert [1 for _ in await queen.pop("q", batch=9)] == expected


async def test_several_partitions_share_the_room(autojump_clock: Any) -> None:
    """O3: no partition is asked once there is no room."""
    async with opened() as queen:
        for partition in "abcd":
            await queen.push("q", "x" * 498, partition=partition)
        assert len(await queen.pop("q", batch=9, partitions=9)) == 2
        assert len(await queen.pop("q", batch=9, partitions=9)) == 2
