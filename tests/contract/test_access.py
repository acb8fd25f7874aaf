"""Who may ask for what: tokens, roles, origins, hosts (W3), on both lanes."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from queen.tokens import Role, Token, add_token, digest_of, new_token, revoke_token
from queen.web.asgi import OPEN
from queen.web.dashboard import TOKEN_TIME
from queen.web.openapi import OPERATIONS, document
from tests.contract.client import Client
from tests.contract.conftest import Server, running
from tests.contract.socket import Refused, Socket

WHO = {role: f"the-{role.word}" for role in Role}
ROUTES = [(row.method, re.sub(r"<\w+>", "x", row.path), row.role) for row in OPERATIONS]


class Closed:
    """A server with a token for each role."""

    def __init__(self, server: Server, file: Path, tokens: dict[Role, str]) -> None:
        self.server = server
        self.file = file
        self.tokens = tokens

    async def connect(self) -> Client:
        return await self.server.connect()

    def headers(self, role: Role) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.tokens[role]}"}


def make(file: Path, name: str, role: Role, expires: int | None = None) -> str:
    token = new_token()
    file.parent.mkdir(exist_ok=True)
    add_token(file, Token(name, role, digest_of(token.encode()), 0, expires))
    return token


@pytest.fixture(params=[True, False], ids=["lane", "quart"])
async def closed(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Closed]:
    mark = request.node.get_closest_marker("settings")
    file = tmp_path / "data" / "tokens"
    tokens = {role: make(file, WHO[role], role) for role in Role}
    async with running(tmp_path, fast_lane=request.param, **(mark.kwargs if mark else {})) as server:
        yield Closed(server, file, tokens)


# -- roles --------------------------------------------------------------------------------------------------


async def test_every_route_wants_its_role_and_no_more(closed: Closed) -> None:
    """All routes times all roles: 401 without a token, 403 naming the role below it, and past the door from it on."""
    assert len(ROUTES) > 40
    for method, path, needed in ROUTES:
        client = await closed.connect()
        reply = await client.request(method, path, b"")
        if needed is None:
            assert reply.status == 200, path
        else:
            assert (reply.status, reply.headers["www-authenticate"]) == (401, 'Bearer realm="queen"'), path
            assert "token" in reply.error
        for role in Role:
            client = await closed.connect()
            reply = await client.request(method, path, b"", closed.headers(role))
            if needed is not None and role < needed:
                assert reply.status == 403, (method, path, role)
                assert f"the role {needed.word}" in reply.error
                assert f'scope="{needed.word}"' in reply.headers["www-authenticate"]
            else:
                assert reply.status not in (401, 403), (method, path, role, reply)


def test_only_health_is_open_and_what_changes_is_not_for_readers() -> None:
    roles = {(row.method, row.path): row.role for row in OPERATIONS}
    assert {path for (_, path), role in roles.items() if role is None} == set(OPEN)
    for (method, path), role in roles.items():
        if role is not None:
            assert (role is Role.READ) == (method == "GET" and not path.startswith("/api/v1/pop")), path
    admin = {path for (_, path), role in roles.items() if role is Role.ADMIN}
    assert admin == {
        "/api/v1/configure",
        "/api/v1/compact",
        "/api/v1/resources/queues/<queue>",
        "/api/v1/queues/<queue>/clear",
        "/api/v1/messages/<transactionId>",
        "/api/v1/consumer-groups/<group>",
        "/api/v1/consumer-groups/<group>/queues/<queue>/seek",
    }


def test_the_document_says_what_each_needs() -> None:
    whole = document()
    assert whole["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    for row in OPERATIONS:
        operation = whole["paths"][re.sub(r"<(\w+)>", r"{\1}", row.path)][row.method.lower()]
        assert operation["security"] == ([] if row.role is None else [{"token": [row.role.word]}, {}])
        assert ("401" in operation["responses"]) == (row.role is not None)


@pytest.mark.parametrize("path", ["/nothing", "/api/v1/nothing", "/api/v1/messages/", "/health/"])
async def test_unknown_paths_are_closed_as_well(closed: Closed, path: str) -> None:
    client = await closed.connect()
    assert (await client.request("GET", path)).status == 401
    client = await closed.connect()
    assert (await client.request("GET", path, None, closed.headers(Role.READ))).status == 404


async def test_no_other_spelling_of_a_path_goes_round_the_role(closed: Closed) -> None:
    """The role is asked for where the route is known, so it can't be another route's."""
    for path in ("//api/v1/push", "http://queen.test/api/v1/push", "/api/v1/%70ush", "/api/v1//push", "/API/v1/push"):
        client = await closed.connect()
        reply = await client.request("POST", path, {"items": [{"queue": "q"}]}, closed.headers(Role.READ))
        assert reply.status in (403, 404, 405), path
        client = await closed.connect()
        assert (await client.request("POST", path, {"items": [{"queue": "q"}]})).status == 401


async def test_a_preflight_needs_no_token(closed: Closed) -> None:
    """W3: a browser sends none with it, and it tells nothing."""
    client = await closed.connect()
    reply = await client.request("OPTIONS", "/api/v1/push", None, {"Origin": "http://x"})
    assert reply.status == 204
    assert "Authorization" in reply.headers["access-control-allow-headers"]


@pytest.mark.parametrize(
    "value",
    [
        "Bearer",
        "Bearer ",
        "Bearer x",
        "Basic dGhlLWFkbWluOng=",
        "{}",
        "bearer\t{}",
        "Bearer {}x",
        "Bearer {} {}",
        "{} x",
    ],
)
async def test_a_wrong_token_is_no_token(closed: Closed, value: str) -> None:
    client = await closed.connect()
    shown = value.replace("{}", closed.tokens[Role.ADMIN])
    reply = await client.request("GET", "/api/v1/pop/queue/q", None, {"Authorization": shown})
    assert reply.status == 401
    assert 'error="invalid_token"' in reply.headers["www-authenticate"]
    assert closed.tokens[Role.ADMIN] not in reply.body.decode()
    assert reply.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize("value", ["bearer {}", "BEARER  {}", "Bearer {} "])
async def test_the_scheme_is_spelled_as_one_likes(closed: Closed, value: str) -> None:
    client = await closed.connect()
    shown = {"Authorization": value.replace("{}", closed.tokens[Role.WRITE])}
    assert (await client.request("GET", "/api/v1/pop/queue/q", None, shown)).status == 204


async def test_two_tokens_are_none(closed: Closed) -> None:
    client = await closed.connect()
    line = f"Authorization: Bearer {closed.tokens[Role.ADMIN]}\r\n"
    await client.stream.send_all(f"GET /api/v1/pop/queue/q HTTP/1.1\r\nHost: a\r\n{line}{line}\r\n".encode())
    assert (await client.reply()).status == 401


async def test_a_body_is_not_read_for_those_who_may_not_ask(closed: Closed) -> None:
    client = await closed.connect()
    await client.stream.send_all(b"POST /api/v1/push HTTP/1.1\r\nHost: a\r\nContent-Length: 9000000\r\n\r\n{")
    with trio.fail_after(2):
        assert (await client.reply()).status == 401
    assert await client.at_end()


async def test_the_tokens_name_stands_in_the_event_log(closed: Closed) -> None:
    """X1."""
    client = await closed.connect()
    headers = closed.headers(Role.WRITE)
    body = {"items": [{"queue": "q", "transactionId": "t"}]}
    assert (await client.request("POST", "/api/v1/push", body, headers)).status == 201
    assert (await client.request("GET", "/api/v1/pop/queue/q", None, headers)).status == 200
    assert (await client.request("DELETE", "/api/v1/messages/t", None, closed.headers(Role.ADMIN))).status == 200
    assert {WHO[Role.WRITE], WHO[Role.ADMIN]} == {who for who in recorded(closed.server) if who.startswith("the-")}


def recorded(server: Server) -> list[str]:
    core = server.broker._running().core
    return [core.records.read(seq).who for seq in range(1, core.journal.head + 1)]


# -- the file, while the server runs --------------------------------------------------------------------------


async def until(closed: Closed, role: Role, status: int) -> str:
    """Ask until the answer is that one; what it says."""
    with trio.fail_after(5):
        while True:
            client = await closed.connect()
            reply = await client.request("GET", "/api/v1/pop/queue/q", None, closed.headers(role))
            if reply.status == status:
                return reply.body.decode()
            await trio.sleep(0.05)


async def test_a_revoked_token_is_useless_and_the_others_stay(closed: Closed) -> None:
    await until(closed, Role.WRITE, 204)
    revoke_token(closed.file, WHO[Role.WRITE])
    await until(closed, Role.WRITE, 401)
    await until(closed, Role.ADMIN, 204)


async def test_a_new_token_is_taken_up(closed: Closed) -> None:
    revoke_token(closed.file, WHO[Role.ADMIN])
    closed.tokens[Role.ADMIN] = make(closed.file, "another", Role.ADMIN)
    await until(closed, Role.ADMIN, 204)


async def test_an_expired_token_is_useless(closed: Closed) -> None:
    closed.tokens[Role.ADMIN] = make(closed.file, "short", Role.ADMIN, closed.server.broker.feed.now() + 2_500_000)
    await until(closed, Role.ADMIN, 204)
    assert "the token short has expired" in await until(closed, Role.ADMIN, 401)


@pytest.mark.parametrize("harm", ["flip", "cut", "empty", "open", "gone", "folder", "foreign"])
async def test_nobody_gets_in_while_the_file_is_bad(closed: Closed, harm: str) -> None:
    """It fails closed, also where the file vanishes, and mends itself with the file."""
    sound = closed.file.read_bytes()
    if harm == "flip":
        closed.file.write_bytes(sound.replace(b'"the-read"', b'"the-reae"'))
    elif harm == "cut":
        closed.file.write_bytes(sound[:-20])
    elif harm == "empty":
        closed.file.write_bytes(b"")
    elif harm == "open":
        closed.file.chmod(0o666)
    elif harm == "foreign":
        closed.file.write_bytes(b'{"tokens": []}')
    else:
        closed.file.unlink()
        if harm == "folder":
            closed.file.mkdir()
    assert "nobody gets in" in await until(closed, Role.ADMIN, 503)
    client = await closed.connect()
    health = await client.request("GET", "/health")
    assert (health.status, "the tokens can't be read: " in health.json["reason"]) == (200, True)
    ready = await client.request("GET", "/health/ready")
    assert (ready.status, ready.json["ready"], ready.json["status"]) == (503, False, "failed")
    assert ready.json["reason"] == health.json["reason"]
    if harm == "folder":
        closed.file.rmdir()
    draft = closed.file.with_name("sound")
    draft.write_bytes(sound)
    draft.chmod(0o600)
    draft.rename(closed.file)
    await until(closed, Role.ADMIN, 204)
    assert "reason" not in (await client.request("GET", "/health")).json
    assert (await client.request("GET", "/health/ready")).status == 200


async def test_without_any_token_left_nobody_gets_in(closed: Closed) -> None:
    for role in Role:
        revoke_token(closed.file, WHO[role])
    await until(closed, Role.ADMIN, 401)


async def test_the_first_token_closes_a_server_that_was_open(server: Server, tmp_path: Path) -> None:
    client = await server.connect()
    assert (await client.request("GET", "/metrics")).status == 200
    socket = await Socket((await server.connect()).stream).open()
    token = make(tmp_path / "data" / "tokens", "first", Role.READ)
    now_closed = Closed(server, tmp_path / "data" / "tokens", {Role.READ: "queen_x"})
    await until(now_closed, Role.READ, 401)
    client = await server.connect()
    assert (await client.request("GET", "/metrics", None, {"Authorization": f"Bearer {token}"})).status == 200
    assert await socket.closed() == 1008


@pytest.mark.parametrize("content", [None, b"", b"{}"])
async def test_a_file_that_is_named_must_be_there_and_whole(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "elsewhere"
    if content is not None:
        file.write_bytes(content)
        file.chmod(0o600)
    with pytest.raises(BaseExceptionGroup) as refused:
        async with running(tmp_path, token_file=str(file)):
            raise AssertionError("it must not start")
    assert refused.group_contains(Exception, match=re.escape(str(file)))


# -- the WebSocket --------------------------------------------------------------------------------------------


async def shaken(closed: Closed, **headers: str) -> Socket:
    """A WebSocket whose handshake has these headers."""
    client = await closed.connect()
    return await Socket(client.stream).open(headers=headers)


async def test_a_websocket_by_header(closed: Closed) -> None:
    socket = await shaken(closed, **closed.headers(Role.READ))
    assert (await socket.told())["event"] == "connected"
    with pytest.raises(Refused) as refused:
        await shaken(closed, Authorization="Bearer x")
    assert refused.value.reply.status == 401
    assert "www-authenticate" in refused.value.reply.headers


async def test_a_websocket_by_first_message(closed: Closed) -> None:
    """Z16: `connected` is the first frame all the same."""
    socket = await shaken(closed)
    await socket.say({"type": "authenticate", "token": closed.tokens[Role.READ]})
    assert (await socket.told())["event"] == "connected"
    await socket.say({"type": "authenticate", "token": "whatever"})  # nobody asks any more
    await socket.say({"type": "subscribe"})
    await socket.until("subscribed")


@pytest.mark.parametrize(
    "message",
    ["ping", "x", {"type": "subscribe"}, {"type": "authenticate"}, {"type": "authenticate", "token": "queen_x"}, ""],
)
async def test_a_websocket_that_says_something_else_is_closed(closed: Closed, message: object) -> None:
    socket = await shaken(closed)
    await socket.say(message)
    assert await socket.closed() == 1008
    assert socket.texts == 0


async def test_a_websocket_that_says_nothing_is_closed(closed: Closed, monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1 <= TOKEN_TIME <= 30
    monkeypatch.setattr("queen.web.dashboard.TOKEN_TIME", 0.05)
    socket = await shaken(closed)
    assert await socket.closed() == 1008
    assert socket.texts == 0


async def test_a_websocket_ends_with_its_token(closed: Closed) -> None:
    by_header = await shaken(closed, **closed.headers(Role.READ))
    other = await shaken(closed, **closed.headers(Role.WRITE))
    revoke_token(closed.file, WHO[Role.READ])
    assert await by_header.closed() == 1008
    await other.say({"type": "subscribe"})
    await other.until("subscribed")


async def test_a_websocket_ends_when_its_token_expires(closed: Closed) -> None:
    closed.tokens[Role.ADMIN] = make(closed.file, "short", Role.ADMIN, closed.server.broker.feed.now() + 2_000_000)
    await until(closed, Role.ADMIN, 204)
    socket = await shaken(closed, **closed.headers(Role.ADMIN))
    assert await socket.closed() == 1008


# -- browsers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("allowed", ["", "https://app.example null", "*"])
async def test_with_tokens_origins_are_checked(tmp_path: Path, allowed: str) -> None:
    """W3: for requests and for WebSockets."""
    token = make(tmp_path / "data" / "tokens", "t", Role.ADMIN)
    async with running(tmp_path, allowed_origins=allowed) as server:
        closed = Closed(server, tmp_path, {Role.ADMIN: token})
        fine = {"http://queen.test", "http://localhost:3000", "http://127.0.0.1", "http://[::1]:80"}
        for origin in (
            *sorted(fine),
            "https://app.example",
            "https://evil.example",
            "null",
            "x",
            "http://queen.test.evil",
        ):
            listed = bool({"*", origin} & set(allowed.split()))
            headers = {**closed.headers(Role.ADMIN), "Origin": origin}
            reply = await (await closed.connect()).request("GET", "/api/v1/pop/queue/q", None, headers)
            assert reply.status == (204 if origin in fine or listed else 403), (origin, reply)
            if origin in fine or listed:
                await shaken(closed, **headers)
            else:
                assert origin in reply.error
                with pytest.raises(Refused) as refused:
                    await shaken(closed, **headers)
                assert refused.value.reply.status == 403
                with pytest.raises(Refused):
                    await shaken(closed, Origin=origin)


FOREIGN = [{"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}]
OURS = [
    {},
    {"Origin": "http://localhost:3000"},
    {"Origin": "http://localhost:3000", "Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "none"},
    {"Sec-Fetch-Site": "same-origin"},
    {"Origin": "http://queen.test"},
]


@pytest.mark.parametrize("headers", FOREIGN)
async def test_without_tokens_foreign_pages_only_look(server: Server, headers: dict[str, str]) -> None:
    """CORS is `*` by contract (W3), so a page of any site could make a browser on this machine push and pop."""
    client = await server.connect()
    await client.push("q", 1)
    for method, path, body in (
        ("POST", "/api/v1/push", {"items": [{"queue": "q"}]}),
        ("GET", "/api/v1/pop/queue/q", None),
        ("DELETE", "/api/v1/queues/q/clear", None),
    ):
        reply = await (await server.connect()).request(method, path, body, headers)
        assert reply.status == 403
        assert "--allowed-origins" in reply.error
        assert reply.headers["access-control-allow-origin"] == "*"
    reply = await (await server.connect()).request("GET", "/api/v1/messages", None, headers)
    assert reply.status == 200
    assert len(await client.pop("q", "batch=10")) == 1


@pytest.mark.parametrize("headers", OURS)
async def test_without_tokens_everybody_else_works(server: Server, headers: dict[str, str]) -> None:
    client = await server.connect()
    assert (await client.request("POST", "/api/v1/push", {"items": [{"queue": "q"}]}, headers)).status == 201


@pytest.mark.settings(allowed_origins="https://evil.example")
async def test_an_allowed_origin_may_do_everything(server: Server) -> None:
    client = await server.connect()
    body = {"items": [{"queue": "q"}]}
    assert (await client.request("POST", "/api/v1/push", body, FOREIGN[0])).status == 201


@pytest.mark.parametrize("path", ["/api/v1/pop/queue/q", "/metrics"])
async def test_a_name_turned_to_this_machine_is_refused(server: Server, path: str) -> None:
    """DNS rebinding: the page's own origin, the page's own name, but our address."""
    reply = await (await server.connect()).request(
        "GET", path, None, {"Host": "evil.example:6632", "Origin": "http://evil.example:6632"}
    )
    assert reply.status == 403
    assert "evil.example" in reply.error
    for host in (
        "localhost",
        "localhost:6632",
        "127.0.0.1:1",
        "[::1]:6632",
        "LOCALHOST",
        "a.localhost",
        "queen.test:1",
    ):
        reply = await (await server.connect()).request("GET", path, None, {"Host": host})
        assert reply.status in (200, 204), host
    for host in ("127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1", "[::2]", "", "[", "evil@localhost"):
        reply = await (await server.connect()).request("GET", path, None, {"Host": host})
        assert reply.status in (400, 403), host


# -- where it listens -----------------------------------------------------------------------------------------


async def test_without_tokens_it_listens_on_this_machine_alone(tmp_path: Path) -> None:
    with pytest.raises(BaseExceptionGroup) as refused:
        async with running(tmp_path, host="0.0.0.0"):
            raise AssertionError("it must not start")
    assert refused.group_contains(Exception, match="--allow-anonymous")
    async with running(tmp_path, host="0.0.0.0", allow_anonymous=True) as server:
        reply = await (await server.connect()).request("GET", "/metrics", None, {"Host": "queen.internal"})
        assert reply.status == 200
    make(tmp_path / "data" / "tokens", "t", Role.READ)
    async with running(tmp_path, host="0.0.0.0") as server:
        assert (await (await server.connect()).request("GET", "/metrics")).status == 401
