"""The API page's sections 5 and 8: the figures themselves. Their form is the subject of test_page.py. Black box."""

from typing import Any

import pytest

from queen.options import DEFAULTS, as_dict
from queen.web.render_figures import duration_text
from tests.contract.client import Client


async def settle(client: Client, partition: str, batch: int, status: str) -> None:
    reply = await client.request("GET", f"/api/v1/pop/queue/emails/partition/{partition}?batch={batch}")
    entries = [{"transactionId": message["transactionId"], "status": status} for message in reply.json["messages"]]
    reply = await client.request("POST", "/api/v1/ack/batch", {"acknowledgments": entries})
    assert reply.json["processed"] == batch


@pytest.fixture
async def emails(client: Client) -> Client:
    """9 completed in the two partitions, 1 failed, 2 dead letters, 3 being processed, 5 pending."""
    body = {"queue": "emails", "namespace": "production", "task": "notifications", "options": {"retryLimit": 0}}
    await client.request("POST", "/api/v1/configure", body)
    await client.push("emails", *range(12))
    await client.push("emails", *range(8), partition="urgent")
    await settle(client, "Default", 6, "completed")
    await settle(client, "urgent", 3, "completed")
    await settle(client, "Default", 1, "failed")
    await settle(client, "urgent", 2, "dead_letter")
    await client.request("GET", "/api/v1/pop/queue/emails/partition/Default?batch=3")
    return client


async def get(client: Client, path: str) -> Any:
    reply = await client.request("GET", f"/api/v1/{path}")
    assert reply.status == 200, reply
    assert reply.headers["content-type"] == "application/json"
    return reply.json


def stats(*counts: int) -> dict[str, int]:
    pending, processing, completed, failed, dead = counts
    return {
        "total": sum(counts),
        "pending": pending,
        "processing": processing,
        "completed": completed,
        "failed": failed,
        "deadLetter": dead,
    }


async def test_figures_of_one_queue_and_of_all_agree(emails: Client) -> None:
    """S1, Z13."""
    expected = {
        "queue": "emails",
        "namespace": "production",
        "task": "notifications",
        "totals": stats(5, 3, 9, 1, 2),
        "partitions": [
            {"name": "Default", "stats": stats(2, 3, 6, 1, 0)},
            {"name": "urgent", "stats": stats(3, 0, 3, 0, 2)},
        ],
    }
    assert await get(emails, "analytics/queue/emails") == expected
    for path in ("analytics/queues", "analytics/queue-stats", "analytics"):
        assert await get(emails, path) == {"queues": [expected]}
    (depths,) = (await get(emails, "analytics/queue-depths"))["depths"]
    assert (depths["depth"], depths["processing"]) == (5, 3)
    overview = await get(emails, "resources/overview")
    assert overview["messages"] == stats(5, 3, 9, 1, 2)
    assert [overview[key] for key in ("queues", "partitions", "namespaces", "tasks")] == [1, 2, 1, 1]


async def test_resources_of_the_queue(emails: Client) -> None:
    """8.1 to 8.5."""
    detail = await get(emails, "resources/queues/emails")
    default, urgent = detail["partitions"]
    assert detail["totals"] == stats(5, 3, 9, 1, 2)
    assert (default["stats"], urgent["stats"]) == (stats(2, 3, 6, 1, 0), stats(3, 0, 3, 0, 2))
    assert urgent["options"] == as_dict(DEFAULTS) | {"retryLimit": 0}
    assert detail["createdAt"] <= urgent["createdAt"] <= urgent["oldestMessage"] <= urgent["newestMessage"]
    (summary,) = (await get(emails, "resources/queues"))["queues"]
    assert summary == {
        **{key: detail[key] for key in ("id", "name", "namespace", "task", "createdAt")},
        "partitions": 2,
        "messages": {"total": 20, "pending": 5, "processing": 3},
    }
    lines = (await get(emails, "resources/partitions"))["partitions"]
    assert [(line["id"], line["depth"], line["processing"], line["total"]) for line in lines] == [
        (default["id"], 2, 3, 12),
        (urgent["id"], 3, 0, 8),
    ]
    expected = {"queues": 1, "partitions": 2, "messages": {"total": 20, "pending": 5}}
    assert (await get(emails, "resources/namespaces"))["namespaces"] == [{"namespace": "production", **expected}]
    assert (await get(emails, "resources/tasks"))["tasks"] == [{"task": "notifications", **expected}]


async def test_partitions_from_a_depth_on(emails: Client) -> None:
    """8.3: minDepth, and a filter that matches nothing."""

    async def names(query: str) -> list[str]:
        return [line["name"] for line in (await get(emails, f"resources/partitions?{query}"))["partitions"]]

    assert await names("minDepth=0") == ["Default", "urgent"]
    assert await names("minDepth=3&queue=emails") == ["urgent"]
    assert await names("minDepth=4") == []
    assert await names("queue=other") == []


async def test_throughput_has_60_minutes_newest_first(emails: Client) -> None:
    """S3, Z1. The test may run across the turn of a minute."""
    minutes = (await get(emails, "analytics/throughput"))["throughput"]
    assert len(minutes) == 60
    stamps = [minute["timestamp"] for minute in minutes]
    assert stamps == sorted(set(stamps), reverse=True)
    assert all(stamp.endswith(":00.000Z") for stamp in stamps)
    for key, count in (("incoming", 20), ("completed", 9), ("processing", 15), ("failed", 3)):
        assert sum(minute[key]["messagesPerMinute"] for minute in minutes) == count
        assert all(m[key]["messagesPerSecond"] == int(m[key]["messagesPerMinute"] / 60 + 0.5) for m in minutes)
    assert sum(minute["lag"]["sampleCount"] for minute in minutes) == 9
    assert all(minute["lag"]["avgMilliseconds"] == 1000 * minute["lag"]["avgSeconds"] for minute in minutes)


async def test_messages_per_second_are_rounded(client: Client) -> None:
    """Z1: 90 in a minute are 2 a second, 29 are none."""
    await client.push("q", *range(90))
    minutes = (await get(client, "analytics/throughput"))["throughput"]
    found = [m["incoming"] for m in minutes if m["incoming"]["messagesPerMinute"]]
    assert found == [{"messagesPerMinute": 90, "messagesPerSecond": 2}]


async def test_lag_follows_from_the_times_shown(emails: Client) -> None:
    """5.5: backlog times the processing time, for the average and both percentiles."""
    (queue,) = (await get(emails, "analytics/queue-lag?queue=emails"))["queues"]
    assert [(line["name"], line["stats"]["completedMessages"]) for line in queue["partitions"]] == [
        ("Default", 6),
        ("urgent", 3),
    ]
    for line in (queue["totals"], *(partition["stats"] for partition in queue["partitions"])):
        assert line["totalBacklog"] == line["pendingCount"] + line["processingCount"]
        for lag, per_message in (("estimated", "avg"), ("median", "median"), ("p95", "p95")):
            seconds = line["totalBacklog"] * line[f"{per_message}ProcessingTimeSeconds"]
            assert line[f"{lag}LagSeconds"] == pytest.approx(seconds)
            assert line[f"{lag}Lag"] == duration_text(round(1e6 * line[f"{lag}LagSeconds"]))
        assert 0 < line["medianProcessingTimeSeconds"] <= line["p95ProcessingTimeSeconds"]
    assert (queue["totals"]["totalBacklog"], queue["totals"]["completedMessages"]) == (8, 9)
    for query in ("queue=other", "namespace=other", "task=other"):
        assert await get(emails, f"analytics/queue-lag?{query}") == {"queues": []}
    assert len((await get(emails, "analytics/queue-lag?namespace=production&task=notifications"))["queues"]) == 1


@pytest.mark.parametrize("path", ["analytics/queues", "analytics/queue-stats", "analytics", "resources/queues"])
async def test_filters(path: str, client: Client) -> None:
    """Both must match; a filter that nothing matches answers an empty list."""
    for queue, namespace, task in (("a", "n", None), ("b", "n", "t"), ("c", None, "t")):
        body = {"queue": queue, "namespace": namespace, "task": task}
        await client.request("POST", "/api/v1/configure", body)

    async def names(query: str) -> list[str]:
        return [queue.get("queue", queue.get("name")) for queue in (await get(client, f"{path}?{query}"))["queues"]]

    assert await names("") == ["a", "b", "c"]
    assert await names("namespace=n") == ["a", "b"]
    assert await names("task=t") == ["b", "c"]
    assert await names("namespace=n&task=t") == ["b"]
    assert await names("namespace=other") == []
    if "queue-stats" in path:
        assert await names("queue=c") == ["c"]
        assert await names("queue=c&namespace=n") == []


async def test_an_empty_server_has_figures_as_well(client: Client) -> None:
    assert await get(client, "analytics/queues") == {"queues": []}
    assert await get(client, "analytics/queue-lag") == {"queues": []}
    assert await get(client, "resources/namespaces") == {"namespaces": []}
    assert (await get(client, "resources/overview"))["messages"] == stats(0, 0, 0, 0, 0)
    assert len((await get(client, "analytics/throughput"))["throughput"]) == 60


async def test_a_new_queue_has_one_empty_partition(client: Client) -> None:
    """Z12, 8.2: nothing is the oldest message of an empty partition."""
    await client.push("q", 1, partition="p")
    empty, other = (await get(client, "resources/queues/q"))["partitions"]
    assert (empty["name"], empty["stats"]) == ("Default", stats(0, 0, 0, 0, 0))
    assert (empty["oldestMessage"], empty["newestMessage"]) == (None, None)
    assert other["oldestMessage"] == other["newestMessage"] is not None


@pytest.mark.parametrize("path", ["analytics/queue/q%2Fr", "resources/queues/q%2Fr"])
async def test_an_unknown_queue_is_404(path: str, client: Client) -> None:
    """Z11, N1."""
    reply = await client.request("GET", f"/api/v1/{path}")
    assert reply.status == 404
    assert "'q/r'" in reply.error
    await client.push("q/r", 1)
    await get(client, path)


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("resources/partitions?minDepth=-1", "minDepth"),
        ("resources/partitions?minDepth=many", "minDepth"),
        ("resources/partitions?queue=", "queue"),
        ("resources/queues?namespace=", "namespace"),
        ("resources/queues?task=%01", "task"),
        ("analytics/queues?namespace=%ff", "namespace"),
        ("analytics/queue-lag?task=", "task"),
        ("analytics/queue-stats?queue=..", "queue"),
        ("analytics/queue/%00", "queue"),
        ("resources/queues/%ff", "queue"),
    ],
)
async def test_what_is_wrong_is_named(path: str, field: str, client: Client) -> None:
    """Z7, N1."""
    reply = await client.request("GET", f"/api/v1/{path}")
    assert reply.status == 400
    assert reply.error.startswith(field)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0s"), (0.049, "0.0s"), (0.05, "0.1s"), (0.375, "0.4s"), (0.96, "1.0s"), (2.5, "2.5s"), (4.84, "4.8s"),
        (4.89, "4.9s"), (59.949, "59.9s"), (59.95, "1m 0s"), (60, "1m 0s"), (60.9, "1m 0s"), (367.5, "6m 7s"),
        (437.5, "7m 17s"), (3599.9, "59m 59s"), (3600, "1h 0m"), (3900, "1h 5m"), (86399, "23h 59m"), (86400, "1d 0h"),
        (183600, "2d 3h"), (10**8, "1157d 9h"),
    ],
)  # fmt: skip
def test_durations_are_spelled_as_the_page_spells_them(seconds: float, text: str) -> None:
    """S4; the page cuts 437.5 s down to 7m 17s, but 0.375 s is nearer to 0.4s than to 0.3s."""
    assert duration_text(round(seconds * 1_000_000)) == text
