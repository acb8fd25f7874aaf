"""The bytes of a backup: one file of records, with a checksum over all of it. Streams in, streams out; no folders.

All numbers are big-endian:

    size
    8     "QUEENBAK"
    2     version of this layout, 1
    8     when the backup was made, µs since 1970
    then for every record, from number 1 on, in order:
    4     n, the length of its frame
    n     the frame, as the journal has it (see format.py)
    and at the end:
    4     0
    8     the number of the last record
    32    its digest
    32    SHA-256 of every byte before

Each record is checked on its way, in both directions: its checksum, and that it follows from the one before. The end
finds what was cut off. Nothing is compressed: what is encrypted can't be, and a pipe can do it for the rest.
"""

from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from itertools import tee
from struct import Struct
from typing import BinaryIO, Final, NamedTuple

from queen.errors import ChainBroken, FormatUnknown
from queen.store.chain import follow
from queen.store.format import ORIGIN, Record, digest_of

MAGIC: Final = b"QUEENBAK"
VERSION: Final = 1
_HEAD: Final = Struct(">8sHQ")
_LENGTH: Final = Struct(">I")
_END: Final = Struct(">Q32s")
_MAX_FRAME: Final = 1 << 30
"""More than any record has; a length beyond it is damage, and nothing to ask memory for."""

Progress = Callable[[int, int], None]
"""Called now and then with the record that was reached, and the last one."""
EVERY: Final = 1000


class Archived(NamedTuple):
    """What an archive holds: records 1 to `seq`, of which the last has `digest`. `made_at` and `latest_at`, the time of
    the last record, are µs; `size` is the file's, in bytes."""

    seq: int
    digest: bytes
    made_at: int
    latest_at: int
    size: int


def write(
    stream: BinaryIO, frames: Iterable[tuple[int, bytes]], made_at: int, progress: Callable[[int], None]
) -> Archived:
    """Write all of `frames`. Raises `ChainBroken` and `FormatUnknown` at a damaged record, and `OSError`."""
    out = _Summed(stream)
    out.write(_HEAD.pack(MAGIC, VERSION, made_at))
    last: Record | None = None
    for last, frame in _checked(frames):
        out.write(_LENGTH.pack(len(frame)))
        out.write(frame)
        if last.seq % EVERY == 0:
            progress(last.seq)
    seq, digest, latest_at = _summary(last)
    out.write(_LENGTH.pack(0) + _END.pack(seq, digest))
    out.write(out.sum.digest())
    return Archived(seq, digest, made_at, latest_at, out.size)


class Reader:
    """An archive that is read. Nothing in it is known to be whole before `records` has ended."""

    def __init__(self, stream: BinaryIO) -> None:
        """Raises `FormatUnknown` where it is none of ours."""
        self._in = _Summed(stream)
        head = self._in.read(_HEAD.size)
        if len(head) < _HEAD.size or not head.startswith(MAGIC):
            raise FormatUnknown("This is no backup of Queen's.")
        _, version, self.made_at = _HEAD.unpack(head)
        if version != VERSION:
            raise FormatUnknown(f"This backup has format {version}; this Queen reads format {VERSION}.")
        self.archived: Archived | None = None
        """What it holds, known at its end."""

    def records(self) -> Iterator[tuple[Record, bytes]]:
        """Each record and its frame, in order. Raises `ChainBroken` where the archive is damaged or cut off."""
        last: Record | None = None
        for last, frame in _checked(self._frames()):
            yield last, frame
        seq, digest, latest_at = _summary(last)
        end = _END.unpack(self._exactly(_END.size))
        found = self._in.sum.digest()
        if self._exactly(len(found)) != found or end != (seq, digest):
            raise ChainBroken("The backup is damaged: its checksum is another.")
        self.archived = Archived(seq, digest, self.made_at, latest_at, self._in.size)

    def _frames(self) -> Iterator[tuple[int, bytes]]:
        seq = 0
        while length := _LENGTH.unpack(self._exactly(_LENGTH.size))[0]:
            if length > _MAX_FRAME:
                raise ChainBroken(f"The backup is damaged behind record {seq}.")
            seq += 1
            yield seq, self._exactly(length)

    def _exactly(self, size: int) -> bytes:
        found = self._in.read(size)
        if len(found) < size:
            raise ChainBroken(f"The backup is cut off after {self._in.size} bytes.")
        return found


class _Summed:
    """A stream, with the SHA-256 and the number of all bytes that have passed."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.sum = sha256()
        self.size = 0

    def write(self, data: bytes) -> None:
        self._stream.write(data)
        self._note(data)

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self._note(data)
        return data

    def _note(self, data: bytes) -> None:
        self.sum.update(data)
        self.size += len(data)


def _checked(frames: Iterable[tuple[int, bytes]]) -> Iterator[tuple[Record, bytes]]:
    """Each record with its frame, while they follow from each other from the first on."""
    walked, kept = tee(frames)
    for (record, _), (_, frame) in zip(follow(walked), kept, strict=False):
        yield record, frame


def _summary(last: Record | None) -> tuple[int, bytes, int]:
    """The last record's number, its digest, and what the wall clock showed then."""
    return (0, ORIGIN, 0) if last is None else (last.seq, digest_of(last), last.at + last.shift)
