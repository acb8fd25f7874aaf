"""Connections with the reactor when the server is cancelled, and answers that a cancellation catches on their way."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
import trio

from queen import open_broker
from queen.settings import Settings
from queen.web import app
from queen.web import lane as module
from queen.web.exchange import Callers
from queen.web.head import read_head
from queen.web.lane import Lane
from queen.web.serve import serve
from tests.contract.client import encoded


@pytest.mark.parametrize("_", range(6))  # in which order tasks are cancelled is left to chance
async def test_a_cancelled_server_takes_off_parked_pops(
    _: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The broker goes on: what is pushed next is there for others (L8)."""
    async with open_broker(None) as broker, trio.open_nursery() as nursery:
        serving = trio.CancelScope()

        async def run(task_status: trio.TaskStatus[list[str]]) -> None:
            with serving:
                await serve(
                    broker, Settings(data=str(tmp_path), port=0, allowed_hosts="queen.test"), task_status=task_status
                )

        (url,) = await nursery.start(run)
        streams = [await trio.open_tcp_stream("127.0.0.1", urlsplit(url).port or 0) for _ in range(4)]
        for stream in streams[1:]:
            await stream.send_all(encoded("GET", "/api/v1/pop/queue/q?wait=true&timeout=50000&autoAck=true"))
        with trio.fail_after(5):
            while broker.health().parked < 3:  # noqa: ASYNC110 - seen from outside
                await trio.sleep(0.01)
        serving.cancel()
        await trio.sleep(0.05)
        assert broker.health().parked == 0
        await broker.push("q", 1)
        assert len(await broker.pop("q")) == 1
        for stream in streams:
            await trio.aclose_forcefully(stream)
    assert "a connection failed" not in capsys.readouterr().out + caplog.text


class _Silent:
    broken = False

    async def receive(self) -> bytes:
        await trio.sleep_forever()
        raise AssertionError


async def test_an_answer_that_a_cancellation_catches_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """L8: the task of a waiting pop has its answer when it is cancelled, and has not sent anything."""
    async with open_broker(None) as broker:
        await broker.push("q", 1)
        head = read_head(b"GET /api/v1/pop/queue/q?wait=true HTTP/1.1\r\nHost: a\r\n\r\n")
        assert head is not None
        unused: Any = SimpleNamespace()
        silent: Any = _Silent()
        lane = Lane(silent, broker, unused, unused, unused, Callers(), unused, "", None)
        with trio.CancelScope() as connection:

            async def answer_in_the_end(*args: Any) -> Any:
                answer = await app.answer_to(*args)
                connection.cancel()
                return answer

            monkeypatch.setattr(module, "answer_to", answer_in_the_end)
            await lane._answer(head, lane._requests.asked(head, b""))
        assert connection.cancelled_caught
        assert len(await broker.pop("q")) == 1
