"""Small files that are for their owner alone (keys, tokens): read with a look at who else could, replaced whole."""

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from queen.errors import Conflict, Invalid

_OPEN_TO_OTHERS: Final = stat.S_IROTH | stat.S_IWOTH | stat.S_IXOTH | stat.S_IWGRP


def read_private(path: Path) -> bytes:
    """What is in the file. Raises `Invalid` where others may read or change it, `OSError`."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_mode & _OPEN_TO_OTHERS:
            raise Invalid(str(path), "is open to others; it is for its owner alone (chmod 600)")
        return file.read()


def replace_private(path: Path, change: Callable[[bytes | None], bytes]) -> None:
    """Make of the file what `change` makes of its content (None where there is no file yet).

    Readers see the old file or the new one, whole, and so does a crash; two changes at once can't lose one. Raises
    `Conflict` where another change is under way, `Invalid` like `read_private`, `OSError`, and what `change` raises.
    """
    draft = path.with_name(path.name + ".new")
    try:
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise Conflict(f"{draft} is in the way; another change was cut off, or is under way") from None
    try:
        with open(file, "wb") as stream:
            stream.write(change(read_private(path) if path.exists() else None))
            stream.flush()
            os.fsync(stream.fileno())
        draft.rename(path)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise
    folder = os.open(path.resolve().parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
