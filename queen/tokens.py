"""Bearer tokens: who may do what, as a file that `queen tokens` writes and a server reads. Knows no HTTP and no clock.

A token is 256 bits of chance, so nobody finds it from its plain SHA-256: a slow hash, which protects what people choose
themselves, would only slow requests down. The file's own digest finds damage; it is no protection from whoever may
write the file.
"""

import re
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from enum import IntEnum
from hashlib import sha256
from hmac import compare_digest
from os import urandom
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple

import msgspec

from queen.errors import Conflict, Invalid, NotFound
from queen.private import read_private, replace_private

FILE_NAME: Final = "tokens"
"""What the file is called in a data folder."""

_PREFIX: Final = "queen_"  # lets those who search for leaked secrets find ours
_BYTES: Final = 32
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}")


class Role(IntEnum):
    """What a token allows. Each includes those before it."""

    READ = 1
    """Look at everything, payloads included."""
    WRITE = 2
    """Push, take and settle messages."""
    ADMIN = 3
    """Configure, delete, move groups, compact."""

    @property
    def word(self) -> str:
        """As people write it."""
        return self.name.lower()


class Token(NamedTuple):
    """A token as it is kept: `digest` is its SHA-256, `expires` an instant in µs or None."""

    name: str
    role: Role
    digest: bytes
    created: int
    expires: int | None = None

    def expired(self, now: int) -> bool:
        """Whether its time is over."""
        return self.expires is not None and now >= self.expires


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    role: Literal["read", "write", "admin"]
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    created: int
    expires: int | None


class _File(msgspec.Struct, forbid_unknown_fields=True):
    queen_tokens: Literal[1]
    tokens: list[_Row]
    digest: str


_decode: Final = msgspec.json.Decoder(_File, strict=True).decode


def new_token() -> str:
    """A new token, to be shown once."""
    return _PREFIX + urlsafe_b64encode(urandom(_BYTES)).decode().rstrip("=")


def digest_of(token: bytes) -> bytes:
    """What is kept of a token."""
    return sha256(token).digest()


def find(tokens: Sequence[Token], token: bytes) -> Token | None:
    """The one whose secret this is. How long it takes says nothing about how close a wrong one came."""
    wanted = digest_of(token)
    found = None
    for known in tokens:
        if compare_digest(known.digest, wanted):
            found = known
    return found


def read_tokens(path: Path) -> tuple[Token, ...]:
    """The tokens of a file. Raises `Invalid` where it is damaged, malformed or open to others, and `OSError`."""
    return _parsed(read_private(path), path)


def add_token(path: Path, token: Token) -> None:
    """Keep one more. Raises `Invalid` for an unfit name or file, `Conflict` for a name that is taken, `OSError`."""
    if _NAME.fullmatch(token.name) is None:
        raise Invalid("name", "must begin with a letter and have up to 64 of A-Z a-z 0-9 . _ -")

    def added(old: bytes | None) -> bytes:
        tokens = () if old is None else _parsed(old, path)
        if any(known.name == token.name for known in tokens):
            raise Conflict(f"there is a token {token.name} already; revoke it, or take another name")
        return _spelled([*tokens, token])

    replace_private(path, added)


def revoke_token(path: Path, name: str) -> None:
    """Forget the one of that name. Raises `NotFound`, `Invalid` and `Conflict` like `add_token`, `OSError`."""

    def without(old: bytes | None) -> bytes:
        tokens = () if old is None else _parsed(old, path)
        kept = [known for known in tokens if known.name != name]
        if len(kept) == len(tokens):
            raise NotFound(f"there is no token {name!r}")
        return _spelled(kept)

    replace_private(path, without)


def _spelled(tokens: Sequence[Token]) -> bytes:
    rows = [_Row(one.name, one.role.word, one.digest.hex(), one.created, one.expires) for one in tokens]  # type: ignore[arg-type]
    return msgspec.json.format(msgspec.json.encode(_File(1, rows, _checksum(rows)))) + b"\n"


def _parsed(content: bytes, path: Path) -> tuple[Token, ...]:
    try:
        file = _decode(content)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        raise Invalid(str(path), "is no file of tokens; 'queen tokens' writes them, nobody else") from None
    if not compare_digest(file.digest.encode(), _checksum(file.tokens).encode()):
        raise Invalid(str(path), "is damaged, or was changed by something else than 'queen tokens'")
    return tuple(
        Token(row.name, Role[row.role.upper()], bytes.fromhex(row.sha256), row.created, row.expires)
        for row in file.tokens
    )


def _checksum(rows: list[_Row]) -> str:
    return sha256(msgspec.json.encode(rows)).hexdigest()
