"""The OpenAPI document as a page for people (`GET /docs`): one HTML file without scripts, images or anything else that
would have to be fetched. What it looks like stands in `static/docs.html`."""

import re
import shlex
from functools import cache, lru_cache
from importlib.resources import files
from typing import Final

import jinja2
import msgspec
from markupsafe import Markup, escape

from queen.broker import Broker
from queen.web.access import Access
from queen.web.contract import Operation
from queen.web.dashboard import EVENTS
from queen.web.exchange import Answer, Asked
from queen.web.openapi import OPERATIONS, template
from queen.web.openapi import document as openapi_document
from queen.web.operation import Traffic
from queen.web.render import document
from queen.web.schemas import Schema

_HOST: Final = re.compile(r"[\w.-]+(:\d+)?|\[[0-9a-fA-F:.]+\](:\d+)?", re.ASCII)
_TOKEN: Final = '-H "Authorization: Bearer $QUEEN_TOKEN"'
_HEADERS: Final = (
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
)


async def entrance(broker: Broker, traffic: Traffic, asked: Asked) -> Answer:
    """`GET /`: where to go from here."""
    return document({"name": "Queen", "docs": "/docs", "openapi": "/openapi.json", "asyncapi": "/asyncapi.yaml"})


async def asyncapi(access: Access, broker: Broker, traffic: Traffic, asked: Asked) -> Answer:
    """`GET /asyncapi.yaml`: the WebSocket's events, described for programs. Its server is the one that was asked."""
    text = _static("asyncapi.yaml").replace("host: 127.0.0.1:6632", f'host: "{_host(asked)}"')
    if access.tls:
        text = text.replace("protocol: ws\n", "protocol: wss\n")
    return Answer(200, text.encode(), kind=b"application/yaml")


async def page(access: Access, broker: Broker, traffic: Traffic, asked: Asked) -> Answer:
    """`GET /docs`: its commands name the host that was asked, and a token where one is needed."""
    text = rendered(f"{'https' if access.tls else 'http'}://{_host(asked)}", access.closed)
    return Answer(200, text.encode(), _HEADERS, kind=b"text/html; charset=utf-8")


def _host(asked: Asked) -> str:
    host = asked.header(b"host") or ""
    return host if _HOST.fullmatch(host) else "localhost:6632"


@lru_cache(maxsize=8)
def rendered(url: str, closed: bool = False) -> str:
    """The page, for a server that is reached at `url`; `closed`: it wants tokens."""
    whole = openapi_document()
    groups: dict[str, list[Schema]] = {tag["name"]: [] for tag in whole["tags"]}
    for row in OPERATIONS:
        path = template(row.path)
        operation = whole["paths"][path][row.method.lower()]
        known = {"method": row.method, "path": path, "command": command(url, row, operation, closed)}
        groups[row.group].append({"description": "", **operation, **known})
    events = [name for name, _ in EVENTS.values()]
    schemas = whole["components"]["schemas"]
    return _template().render(
        **whole,
        groups=groups,
        events=events,
        closed=closed,
        struct=lambda schema: schemas[schema["$ref"].rsplit("/", 1)[1]],
    )


def command(url: str, row: Operation, operation: Schema, closed: bool) -> str:
    """The operation as a shell's command, with what it needs ahead of it; `closed`: a token, too."""
    examples = {each["name"]: each for each in operation["parameters"] if "example" in each}
    target = re.sub(r"<(\w+)>", lambda segment: str(examples[segment[1]]["example"]), row.path)
    query = "&".join(f"{name}={each['example']}" for name, each in examples.items() if each["in"] == "query")
    words = ["curl", "-s", f"{url}{target}{'?' if query else ''}{query}"]
    if row.method not in ("GET", "POST") or (row.method == "POST" and row.body is None):
        words += ["-X", row.method]
    if row.body is not None:
        words += ["-d", msgspec.json.format(msgspec.json.encode(row.example), indent=0).decode()]
    before = f"{row.before.replace('HOST', url)}\n" if row.before else ""
    text = before + shlex.join(words).replace("/LEASE/", "/$LEASE/")
    return text.replace("curl -s ", f"curl -s {_TOKEN} ") if closed and row.role is not None else text


def _prose(text: str) -> Markup:
    """A description as a sentence, its code marked as such."""
    full = f"{text}." if text and not text.endswith(".") else text
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(full))))


@lru_cache(maxsize=1)
def _template() -> jinja2.Template:
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False}
    environment.filters["prose"] = _prose
    return environment.from_string(_static("docs.html"))


@cache
def _static(name: str) -> str:
    return files("queen.web").joinpath("static", name).read_text(encoding="utf-8")
