"""`queen serve` as a process: what it says, and how it fails."""

import json
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
from click.testing import CliRunner, Result

from queen.cli import main
from queen.settings import SETTINGS
from tests.contract.client import Client


@asynccontextmanager
async def started(*arguments: str) -> AsyncIterator[tuple[trio.Process, int]]:
    """A server process on a free port, and that port."""
    with tempfile.TemporaryDirectory() as folder:
        given = ("--port", "0", "--data", f"{folder}/data", "--allowed-hosts", "queen.test", *arguments)
        command = [sys.executable, "-m", "queen", "serve", *given]
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


async def test_the_last_line_of_its_log_says_that_it_has_stopped() -> None:
    """When the folder is closed, not when it is asked to stop."""
    async with started("--log-format", "json") as (process, _):
        assert process.stderr is not None
        process.terminate()
        text = b""
        with trio.fail_after(10):
            while more := await process.stderr.receive_some():
                text += more
        stopping, *_, last = map(json.loads, text.splitlines())
        assert (stopping["event"], last["event"]) == ("stopping", "stopped")


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
            asked = [sys.executable, "-m", "queen", "compact", "--data", folder + "/data"]
            compacted = await trio.run_process(asked, check=False, capture_stderr=True)
        assert (result.returncode, compacted.returncode) == (3, 3)  # as `verify --rebuild` says it
        for said in (result.stderr, compacted.stderr.decode()):
            (line,) = said.splitlines()
            assert line.startswith("Error: ")
            assert folder in line


def test_a_foreign_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("mine")
    result = run("--port", "0", "--data", str(tmp_path))
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert str(tmp_path) in line
    assert [path.name for path in tmp_path.iterdir()] == ["letters.txt"]


@pytest.mark.parametrize(
    "arguments",
    [("--port", "70000"), ("--max-body", "0"), ("--log-level", "x"), ("--nothing",), ("--write-time", "nan")],
)
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


# -- tokens -------------------------------------------------------------------------------------------------


def tokens(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["tokens", *arguments, "--data", str(folder / "data")])


@pytest.mark.parametrize("arguments", [("add", "a", "--role", "read"), ("list",), ("revoke", "a")])
def test_where_there_is_no_data_folder_none_is_made(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    result = tokens(tmp_path, *arguments)
    assert result.exit_code == 3
    assert result.output == f"Error: there is no data folder {tmp_path / 'data'}\n"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_made_where_that_is_asked_for(tmp_path: Path) -> None:
    assert tokens(tmp_path, "add", "a", "--role", "read", "--create").exit_code == 0
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700


def test_a_token_is_shown_once_and_only_its_hash_is_kept(tmp_path: Path) -> None:
    made = tokens(tmp_path, "add", "ops", "--role", "admin", "--create")
    token = made.stdout.strip()
    assert re.fullmatch(r"queen_[\w-]{43}", token)
    file = tmp_path / "data" / "tokens"
    assert file.stat().st_mode & 0o777 == 0o600
    assert token not in file.read_text()
    listed = tokens(tmp_path, "list")
    assert re.fullmatch(r"ops admin since \S+Z does not expire\n", listed.stdout)
    assert [entry.name for entry in (tmp_path / "data").iterdir()] == ["tokens"]


def test_tokens_are_added_listed_and_revoked(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for name, role in (("a", "read"), ("b", "write"), ("c", "admin")):
        assert tokens(tmp_path, "add", name, "--role", role, "--expires", "30d").exit_code == 0
    assert tokens(tmp_path, "revoke", "b").exit_code == 0
    assert [line.split()[:2] for line in tokens(tmp_path, "list").stdout.splitlines()] == [
        ["a", "read"],
        ["c", "admin"],
    ]
    assert tokens(tmp_path, "add", "b", "--role", "read", "--expires", "2999-01-01").exit_code == 0
    assert tokens(tmp_path, "add", "d", "--role", "read", "--expires", "5s").exit_code == 0
    assert "such as 30s, 90m, 12h or 30d" in tokens(tmp_path, "add", "e", "--role", "read", "--expires", "5w").output
    assert "until 2999-01-01T00:00:00.000Z" in tokens(tmp_path, "list").stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("add", "a", "--role", "read"),
        ("add", "a\n", "--role", "read"),
        ("add", "", "--role", "read"),
        ("add", "9", "--role", "read"),
        ("add", "a b", "--role", "read"),
        ("add", "x" * 65, "--role", "read"),
        ("add", "b", "--role", "root"),
        ("add", "b"),
        ("add", "b", "--role", "read", "--expires", "0d"),
        ("add", "b", "--role", "read", "--expires", "soon"),
        ("add", "b", "--role", "read", "--expires", "2001-01-01"),
        ("add", "b", "--role", "read", "--expires", "999999999d"),
        ("revoke", "b"),
    ],
)
def test_a_wrong_change_of_tokens_changes_nothing(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    tokens(tmp_path, "add", "a", "--role", "read", "--create")
    file = tmp_path / "data" / "tokens"
    before = file.read_bytes()
    result = tokens(tmp_path, *arguments)
    assert result.exit_code != 0
    assert "Traceback" not in result.output
    assert file.read_bytes() == before
    assert [entry.name for entry in file.parent.iterdir()] == ["tokens"]


def test_a_damaged_token_file_is_left_alone(tmp_path: Path) -> None:
    tokens(tmp_path, "add", "a", "--role", "read", "--create")
    file = tmp_path / "data" / "tokens"
    file.write_bytes(file.read_bytes().replace(b'"read"', b'"admin"'))
    for arguments in (("list",), ("add", "b", "--role", "read"), ("revoke", "a")):
        result = tokens(tmp_path, *arguments)
        assert result.exit_code == 1
        assert "changed by something else" in result.output


def test_without_a_file_the_list_says_that_the_server_is_open(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    assert "the server is open" in tokens(tmp_path, "list").output
    assert tokens(tmp_path, "revoke", "a").exit_code == 1


async def test_a_server_starts_over_a_folder_that_has_tokens_alone() -> None:
    with tempfile.TemporaryDirectory() as folder:
        token = tokens(Path(folder), "add", "ops", "--role", "admin", "--create").stdout.strip()
        async with started("--data", folder + "/data") as (_, port):
            client = Client(await trio.open_tcp_stream("127.0.0.1", port))
            assert (await client.request("GET", "/metrics")).status == 401
            await client.stream.aclose()
            url = f"http://127.0.0.1:{port}"
            asked = [sys.executable, "-m", "queen", "compact", "--url", url]
            refused = await trio.run_process(asked, check=False, capture_stderr=True)
            assert b"answers 401" in refused.stderr
            done = await trio.run_process([*asked, "--token", token], check=False, capture_stdout=True)
            assert b"bytes after" in done.stdout
            done = await trio.run_process(asked, env=os.environ | {"QUEEN_TOKEN": token}, capture_stdout=True)
            assert b"bytes after" in done.stdout


def test_it_says_why_it_does_not_listen_on_the_network(tmp_path: Path) -> None:
    result = run("--data", str(tmp_path / "data"), "--port", "0", "--host", "0.0.0.0")
    assert result.returncode == 1
    assert "--allow-anonymous" in result.stderr
    assert "Traceback" not in result.stderr
