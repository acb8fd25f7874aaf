"""The data folder: its lock, its version (X4), its creation and its permissions."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from queen.errors import ChainBroken, FolderLocked, FormatUnknown
from queen.store import data_dir
from queen.store.data_dir import DataFolder, check
from queen.store.lmdb_journal import LmdbJournal


def names(path: Path) -> set[str]:
    return {entry.name for entry in path.iterdir()}


def test_a_new_folder_is_complete_and_private(tmp_path: Path) -> None:
    path = tmp_path / "some" / "queen-data"
    old = os.umask(0)
    try:
        with DataFolder.open(path) as folder:
            LmdbJournal.open(folder.journal).close()
    finally:
        os.umask(old)
    assert names(path) == {"lock", "FORMAT", "journal"}
    assert (path / "FORMAT").read_text() == "queen 1\n"
    for entry in [path, *path.rglob("*")]:
        assert entry.stat().st_mode & 0o777 == (0o700 if entry.is_dir() else 0o600), entry


def test_what_was_written_is_there_at_the_next_opening(tmp_path: Path) -> None:
    for head in range(3):
        with DataFolder.open(tmp_path) as folder:
            journal = LmdbJournal.open(folder.journal)
            assert journal.head == head
            journal.commit(head, [b"x"])
            journal.close()


def test_a_second_opening_is_refused_and_names_the_first(tmp_path: Path) -> None:
    with DataFolder.open(tmp_path), pytest.raises(FolderLocked, match=f"in use by process {os.getpid()};"):
        DataFolder.open(tmp_path)
    DataFolder.open(tmp_path).close()


def test_a_killed_holder_leaves_no_lock(tmp_path: Path) -> None:
    script = """
import sys; from pathlib import Path; from queen.store.data_dir import DataFolder
folder = DataFolder.open(Path(sys.argv[1])); print("locked", flush=True); sys.stdin.read()
"""
    command = [sys.executable, "-c", script, str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(FolderLocked, match=f"process {holder.pid};"):
            DataFolder.open(tmp_path)
        assert check(tmp_path) == tmp_path / "journal"
        holder.kill()
    DataFolder.open(tmp_path).close()


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    """X4"""
    DataFolder.open(tmp_path).close()
    (tmp_path / "FORMAT").write_text("queen 2\n")
    with pytest.raises(FormatUnknown, match=r"written by a newer Queen \(format 2\); this one reads up to 1"):
        DataFolder.open(tmp_path)
    assert (tmp_path / "FORMAT").read_text() == "queen 2\n"


@pytest.mark.parametrize("text", ["", "queen", "queen 0\n", "queen x\n", "rook 1\n", "queen -1\n", "\xff\0"])
def test_a_format_that_is_not_ours_is_refused(tmp_path: Path, text: str) -> None:
    DataFolder.open(tmp_path).close()
    (tmp_path / "FORMAT").write_text(text, "latin-1")
    with pytest.raises(FormatUnknown):
        DataFolder.open(tmp_path)


@pytest.mark.parametrize("name", ["notes.txt", "data.mdb", "journal"])
def test_a_folder_with_other_files_is_refused_and_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(FormatUnknown, match="not a Queen data folder"):
        DataFolder.open(tmp_path)
    assert names(tmp_path) == {name}


def test_a_lost_format_is_not_taken_for_a_new_folder(tmp_path: Path) -> None:
    DataFolder.open(tmp_path).close()
    (tmp_path / "FORMAT").unlink()
    with pytest.raises(FormatUnknown):
        DataFolder.open(tmp_path)


def test_a_lost_journal_is_not_replaced_by_an_empty_one(tmp_path: Path) -> None:
    DataFolder.open(tmp_path).close()
    (tmp_path / "journal").rename(tmp_path / "elsewhere")
    with pytest.raises(ChainBroken, match="is missing"):
        DataFolder.open(tmp_path)


def test_a_cut_off_data_file_is_refused(tmp_path: Path) -> None:
    with DataFolder.open(tmp_path) as folder:
        journal = LmdbJournal.open(folder.journal)
        journal.commit(0, [b"x" * 100_000])
        journal.close()
    os.truncate(tmp_path / "journal" / "data.mdb", 60_000)
    with pytest.raises(ChainBroken, match="is cut off: it has 60000 bytes"):
        DataFolder.open(tmp_path)


class Crash(Exception):
    pass


def test_a_creation_that_crashes_anywhere_is_completed_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Crash at each step that another process could see, and open again."""
    steps = 0

    def crash_at(step: int, call: str) -> None:
        real = getattr(os, call)

        def counted(*arguments: object) -> object:
            nonlocal steps
            steps += 1
            if steps == step:
                raise Crash
            return real(*arguments)

        monkeypatch.setattr(os, call, counted)

    for step in range(1, 40):
        path = tmp_path / str(step)
        steps = 0
        with monkeypatch.context():
            for call in ("fsync", "rename", "mkdir", "ftruncate"):
                crash_at(step, call)
            try:
                DataFolder.open(path).close()
            except Crash:
                crashed = True
            else:
                crashed = False
            monkeypatch.undo()
        DataFolder.open(path).close()
        assert names(path) == {"lock", "FORMAT", "journal"}
        if not crashed:
            assert step > 8
            return
    pytest.fail("the creation has no end")


def test_half_a_page_from_a_crashed_creation_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "journal.new").mkdir()
    (tmp_path / "journal.new" / "data.mdb").write_bytes(b"\0" * 100)
    (tmp_path / "FORMAT.new").write_bytes(b"qu")
    DataFolder.open(tmp_path).close()
    assert names(tmp_path) == {"lock", "FORMAT", "journal"}


def test_a_tool_makes_no_folder(tmp_path: Path) -> None:
    with pytest.raises(FormatUnknown, match="has no file FORMAT"):
        check(tmp_path)
    assert names(tmp_path) == set()
    assert data_dir.VERSION == 1
