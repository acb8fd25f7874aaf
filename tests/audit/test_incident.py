"""The incident of docs/audit.md: each command as it stands on the page, with the output that stands
there but for times, ids and digests."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHANGES = (
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z"), "TIME"),
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "ID"),
    (re.compile(r"[0-9a-f]{64}"), "DIGEST"),
    (re.compile(r"\d+ records, the last one"), "N records, the last one"),  # the backup may have come a moment later
    (re.compile(r"[\d,]+ (bytes$|rows of)"), r"N \1"),
    (re.compile(r", erased$"), ""),
    (re.compile(r" +"), " "),
)


def _commands() -> list[tuple[str, str]]:
    """Each command of the section, and its output."""
    section = (ROOT / "docs/audit.md").read_text().split("\n## An incident\n")[1].split("\n## ")[0]
    blocks = "".join(re.findall(r"```\n(.*?)```\n", section, re.S))
    parts = [part.partition("\n") for part in re.split(r"^\$ ", blocks, flags=re.M) if part]
    return [(command, output) for command, _, output in parts]


def _plain(output: str) -> list[str]:
    lines = [line.rstrip() for line in output.splitlines() if line.strip()]
    for pattern, word in CHANGES:
        lines = [pattern.sub(word, line) for line in lines]
    return lines


@pytest.fixture
def server(tmp_path: Path) -> dict[str, str]:
    """The story's folder, told; what is served is started by the first command that needs it."""
    names = tmp_path / "bin"
    names.mkdir()
    (names / "queen").write_text(f'#!/bin/sh\nexec {sys.executable} -m queen "$@"\n')
    (names / "queen").chmod(0o755)
    path = f"{names}:{os.environ['PATH']}"
    env = os.environ | {"PATH": path, "QUEEN_DATA": "data", "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    subprocess.run([sys.executable, ROOT / "examples/incident.py", tmp_path], check=True, timeout=60, env=env)
    return env


def test_every_command_does_what_the_page_says(server: dict[str, str], tmp_path: Path) -> None:
    commands = _commands()
    assert len(commands) > 15
    process: subprocess.Popen[bytes] | None = None
    try:
        for command, expected in commands:
            if "QUEEN_URL" in command:
                process = _serve(server, tmp_path)
            done = subprocess.run(
                command, shell=True, cwd=tmp_path, env=server, capture_output=True, text=True, timeout=60, check=False
            )
            assert done.returncode == 0, (command, done.stderr)
            assert _plain(done.stdout) == _plain(expected), command
    finally:
        if process is not None:
            process.terminate()
            process.communicate(timeout=20)


def _serve(env: dict[str, str], folder: Path) -> "subprocess.Popen[bytes]":
    """Serve the folder on a free port, which commands find in QUEEN_URL."""
    command = [sys.executable, "-m", "queen", "serve", "--port", "0"]
    process = subprocess.Popen(command, cwd=folder, env=env, stderr=subprocess.PIPE)
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(rb"http://127\.0\.0\.1:\d+", line):
            env["QUEEN_URL"] = found[0].decode()
            return process
    raise AssertionError("the server does not start")
