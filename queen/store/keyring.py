"""The key ring (C4): sealing payloads and opening them. The only importer of cryptography; it keeps no state.

A sealed payload is a nonce (12 bytes), the ciphertext and its tag (16 bytes): AES-256-GCM, bound to the message's
id, so that a sealed payload put into another message's place does not open. A key is called by a fingerprint of it, so
a key of the right name is the right key.
"""

import os
from base64 import b64decode, urlsafe_b64decode
from binascii import Error as NotBase64
from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Self

from queen.errors import Invalid, KeyMissing, SealBroken
from queen.names import message_id, uuid_text
from queen.private import read_private, replace_private
from queen.store.format import Record

KEY_BYTES: Final = 32
OVERHEAD: Final = 28
"""By how many bytes a sealed payload is longer."""

_NONCE = 12
_PURPOSE = b"queen payload 1"
_NAMING = b"queen key name 1"


class KeyRing:
    """Keys of 32 bytes: the first seals, all of them open. An empty ring can do neither."""

    def __init__(self, keys: Sequence[bytes] = ()) -> None:
        assert all(len(key) == KEY_BYTES for key in keys), "a key has 32 bytes"
        self._ciphers: dict[str, Any] = {}
        if keys:
            # Only here: a server without keys spends neither the time nor the memory.
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            self._ciphers = {key_name(key): AESGCM(key) for key in keys}

    @classmethod
    def from_text(cls, text: str, where: str) -> Self:
        """Keys in hex or base64, one after another, the current one first; # starts a comment.

        Raises `Invalid` naming `where` (never what stands there) unless all of it is keys, each there once."""
        return cls(read_keys(text, where))

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """The keys in a file, which others must not be able to read. Raises `Invalid` and `OSError`."""
        content = read_private(path)
        try:
            return cls.from_text(content.decode("ascii"), str(path))
        except UnicodeDecodeError:
            raise Invalid(str(path), "is no text of keys") from None

    def __repr__(self) -> str:
        return f"<KeyRing of {len(self._ciphers)}>"  # never a key

    @property
    def current(self) -> str | None:
        """The name of the key that seals, None for an empty ring."""
        return next(iter(self._ciphers), None)

    def __iter__(self) -> Iterator[str]:
        """The names, the current key's first."""
        return iter(self._ciphers)

    @property
    def names(self) -> frozenset[str]:
        """The names of all keys."""
        return frozenset(self._ciphers)

    def seal(self, payload: bytes, id: int) -> bytes:
        """The payload of message `id`, sealed with the current key under a fresh nonce. The ring must have one."""
        # Chance of two equal nonces: one in 2**33 after 2**32 messages under one key, NIST's limit.
        nonce = os.urandom(_NONCE)
        sealed: bytes = self._ciphers[next(iter(self._ciphers))].encrypt(nonce, payload, _bound(id))
        return nonce + sealed

    def open(self, name: str, sealed: bytes, id: int) -> bytes:
        """Undo `seal`. Raises `KeyMissing` where the ring has no key of that name, `SealBroken` where this is not
        what was sealed for message `id`."""
        cipher = self._ciphers.get(name)
        if cipher is None:
            raise KeyMissing(missing(name))
        from cryptography.exceptions import InvalidTag

        with suppress(InvalidTag, ValueError):
            payload: bytes = cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], _bound(id))
            return payload
        raise SealBroken(f"The payload of message {uuid_text(id)} is not what was sealed under key {name}.")


NO_KEYS: Final = KeyRing()


def open_payload(record: Record, index: int, ring: KeyRing) -> tuple[bytes | None, str | None]:
    """The payload of the `index`-th message of a record as its JSON text, or None and why it can't be read.

    Both are None for a payload that is erased."""
    pushed, stored = record.pushed, record.payload(index)
    assert pushed is not None, "a payload belongs to a message"
    if stored is None or pushed.key is None:
        return stored, None
    try:
        return ring.open(pushed.key, stored, message_id(int.from_bytes(pushed.base), index)), None
    except (KeyMissing, SealBroken) as error:
        return None, str(error)


def missing(name: str) -> str:
    """What an asker is told whose message is sealed with a key that is not here."""
    return f"the message is encrypted with key {name}, which has not been given (--encryption-key-file)"


def new_key() -> str:
    """A new key, in hex."""
    return os.urandom(KEY_BYTES).hex()


def add_key(path: Path, key: str) -> None:
    """Make `key` the current one of a key file, which is made if there is none; those in it stay, to read with.

    Raises `Invalid` where the file is no key file, `Conflict` where somebody else is at it, `OSError`."""

    def with_key(old: bytes | None) -> bytes:
        if old is not None:
            KeyRing.from_file(path)
        return key.encode() + b"\n" + (old or b"")

    replace_private(path, with_key)


def read_keys(text: str, where: str) -> list[bytes]:
    """See `KeyRing.from_text`."""
    keys: list[bytes] = []
    for number, word in enumerate(_words(text), 1):
        key = _key(word)
        if key is None:
            raise Invalid(where, f"its key number {number} is not {KEY_BYTES} bytes in hex or base64")
        if key in keys:
            raise Invalid(where, f"its key number {number} stands there twice")
        keys.append(key)
    if not keys:
        raise Invalid(where, f"holds no key; a key is {KEY_BYTES} bytes in hex or base64 ('queen keys new' makes one)")
    return keys


def key_name(key: bytes) -> str:
    """What records call a key: a fingerprint, which tells nothing of it."""
    return sha256(_NAMING + key).hexdigest()[:16]


def _words(text: str) -> Iterator[str]:
    for line in text.splitlines():
        yield from line.partition("#")[0].replace(",", " ").split()


def _key(word: str) -> bytes | None:
    if len(word) == 2 * KEY_BYTES:
        with suppress(ValueError):
            return bytes.fromhex(word)
    padded = word + "=" * (-len(word) % 4)
    with suppress(NotBase64, ValueError):
        key = urlsafe_b64decode(padded) if set(word) & {"-", "_"} else b64decode(padded, validate=True)
        if len(key) == KEY_BYTES:
            return key
    return None


def _bound(id: int) -> bytes:
    return _PURPOSE + id.to_bytes(16)
