"""`/metrics` in both forms and `/health/ready`: every figure is measured, and the manual knows every one."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from prometheus_client.parser import text_string_to_metric_families

from queen import open_broker
from queen.actors.recovery import Recovery
from queen.condition import STUCK_S
from queen.errors import ChainBroken, StoreFailed
from queen.settings import Settings
from queen.store.memory_journal import MemoryJournal
from queen.web import metrics
from queen.web.serve import serve
from tests.actors.world import Gate, engine_of, opened
from tests.contract.client import Client
from tests.contract.conftest import Server
from tests.contract.socket import dashboard

ROOT = Path(__file__).parents[2]


async def scraped(client: Client, accept: str = "text/plain") -> dict[tuple[str, ...], float]:
    """The samples by name and labels."""
    reply = await client.request("GET", "/metrics/prometheus", headers={"Accept": accept})
    assert reply.status == 200, reply
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(reply.body.decode())
        for sample in family.samples
    }


async def test_the_pages_json(server: Server, client: Client) -> None:
    """7.2: every field, of its type, and true."""
    for number in range(5):
        await client.push("q", number)
    reply = await client.request("GET", "/metrics")
    assert reply.headers["content-type"] == "application/json"
    found = reply.json
    assert {name: type(value) for name, value in found.items()} == {
        "uptime": int,
        "requests": dict,
        "messages": dict,
        "database": dict,
        "memory": dict,
        "cpu": dict,
    }
    assert found["requests"]["total"] == 6
    assert found["messages"]["total"] == 5
    assert found["messages"]["rate"] == pytest.approx(5, abs=5)
    assert found["database"] == {"poolSize": 1, "idleConnections": 1, "waitingRequests": 0}
    assert list(found["memory"]) == ["rss", "heapTotal", "heapUsed", "external", "arrayBuffers"]
    memory = found["memory"]
    assert all(isinstance(value, int) for value in memory.values())
    assert memory["rss"] == memory["heapUsed"] + memory["external"]
    assert memory["heapTotal"] > memory["heapUsed"] > 10_000_000
    assert all(isinstance(value, int) and value > 0 for value in found["cpu"].values())


async def test_memory_counts_what_is_kept(server: Server, client: Client) -> None:
    """`arrayBuffers` grows with the records that are kept for acknowledgements to come."""
    before = (await client.request("GET", "/metrics")).json["memory"]["arrayBuffers"]
    await client.push("q", "x" * 100_000)
    await client.pop("q")
    after = (await client.request("GET", "/metrics")).json["memory"]["arrayBuffers"]
    assert 100_000 < after - before < 110_000


@pytest.mark.parametrize(
    ("accept", "text"),
    [
        ("", False),
        ("*/*", False),
        ("application/json", False),
        ("application/json, text/plain, */*", False),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", False),
        ("text/plain", True),
        ("text/plain;version=0.0.4;q=0.5,*/*;q=0.1", True),
        ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", True),
        ("text/plain;q=0.2, application/json;q=0.9", False),
        ("text/plain;q=nonsense", False),
        ("TEXT/PLAIN", True),
    ],
)
def test_who_gets_text(accept: str, text: bool) -> None:
    assert metrics.wants_text(accept) is text


async def test_the_accept_header_chooses(server: Server, client: Client) -> None:
    text = await client.request("GET", "/metrics", headers={"Accept": "text/plain;version=0.0.4"})
    assert text.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert b"# TYPE queen_messages_pushed_total counter" in text.body
    openmetrics = await client.request("GET", "/metrics", headers={"Accept": "application/openmetrics-text"})
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text")
    assert openmetrics.body.endswith(b"# EOF\n")
    assert (await client.request("GET", "/metrics/prometheus")).headers["content-type"].startswith("text/plain")


async def test_what_is_done_is_counted(server: Server, client: Client) -> None:
    names = await client.push("q", *range(10))
    await client.request("POST", "/api/v1/push", {"items": [{"queue": "q", "transactionId": names[0]}]})
    await client.pop("q", "batch=10")
    for name in names[:3]:
        await client.request("POST", "/api/v1/ack", {"transactionId": name, "status": "completed"})
    await client.request("POST", "/api/v1/ack", {"transactionId": names[3], "status": "failed"})
    await client.request("POST", "/api/v1/ack", {"transactionId": "nobody's", "status": "failed"})
    found = await scraped(client)
    assert found["queen_messages_pushed_total",] == 10
    assert found["queen_messages_duplicate_total",] == 1
    assert found["queen_messages_popped_total",] == 10
    outcomes = {key[1]: value for key, value in found.items() if key[0] == "queen_acknowledgements_total"}
    assert outcomes == {"completed": 3, "retry_scheduled": 1, "not_found": 1}
    assert found["queen_http_requests_total", "POST /api/v1/ack", "200"] == 4
    assert found["queen_http_requests_total", "POST /api/v1/ack", "404"] == 1
    assert found["queen_messages", "q", "processing"] == 6
    assert found["queen_messages", "q", "completed"] == 3
    assert found["queen_messages", "q", "pending"] == 1
    assert found["queen_message_lag_seconds_count",] == 3
    assert found["queen_pop_wait_seconds_count",] == 1
    assert found["queen_commit_seconds_count",] >= 6
    assert found["queen_commit_seconds_bucket", "+Inf"] == found["queen_commit_seconds_count",]
    assert found["queen_commit_records_sum",] == found["queen_journal_records_total",]
    assert found["queen_ready",] == 1


async def test_requests_are_counted_by_route_and_status(server: Server, client: Client) -> None:
    """On both lanes; what belongs to no route is `other`."""
    await client.request("GET", "/api/v1/pop/queue/q")
    await client.request("GET", "/nowhere")
    await client.request("GET", "/health/ready")
    await client.request("OPTIONS", "/api/v1/push")
    found = await scraped(client)
    counts = {key[1:]: value for key, value in found.items() if key[0] == "queen_http_requests_total"}
    assert counts == {
        ("GET /api/v1/pop/queue/<queue>", "204"): 1,
        ("other", "404"): 1,
        ("other", "204"): 1,
        ("GET /health/ready", "200"): 1,
    }


async def test_open_websockets_are_counted(server: Server, client: Client) -> None:
    await dashboard(await server.connect())
    found = await scraped(client)
    assert found["queen_websockets",] == found["queen_feed_subscribers",] == 1
    assert found["queen_http_connections",] == 2


async def test_queues_past_the_cap_share_one_series(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "QUEUES", 2)
    for number in range(5):
        await client.push(f"q{number}", *range(number + 1))
    await client.push("q4", 1)  # the fullest is not the oldest: series don't come and go
    found = await scraped(client)
    pending = {key[1]: value for key, value in found.items() if key[0] == "queen_messages" and key[2] == "pending"}
    assert pending == {"q0": 1, "q1": 2, "": 13}
    assert found["queen_queues",] == 5


async def test_odd_names_survive(server: Server, client: Client) -> None:
    name = 'a"b\\c é'
    await client.push(name, 1)
    assert (await scraped(client))["queen_messages", name, "pending"] == 1


async def test_a_scrape_is_answered_while_the_store_is_away(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(**_: Any) -> Any:
        await trio.sleep_forever()

    monkeypatch.setattr(metrics, "_PATIENCE_S", 0.01)
    monkeypatch.setattr(server.broker.statistics, "queues", never)
    found = await scraped(client)
    assert ("queen_messages_pushed_total",) in found
    assert ("queen_queues",) not in found


async def test_every_metric_has_its_row_in_the_manual(server: Server, client: Client) -> None:
    await client.push("q", 1)
    await client.request("POST", "/api/v1/ack", {"transactionId": "x", "status": "failed"})
    reply = await client.request("GET", "/metrics/prometheus")
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", reply.body.decode(), re.MULTILINE))
    page = (ROOT / "docs/metrics.md").read_text().split("<!-- metrics -->")[1].split("<!-- end -->")[0]
    assert dict(re.findall(r"^\| `(\w+)(?:\{.*?\})?` \| (\w+) \|", page, re.MULTILINE)) == kinds


# -- readiness ----------------------------------------------------------------------------------------------


async def test_ready(server: Server, client: Client) -> None:
    reply = await client.request("GET", "/health/ready")
    assert reply.status == 200
    assert reply.json == {"ready": True, "status": "ready", "store": "writable", "reason": None}


async def test_not_ready_while_it_stops(server: Server, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    drain, go_on = server.broker.drain, trio.Event()

    async def slow_drain() -> None:
        await go_on.wait()
        await drain()

    monkeypatch.setattr(server.broker, "drain", slow_drain)
    await client.request("GET", "/health")
    server.stop.set()
    await trio.testing.wait_all_tasks_blocked()
    reply = await client.request("GET", "/health/ready")
    assert (reply.status, reply.json["status"]) == (503, "stopping")
    go_on.set()


async def test_not_ready_while_it_starts_and_once_the_store_has_failed() -> None:
    """A commit whose outcome is unknown ends all writing."""
    journal = MemoryJournal()
    async with open_broker(None, journal=journal) as broker:
        engine = engine_of(broker)
        broker.detach()
        assert broker.readiness().status == "starting"
        broker.attach(engine)
        assert broker.readiness().ready
        journal.fail_next(StoreFailed("the disk is gone"))
        with pytest.raises(StoreFailed):
            await broker.push("q")
        await trio.testing.wait_all_tasks_blocked()
        found = broker.readiness()
        assert (found.status, found.store) == ("failed", "unwritable")
        assert "the disk is gone" in (found.reason or "")


async def test_not_ready_while_the_disk_hangs(autojump_clock: trio.testing.MockClock) -> None:
    gate = Gate()
    gate.open()
    async with opened(runner=gate.run) as broker, trio.open_nursery() as nursery:
        gate.close()
        nursery.start_soon(broker.push, "q")
        await trio.sleep(STUCK_S - 1)
        assert broker.readiness().ready
        await trio.sleep(2)
        found = broker.readiness()
        assert (found.status, found.store) == ("failed", "unwritable")
        gate.open()
        await trio.sleep(1)
        assert broker.readiness().ready


async def test_full_is_ready_for_all_but_pushes() -> None:
    """W4: acknowledgements must get through, or there is never room again."""
    async with open_broker(None, journal=MemoryJournal(capacity=0)) as broker:
        found = broker.readiness()
        assert (found.ready, found.store) == (True, "full")


async def test_while_the_journal_is_being_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The port is open, work is refused with 503, and it all goes away by itself."""
    async with open_broker(tmp_path / "data") as broker:
        await broker.push("q", 1)
    go_on, run = trio.Event(), Recovery.run

    async def slow_run(self: Recovery) -> None:
        await go_on.wait()
        await run(self)

    monkeypatch.setattr(Recovery, "run", slow_run)
    stop = trio.Event()
    with trio.fail_after(10):
        async with open_broker(tmp_path / "data", wait=False) as broker, trio.open_nursery() as nursery:
            (url,) = await nursery.start(
                partial(serve, broker, Settings(port=0, allowed_hosts="queen.test"), stop=stop)
            )
            client = Client(await trio.open_tcp_stream("127.0.0.1", int(url.rsplit(":", 1)[1])))
            reply = await client.request("GET", "/health/ready")
            assert (reply.status, reply.json["status"], reply.json["store"]) == (503, "starting", "unwritable")
            refused = await client.request("POST", "/api/v1/push", {"items": [{"queue": "q"}]})
            assert refused.status == 503
            assert "starting" in refused.error
            assert int(refused.headers["retry-after"]) >= 1
            assert (await client.request("GET", "/health")).status == 503
            assert (await scraped(client))["queen_ready",] == 0
            go_on.set()
            await broker.wait_started()
            assert (await client.request("GET", "/health/ready")).status == 200
            assert len(await client.pop("q")) == 1
            await client.stream.aclose()
            stop.set()


async def test_a_start_can_be_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def endless(self: Recovery) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(Recovery, "run", endless)
    with trio.fail_after(5):
        async with open_broker(tmp_path / "data", wait=False) as broker:
            assert not broker.started


async def test_a_start_that_fails_ends_the_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(self: Recovery) -> None:
        raise ChainBroken("by the test")

    monkeypatch.setattr(Recovery, "run", broken)
    with pytest.raises(BaseExceptionGroup) as caught:
        async with open_broker(tmp_path / "data", wait=False):
            await trio.sleep_forever()
    assert caught.value.split(ChainBroken)[1] is None
