"""resources.py: the disk is full, the map is full."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trio

from queen import Acknowledgement, NewMessage, StoreFull, open_broker
from tests.campaigns.resources_report import MIB, NotAllowed, Report, ask, serving, until
from tests.campaigns.served import Client, Server

FILLER = "x" * 8000
RESERVE = 4 * MIB


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """A disk of that many bytes, in memory. Raises `NotAllowed`."""
    place = folder / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "queen-resources", str(place)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise NotAllowed(f"a small disk can't be mounted here ({error})") from error
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


async def full_disk(folder: Path, small: bool, report: Report) -> None:
    """Pushes get 507 before the disk is full, acknowledgements and deletions live on the reserve, and there is room
    again by itself: once others free some, or once messages are deleted. W4."""
    with small_disk(folder, (20 if small else 64) * MIB) as place:
        async with serving(place, report, "--reserve", str(RESERVE)) as server:
            await ask(server, "POST", "/api/v1/configure", {"queue": "q", "options": {"leaseTime": 1}})
            pushed = await _push_until_full(server, report)
            free = os.statvfs(place).f_bavail * os.statvfs(place).f_frsize
            report.tell(f"507 after {pushed} messages of 8 kB, with {free >> 10} KiB of the disk free")
            report.expect(free > RESERVE // 4, f"only {free} bytes were left of the reserve")
            await _go_on(server, report, pushed)
            await _filled_by_others(place, server, report)
            await _room_again(server, report)


async def _push(server: Server, count: int = 20) -> tuple[int, Any]:
    items = [{"queue": "q", "payload": FILLER} for _ in range(count)]
    return await ask(server, "POST", "/api/v1/push", {"items": items})


async def _push_until_full(server: Server, report: Report) -> int:
    pushed = 0
    while True:
        answer = await _push(server)
        report.answer("a push", answer, 201, 507)
        if answer[0] != 201:
            report.expect("full" in str(answer[1]), f"the 507 does not say what is wrong: {answer[1]}")
            return pushed
        pushed += 20


async def _go_on(server: Server, report: Report, pushed: int) -> None:
    """Leases, their ends, acknowledgements and extensions, while pushes are refused."""
    client = Client(server.port)
    first = await client.once("GET", "/api/v1/pop/queue/q?batch=50")
    report.answer("a pop on the full disk", first, 200)
    await trio.sleep(1.5)
    taken = 0
    while True:
        popped = await client.once("GET", "/api/v1/pop/queue/q?batch=100")
        if popped[0] == 204:
            break
        report.answer("a pop on the full disk", popped, 200)
        messages = popped[1]["messages"]
        if not taken:
            counts = {message["retryCount"] for message in messages[:50]}
            report.expect(counts == {1}, f"the lease that ended on the full disk left retryCounts {counts}")
        taken += len(messages)
        extend = await client.once("POST", f"/api/v1/lease/{messages[0]['leaseId']}/extend", {"seconds": 60})
        report.answer("an extension on the full disk", extend, 200)
        entries = [{"transactionId": m["transactionId"], "status": "completed"} for m in messages]
        settled = await client.once("POST", "/api/v1/ack/batch", {"acknowledgments": entries})
        report.answer("acknowledgements on the full disk", settled, 200)
    report.expect(taken == pushed, f"{taken} messages were taken of {pushed}")
    report.answer("a push on the full disk", await _push(server), 507)
    report.tell(f"{taken} messages taken, extended and acknowledged meanwhile")
    client.close()


async def _filled_by_others(place: Path, server: Server, report: Report) -> None:
    """Somebody else takes even the reserve, and gives it back."""
    listed = await ask(server, "GET", "/api/v1/messages?queue=q&limit=400")
    report.answer("a list", listed, 200)
    with (place / "others").open("wb", buffering=0) as stream:
        try:
            while True:
                stream.write(bytes(MIB))
        except OSError:
            pass
    statuses: dict[int, int] = {}
    for message in listed[1]["messages"]:
        answer = await ask(server, "DELETE", f"/api/v1/messages/{message['transactionId']}")
        report.answer("a deletion with not a byte free", answer, 200, 503, 507)
        statuses[answer[0]] = statuses.get(answer[0], 0) + 1
    report.answer("a push with not a byte free", await _push(server), 503, 507)
    status, health = await ask(server, "GET", "/health")
    report.expect(status in (200, 503), f"health was answered {status}: {health}")
    (place / "others").unlink()
    report.expect(await until(server.ready, 10), "the server did not recover when there was room again")
    for message in listed[1]["messages"]:
        answer = await ask(server, "DELETE", f"/api/v1/messages/{message['transactionId']}")
        report.answer("a deletion after there was room again", answer, 200, 404)
    report.tell(f"with not a byte free, {len(listed[1]['messages'])} deletions were answered {statuses}")


async def _room_again(server: Server, report: Report) -> None:
    """Deleting makes room: pushes are taken again without anybody's doing."""
    report.answer("clear", await ask(server, "DELETE", "/api/v1/queues/q/clear"), 200)
    began = trio.current_time()

    async def taken() -> bool:
        return (await _push(server))[0] == 201

    report.expect(await until(taken, 60), "pushes are still refused though the queue was cleared")
    report.tell(f"pushes were taken again {trio.current_time() - began:.1f} s after the queue was cleared")


async def full_map(folder: Path, small: bool, report: Report) -> None:
    """The library over a map of 1 MiB, which grows: pushes may be refused for a moment, nothing else may."""
    refused = pushed = settled = 0
    async with open_broker(folder / "data", map_size=MIB, reserve=0) as broker:
        while pushed < (2_000 if small else 50_000):
            items = [NewMessage(queue="q", payload="x" * 2000, transaction_id=f"{pushed + n}") for n in range(100)]
            try:
                await broker.push_many(items)
            except StoreFull:
                refused += 1
                await trio.sleep(0.05)
                continue
            pushed += 100
            delivery = await broker.pop("q", batch=100)
            entries = [
                Acknowledgement(transaction_id=message.transaction_id, lease_id=message.lease_id)
                for message in delivery
            ]
            settled += sum(each.accepted for each in await broker.ack_many(entries))
    report.expect(settled == pushed, f"{settled} of {pushed} were completed")
    size = (folder / "data/journal/data.mdb").stat().st_size
    report.tell(f"{pushed} messages through a map that began with 1 MiB ({size >> 20} MiB now); {refused} refusals")
