"""The data folder: who may use it, and whether it is ours and whole. Nothing here knows what the journal holds.

    queen-data/
      lock          held with flock by the server; its text is the holder's process id
      FORMAT        one line, "queen 1": the version of everything below
      journal/      the LMDB environment: data.mdb, and lock.mdb for its readers
      tokens        who may use the server, if anybody has been named (`queen.tokens`)

A folder is made so that a crash at any point leaves one that the next start completes: first `journal.new`, then
`FORMAT.new`, then both get their names, FORMAT last. Nothing that isn't understood is deleted or written over.
"""

import fcntl
import os
import shutil
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Self

from queen.errors import ChainBroken, Conflict, Corrupt, FolderLocked, FormatUnknown
from queen.store.lmdb_compact import sync_folder
from queen.store.lmdb_file import check_pages
from queen.store.lmdb_journal import LmdbJournal

VERSION: Final = 1
"""The version of the folder (X4): it changes with anything that an older Queen would misread."""

WALKED: Final = 64 << 20
"""Bytes of a data file up to which a start walks all its pages, half a second's work; `queen verify` walks any."""

LOCK = "lock"
_FORMAT = "FORMAT"
_NEW_FORMAT = "FORMAT.new"
_JOURNAL = "journal"
_NEW_JOURNAL = "journal.new"
_RESTORING = "restoring"
_DATA = "data.mdb"
_TOKENS = frozenset({"tokens", "tokens.new"})  # may be there before there is anything else
_UNFINISHED = frozenset({LOCK, _NEW_FORMAT, _NEW_JOURNAL}) | _TOKENS

# LMDB 0.9's meta page on a 64-bit machine, in the machine's own byte order: page header; magic, version, address, map
# size; the records of the free list, whose first field is the page size, and of the main database; last page,
# transaction.
_META = struct.Struct("=16x II QQ I44x 48x QQ")
_MAGIC = 0xBEEFC0DE
_DATA_VERSION = 1


class DataFolder:
    """A folder that this process alone may write to, until it is closed."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self.journal = path / _JOURNAL
        """Where `LmdbJournal.open` finds the journal."""
        self._lock = lock

    @classmethod
    def open(cls, path: Path) -> Self:
        """Lock the folder, make it if there is none, and check that it is ours and whole.

        Raises `FolderLocked`, `FormatUnknown`, `ChainBroken` (a damaged data file), `OSError` where the folder
        can't be made or read.
        """
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        _refuse_foreign(path)
        folder = cls(path, _take_lock(path))
        try:
            # Again, now that nobody else is at work here.
            if not (path / _FORMAT).exists():
                _refuse_foreign(path)
                _create(path)
            _check_at_rest(check(path))
        except BaseException:
            folder.close()
            raise
        return folder

    def close(self) -> None:
        """Let others in. Idempotent."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check(path: Path) -> Path:
    """Check without a lock that `path` is a data folder that this Queen reads; return its journal's folder.

    For the start, and for tools that read beside a running server. Raises `FormatUnknown` and `ChainBroken`.
    """
    try:
        line = (path / _FORMAT).read_bytes()
    except FileNotFoundError:
        raise FormatUnknown(f"{path} is not a Queen data folder: it has no file {_FORMAT}.") from None
    name, _, number = line.decode("ascii", "replace").rstrip("\n").partition(" ")
    if name != "queen" or not number.isdecimal():
        raise FormatUnknown(f"{path} is not a Queen data folder: its {_FORMAT} reads {line[:40]!r}.")
    if int(number) > VERSION:
        raise FormatUnknown(
            f"{path} was written by a newer Queen (format {int(number)}); this one reads up to {VERSION}."
        )
    if int(number) < 1:
        raise FormatUnknown(f"{path} has format {int(number)}, which never was.")
    journal = path / _JOURNAL
    check_data_file(journal / _DATA)
    return journal


def check_data_file(file: Path) -> None:
    """Refuse a data file that is shorter than its own meta page says: touching what is missing kills the process.

    Raises `FormatUnknown` where it isn't LMDB's and `ChainBroken` where pages are missing.
    """
    try:
        with file.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            first = _read_meta(stream.read(_META.size))
            page_size = first[4] if first else 0
            stream.seek(page_size)
            second = _read_meta(stream.read(_META.size))
    except FileNotFoundError:
        raise ChainBroken(f"The data file {file} is missing.") from None
    if first is None or second is None:
        raise FormatUnknown(f"{file} is no data file of LMDB 0.9, or its beginning is damaged.")
    *_, last_page, _ = max(first, second, key=lambda meta: meta[-1])
    if size < (last_page + 1) * page_size:
        # Seldom, this is sound: pages at the end that were used and freed within one transaction are never written.
        try:
            check_pages(file.parent)
        except Corrupt as error:
            raise ChainBroken(
                f"{file} is cut off: it has {size} bytes and says itself that it has {(last_page + 1) * page_size}."
            ) from error


def _check_at_rest(journal: Path) -> None:
    """Refuse a data file whose own structure is damaged, so far as there is time to look: LMDB trusts it, and may then
    leave rows out, or kill the process. Nobody else may be writing. Raises `ChainBroken`."""
    file = journal / _DATA
    with file.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        first = _read_meta(stream.read(_META.size))
        assert first is not None, "checked before"
        stream.seek(first[4])
        second = _read_meta(stream.read(_META.size))
        assert second is not None, "checked before"
    # Each commit takes the older one's place. Were the newer one not recognised, the last commit would be gone.
    if abs(first[-1] - second[-1]) != 1 and first[-1] != second[-1]:
        raise ChainBroken(f"{file} is damaged: its meta pages are of commits {first[-1]} and {second[-1]}.")
    if size <= WALKED:
        check_pages(journal)


def _read_meta(page: bytes) -> tuple[int, ...] | None:
    """Magic, version, address, map size, page size, last page, transaction; None where it isn't that."""
    if len(page) < _META.size:
        return None
    meta = _META.unpack(page)
    return meta if meta[:2] == (_MAGIC, _DATA_VERSION) and 256 <= meta[4] <= 1 << 15 else None


def _refuse_foreign(path: Path) -> None:
    """Without FORMAT, a folder may hold what an unfinished creation leaves, and nothing else."""
    names = {entry.name for entry in path.iterdir()}
    if _FORMAT in names:
        return
    # The journal has its name before FORMAT has: then FORMAT.new is still there to say so.
    allowed = _UNFINISHED | {_JOURNAL} if _NEW_FORMAT in names else _UNFINISHED
    if foreign := sorted(names - allowed):
        raise FormatUnknown(
            f"{path} is not a Queen data folder: it has no file {_FORMAT} but holds other files ({foreign[0]!r})."
        )


def _take_lock(path: Path) -> int:
    lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(lock, 0)
        os.write(lock, b"%d\n" % os.getpid())
    except BlockingIOError:
        holder = os.read(lock, 20).decode("ascii", "replace").strip()
        os.close(lock)
        who = f"process {holder}" if holder.isdecimal() else "another process"
        raise FolderLocked(f"{path} is in use by {who}; a data folder serves one process at a time.") from None
    except BaseException:
        os.close(lock)
        raise
    return lock


def _create(path: Path) -> None:
    new_journal = path / _NEW_JOURNAL
    if not (path / _JOURNAL).exists():
        new_journal.mkdir(mode=0o700, exist_ok=True)
        # What a crash left here was never in use, and may be half a page.
        with suppress(FileNotFoundError):
            (new_journal / _DATA).unlink()
        LmdbJournal.open(new_journal).close()
    _take_names(path, new_journal)


def _take_names(path: Path, new_journal: Path) -> None:
    """Give a journal that is complete its name, and the folder its FORMAT; goes on where a crash cut it off."""
    journal, new_format = path / _JOURNAL, path / _NEW_FORMAT
    if not journal.exists():
        sync_folder(new_journal)
        with open(new_format, "wb", opener=_private) as stream:
            stream.write(b"queen %d\n" % VERSION)
            stream.flush()
            os.fsync(stream.fileno())
        sync_folder(path)
        new_journal.rename(journal)
        sync_folder(path)
    new_format.rename(path / _FORMAT)
    sync_folder(path)
    sync_folder(path.resolve().parent)


@contextmanager
def restoring(path: Path) -> Iterator[LmdbJournal]:
    """The empty journal of a folder that is to be filled, and a data folder once the block has ended. Until then no
    Queen serves it; an error leaves the folder empty, and what a crash leaves the next attempt removes.

    Raises `Conflict` where the folder holds anything, `FolderLocked`, `OSError`."""
    filled = path / _RESTORING
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    foreign = sorted({entry.name for entry in path.iterdir()} - {LOCK, _RESTORING, _NEW_FORMAT})
    if foreign:
        raise Conflict(f"{path} is not empty: it holds {foreign[0]!r}. A backup is restored into a new folder.")
    lock = _take_lock(path)
    try:
        shutil.rmtree(filled, ignore_errors=True)
        filled.mkdir(mode=0o700)
        try:
            journal = LmdbJournal.open(filled)
            try:
                yield journal
            finally:
                journal.close()
        except BaseException:
            shutil.rmtree(filled, ignore_errors=True)
            raise
        _take_names(path, filled)
    finally:
        os.close(lock)


def _private(name: str, flags: int) -> int:
    return os.open(name, flags, 0o600)
