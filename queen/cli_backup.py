"""`queen backup` and `queen restore`: arguments, files and pipes, one call each, and what they say."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

import click

from queen.audit.times import FORMS, parse_time
from queen.backup import Restored, back_up, restore
from queen.cli_audit import DATA, UNREADABLE, WRONG, end, now, reading
from queen.cli_tables import counted, progress
from queen.errors import Corrupt, FolderLocked, Invalid, QueenError
from queen.names import instant_text
from queen.store.archive import Archived
from queen.store.lmdb_compact import sync_folder

STREAM: Final = "-"
_BUFFER: Final = 1 << 20


@click.command("backup")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@DATA
def backup_command(file: str, data: Path) -> None:
    """Copy everything in a data folder into one file, also while a server works in it; `-` is standard output.

    The backup holds every record up to the last one there is when the copy is complete, and says which that is. Each
    record is checked on its way. Encrypted payloads stay encrypted, so keep the keys as well.

    \b
    Examples:
      queen backup orders.queen --data /var/lib/queen
      queen backup - --data /var/lib/queen | zstd | ssh elsewhere 'cat > orders.queen.zst'
    """
    with reading(data) as past, _written(file) as stream:
        with progress("copying") as tell:
            archived = back_up(past, stream, now(), tell)
        stream.flush()
    click.echo(f"{_told(archived)}, {counted(archived.size, 'byte')}", err=file == STREAM)


@click.command("restore")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--data", required=True, type=click.Path(file_okay=False, path_type=Path), help="a new folder")
@click.option("--at", help=f"as it was then: {FORMS}")
def restore_command(file: str, data: Path, at: str | None) -> None:
    """Make a new data folder from a backup, as it was in the end or at any instant before; `-` is standard input.

    Later records are left out. Messages that were deleted later, and whose payloads are erased since, can't be brought
    back: they are deleted again, in records of their own, and counted.

    \b
    Examples:
      queen restore orders.queen --data /var/lib/queen-new
      zstd -dc orders.queen.zst | queen restore - --data /var/lib/queen-new --at 2026-11-30T10:04
    """
    try:
        until = None if at is None else parse_time(at, now(), "--at")
        with _read(file) as stream, progress("restoring") as tell:
            restored = restore(stream, data, until, tell)
    except Invalid as error:
        raise click.UsageError(str(error)) from None
    except FolderLocked as error:
        end(str(error), UNREADABLE)
    except Corrupt as error:
        end(f"{error} Nothing was restored.", UNREADABLE)
    except QueenError as error:
        end(str(error), WRONG)
    except OSError as error:
        end(f"{error.filename or data}: {error.strerror or error}", UNREADABLE)
    for line in _story(restored, data):
        click.echo(line)


def _story(restored: Restored, data: Path) -> Iterator[str]:
    archived = restored.archived
    yield f"The backup is whole: {_told(archived)}; made at {instant_text(archived.made_at)}."
    where = f" of {instant_text(restored.latest_at)}, digest {restored.digest.hex()}" if restored.seq else ""
    yield f"{data} holds everything up to record {restored.seq}{where}."
    if restored.lost:
        were = "was" if restored.lost == 1 else "were"
        yield (
            f"{counted(restored.lost, 'message')} {were} deleted later, and nothing is left of what was in there: "
            f"deleted again, in {counted(restored.records, 'more record')}."
        )


def _told(archived: Archived) -> str:
    if not archived.seq:
        return "no records"
    when = instant_text(archived.latest_at)
    return f"{counted(archived.seq, 'record')}, the last one of {when}, its digest {archived.digest.hex()}"


@contextmanager
def _written(file: str) -> Iterator[BinaryIO]:
    """What takes the archive. A file gets its name when it is complete and synced; nobody else may read it."""
    if file == STREAM:
        if sys.stdout.isatty():
            raise click.UsageError("A backup is no text: name a file, or pipe it into something.")
        yield sys.stdout.buffer
        return
    if os.path.exists(file):
        raise click.UsageError(f"{file} exists already.")
    part = Path(f"{file}.part")
    try:
        with open(part, "wb", _BUFFER, opener=lambda name, flags: os.open(name, flags, 0o600)) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        part.rename(file)
        sync_folder(part.resolve().parent)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise


@contextmanager
def _read(file: str) -> Iterator[BinaryIO]:
    if file == STREAM:
        yield sys.stdin.buffer
    else:
        with open(file, "rb", _BUFFER) as stream:
            yield stream
