"""resources.py: a million names, those that are kept and those that are only asked about."""

import time
from pathlib import Path

import trio

from tests.campaigns.resources_report import MIB, Report, ask, resident, serving
from tests.campaigns.served import Client, Server


async def many_names(folder: Path, small: bool, report: Report) -> None:
    """Partitions, queues and groups by the thousand: what each costs, and that any is served at once."""
    partitions, queues, groups = (2_000, 300, 50) if small else (1_000_000, 20_000, 5_000)
    async with serving(folder, report) as server:
        await ask(server, "POST", "/api/v1/push", {"items": [{"queue": "first", "payload": 1}]})
        await trio.sleep(1)
        idle = resident(server)
        await _partitions(server, report, partitions, idle)
        await _queues(server, report, queues)
        await _groups(server, report, groups)
        held = resident(server)
        began = time.monotonic()
        report.answer("deleting it", await ask(server, "DELETE", "/api/v1/resources/queues/many"), 200)
        took = time.monotonic() - began
        report.tell(f"deleting the queue of {partitions} partitions, at {held >> 20} MiB, took {took:.1f} s")


async def _partitions(server: Server, report: Report, count: int, idle: int) -> None:
    client = Client(server.port)
    began = time.monotonic()
    for start in range(0, count, 1000):
        items = [{"queue": "many", "partition": f"p{n}", "payload": n} for n in range(start, min(count, start + 1000))]
        report.answer("a push to new partitions", await client.once("POST", "/api/v1/push", {"items": items}), 201)
    took = time.monotonic() - began
    held = resident(server)
    times = []
    for number in range(0, count, max(1, count // 50)):
        start_at = time.monotonic()
        answer = await client.once("GET", f"/api/v1/pop/queue/many/partition/p{number}?autoAck=true")
        times.append(time.monotonic() - start_at)
        report.answer("a pop of any of them", answer, 200)
    client.close()
    report.tell(
        f"{count} partitions of one message in {took:.0f} s: {(held - idle) >> 20} MiB, "
        f"{(held - idle) / count:.0f} bytes each; a pop of any took {sorted(times)[len(times) // 2] * 1000:.1f} ms "
        f"(longest {max(times) * 1000:.0f} ms)"
    )
    report.expect(held - idle < 1024 * MIB, f"{count} partitions took {(held - idle) >> 20} MiB")


async def _queues(server: Server, report: Report, count: int) -> None:
    before = resident(server)
    client = Client(server.port)
    for start in range(0, count, 500):
        items = [{"queue": f"queue-{n}", "payload": n} for n in range(start, min(count, start + 500))]
        report.answer("a push to new queues", await client.once("POST", "/api/v1/push", {"items": items}), 201)
    client.close()
    held = resident(server) - before
    report.tell(f"{count} queues of one message: {held >> 20} MiB, {held / count:.0f} bytes each")


async def _groups(server: Server, report: Report, count: int) -> None:
    before = resident(server)
    client = Client(server.port)
    for number in range(count):
        path = f"/api/v1/pop/queue/first?consumerGroup=g{number}&autoAck=true"
        report.answer("a pop by a new group", await client.once("GET", path), 200)
    client.close()
    held = resident(server) - before
    report.tell(f"{count} groups of one queue: {held >> 20} MiB, {held / count:.0f} bytes each")


async def again_and_again(folder: Path, small: bool, report: Report) -> None:
    """Partitions made and deleted, again and again: what the interpreter keeps of the first round, it uses again."""
    count, rounds = (1_000, 3) if small else (20_000, 5)
    async with serving(folder, report) as server:
        client = Client(server.port)
        peaks = []
        for number in range(rounds):
            for start in range(0, count, 1000):
                items = [{"queue": f"q{number}", "partition": f"p{start + n}", "payload": n} for n in range(1000)]
                report.answer("a push", await client.once("POST", "/api/v1/push", {"items": items}), 201)
            peaks.append(resident(server))
            report.answer("deleting", await client.once("DELETE", f"/api/v1/resources/queues/q{number}"), 200)
            await trio.sleep(1)
        client.close()
        told = ", ".join(str(peak >> 20) for peak in peaks)
        report.tell(f"{rounds} times {count} partitions made and deleted: {told} MiB at the peaks")
        report.expect(peaks[-1] < 1.3 * max(peaks[:2]) + 8 * MIB, f"memory grows from round to round: {told} MiB")


async def strangers(folder: Path, small: bool, report: Report) -> None:
    """Names that nothing is kept under: queues, groups, messages and leases that are only asked about cost nothing."""
    count = 200 if small else 20_000
    async with serving(folder, report) as server:
        await ask(server, "POST", "/api/v1/push", {"items": [{"queue": "first", "partition": "p", "payload": 1}]})
        await ask(server, "GET", "/api/v1/pop/queue/first?autoAck=true")
        await _ask_about(server, report, 200, "before")
        await trio.sleep(1)
        idle = resident(server)
        began = time.monotonic()
        await _ask_about(server, report, count, "x")
        left = resident(server)
        _, metrics = await ask(server, "GET", "/metrics")
        report.tell(
            f"{count} unknown queues, groups, messages and leases in {time.monotonic() - began:.0f} s: "
            f"{idle >> 20} MiB before, {left >> 20} MiB after; /metrics has {len(str(metrics))} characters"
        )
        report.expect(left < idle + 12 * MIB, f"{(left - idle) >> 10} KiB stayed of {count} unknown names")


async def _ask_about(server: Server, report: Report, count: int, prefix: str) -> None:
    async def some(start: int, stop: int) -> None:
        client = Client(server.port)
        for number in range(start, stop):
            name = f"{prefix}{number}"
            for method, path, body, status in (
                ("GET", f"/api/v1/pop/queue/{name}?wait=true&timeout=1", None, 204),
                ("GET", f"/api/v1/pop/queue/first?consumerGroup={name}&subscriptionMode=all&timeout=1", None, 0),
                ("POST", "/api/v1/ack", {"transactionId": name, "status": "completed"}, 404),
                ("POST", f"/api/v1/lease/{name}/extend", {"seconds": 1}, 0),
            ):
                answer = await client.once(method, path, body)
                if status:
                    report.answer(path, answer, status)
                else:
                    report.expect(answer[0] < 500, f"{path} was answered {answer}")
        client.close()

    async with trio.open_nursery() as nursery:
        for worker in range(8):
            nursery.start_soon(some, worker * count // 8, (worker + 1) * count // 8)
