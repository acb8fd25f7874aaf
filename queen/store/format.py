"""The bytes of one record: `pack`, `unpack`, `erase`. Pure, and the only module that knows CBOR.

A record is one command's effect on one partition. Its frame, all numbers big-endian:

    offset  size
    0       1     version, 1
    1       1     flags: 1 where the payload section is in its erased form, else 0
    2       4     CRC-32 over the record's number (u64), bytes 0 and 1, and everything from offset 6 on
    6       32    SHA-256 digest of the predecessor; zeros in record 1
    38      8     instant, µs
    46      8     number of the partition, 0 for the catalogue
    54      4     n, the length of the facts
    58      n     facts: CBOR of [shift, who, request, [event, ...]], an event being an array that starts with its tag
    58 + n        payload section. Plain: payloads end to end, their sizes stand in the record's MessagesPushed.
                  Erased: a CBOR array; a payload that is still there as bytes, an erased one as [SHA-256 of it].

The CRC finds accidents, also a sound frame under another record's number. The digest finds intent: it is the
SHA-256 of version, number, predecessor's digest, instant, partition, SHA-256 of the facts and the root, where the
root is the SHA-256 of the payloads' SHA-256 digests one after another (nothing at all where there are no
payloads). Flags and CRC are left out and payloads count by their digests, so an erased payload leaves the chain whole.
"""

from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from hashlib import sha256
from io import BytesIO
from itertools import accumulate, pairwise
from struct import Struct
from typing import Any, Final, NoReturn
from zlib import crc32

import cbor2
import msgspec

from queen.errors import ChainBroken, FormatUnknown
from queen.events import AnyEvent, MessagesPushed

VERSION: Final = 1
ORIGIN: Final = bytes(32)
"""What record 1 names as its predecessor's digest."""

_ERASED = 1
_HEADER = Struct(">BBI32sQQI")
_START = Struct(">BBI")
_REST = Struct(">32sQQI")
_GUARD = Struct(">QBB")
_BOUND = Struct(">BQ32sQQ")
# Facts nest five deep (record, events, event, runs, run). What is deeper is not ours, and refused before it recurses.
_MAX_DEPTH = 8


class _Facts(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What `facts` holds. A class, since msgspec keeps its plan for a class and works one out anew for a bare tuple."""

    shift: int
    who: str
    request: bytes
    events: tuple[AnyEvent, ...]


class Record(msgspec.Struct, frozen=True, dict=True):
    """A frame, taken apart. `at` and `shift` are µs; `request` and `who` say who caused it (X1)."""

    seq: int
    at: int
    partition: int
    shift: int
    who: str
    request: bytes
    events: tuple[AnyEvent, ...]
    prev: bytes
    facts: memoryview
    payload_section: memoryview
    erased: bool

    @property
    def pushed(self) -> MessagesPushed | None:
        """The event that the payloads belong to, None for a record without messages."""
        return _pushed(self.events)

    def payload(self, index: int) -> bytes | None:
        """The payload of the `index`-th pushed message as stored, None where it was erased.

        `index` is 0 or more; raises `IndexError` where the record holds no such message.
        """
        if self.erased:
            part = self._parts[index]
            return part if isinstance(part, bytes) else None
        offsets = self._offsets
        return self.payload_section[offsets[index] : offsets[index + 1]].tobytes()

    def payload_digests(self) -> list[bytes]:
        """The SHA-256 of every payload, also of those that are erased."""
        if self.erased:
            return [sha256(part).digest() if isinstance(part, bytes) else part[0] for part in self._parts]
        section, offsets = self.payload_section, self._offsets
        return [sha256(section[start:end]).digest() for start, end in pairwise(offsets)]

    @cached_property
    def _offsets(self) -> tuple[int, ...]:
        pushed = self.pushed
        return tuple(accumulate(pushed.sizes, initial=0)) if pushed else (0,)

    @cached_property
    def _parts(self) -> list[bytes | list[bytes]]:
        parts: list[bytes | list[bytes]] = _decode(self.payload_section)
        return parts


def pack(
    seq: int,
    prev: bytes,
    at: int,
    partition: int,
    shift: int,
    who: str,
    request: bytes,
    events: Sequence[AnyEvent],
    payloads: Sequence[bytes] = (),
) -> tuple[bytes, bytes]:
    """The frame of a record and its digest. `payloads` are as long and as many as the MessagesPushed says."""
    plain = [shift, who, request, msgspec.to_builtins(events, builtin_types=(bytes,))]
    # What no start could read must not be written, however it came here (a float among integers, say).
    msgspec.convert(plain, _Facts, builtin_types=(bytes,))
    facts = cbor2.dumps(plain)
    if b"\xc2" in facts or b"\xc3" in facts:
        # These bytes start a number of more than 64 bits, which no reader would take: better to fail now than at
        # the next start. They also turn up in ids and in text, so only the decoder knows.
        _decode(facts)
    root = b""
    if payloads:
        pushed = _pushed(events)
        assert pushed is not None, "payloads without MessagesPushed"
        assert pushed.sizes == tuple(map(len, payloads)), "payloads don't have the sizes that the event names"
        root = sha256(b"".join([sha256(payload).digest() for payload in payloads])).digest()
    rest = b"".join((_REST.pack(prev, at, partition, len(facts)), facts, *payloads))
    return _sealed(seq, 0, rest), _digest(seq, prev, at, partition, facts, root)


def unpack(seq: int, frame: bytes) -> Record:
    """Take the frame of record `seq` apart.

    Raises `ChainBroken` where it is not what was written under that number, `FormatUnknown` where its version
    is newer than this code.
    """
    if len(frame) < _HEADER.size:
        _broken(seq, f"is cut off after {len(frame)} bytes")
    version, flags, crc, prev, at, partition, size = _HEADER.unpack_from(frame)
    if version > VERSION:
        raise FormatUnknown(f"Record {seq} has format {version}; this Queen reads up to {VERSION}.")
    whole = memoryview(frame)
    if crc != crc32(whole[_START.size :], crc32(_GUARD.pack(seq, version, flags))):
        _broken(seq, "fails its checksum")
    end = _HEADER.size + size
    if version < 1 or flags > _ERASED or end > len(frame):
        _broken(seq, "has an impossible header")
    facts, section = whole[_HEADER.size : end], whole[end:]
    shift, who, request, events = _read_facts(seq, facts)
    record = Record(seq, at, partition, shift, who, request, events, prev, facts, section, flags == _ERASED)
    _check_section(record)
    return record


def digest_of(record: Record) -> bytes:
    """The digest that the next record names as its predecessor's. The same before and after an erasure."""
    digests = record.payload_digests()
    root = sha256(b"".join(digests)).digest() if digests else b""
    return _digest(record.seq, record.prev, record.at, record.partition, record.facts, root)


def erase(seq: int, frame: bytes, indexes: Collection[int]) -> bytes:
    """The frame without the payloads at `indexes` (R5): their digests stand in for them, the record's digest stays.

    Raises what `unpack` raises, and `IndexError` where the record holds no such message.
    """
    record = unpack(seq, frame)
    pushed = record.pushed
    count = len(pushed.sizes) if pushed else 0
    for index in indexes:
        if not 0 <= index < count:
            raise IndexError(f"record {seq} has {count} payloads, none of number {index}")
    digests = record.payload_digests()
    parts: list[bytes | list[bytes]] = []
    for index, digest in enumerate(digests):
        payload = None if index in indexes else record.payload(index)
        parts.append([digest] if payload is None else payload)
    rest = b"".join((frame[_START.size : _HEADER.size], record.facts, cbor2.dumps(parts)))
    return _sealed(seq, _ERASED, rest)


def _sealed(seq: int, flags: int, rest: bytes) -> bytes:
    crc = crc32(rest, crc32(_GUARD.pack(seq, VERSION, flags)))
    return _START.pack(VERSION, flags, crc) + rest


def _digest(seq: int, prev: bytes, at: int, partition: int, facts: bytes | memoryview, root: bytes) -> bytes:
    bound = _BOUND.pack(VERSION, seq, prev, at, partition)
    return sha256(b"".join((bound, sha256(facts).digest(), root))).digest()


def _pushed(events: Sequence[AnyEvent]) -> MessagesPushed | None:
    for event in events:
        if type(event) is MessagesPushed:
            return event
    return None


def _read_facts(seq: int, facts: memoryview) -> tuple[int, str, bytes, tuple[AnyEvent, ...]]:
    try:
        read = msgspec.convert(_decode(facts), _Facts, builtin_types=(bytes,))
    except _UNREADABLE as error:
        _broken(seq, f"has facts that can't be read ({error})", error)
    if sum(type(event) is MessagesPushed for event in read.events) > 1:
        _broken(seq, "has more than one MessagesPushed")
    return read.shift, read.who, read.request, read.events


def _check_section(record: Record) -> None:
    """The payload section holds exactly the payloads that the facts name; raises `ChainBroken` otherwise."""
    pushed = record.pushed
    sizes = pushed.sizes if pushed else ()
    if sizes and min(sizes) < 0:
        _broken(record.seq, "names a negative size")
    if not record.erased:
        if sum(sizes) != len(record.payload_section):
            _broken(record.seq, "has payloads of other sizes than it names")
        return
    try:
        parts: object = record._parts
    except _UNREADABLE as error:
        _broken(record.seq, f"has payloads that can't be read ({error})", error)
    if not isinstance(parts, list) or len(parts) != len(sizes) or not all(map(_is_part, parts, sizes)):
        _broken(record.seq, "has payloads of other sizes than it names")


def _is_part(part: object, size: int) -> bool:
    match part:
        case bytes():
            return len(part) == size
        case [bytes() as digest]:
            return len(digest) == len(ORIGIN)
        case _:
            return False


def _broken(seq: int, reason: str, cause: Exception | None = None) -> NoReturn:
    raise ChainBroken(f"Record {seq} {reason}.") from cause


# -- CBOR, without the parts of it that we never write ----------------------------------------------------


class _NoTags(dict[int, Callable[..., Any]]):
    """For cbor2, a decoder for every tag there is. Left alone, it makes dates, fractions, sets and shared
    references of them, and skips the one that says "this is CBOR"."""

    def get(self, key: int, default: object = None) -> Any:
        return _refuse_tag

    def __getitem__(self, key: int) -> Any:
        return _refuse_tag


def _refuse_tag(*_: object) -> NoReturn:
    raise ValueError("a CBOR tag")


_NO_TAGS = _NoTags()
_UNREADABLE = (cbor2.CBORError, msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError)


def _decode(data: bytes | memoryview) -> Any:
    """One CBOR item that is all of `data`, of plain types. Raises one of `_UNREADABLE`."""
    # `loads` would not say that something follows the item; a decoder leaves its file where the item ends.
    file = BytesIO(data)
    decoder = cbor2.CBORDecoder(
        file,
        tag_hook=_refuse_tag,
        semantic_decoders=_NO_TAGS,
        max_depth=_MAX_DEPTH,
        allow_indefinite=False,
        allow_duplicate_keys=False,
    )
    item = decoder.decode()
    if file.tell() != len(data):
        raise ValueError(f"{len(data) - file.tell()} bytes too many")
    return item


# -- rows of the projection tables ------------------------------------------------------------------------


def pack_row(values: list[Any]) -> bytes:
    """Plain values as the value of a row."""
    return cbor2.dumps(values)


def unpack_row(row: bytes) -> list[Any]:
    """Undo `pack_row`; raises `ChainBroken` where the bytes are none of its."""
    try:
        values = _decode(row)
    except _UNREADABLE as error:
        raise ChainBroken(f"A row of a projection can't be read ({error}).") from error
    if not isinstance(values, list) or not values:
        raise ChainBroken("A row of a projection is no list.")
    return values


def partition_of(frame: bytes) -> int:
    """The number of the partition that a frame concerns; the frame is not checked otherwise."""
    number: int = _HEADER.unpack_from(frame)[5]
    return number
