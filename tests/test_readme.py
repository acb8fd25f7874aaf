"""What the README shows is what happens: its commands are run, its program too."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from shop.server import Server

README = (Path(__file__).parents[1] / "README.md").read_text()


def blocks(language: str, containing: str) -> str:
    found = [text for text in re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL) if containing in text]
    assert len(found) == 1
    return found[0]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    server.start()
    yield server
    server.end()


@pytest.mark.skipif(shutil.which("curl") is None, reason="the README's commands need curl")
def test_push_pop_and_ack_with_curl(server: Server) -> None:
    script = (
        blocks("sh", "curl").replace("localhost:6632", f"127.0.0.1:{server.port}").replace("\n\ncurl", "\necho\ncurl")
    )
    done = subprocess.run(["sh", "-ec", script], capture_output=True, text=True, timeout=60, check=True)
    pushed, popped, acked = (json.loads(line) for line in done.stdout.splitlines())
    assert pushed["messages"][0]["status"] == "queued"
    assert popped["messages"][0]["data"] == {"amount": 99.9}
    assert popped["messages"][0]["partition"] == "customer-7"
    assert (acked["transactionId"], acked["status"]) == ("first-order", "completed")


def test_the_program(tmp_path: Path) -> None:
    program = [sys.executable, "-uc", blocks("python", "open_broker")]
    with subprocess.Popen(program, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.kill()
    assert line == "{'id': 1}\n"
