"""TLS on both lanes: the same server, and nothing older than TLS 1.2."""

import re
import ssl
import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme
from click.testing import CliRunner

from queen.cli import main
from tests.contract.client import Client
from tests.contract.conftest import Server, running
from tests.contract.socket import Socket


class Secured:
    """A server that speaks TLS, and what its clients need to trust it."""

    def __init__(self, server: Server, authority: trustme.CA) -> None:
        self.server = server
        self.context = ssl.create_default_context()
        self.context.set_alpn_protocols(["h2", "http/1.1"])
        authority.configure_trust(self.context)

    async def connect(self) -> tuple[Client, "trio.SSLStream[trio.SocketStream]"]:
        transport = await trio.open_tcp_stream("127.0.0.1", self.server.port)
        stream = trio.SSLStream(transport, self.context, server_hostname="localhost", https_compatible=True)
        try:
            await stream.do_handshake()
        except trio.BrokenResourceError:
            await trio.aclose_forcefully(transport)
            raise
        whole: Any = stream  # the tests' client wants a socket's stream, and uses what both have
        return Client(whole), stream


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(params=[True, False], ids=["lane", "quart"])
async def secured(request: pytest.FixtureRequest, tmp_path: Path, authority: trustme.CA) -> AsyncIterator[Secured]:
    certfile = tmp_path / "server.pem"
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(certfile))
    mark = request.node.get_closest_marker("settings")
    given = mark.kwargs if mark else {}
    async with running(tmp_path, fast_lane=request.param, certfile=str(certfile), **given) as server:
        yield Secured(server, authority)


async def test_everything_works_as_without(secured: Secured) -> None:
    client, stream = await secured.connect()
    assert stream.selected_alpn_protocol() == "http/1.1"
    large = "x" * 3_000_000
    (first, second) = await client.push("q", 1, large)
    (message,) = await client.pop("q")
    body = {"transactionId": first, "status": "completed", "leaseId": message["leaseId"]}
    assert (await client.request("POST", "/api/v1/ack", body)).status == 200
    (message,) = await client.pop("q", "wait=true")
    assert (message["transactionId"], message["data"]) == (second, large)
    assert (await client.request("GET", "/health")).status == 200
    reply = await client.request("GET", "/health", None, {"Connection": "close"})
    assert reply.status == 200
    assert await client.at_end()
    await stream.aclose()


async def test_a_websocket_works_as_without(secured: Secured) -> None:
    _, stream = await secured.connect()
    whole: Any = stream
    dashboard = await Socket(whole).open()
    assert (await dashboard.told())["event"] == "connected"
    client, other = await secured.connect()
    await client.push("q", 1)
    await dashboard.until("message.pushed")
    await stream.aclose()
    await other.aclose()


async def test_a_client_that_leaves_takes_nothing(secured: Secured) -> None:
    """L8."""
    waiting, stream = await secured.connect()
    await waiting.send("GET", "/api/v1/pop/queue/q?wait=true&timeout=10000")
    client, other = await secured.connect()
    await client.request("GET", "/health")
    await stream.aclose()
    await client.push("q", 1)
    messages: list[dict[str, Any]] = []
    with trio.fail_after(5):
        while not messages:
            messages = await client.pop("q", "wait=true&timeout=1000")
    assert messages[0]["retryCount"] == 0
    await other.aclose()


async def test_older_tls_is_refused(secured: Secured) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        secured.context.minimum_version = ssl.TLSVersion.TLSv1
        secured.context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(trio.BrokenResourceError):
        await secured.connect()


async def test_plain_http_is_refused(secured: Secured) -> None:
    """And does nothing to the others."""
    client = await secured.server.connect()
    await client.stream.send_all(b"GET /health HTTP/1.1\r\nHost: queen.test\r\n\r\n")
    with trio.fail_after(5):
        try:
            while data := await client.stream.receive_some(1000):
                assert not data.startswith(b"HTTP/")
        except trio.BrokenResourceError:
            pass
    await test_everything_works_as_without(secured)


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01"])
@pytest.mark.settings(keep_alive=0.1)
async def test_a_client_that_does_not_shake_hands_is_closed(secured: Secured, sent: bytes) -> None:
    client = await secured.server.connect()
    await client.stream.send_all(sent)
    assert await client.at_end()


async def test_it_stops_under_clients_that_do_nothing(secured: Secured) -> None:
    await secured.server.connect()
    _, stream = await secured.connect()
    with trio.fail_after(5):
        secured.server.stop.set()
        await secured.server.stopped.wait()
    await trio.aclose_forcefully(stream)


async def test_a_certificate_that_cannot_be_used_refuses_the_start(tmp_path: Path, authority: trustme.CA) -> None:
    issued, other = authority.issue_cert("localhost"), authority.issue_cert("localhost")
    chain, key, none = str(tmp_path / "chain.pem"), str(tmp_path / "key.pem"), str(tmp_path / "none")
    issued.cert_chain_pems[0].write_to_path(chain)
    other.private_key_pem.write_to_path(key)
    for settings, said in (
        ({"certfile": none}, f"--certfile: {none}: No such file"),
        ({"keyfile": none}, "--keyfile: needs --certfile"),
        ({"certfile": chain, "keyfile": none}, f"--keyfile: {none}: No such file"),
        ({"certfile": chain}, f"--keyfile: is missing, or has no key: there is no private key in {chain}"),
        ({"certfile": chain, "keyfile": chain}, "--keyfile: is missing, or has no key"),
        ({"certfile": chain, "keyfile": key}, f"--certfile: {chain} can't be used with the key in {key}"),
        ({"certfile": key}, f"--certfile: {key} can't be used"),
    ):
        with pytest.raises(BaseExceptionGroup) as refused:
            async with running(tmp_path, **settings):  # type: ignore[arg-type]
                raise AssertionError("it must not start")
        assert refused.group_contains(Exception, match=re.escape(said)), said


async def test_the_manuals_say_how_it_is_reached(secured: Secured, authority: trustme.CA) -> None:
    client, stream = await secured.connect()
    page = (await client.request("GET", "/docs")).body.decode()
    assert "curl -s https://queen.test/api/v1/" in page
    assert "http://" not in page
    described = (await client.request("GET", "/asyncapi.yaml")).body.decode()
    assert 'host: "queen.test"' in described
    assert "protocol: wss\n" in described
    await stream.aclose()


async def test_queen_compact_trusts_what_it_is_told_to(tmp_path: Path, authority: trustme.CA) -> None:
    certfile, root = tmp_path / "server.pem", tmp_path / "root.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(certfile))
    authority.cert_pem.write_to_path(str(root))
    async with running(tmp_path, certfile=str(certfile), allowed_hosts="*") as server:
        asked = ["compact", "--url", f"https://127.0.0.1:{server.port}"]
        refused = await trio.to_thread.run_sync(lambda: CliRunner().invoke(main, asked))
        assert (refused.exit_code, "certificate verify failed" in refused.output) == (1, True)
        done = await trio.to_thread.run_sync(lambda: CliRunner().invoke(main, [*asked, "--cafile", str(root)]))
        assert done.exit_code == 0, done.output
    (tmp_path / "none.pem").write_text("no certificate")
    assert CliRunner().invoke(main, [*asked, "--cafile", str(tmp_path / "none.pem")]).exit_code == 2
