"""What concerns LMDB's file as a file: opening it, damage to its pages, how much of it is this process's memory."""

import ctypes
import os
import struct
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

import lmdb
from lmdb import verify as lmdb_verify

from queen.errors import ChainBroken, StoreFailed
from queen.store.journal import Table

DATA = "data.mdb"
Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")
_MADV_DONTNEED = 4
_FORMAT = 0
_LEAK = "neither reachable nor in the freeDB"


def open_environment(folder: Path, map_size: int, readonly: bool = False) -> lmdb.Environment:
    """Open or create the environment in `folder`, with the settings that every one of ours has. Raises `lmdb.Error`."""
    return lmdb.open(
        str(folder),
        map_size=map_size,
        max_dbs=len(Table) + 2,
        # For the folder if it has to be made; the files get this without the x bits.
        mode=0o700,
        readonly=readonly,
        # Without it a cold replay reads 40 k frames/s instead of 280 k, and a cold read of one frame at random
        # takes 0.12 ms instead of 0.15: queues read in order.
        readahead=True,
        max_spare_txns=1,
        lib_version=_FORMAT,
    )


def check_pages(folder: Path) -> None:
    """Walk every page of a file at rest without opening it as a database (140 MiB/s); raise `ChainBroken` at a fault.

    A page that nothing points to is none: it is lost to LMDB, but says nothing wrong.
    """
    try:
        faults = lmdb_verify.verify(str(folder))  # type: ignore[no-untyped-call]
    except lmdb_verify.VerifyError as error:
        faults = [str(error)]
    faults = [fault for fault in faults if _LEAK not in fault]
    if faults:
        raise ChainBroken(f"The data file in {folder} is damaged: {faults[0]}.")


def disk_free(folder: Path) -> int:
    """Bytes that are free on the disk, for us."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def unmap_pages(folder: Path) -> None:
    """Let the file's pages be the page cache's alone. Costs a minor fault for each one that is read again.

    Every commit reads the page that the one before has written, and with each such fault Linux maps the 16 pages
    around it: in the end the whole file is resident, and looks like a leak (measured: 63 of 76 MB after a million
    messages). LMDB has no call for it, and its map is shared and read-only, so dropping it loses nothing
    (madvise(2), MADV_DONTNEED). Where there is no /proc this does nothing.
    """
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return
    name = str((folder / DATA).resolve())
    for line in lines:
        if line.endswith(name):
            start, stop = (int(number, 16) for number in line.split(None, 1)[0].split("-"))
            size = min(stop - start, (folder / DATA).stat().st_size)
            ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), _MADV_DONTNEED)


def of_sound_pages(read: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
    """What LMDB itself finds wrong while it reads, and a key that is none of ours, are damage, and told as such."""

    @wraps(read)
    def told(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Answer:
        try:
            return read(*args, **kwargs)
        except (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.BadValsizeError, struct.error) as error:
            raise ChainBroken(f"The data file is damaged: {error}.") from error
        except lmdb.Error as error:
            raise StoreFailed(f"The journal can't be read: {error}.") from error

    return told
