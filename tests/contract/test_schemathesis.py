"""schemathesis over a running server: it makes requests from the OpenAPI document, right ones and wrong ones, and holds
the answers against it: no 500, no status or content type or body that the document doesn't know, no wrong request
that is taken (W4).

The short form runs with all tests. For longer: QUEEN_EXAMPLES=1000 ./run tests tests/contract/test_schemathesis.py
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from shop.server import Server

pytest.importorskip("schemathesis", reason="schemathesis comes with the dev dependencies")

CONFIG = Path(__file__).with_name("schemathesis.toml")
SHORT = 5
"""Examples of each operation, beside the fixed ones; the same in every run."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    server.start()
    yield server
    server.end()


def test_the_server_keeps_to_its_document(server: Server, tmp_path: Path) -> None:
    examples = int(os.environ.get("QUEEN_EXAMPLES", SHORT))
    options = ["--max-examples", str(examples), "--continue-on-failure", "--generation-database", "none"]
    if examples == SHORT:
        options += ["--seed", "1", "--no-shrink"]
    url = f"http://127.0.0.1:{server.port}/openapi.json"
    done = subprocess.run(
        [sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIG), "run", url, *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=max(300, examples * 10),
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr + server.last_words()
    assert "Tested: " in done.stdout
