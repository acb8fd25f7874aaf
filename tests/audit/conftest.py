"""One recorded run for all tests that only read; those that change it get a copy."""

import shutil
from pathlib import Path

import pytest
import trio

from queen.store.lmdb_journal import LmdbJournal
from tests.audit.recorded import record


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audit") / "data"
    trio.run(record, folder)
    return folder


@pytest.fixture
def copy(recorded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(recorded, tmp_path / "data"))


@pytest.fixture
def journal_of(copy: Path) -> LmdbJournal:
    """The copy's journal, to be changed by hand."""
    return LmdbJournal.open(copy / "journal")
