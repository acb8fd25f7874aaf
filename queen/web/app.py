"""The table of routes, and the Quart application made from it. Serves everything and is the reference for each route.

Quart routes on the raw path (`asgi.py` sees to that), so a name's `%2F` stays inside its segment (N1).
"""

import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, NamedTuple

import structlog
from quart import Response, request, websocket
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException, MethodNotAllowed
from werkzeug.routing import WebsocketMismatch

from queen.broker import Broker
from queen.errors import QueenError
from queen.web import analytics, delivery, explain, groups, messages, queues, resources
from queen.web.access import Access
from queen.web.asgi import DASHBOARD
from queen.web.dashboard import Frames, Guest, Session
from queen.web.exchange import Answer, Asked, refusal, refused
from queen.web.manual import asyncapi, entrance, page
from queen.web.metrics import metrics, prometheus
from queen.web.openapi import OPERATIONS, openapi
from queen.web.operation import Traffic, compact, health, ready

log = structlog.get_logger("queen.web")

Route = Callable[[Broker, Asked], Awaitable[Answer]]
Own = Callable[[Broker, Traffic, Asked], Awaitable[Answer]]


class Row(NamedTuple):
    """One route. `fast` ones may be answered ahead of Quart by `lane.py`, through the same function; those that answer
    `soon` return a `Reply`, for which no task need wait."""

    method: str
    path: str
    route: Route
    fast: bool = False
    soon: bool = False


ROUTES: Final = (
    Row("POST", "/api/v1/push", delivery.push, fast=True, soon=True),
    Row("GET", "/api/v1/pop", delivery.pop_filtered, fast=True, soon=True),
    Row("GET", "/api/v1/pop/queue/<queue>", delivery.pop_queue, fast=True, soon=True),
    Row("GET", "/api/v1/pop/queue/<queue>/partition/<partition>", delivery.pop_partition, fast=True, soon=True),
    Row("POST", "/api/v1/ack", delivery.ack, fast=True, soon=True),
    Row("POST", "/api/v1/ack/batch", delivery.ack_batch, fast=True, soon=True),
    Row("POST", "/api/v1/transaction", delivery.transaction, fast=True),
    Row("GET", "/api/v1/explain/pop", explain.pop),
    Row("POST", "/api/v1/lease/<leaseId>/extend", delivery.extend),
    Row("POST", "/api/v1/configure", queues.configure),
    Row("POST", "/api/v1/compact", compact),
    Row("DELETE", "/api/v1/resources/queues/<queue>", queues.delete),
    Row("GET", "/api/v1/messages", messages.listed),
    Row("GET", "/api/v1/messages/<transactionId>", messages.get),
    Row("DELETE", "/api/v1/messages/<transactionId>", messages.delete),
    Row("POST", "/api/v1/messages/<transactionId>/retry", messages.retry),
    Row("POST", "/api/v1/messages/<transactionId>/dlq", messages.bury),
    Row("GET", "/api/v1/messages/<transactionId>/related", messages.related),
    Row("GET", "/api/v1/messages/<transactionId>/history", messages.history),
    Row("DELETE", "/api/v1/queues/<queue>/clear", messages.clear),
    Row("GET", "/api/v1/dlq", messages.dead_letters),
    Row("GET", "/api/v1/consumer-groups", groups.listed),
    Row("DELETE", "/api/v1/consumer-groups/<group>", groups.delete),
    Row("POST", "/api/v1/consumer-groups/<group>/queues/<queue>/seek", groups.seek),
    Row("GET", "/api/v1/analytics", analytics.filtered),
    Row("GET", "/api/v1/analytics/queue/<queue>", analytics.queue),
    Row("GET", "/api/v1/analytics/queues", analytics.queues),
    Row("GET", "/api/v1/analytics/queue-depths", analytics.depths),
    Row("GET", "/api/v1/analytics/throughput", analytics.throughput),
    Row("GET", "/api/v1/analytics/queue-lag", analytics.lag),
    Row("GET", "/api/v1/analytics/queue-stats", analytics.queue_stats),
    Row("GET", "/api/v1/resources/queues", resources.queues),
    Row("GET", "/api/v1/resources/queues/<queue>", resources.queue),
    Row("GET", "/api/v1/resources/partitions", resources.partitions),
    Row("GET", "/api/v1/resources/namespaces", resources.namespaces),
    Row("GET", "/api/v1/resources/tasks", resources.tasks),
    Row("GET", "/api/v1/resources/overview", resources.overview),
)


OPERATION: Final[dict[str, Own]] = {
    "/": entrance,
    "/health": health,
    "/health/ready": ready,
    "/metrics": metrics,
    "/metrics/prometheus": prometheus,
    "/openapi.json": openapi,
}
"""Routes about the server itself, all of them GET."""
MANUALS: Final = {"/asyncapi.yaml": asyncapi, "/docs": page}
"""And those that also tell how it is reached."""
LABELS: Final = {row.route: f"{row.method} {row.path}" for row in ROUTES}
"""What each route is called where requests are counted."""
SOON: Final = frozenset(row.route for row in ROUTES if row.soon)
ROLES: Final = {(row.method, row.path): row.role for row in OPERATIONS}
"""What a token needs for each route."""
NEEDS: Final = {row.route: ROLES[row.method, row.path] for row in ROUTES}


async def answer_to(route: Route, broker: Broker, asked: Asked) -> Answer:
    """What `route` answers, refusals and accidents included. Only cancellation gets out."""
    try:
        return await route(broker, asked)
    except Exception as error:
        return failed(error, LABELS.get(route))


def failed(error: Exception, label: str | None) -> Answer:
    """The answer where a route raised an error, which is being handled: a refusal, or an accident."""
    if isinstance(error, QueenError):
        return refused(error)
    log.exception("a request failed", route=label)
    return refusal(500, "internal error; the server's log has the details")


def create_app(broker: Broker, access: Access, traffic: Traffic) -> QuartTrio:
    """The application. Its requests come through `asgi.Gate`, which has read the body and made the `Asked`."""
    app = QuartTrio("queen", static_folder=None)
    app.url_map.merge_slashes = False
    for row in ROUTES:
        app.add_url_rule(
            row.path,
            row.path + row.method,
            partial(_view, broker, row.route),
            methods=[row.method],
            provide_automatic_options=False,
        )
    for rule in app.url_map.iter_rules():
        if rule.methods and rule.rule.startswith("/api/v1/pop"):
            rule.methods.discard("HEAD")  # a pop hands messages out, which would be lost (W4)

    for path, own in (OPERATION | {path: partial(told, access) for path, told in MANUALS.items()}).items():
        view = partial(_own_view, broker, traffic, path, own)
        app.add_url_rule(path, path, view, methods=["GET"], provide_automatic_options=False)

    frames = Frames()

    async def dashboard_view() -> None:
        scope: Any = websocket.scope
        link = scope["state"].get("link")
        channel, guest = _Channel(scope["state"]), Guest(access, scope["queen.permit"])
        await Session(broker, traffic, channel, frames, lambda: link is not None and link.broken, guest).run()

    app.add_websocket(DASHBOARD, "dashboard", dashboard_view)
    app.register_error_handler(HTTPException, _told)
    return app


class _Channel:
    """Quart's WebSocket, and the way past it for frames that are the same for every client."""

    def __init__(self, state: dict[str, Any]) -> None:
        self._state = state
        self.receive = websocket.receive
        self.send = websocket.send
        self.close = websocket.close

    async def send_frames(self, data: bytes) -> None:
        """Send frames as they are."""
        await self._state["socket"].send_frames(data)


async def _view(broker: Broker, route: Route, **names: str) -> Response:
    scope: Any = request.scope
    exchange = scope["queen.exchange"]
    exchange.asked.names = tuple(names.items())
    exchange.label = LABELS[route]
    refused = exchange.permit.refusal(NEEDS[route])
    if refused is not None:
        return _response(refused)
    answer = await answer_to(route, broker, exchange.asked)
    exchange.undo = answer.undo
    return _response(answer)


async def _own_view(broker: Broker, traffic: Traffic, path: str, own: Own) -> Response:
    scope: Any = request.scope
    exchange = scope["queen.exchange"]
    exchange.label = f"GET {path}"
    refused = exchange.permit.refusal(ROLES["GET", path])
    if refused is not None:
        return _response(refused)
    return _response(await answer_to(partial(_own, own, traffic), broker, exchange.asked))


async def _own(own: Own, traffic: Traffic, broker: Broker, asked: Asked) -> Answer:
    return await own(broker, traffic, asked)


def _response(answer: Answer) -> Response:
    headers = [(name.decode(), value.decode()) for name, value in answer.fields()]
    response = Response(answer.body, answer.status)
    response.headers.clear()
    response.headers.extend(headers)
    return response


async def _told(error: HTTPException) -> Response:
    """Every error of the framework itself, told as all errors are (W4)."""
    if isinstance(error, MethodNotAllowed):
        allowed = ", ".join(sorted({*(error.valid_methods or ()), "OPTIONS"}))
        sentence = f"{request.method} is not allowed here; allowed: {allowed}"
        return _response(refusal(405, sentence, ((b"allow", allowed.encode()),)))
    if isinstance(error, WebsocketMismatch):
        return _response(refusal(426, f"{request.path} is a WebSocket", ((b"upgrade", b"websocket"),)))
    if error.code == 404:
        return _response(refusal(404, f"no such path: {request.path}"))
    if error.code is None or error.code >= 500:
        return _response(refusal(500, "internal error; the server's log has the details"))
    return _response(refusal(error.code, error.description or error.name))


Found = tuple[Route, tuple[tuple[str, str], ...]]


def fast_table() -> Callable[[str, str], Found | None]:
    """A lookup from method and raw path to a `fast` route and its raw names; None leaves the request to Quart."""
    fixed: dict[tuple[str, str], Route] = {}
    patterns: list[tuple[str, re.Pattern[str], Route]] = []
    for row in ROUTES:
        if not row.fast:
            continue
        if "<" in row.path:
            patterns.append((row.method, re.compile(re.sub(r"<(\w+)>", r"(?P<\1>[^/]+)", row.path)), row.route))
        else:
            fixed[row.method, row.path] = row.route

    def find(method: str, path: str) -> Found | None:
        route = fixed.get((method, path))
        if route is not None:
            return route, ()
        for wanted, pattern, found in patterns:
            if method == wanted and (match := pattern.fullmatch(path)):
                return found, tuple(match.groupdict().items())
        return None

    return find
