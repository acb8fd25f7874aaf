"""What a program that embeds Queen has to install, and to load: nothing of the server's."""

import subprocess
import sys
from pathlib import Path

import pytest

SERVER = (
    "h11",
    "httptools",
    "hypercorn",
    "jinja2",
    "markupsafe",
    "prometheus_client",
    "quart",
    "quart_trio",
    "werkzeug",
)

EMBEDDED = """
import queen, trio

async def main():
    async with queen.open_broker(None) as q:
        await q.push("q", 1)
        async with q.consume("q") as messages, await anext(messages) as message:
            assert message.data == 1

trio.run(main)
"""


def _without_server(program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run where none of the server's packages can be imported."""
    blocked = f"import sys\nsys.modules.update(dict.fromkeys({SERVER!r}))\n"
    return subprocess.run(
        [sys.executable, "-c", blocked + program, *arguments],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_library_needs_nothing_of_the_server() -> None:
    done = _without_server(EMBEDDED)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("arguments", [["--help"], ["keys", "new"]])
def test_nor_do_the_commands_that_are_no_server(arguments: list[str]) -> None:
    done = _without_server("from queen.cli import main; main()", *arguments)
    assert done.returncode == 0, done.stderr


def test_serve_says_what_to_install(tmp_path: Path) -> None:
    done = _without_server("from queen.cli import main; main()", "serve", "--data", str(tmp_path / "data"))
    assert done.returncode == 1
    assert "pip install 'queen-trio[server]'" in done.stderr
    assert not (tmp_path / "data").exists()
