"""The key ring (C4): which texts are keys, what opens what, and who may look into a key file."""

from base64 import b64encode, urlsafe_b64encode
from pathlib import Path

import pytest

from queen.errors import Conflict, Invalid, KeyMissing, SealBroken
from queen.events import MessagesPushed
from queen.names import message_id
from queen.store.format import ORIGIN, Record, erase, pack, unpack
from queen.store.keyring import OVERHEAD, KeyRing, add_key, key_name, new_key, open_payload, read_keys

KEY, OTHER = bytes(range(32)), bytes(range(100, 132))
ID = 0x0190_0000_0000_7000_8000_0000_0000_0001


@pytest.mark.parametrize(
    "text",
    [
        KEY.hex(),
        KEY.hex().upper(),
        b64encode(KEY).decode(),
        b64encode(KEY).decode().rstrip("="),
        f"\n# made on Monday\n  {KEY.hex()}  # current\n\n",
    ],
)
def test_a_key_is_32_bytes_in_hex_or_base64(text: str) -> None:
    assert read_keys(text, "K") == [KEY]


def test_url_safe_base64_is_base64() -> None:
    key = b"\xfb\xff" * 16
    assert read_keys(urlsafe_b64encode(key).decode(), "K") == [key]


@pytest.mark.parametrize("between", ["\n", ",", " ", ", "])
def test_the_first_of_several_keys_is_current(between: str) -> None:
    ring = KeyRing.from_text(KEY.hex() + between + b64encode(OTHER).decode(), "K")
    assert ring.current == key_name(KEY)
    assert list(ring) == [key_name(KEY), key_name(OTHER)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  \n# nothing\n",
        "secret",
        KEY.hex()[:-2],
        KEY.hex() + "00",
        "g" + KEY.hex()[1:],
        b64encode(KEY[:31]).decode(),
        b64encode(KEY + b"x").decode(),
        KEY.hex() + "\nsecret",
        KEY.hex() + "\n" + b64encode(KEY).decode(),
        "ключ",
    ],
)
def test_anything_else_is_refused_without_being_repeated(text: str) -> None:
    """A malformed key must not mean plain text, and must not be shown to who reads the log."""
    with pytest.raises(Invalid, match=r"^K: ") as refusal:
        KeyRing.from_text(text, "K")
    for word in text.split():
        if word not in ("#", "nothing"):
            assert word not in str(refusal.value)


def test_what_is_sealed_opens_for_its_message_alone() -> None:
    ring = KeyRing([KEY])
    name = key_name(KEY)
    sealed = ring.seal(b'{"a": 1}', ID)
    assert len(sealed) == len(b'{"a": 1}') + OVERHEAD
    assert b'"a"' not in sealed
    assert ring.open(name, sealed, ID) == b'{"a": 1}'
    with pytest.raises(SealBroken):
        ring.open(name, sealed, ID + 2)
    for changed in (sealed[:-1], sealed[:5], b"", sealed + b"x", bytes([sealed[0] ^ 1]) + sealed[1:]):
        with pytest.raises(SealBroken):
            ring.open(name, changed, ID)


def test_every_seal_has_a_nonce_of_its_own() -> None:
    ring = KeyRing([KEY])
    assert len({ring.seal(b"1", ID)[:12] for _ in range(1000)}) == 1000


def test_a_key_that_is_not_there_opens_nothing() -> None:
    sealed = KeyRing([KEY]).seal(b"1", ID)
    for ring in (KeyRing([OTHER]), KeyRing()):
        with pytest.raises(KeyMissing):
            ring.open(key_name(KEY), sealed, ID)
    with pytest.raises(SealBroken):
        KeyRing([OTHER]).open(key_name(OTHER), sealed, ID)


def test_a_ring_shows_no_key() -> None:
    assert KEY.hex() not in repr(KeyRing([KEY]))
    assert key_name(KEY) not in KEY.hex()


def record(key: str | None, *payloads: bytes) -> Record:
    pushed = MessagesPushed(1, ID.to_bytes(16), tuple(map(len, payloads)), key=key)
    return unpack(1, pack(1, ORIGIN, 1, 1, 0, "who", b"", [pushed], payloads)[0])


def test_open_payload_gives_the_text_or_says_why_not() -> None:
    """C4: what a list shows for a message that can't be read."""
    ring = KeyRing([KEY])
    stored = record(key_name(KEY), ring.seal(b"1", message_id(ID, 0)), ring.seal(b"2", message_id(ID, 5)))
    assert open_payload(stored, 0, ring) == (b"1", None)
    payload, error = open_payload(stored, 1, ring)
    assert payload is None
    assert error is not None
    assert "is not what was sealed" in error
    payload, error = open_payload(stored, 0, KeyRing())
    assert payload is None
    assert error is not None
    assert key_name(KEY) in error
    assert open_payload(record(None, b"1"), 0, KeyRing()) == (b"1", None)


def test_an_erased_payload_has_no_error() -> None:
    frame = pack(1, ORIGIN, 1, 1, 0, "who", b"", [MessagesPushed(1, ID.to_bytes(16), (1,), key="k")], [b"1"])[0]
    assert open_payload(unpack(1, erase(1, frame, [0])), 0, KeyRing()) == (None, None)


# -- key files ----------------------------------------------------------------------------------------------


def test_a_key_file_is_made_for_its_owner_alone_and_grows_at_the_front(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    first, second = new_key(), new_key()
    add_key(path, first)
    assert path.stat().st_mode & 0o777 == 0o600
    add_key(path, second)
    ring = KeyRing.from_file(path)
    assert list(ring) == [key_name(bytes.fromhex(second)), key_name(bytes.fromhex(first))]
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["keys"]


@pytest.mark.parametrize(
    ("mode", "refused"), [(0o600, False), (0o440, False), (0o644, True), (0o620, True), (0o602, True)]
)
def test_a_key_file_that_others_can_read_or_write_is_refused(tmp_path: Path, mode: int, refused: bool) -> None:
    path = tmp_path / "keys"
    path.write_text(KEY.hex())
    path.chmod(mode)
    if refused:
        with pytest.raises(Invalid, match="open to others"):
            KeyRing.from_file(path)
    else:
        assert KeyRing.from_file(path).current == key_name(KEY)


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes(b"\xff\xfe")
    path.chmod(0o600)
    with pytest.raises(Invalid):
        add_key(path, new_key())
    assert path.read_bytes() == b"\xff\xfe"


def test_two_changes_at_once_do_not_mix(tmp_path: Path) -> None:
    (tmp_path / "keys.new").write_text("")
    with pytest.raises(Conflict):
        add_key(tmp_path / "keys", new_key())
    assert not (tmp_path / "keys").exists()
