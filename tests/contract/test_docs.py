"""`GET /docs`: the OpenAPI document as a page. It is complete, needs no other host, is well-formed, and its commands
are what the server takes."""

import re
import shutil
from html.parser import HTMLParser
from importlib.resources import files

import pytest
import trio

from queen.web.dashboard import TOKEN_TIME
from queen.web.manual import rendered
from queen.web.openapi import OPERATIONS, document
from tests.contract.client import Client
from tests.contract.conftest import Server

VOID = {"meta", "br", "link", "img", "input", "hr"}


class Page(HTMLParser):
    """What a test wants to know of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.faults: list[str] = []
        self.commands: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> at {self.getpos()}")

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "pre":
            self.commands.append(data)

    def every(self, attribute: str) -> list[str]:
        return [value for _, attrs in self.tags if (value := attrs.get(attribute)) is not None]


@pytest.fixture(scope="module")
def page() -> Page:
    return Page(rendered("http://localhost:6632"))


def test_it_is_well_formed_and_every_link_leads_somewhere(page: Page) -> None:
    assert page.faults == []
    assert page.open == []
    anchors = page.every("id")
    assert len(set(anchors)) == len(anchors)
    links = page.every("href")
    assert {link for link in links if not link.startswith("#")} == {"/openapi.json", "/asyncapi.yaml"}
    assert {link[1:] for link in links if link.startswith("#")} <= set(anchors)


def test_it_needs_nobody_else(page: Page) -> None:
    kinds = {tag for tag, _ in page.tags}
    assert not kinds & {"script", "img", "link", "iframe", "object", "form"}
    assert page.every("src") == []
    style = files("queen.web").joinpath("static", "docs.html").read_text().split("<style>")[1].split("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style


def test_it_can_be_read_by_anybody(page: Page) -> None:
    """A language, a title, headings in order, tables with headers, scrolling by keyboard, light and dark."""
    assert ("html", {"lang": "en"}) in page.tags
    assert {"title", "nav", "main", "header", "h1"} <= {tag for tag, _ in page.tags}
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert all(after - before <= 1 for before, after in zip([0, *levels], levels, strict=False))
    assert all("scope" in attrs for tag, attrs in page.tags if tag == "th")
    assert all("tabindex" in attrs for tag, attrs in page.tags if tag == "pre")
    assert "prefers-color-scheme: dark" in rendered("http://localhost:6632")


def test_it_has_every_operation_and_every_field(page: Page) -> None:
    text = rendered("http://localhost:6632")
    operations = [each for methods in document()["paths"].values() for each in methods.values()]
    anchors = page.every("id")
    assert {each["operationId"] for each in operations} <= set(anchors)
    assert len(page.commands) == len(operations)
    for name, schema in document()["components"]["schemas"].items():
        assert f"schema-{name}" in anchors
        for field in schema.get("properties", {}):
            assert f"<code>{field}</code>" in text


async def test_it_is_served_as_it_is(server: Server, client: Client) -> None:
    reply = await client.request("GET", "/docs", headers={"Host": f"127.0.0.1:{server.port}"})
    assert reply.status == 200
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    assert reply.body.decode() == rendered(f"http://127.0.0.1:{server.port}")


# What `curl` is in the shell of the test: itself, and the status on another channel.
CURL = "curl() { command curl -w '%{stderr}%{http_code}\\n' \"$@\"; }\n"


@pytest.mark.skipif(shutil.which("curl") is None, reason="the page's commands need curl")
async def test_every_command_succeeds_from_top_to_bottom(server: Server, client: Client) -> None:
    """As someone would who pastes them into one shell, one after the other, with a fresh server."""
    reply = await client.request("GET", "/docs", headers={"Host": f"127.0.0.1:{server.port}"})
    commands = Page(reply.body.decode()).commands
    script = CURL + "".join(f"echo == >&2\n{command}\necho '\n=='\n" for command in commands)
    done = await trio.run_process(["sh", "-c", script], capture_stdout=True, capture_stderr=True)
    told = [part.split() for part in done.stderr.decode().split("==\n")[1:]]
    answers = done.stdout.decode().split("\n==\n")
    found = {
        row.summary: (statuses, answer) for row, statuses, answer in zip(OPERATIONS, told, answers[:-1], strict=True)
    }
    for row in OPERATIONS:
        statuses, _ = found[row.summary]
        assert set(statuses) == {str(min(row.answers))}, (row.summary, found[row.summary])
    # And they do what they are there to show.
    assert "order-3" in found["Pop from a queue"][1] + found["Pop from the queues of a namespace or task"][1]
    assert '"extended":true' in found["Extend a lease"][1]
    assert '"success":true' in found["Push and acknowledge in one commit"][1]
    assert '"processed":2' in found["Acknowledge several messages"][1]
    assert '"total":1' in found["List dead letters"][1]
    assert "order-4" in found["Messages around a message"][1]
    assert "billing" in found["List consumer groups"][1]


@pytest.mark.settings(allowed_hosts="*")
async def test_the_host_is_not_trusted(client: Client) -> None:
    reply = await client.request("GET", "/docs", headers={"Host": 'x"><script>alert(1)</script>'})
    assert b"<script>" not in reply.body
    if reply.status == 200:
        assert b"curl -s http://localhost:6632/" in reply.body


def test_they_say_how_long_a_websocket_waits_for_its_token() -> None:
    """W3."""
    for name in ("docs.html", "asyncapi.yaml"):
        text = files("queen.web").joinpath("static", name).read_text(encoding="utf-8")
        assert "authenticate" in text
        assert f"within {TOKEN_TIME:.0f} seconds" in " ".join(text.split()), name


def test_with_tokens_every_command_shows_one_and_without_none() -> None:
    open_, closed = (Page(rendered("http://localhost:6632", closed)).commands for closed in (False, True))
    assert not any("Authorization" in command for command in open_)
    for row, command in zip(OPERATIONS, closed, strict=True):
        wanted = 0 if row.role is None else command.count("curl ")
        assert command.count('-H "Authorization: Bearer $QUEEN_TOKEN"') == wanted, command
