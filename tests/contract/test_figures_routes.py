"""The API page's sections 5 and 8: each route's documented example against what the server answers, field by field and
type by type, then the figures themselves. Black box."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from queen.options import DEFAULTS, as_dict
from queen.web.render_figures import duration_text
from tests.contract.client import Client

INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
DURATION = re.compile(r"\d+\.\ds|\d+m \d+s|\d+h \d+m|\d+d \d+h")
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")

COUNTS = '{"pending": 10, "processing": 5, "completed": 100, "failed": 2, "deadLetter": 1, "total": 118}'
RATE = '{"messagesPerMinute": 120, "messagesPerSecond": 2}'
LAG = """{"pendingCount": 150, "processingCount": 25, "totalBacklog": 175, "completedMessages": 1250,
    "avgProcessingTimeSeconds": 2.5, "medianProcessingTimeSeconds": 2.1, "p95ProcessingTimeSeconds": 4.8,
    "estimatedLagSeconds": 437.5, "medianLagSeconds": 367.5, "p95LagSeconds": 840.0,
    "estimatedLag": "7m 17s", "medianLag": "6m 7s", "p95Lag": "14m 0s",
    "avgProcessingTime": "2.5s", "medianProcessingTime": "2.1s", "p95ProcessingTime": "4.8s"}"""
STATISTICS = f"""{{"queue": "emails", "namespace": "production", "task": "notifications", "totals": {COUNTS},
    "partitions": [{{"name": "Default", "stats": {COUNTS}}}, {{"name": "urgent", "stats": {COUNTS}}}]}}"""
SUMMARY = """"id": "queue-uuid", "name": "emails", "namespace": "production", "task": "notifications",
    "createdAt": "2025-10-08T05:13:37.528Z" """
PARTITION = """"id": "partition-uuid", "name": "urgent", "priority": 10,
    "options": {"leaseTime": 300, "retryLimit": 3}, "createdAt": "2025-10-08T05:13:37.541Z" """
MESSAGES = '{"total": 100, "pending": 20, "processing": 5}'

EXAMPLES = {
    "analytics/queue/emails": STATISTICS,
    "analytics/queues": f'{{"queues": [{STATISTICS}]}}',
    "analytics/queue-stats?queue=emails": f'{{"queues": [{STATISTICS}]}}',
    "analytics?namespace=production": f'{{"queues": [{STATISTICS}]}}',
    "analytics/queue-depths": """{"depths": [{"queue": "emails", "depth": 10, "processing": 5, "partitions": [
        {"name": "Default", "depth": 8, "processing": 3}, {"name": "urgent", "depth": 2, "processing": 2}]}]}""",
    "analytics/throughput": f"""{{"throughput": [{{"timestamp": "2025-10-08T07:00:00.000Z", "incoming": {RATE},
        "completed": {RATE}, "processing": {RATE}, "failed": {RATE},
        "lag": {{"avgSeconds": 2.5, "avgMilliseconds": 2500, "sampleCount": 115}}}}]}}""",
    "analytics/queue-lag": f"""{{"queues": [{{"queue": "emails", "namespace": "production", "task": "notifications",
        "partitions": [{{"name": "Default", "stats": {LAG}}}], "totals": {LAG}}}]}}""",
    "resources/queues": f'{{"queues": [{{{SUMMARY}, "partitions": 3, "messages": {MESSAGES}}}]}}',
    "resources/queues/emails": f"""{{{SUMMARY}, "partitions": [{{{PARTITION}, "stats": {COUNTS},
        "oldestMessage": "2025-10-08T05:00:00.000Z", "newestMessage": "2025-10-08T07:30:00.000Z"}}],
        "totals": {COUNTS}}}""",
    "resources/partitions": f"""{{"partitions": [{{{PARTITION}, "queue": "emails", "namespace": "production",
        "task": "notifications", "depth": 10, "processing": 2, "total": 50}}]}}""",
    "resources/namespaces": """{"namespaces": [{"namespace": "production", "queues": 5, "partitions": 15,
        "messages": {"total": 1000, "pending": 200}}]}""",
    "resources/tasks": """{"tasks": [{"task": "notifications", "queues": 3, "partitions": 9,
        "messages": {"total": 500, "pending": 100}}]}""",
    "resources/overview": f"""{{"queues": 8, "partitions": 15, "namespaces": 2, "tasks": 3, "messages": {COUNTS},
        "timestamp": "2025-10-08T07:29:35.682Z"}}""",
}


def faults(example: Any, answer: Any, where: str = "") -> Iterator[str]:
    """Where the answer has not the example's fields, or other types. Options may be more than the example's two."""
    if isinstance(example, dict):
        missing, more = example.keys() - answer.keys(), answer.keys() - example.keys()
        if missing or (more and not where.endswith(".options")):
            yield f"{where}: {missing} missing, {more} more"
        for key in example.keys() & answer.keys():
            yield from faults(example[key], answer[key], f"{where}.{key}")
    elif isinstance(example, list):
        if not isinstance(answer, list) or not answer:
            yield f"{where}: {answer!r} is no list with something in it"
        for each in answer:
            yield from faults(example[0], each, f"{where}[]")
    elif isinstance(example, str):
        pattern = next((form for form in (INSTANT, DURATION) if form.fullmatch(example)), None)
        pattern = UUID if example.endswith("-uuid") else pattern
        if not isinstance(answer, str) or (pattern is not None and not pattern.fullmatch(answer)):
            yield f"{where}: {answer!r} is not like {example!r}"
    elif type(example) is not type(answer):
        yield f"{where}: {answer!r} is not like {example!r}"


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


async def test_every_answer_has_the_fields_and_types_of_its_example(emails: Client) -> None:
    for path, example in EXAMPLES.items():
        answer = await get(emails, path)
        assert list(faults(json.loads(example), answer, path)) == []


def test_a_planted_difference_is_seen() -> None:
    example = json.loads(EXAMPLES["resources/queues/emails"])
    for text, other in (
        ('"total": 118', '"total": "118"'),
        ('"priority": 10,', ""),
        ("13:37.541Z", "13Z"),
        ("10", "1.5"),
    ):
        answer = json.loads(EXAMPLES["resources/queues/emails"].replace(text, other).replace("n-uuid", "n"))
        assert list(faults(example, answer))


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
        (0, "0.0s"), (0.05, "0.0s"), (2.5, "2.5s"), (4.89, "4.8s"), (59.99, "59.9s"), (60, "1m 0s"), (367.5, "6m 7s"),
        (437.5, "7m 17s"), (3599.9, "59m 59s"), (3600, "1h 0m"), (3900, "1h 5m"), (86399, "23h 59m"), (86400, "1d 0h"),
        (183600, "2d 3h"), (10**8, "1157d 9h"),
    ],
)  # fmt: skip
def test_durations_are_spelled_in_two_units(seconds: float, text: str) -> None:
    """S4."""
    assert duration_text(round(seconds * 1_000_000)) == text
