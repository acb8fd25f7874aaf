"""`/asyncapi.yaml` and `docs/websocket.md` against what the code can send: each event is made to happen, and no
field of one may be missing in the other."""

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from queen.actors import pulse
from queen.web.dashboard import EVENTS
from tests.contract.client import Client
from tests.contract.conftest import Server
from tests.contract.socket import dashboard

DOCS = Path(__file__).parents[2] / "docs"
TEXT = files("queen.web").joinpath("static", "asyncapi.yaml").read_text()
DOCUMENT: dict[str, Any] = msgspec.yaml.decode(TEXT)
MESSAGES: dict[str, Any] = DOCUMENT["components"]["messages"]
SCHEMAS = {message["name"]: message["payload"] for message in MESSAGES.values() if "name" in message}


def checked(text: str) -> str:
    """The event's name, once its message has been found to be as documented."""
    frame = json.loads(text)
    jsonschema.validate(frame, SCHEMAS[frame["event"]], format_checker=jsonschema.FormatChecker())
    return str(frame["event"])


async def test_the_server_tells_it(client: Client) -> None:
    reply = await client.request("GET", "/asyncapi.yaml")
    assert reply.status == 200
    assert reply.headers["content-type"] == "application/yaml"
    assert reply.body.decode() == TEXT.replace("127.0.0.1:6632", '"queen.test"')


async def test_everything_that_is_sent_is_as_documented(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W1, Z16: all events that there are, but those that need a slow client."""
    monkeypatch.setattr(pulse, "EVERY_S", 0.05)
    seen = {"connected"}
    socket = await dashboard(await server.connect())
    await socket.say("nonsense")
    await socket.say({"type": "subscribe"})
    second = await dashboard(await server.connect())
    await second.stream.aclose()
    done, failed, bare = await client.push("q", 1, 2, 3)
    await client.request("GET", "/api/v1/pop/queue/q?batch=3", headers={"Queen-Worker": "w"})
    for name, status, error in ((done, "completed", None), (failed, "failed", "no"), (bare, "failed", None)):
        await client.request("POST", "/api/v1/ack", {"transactionId": name, "status": status, "error": error})
    expected = {name for name, _ in EVENTS.values()} - {"events.dropped"}
    while seen != expected:
        seen.add(checked(await socket.text()))


async def test_dropped_events_are_as_documented(server: Server, client: Client) -> None:
    """W2."""
    socket = await dashboard(await server.connect())
    server.broker.feed.subscribers[0]._dropped = 3
    await client.push("q", 1)
    assert checked(await socket.text()) == "events.dropped"


def test_the_document_has_all_events_and_no_others() -> None:
    names = {name for name, _ in EVENTS.values()}
    assert set(SCHEMAS) == names
    channel = DOCUMENT["channels"]["dashboard"]["messages"]
    assert set(channel) == set(MESSAGES)
    said = {operation["action"]: operation["messages"] for operation in DOCUMENT["operations"].values()}
    told = {message["$ref"].rsplit("/", 1)[1] for message in said["send"]}
    heard = {message["$ref"].rsplit("/", 1)[1] for message in said["receive"]}
    assert told | heard == set(MESSAGES)
    assert heard == {"ping", "subscribe", "authenticate"}


def test_what_is_said_is_as_documented() -> None:
    for queues in (["a"], [], None):
        jsonschema.validate({"type": "subscribe", "queues": queues}, MESSAGES["subscribe"]["payload"])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"type": "subscribe", "queues": "a"}, MESSAGES["subscribe"]["payload"])


def test_the_manual_has_the_same_fields() -> None:
    page = (DOCS / "websocket.md").read_text().split("<!-- events -->")[1].split("<!-- end -->")[0]
    rows = re.findall(r"^\| `([\w.]+)` \| (.*?) \|", page, re.MULTILINE)
    assert {name: re.findall(r"`(\w+)`", fields) for name, fields in rows} == {
        name: schema["properties"]["data"]["required"] for name, schema in SCHEMAS.items()
    }
