"""The bytes of a record: round trip, golden frames, damage, erasure (R5), the chain (X3), versions (X4)."""

import json
import struct
from hashlib import sha256
from pathlib import Path
from typing import Any, get_args
from zlib import crc32

import cbor2
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queen import events as vocabulary
from queen.errors import ChainBroken, Corrupt, FormatUnknown
from queen.events import (
    AnyEvent,
    GroupJoined,
    LeaseExtended,
    MessagesPushed,
    MessagesSettled,
    QueueCreated,
    Run,
    SettledCount,
)
from queen.store.chain import follow, verify
from queen.store.format import ORIGIN, Record, digest_of, erase, pack, unpack

GOLDEN = json.loads((Path(__file__).parent / "golden" / "version-1.json").read_text())
CLASSES: tuple[type[vocabulary.Event], ...] = get_args(AnyEvent)

PUSH = MessagesPushed(first=7, base=bytes(range(16)), sizes=(3, 0, 5), transaction_ids=("tänze", None, "b"), key="k1")
PAYLOADS = [b"abc", b"", b"[1,2]"]
WHO: tuple[int, str, bytes] = (-5, "127.0.0.1", b"request!")


def sample(seq: int = 3, prev: bytes = bytes(range(32))) -> tuple[bytes, bytes]:
    return pack(seq, prev, 1_750_000_000_000_001, 2**40, *WHO, [PUSH, GroupJoined(0, 7)], PAYLOADS)


def forged(facts: bytes, section: bytes = b"", flags: int = 0, seq: int = 3, version: int = 1) -> bytes:
    """A frame with a right checksum round whatever facts."""
    rest = struct.pack(">32sQQI", ORIGIN, 1, 2, len(facts)) + facts + section
    return struct.pack(">BBI", version, flags, crc32(rest, crc32(struct.pack(">QBB", seq, version, flags)))) + rest


# -- round trip -------------------------------------------------------------------------------------------

integers = st.integers(-(2**63), 2**64 - 1)
counts = st.integers(0, 2**64 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
KINDS: dict[Any, st.SearchStrategy[Any]] = {int: integers, str: texts, bytes: st.binary(max_size=20)}
OPTIONS = st.dictionaries(texts, st.one_of(integers, texts, st.booleans(), st.none(), st.floats(allow_nan=False)))


def anything(kind: Any) -> st.SearchStrategy[Any]:
    """A strategy for the field types that events have; fails for a new one, which wants a line here."""
    if kind in KINDS:
        return KINDS[kind]
    arguments = get_args(kind)
    if kind in (Run, SettledCount):
        return st.builds(kind, *[integers] * len(kind._fields))
    if kind == dict[str, Any]:
        return OPTIONS
    if kind == dict[int, int]:
        return st.dictionaries(integers, integers, max_size=5)
    if arguments and getattr(kind, "__origin__", None) is tuple:
        return st.lists(anything(arguments[0]), max_size=5).map(tuple)
    if arguments and all(isinstance(value, str) for value in arguments):
        return st.sampled_from(arguments)
    assert type(None) in arguments, f"no strategy for {kind}"
    return st.none() | anything(next(value for value in arguments if value is not type(None)))


def event_of(cls: type[vocabulary.Event]) -> st.SearchStrategy[Any]:
    fields = {field.name: anything(field.type) for field in msgspec.structs.fields(cls)}
    return st.builds(cls, **fields)


others = st.one_of([event_of(cls) for cls in CLASSES if cls is not MessagesPushed])


@st.composite
def records(draw: st.DrawFn) -> tuple[list[Any], list[bytes]]:
    events = draw(st.lists(others, max_size=4))
    payloads: list[bytes] = []
    if draw(st.booleans()):
        payloads = draw(st.lists(st.binary(max_size=50), max_size=6))
        push = draw(event_of(MessagesPushed))
        push = msgspec.structs.replace(push, sizes=tuple(map(len, payloads)))
        events.insert(draw(st.integers(0, len(events))), push)
    return events, payloads


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(records(), counts, st.binary(min_size=32, max_size=32), counts, counts, integers, texts, st.binary(max_size=16))
def test_every_record_comes_back(
    record: tuple[list[Any], list[bytes]],
    seq: int,
    prev: bytes,
    at: int,
    partition: int,
    shift: int,
    who: str,
    request: bytes,
) -> None:
    events, payloads = record
    frame, digest = pack(seq, prev, at, partition, shift, who, request, events, payloads)
    back = unpack(seq, frame)
    assert (back.seq, back.prev, back.at, back.partition) == (seq, prev, at, partition)
    assert (back.shift, back.who, back.request, back.events) == (shift, who, request, tuple(events))
    assert list(map(type, back.events)) == list(map(type, events))
    assert [back.payload(index) for index in range(len(payloads))] == payloads
    assert digest_of(back) == digest


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_every_event_class_comes_back(cls: type[vocabulary.Event], data: st.DataObject) -> None:
    event = data.draw(event_of(cls))
    payloads: list[bytes] = []
    if isinstance(event, MessagesPushed):
        event = msgspec.structs.replace(event, sizes=())
    assert unpack(1, pack(1, ORIGIN, 0, 0, 0, "", b"", [event], payloads)[0]).events == (event,)


def test_a_record_knows_its_push() -> None:
    record = unpack(3, sample()[0])
    assert record.pushed == PUSH
    with pytest.raises(IndexError):
        record.payload(3)
    assert unpack(1, pack(1, ORIGIN, 0, 0, 0, "", b"", [GroupJoined(0, 1)])[0]).pushed is None


def test_payloads_have_to_be_those_that_the_event_names() -> None:
    with pytest.raises(AssertionError):
        pack(1, ORIGIN, 0, 1, 0, "", b"", [PUSH], [b"abc", b"", b"too long"])
    with pytest.raises(AssertionError):
        pack(1, ORIGIN, 0, 1, 0, "", b"", [GroupJoined(0, 1)], [b"abc"])


def test_what_could_not_be_read_back_is_never_packed() -> None:
    """A number of more than 64 bits would be a CBOR tag, and the next start would stumble over it."""
    for number in (2**64, -(2**64) - 1):
        with pytest.raises(cbor2.CBORError):
            pack(1, ORIGIN, 0, 0, 0, "", b"", [LeaseExtended(0, b"l", number)])
    pack(1, ORIGIN, 0, 0, 0, "Â Ã", b"\xc2\xc3", [LeaseExtended(0, b"\xc2", 2**64 - 1)])


# -- golden frames ----------------------------------------------------------------------------------------


def test_there_is_a_golden_frame_of_every_event_class() -> None:
    assert {row["event"] for row in GOLDEN} >= {cls.__name__ for cls in CLASSES}


@pytest.mark.parametrize("row", GOLDEN, ids=lambda row: row["name"])
def test_golden_frames_are_read_and_written_as_ever(row: dict[str, Any]) -> None:
    """These bytes stand in somebody's folder: the file only ever grows, by new shapes under new names (X4)."""
    frame = bytes.fromhex(row["frame"])
    record = unpack(row["seq"], frame)
    assert digest_of(record).hex() == row["digest"]
    assert [repr(event) for event in record.events] == row["events"]
    payloads = [bytes.fromhex(payload) for payload in row["payloads"]]
    assert [record.payload(index) for index in range(len(payloads))] == payloads
    head = (record.seq, record.prev, record.at, record.partition, record.shift, record.who, record.request)
    assert pack(*head, record.events, payloads) == (frame, bytes.fromhex(row["digest"]))


# -- damage -----------------------------------------------------------------------------------------------


def refused(seq: int, frame: bytes) -> bool:
    try:
        unpack(seq, frame)
    except Corrupt:
        return True
    return False


@pytest.mark.parametrize("frame", [sample()[0], erase(3, sample()[0], [0])], ids=["plain", "erased"])
def test_every_flipped_bit_shows(frame: bytes) -> None:
    for index in range(len(frame)):
        for bit in range(8):
            flipped = frame[:index] + bytes([frame[index] ^ 1 << bit]) + frame[index + 1 :]
            assert refused(3, flipped), f"bit {bit} of byte {index}"


def test_every_cut_and_every_added_byte_shows() -> None:
    frame = sample()[0]
    assert all(refused(3, frame[:size]) for size in range(len(frame)))
    assert refused(3, frame + b"\0")


def test_a_sound_frame_under_another_number_shows() -> None:
    frame = sample(3)[0]
    assert not refused(3, frame)
    assert refused(4, frame)


def test_a_newer_version_is_refused_as_such() -> None:
    """X4"""
    with pytest.raises(FormatUnknown, match=r"format 2; this Queen reads up to 1"):
        unpack(3, b"\x02" + sample()[0][1:])


@given(st.binary(max_size=300))
def test_garbage_is_refused_and_nothing_else(data: bytes) -> None:
    assert refused(3, data)


@settings(max_examples=300)
@given(st.binary(max_size=60), st.binary(max_size=20), st.integers(0, 1))
def test_garbage_behind_a_right_checksum_is_refused_and_nothing_else(facts: bytes, section: bytes, flags: int) -> None:
    assert refused(3, forged(facts, section, flags))


def facts(events: list[Any], who: Any = "me", request: Any = b"", shift: Any = 0) -> bytes:
    return cbor2.dumps([shift, who, request, events])


JOINED = [34, 0, 1]
DEEP = bytes.fromhex("81" * 5000 + "00")
FORGERIES = {
    "no facts": b"",
    "trailing bytes": facts([JOINED]) + b"\0",
    "an unknown tag": facts([[31, 0]]),
    "an event without a tag": facts([[]]),
    "an event that is no array": facts([5]),
    "a field too few": facts([[34, 0]]),
    "a text for bytes": facts([JOINED], request="YQ=="),
    "bytes for a text": facts([JOINED], who=b"me"),
    "a true for a number": facts([JOINED], shift=True),
    "a float for a number": facts([[34, 0, 1.5]]),
    "a fifth fact": cbor2.dumps([0, "me", b"", [JOINED], 1]),
    "a bare number": b"\x01",
    "deep nesting": DEEP,
    "a number of more than 64 bits": facts([[34, 0, 2**64]]),
    "a date as an option": facts([[1, 1, b"", "q", None, None, {"a": cbor2.CBORTag(1, 5)}]]),
    "a set as an option": facts([[1, 1, b"", "q", None, None, {"a": {1, 2}}]]),
    "an unheard-of tag as an option": facts([[1, 1, b"", "q", None, None, {"a": cbor2.CBORTag(40000, 5)}]]),
    "a self-description": bytes.fromhex("d9d9f7") + facts([JOINED]),
    "a shared reference": bytes.fromhex("d81c") + facts([JOINED]),
    "an indefinite array": bytes.fromhex("9f00626d65409fffff"),
    "the same option twice": facts([[1, 1, b"", "q", None, None, {"a": 0}]]).replace(b"\xa1aa\0", b"\xa2aa\0aa\x01"),
    "a text that is not UTF-8": facts([JOINED], who="me").replace(b"bme", b"b\xff\xff"),
    "a size, but no payload": facts([[33, 1, b"", [3]]]),
    "a negative size": facts([[33, 1, b"", [3, -3]]]),
    "two pushes": facts([[33, 1, b"", []], [33, 1, b"", []]]),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_facts_that_we_never_write_are_refused_by_number(name: str) -> None:
    with pytest.raises(ChainBroken, match="Record 3 "):
        unpack(3, forged(FORGERIES[name]))


def test_the_forgeries_fail_for_their_reason_alone() -> None:
    assert not refused(3, forged(facts([JOINED])))
    assert not refused(3, forged(facts([[1, 1, b"", "q", None, None, {"a": 1}]])))
    assert not refused(3, forged(facts([[33, 1, b"", [3]]]), b"abc"))
    assert not refused(3, forged(facts([[33, 1, b"", [3]]]), cbor2.dumps([b"abc"]), flags=1))
    assert not refused(3, forged(facts([[33, 1, b"", [3]]]), cbor2.dumps([[bytes(32)]]), flags=1))


@pytest.mark.parametrize(
    "section",
    [b"", b"abc", cbor2.dumps([]), cbor2.dumps([b"ab"]), cbor2.dumps([[bytes(31)]]), cbor2.dumps([[]]),
     cbor2.dumps([b"abc", b""]), cbor2.dumps(["abc"]), cbor2.dumps({0: b"abc"}), cbor2.dumps([b"abc"]) + b"\0", DEEP],
    ids=range(11),
)  # fmt: skip
def test_erased_sections_that_we_never_write_are_refused(section: bytes) -> None:
    with pytest.raises(ChainBroken, match="Record 3 "):
        unpack(3, forged(facts([[33, 1, b"", [3]]]), section, flags=1))


def test_other_flags_are_refused() -> None:
    with pytest.raises(ChainBroken):
        unpack(3, forged(facts([JOINED]), flags=2))


# -- erasure ----------------------------------------------------------------------------------------------


def test_an_erased_payload_is_gone_and_the_chain_is_whole() -> None:
    """R5, X3"""
    frame, digest = sample()
    erased = erase(3, frame, [2])
    record = unpack(3, erased)
    assert record.erased
    assert [record.payload(index) for index in range(3)] == [b"abc", b"", None]
    assert record.events == unpack(3, frame).events
    assert digest_of(record) == digest
    assert PAYLOADS[2] not in erased
    assert sha256(PAYLOADS[2]).digest() in erased


def test_erasing_again_adds_to_what_is_erased() -> None:
    frame, digest = sample()
    twice = erase(3, erase(3, frame, [2]), [0, 2])
    record = unpack(3, twice)
    assert [record.payload(index) for index in range(3)] == [None, b"", None]
    assert digest_of(record) == digest
    assert twice == erase(3, frame, {0, 2})


def test_only_what_is_there_can_be_erased() -> None:
    for index in (3, -1):
        with pytest.raises(IndexError):
            erase(3, sample()[0], [index])


# -- the chain --------------------------------------------------------------------------------------------


def chained(count: int) -> tuple[list[tuple[int, bytes]], bytes]:
    frames, digest = [], ORIGIN
    for seq in range(1, count + 1):
        frame, digest = pack(seq, digest, seq, 1, 0, "me", b"", [PUSH], PAYLOADS)
        frames.append((seq, frame))
    return frames, digest


def test_a_whole_chain_is_verified_from_any_point() -> None:
    frames, digest = chained(8)
    assert verify(frames) == (8, digest)
    records = list(follow(frames))
    assert [type(record) for record, _ in records] == [Record] * 8
    assert verify(frames[3:], 3, records[2][1]) == (8, digest)
    assert verify([], 5, digest) == (5, digest)
    frames[4] = (5, erase(5, frames[4][1], [0, 1, 2]))
    assert verify(frames) == (8, digest)


def test_a_flipped_bit_breaks_the_chain() -> None:
    frames, _ = chained(5)
    frame = frames[2][1]
    frames[2] = (3, frame[:-1] + bytes([frame[-1] ^ 1]))
    with pytest.raises(ChainBroken, match="Record 3 fails its checksum"):
        verify(frames)


def test_a_removed_record_breaks_the_chain() -> None:
    frames, _ = chained(5)
    del frames[2]
    with pytest.raises(ChainBroken, match="Record 4 does not follow record 2: record 3 is missing"):
        verify(frames)


def test_swapped_records_break_the_chain() -> None:
    frames, _ = chained(5)
    frames[1], frames[2] = (2, frames[2][1]), (3, frames[1][1])
    with pytest.raises(ChainBroken, match="Record 2 fails its checksum"):
        verify(frames)


@pytest.mark.parametrize(
    "change",
    [
        {"at": 9},
        {"partition": 9},
        {"who": "somebody else"},
        {"events": [msgspec.structs.replace(PUSH, first=8)]},
        {"payloads": [b"abd", b"", b"[1,2]"]},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_rewritten_record_breaks_the_chain_behind_it(change: dict[str, Any]) -> None:
    """Also where whoever rewrote it made the checksum right."""
    frames, _ = chained(5)
    record = unpack(3, frames[2][1])
    fields: dict[str, Any] = {"seq": 3, "prev": record.prev, "at": 3, "partition": 1, "shift": 0, "who": "me"}
    fields |= {"request": b"", "events": [PUSH], "payloads": PAYLOADS}
    frames[2] = (3, pack(**fields)[0])
    verify(frames)
    frames[2] = (3, pack(**(fields | change))[0])
    with pytest.raises(ChainBroken, match="Record 4 does not follow record 3: it names another predecessor"):
        verify(frames)


def test_the_digest_can_be_worked_out_by_hand() -> None:
    """As the format's description says it, without our code."""
    frame, digest = sample()
    size = int.from_bytes(frame[54:58])
    root = sha256(b"".join(sha256(payload).digest() for payload in PAYLOADS)).digest()
    bound = frame[:1] + (3).to_bytes(8) + frame[6:54] + sha256(frame[58 : 58 + size]).digest() + root
    assert digest == sha256(bound).digest()
    assert frame[58 + size :] == b"".join(PAYLOADS)


def test_settled_counts_by_position_survive() -> None:
    """Maps with numbers as keys: JSON would make text of them."""
    event = MessagesSettled(0, "completed", (Run(1, 3, 5),), retry_counts={1: 2, 3: 1})
    created = QueueCreated(1, b"i", "q", None, None, {"retryBackoff": 1.5})
    assert unpack(1, pack(1, ORIGIN, 0, 0, 0, "", b"", [event, created])[0]).events == (event, created)
