"""`queen serve` as a process: what it says, and how it fails."""

import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner

from queen.cli import main
from queen.settings import SETTINGS
from tests.contract.client import Client


@asynccontextmanager
async def started(*arguments: str) -> AsyncIterator[tuple[trio.Process, int]]:
    """A server process on a free port, and that port."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "queen", "serve", "--port", "0", "--data", f"{folder}/data", *arguments]
        process = await trio.lowlevel.open_process(command, stderr=subprocess.PIPE)
        assert process.stderr is not None
        try:
            text = b""
            with trio.fail_after(15):
                while not (match := re.search(rb"http://127\.0\.0\.1:(\d+)", text)):
                    text += await process.stderr.receive_some()
                    assert process.poll() is None, text
            yield process, int(match[1])
        finally:
            process.kill()
            await process.wait()
            await process.stderr.aclose()


async def test_it_serves_and_says_where() -> None:
    async with started("--log-format", "json") as (_, port):
        client = Client(await trio.open_tcp_stream("127.0.0.1", port))
        await client.push("q", 1)
        assert len(await client.pop("q")) == 1
        await client.stream.aclose()


async def test_it_outlives_its_log() -> None:
    """W4: whoever reads the log may go away, and the disk that it is on may be full."""
    async with started() as (process, _):
        assert process.stderr is not None
        await process.stderr.aclose()
        process.terminate()  # which is logged
        with trio.fail_after(10):
            assert await process.wait() == 0


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "queen", "serve", *arguments],
        capture_output=True,
        text=True,
        timeout=15,
        env=os.environ | env,
        check=False,
    )


def test_a_used_port_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run("--data", str(tmp_path / "data"), QUEEN_PORT=str(port))
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert "127.0.0.1" in line
    assert str(port) in line
    assert "in use" in line


async def test_a_locked_folder_is_named() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with started("--data", folder + "/data"):
            result = await trio.to_thread.run_sync(run, "--port", "0", "--data", folder + "/data")
        assert result.returncode == 1
        (line,) = result.stderr.splitlines()
        assert line.startswith("Error: ")
        assert folder in line


def test_a_foreign_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("mine")
    result = run("--port", "0", "--data", str(tmp_path))
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert str(tmp_path) in line
    assert [path.name for path in tmp_path.iterdir()] == ["letters.txt"]


@pytest.mark.parametrize("arguments", [("--port", "70000"), ("--max-body", "0"), ("--log-level", "x"), ("--nothing",)])
def test_wrong_settings_are_refused(arguments: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, ["serve", *arguments])
    assert result.exit_code == 2
    assert arguments[0] in result.output


def test_help_names_every_setting() -> None:
    result = CliRunner().invoke(main, ["serve", "--help"])
    for setting in SETTINGS:
        assert setting.flag in result.output
        assert setting.env in result.output


def test_an_operators_mistake_shows_no_traceback() -> None:
    result = run("--port", "0", "--host", "nowhere.invalid", "--data", "/dev/null/x")
    assert result.returncode == 1
    assert "Traceback" not in result.stderr


# -- keys ---------------------------------------------------------------------------------------------------


def test_keys_new_prints_a_key() -> None:
    """C4."""
    made = {CliRunner().invoke(main, ["keys", "new"]).output.strip() for _ in range(3)}
    assert len(made) == 3
    assert all(len(bytes.fromhex(key)) == 32 for key in made)


def test_keys_new_rotates_a_key_file(tmp_path: Path) -> None:
    """C4: the new key is the current one, the old one stays to read with; neither is printed."""
    file = tmp_path / "keys"
    results = [CliRunner().invoke(main, ["keys", "new", "--file", str(file)]) for _ in range(2)]
    assert [result.exit_code for result in results] == [0, 0]
    listed = CliRunner().invoke(main, ["keys", "list", "--file", str(file)]).output
    assert [line.split(" ", 1)[1] for line in listed.splitlines()] == ["current", "for reading"]
    for key in file.read_text().split():
        assert key not in listed + results[0].output + results[1].output


@pytest.mark.parametrize("key", ["", "secret", "00" * 31])
def test_a_malformed_key_refuses_the_start(tmp_path: Path, key: str) -> None:
    """C4: never plain text instead, and the key is not shown."""
    result = run("--data", str(tmp_path / "data"), "--port", "0", QUEEN_ENCRYPTION_KEY=key)
    assert result.returncode == 1
    assert "QUEEN_ENCRYPTION_KEY" in result.stderr
    assert "Traceback" not in result.stderr
    assert not key or key not in result.stderr
    assert not (tmp_path / "data").exists()


def test_a_key_file_that_cannot_be_used_refuses_the_start(tmp_path: Path) -> None:
    """C4."""
    file = tmp_path / "keys"
    asked = ("--data", str(tmp_path / "data"), "--port", "0", "--encryption-key-file", str(file))
    assert run(*asked).returncode == 1
    file.write_text("00" * 32)
    file.chmod(0o644)
    assert "open to others" in run(*asked).stderr
    file.chmod(0o600)
    assert "one of them" in run(*asked, QUEEN_ENCRYPTION_KEY="11" * 32).stderr
