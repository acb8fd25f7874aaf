"""Who may ask for what: tokens and their roles, and what pages of other sites may make a browser do.

Both lanes ask `Access.identify` before anything else; whether the role suffices is asked where the route is known. What
role a route needs stands in its row of `contract_*.py` alone.
"""

import os
from collections.abc import Callable
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from typing import Final, NamedTuple

import structlog
import trio

from queen.errors import Invalid
from queen.settings import Settings
from queen.tokens import FILE_NAME, Role, Token, find, read_tokens
from queen.web.exchange import Answer, Headers, refusal

log = structlog.get_logger("queen.web")

_LOOK_EVERY: Final = 0.5
_CACHED: Final = 1024
_READ_BY_US: Final = frozenset({b"host", b"origin", b"sec-fetch-site", b"authorization"})
_REALM: Final = b'Bearer realm="queen"'


class Permit(NamedTuple):
    """What an asker may do: everything up to `role`. `token` is theirs, None where nobody has to show one; `because`
    explains a role that is less than it would be."""

    role: Role
    token: Token | None = None
    because: str = ""

    def who(self, address: str) -> str:
        """What the event log calls the asker (X1)."""
        return address if self.token is None else self.token.name

    def refusal(self, needed: Role | None) -> Answer | None:
        """403 where the role does not suffice, else None."""
        if needed is None or self.role >= needed:
            return None
        if self.token is None:
            return refusal(403, self.because)
        sentence = f"this needs the role {needed.word}; the token {self.token.name} has {self.role.word}"
        scope = f'{_REALM.decode()}, error="insufficient_scope", scope="{needed.word}"'.encode()
        return refusal(403, sentence, ((b"www-authenticate", scope),))


EVERYTHING: Final = Permit(Role.ADMIN)
NEEDED: Final = refusal(
    401, "a token is needed, in the header Authorization: Bearer TOKEN", ((b"www-authenticate", _REALM),)
)
"""What `identify` answers where no token is shown but one is needed. A WebSocket may still send it."""


class Access:
    """The tokens as they are now, and the rules about hosts and origins. `now` gives the wall clock's µs."""

    def __init__(self, settings: Settings, now: Callable[[], int]) -> None:
        self._given = bool(settings.token_file)
        self._path = Path(settings.token_file or Path(settings.data) / FILE_NAME)
        self._now = now
        self.tls = bool(settings.certfile)
        """Whether the server is reached over TLS."""
        self._hosts = frozenset(_words(settings.allowed_hosts))
        self._origins = frozenset(_words(settings.allowed_origins))
        self._local = True
        self._tokens: tuple[Token, ...] = ()
        self._known: dict[bytes, Permit] = {}
        self._seen: object = None
        self._fault: str | None = None
        self.closed = False
        """Whether a token is needed. Once so, it stays so: a file that vanishes opens nothing."""
        self._changed = trio.Event()

    # -- the file -------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Read the file for the first time. Raises `Invalid` and `OSError` rather than to begin with doubts."""
        self._seen = self._look()
        if self._seen is None and not self._given:
            return
        self.closed = True
        self._tokens = read_tokens(self._path)

    async def watch(self) -> None:
        """Take up changes of the file, until cancelled."""
        while True:
            await trio.sleep(_LOOK_EVERY)
            self.refresh()

    def refresh(self) -> None:
        """Read the file if it has changed. Where that fails, nobody gets in until it succeeds."""
        seen = self._look()
        if seen == self._seen:
            return
        self._seen = seen
        self._known.clear()
        self._tokens, self._fault, self.closed = (), None, True
        try:
            self._tokens = read_tokens(self._path)
        except (Invalid, OSError) as error:
            self._fault = str(error)
            log.error("the tokens can't be read, so nobody gets in", reason=self._fault)
        else:
            log.info("tokens taken up", names=[token.name for token in self._tokens])
        self._changed.set()
        self._changed = trio.Event()

    def _look(self) -> object:
        """What changes whenever the file does; None without a file."""
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return None
        except OSError as error:
            return error.errno
        return found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_mode

    # -- asking ---------------------------------------------------------------------------------------------

    def listen_on(self, addresses: list[str]) -> None:
        """Say where the server listens: where only this machine can reach it, hosts are looked at."""
        self._local = all(map(is_loopback, addresses))

    @property
    def fault(self) -> str | None:
        """Why nobody gets in, None where tokens can be read."""
        return self._fault

    @property
    def local(self) -> bool:
        """Whether only this machine can reach the server."""
        return self._local

    def identify(self, headers: Headers) -> Permit | Answer:
        """What these headers (names in lower case) allow, or the refusal: 401, 403; 503 while tokens can't be read."""
        host = origin = site = None
        shown: bytes | None = None
        for name, value in headers:
            if name not in _READ_BY_US:
                continue
            if name == b"host":
                host = value
            elif name == b"origin":
                origin = value
            elif name == b"sec-fetch-site":
                site = value
            elif shown is not None:
                return unknown()
            else:
                shown = value
        if self.closed:
            if origin is not None and not self._origin_fits(origin, host):
                return refusal(403, f"pages of {_shown(origin)} may not ask here; --allowed-origins says which may")
            return self.recognise(shown)
        if self._local and host is not None and not self._host_fits(host):
            return refusal(403, f"this server is not called {_shown(host)}; --allowed-hosts says what it is called")
        foreign = site == b"cross-site" if origin is None else not self._origin_fits(origin, host)
        if foreign:
            page = "pages of other sites" if origin is None else f"pages of {_shown(origin)}"
            return Permit(Role.READ, None, f"{page} may only look here; --allowed-origins says which may do more")
        return EVERYTHING

    def recognise(self, shown: bytes | None) -> Permit | Answer:
        """What the value of an `Authorization` header allows, or the refusal."""
        if self._fault is not None:
            return refusal(503, "the server can't read its tokens, so nobody gets in until it can")
        if shown is None:
            return NEEDED
        permit = self._known.get(shown)
        if permit is None:
            scheme, _, secret = shown.partition(b" ")
            token = find(self._tokens, secret.strip(b" ")) if scheme.lower() == b"bearer" else None
            if token is None:
                return unknown()
            permit = Permit(token.role, token)
            if len(self._known) >= _CACHED:
                self._known.clear()  # the same token in ever new spellings
            self._known[shown] = permit
        assert permit.token is not None
        if permit.token.expired(self._now()):
            return unknown(f"the token {permit.token.name} has expired")
        return permit

    async def ended(self, permit: Permit) -> None:
        """Return when what was granted holds no more: the token is revoked or expired, or one is needed now."""
        while permit.token in self._tokens if self.closed else permit.token is None:
            changed = self._changed
            left = float("inf")
            if permit.token is not None and permit.token.expires is not None:
                left = (permit.token.expires - self._now()) / 1_000_000
                if left <= 0:
                    return
            with trio.move_on_after(min(left, 3600)):
                await changed.wait()

    def _host_fits(self, host: bytes) -> bool:
        name = _host_name(host)
        return is_loopback(name) or name in self._hosts or "*" in self._hosts

    def _origin_fits(self, origin: bytes, host: bytes | None) -> bool:
        text = origin.decode("latin-1").lower()
        if text in self._origins or "*" in self._origins:
            return True
        authority = text.partition("://")[2]
        if host is not None and authority == host.decode("latin-1").lower():
            return True
        return self._local and is_loopback(_host_name(authority.encode("latin-1")))


def unknown(sentence: str = "the token is not known here") -> Answer:
    """401 for a token that is shown and no good."""
    return refusal(401, sentence, ((b"www-authenticate", _REALM + b', error="invalid_token"'),))


@lru_cache(maxsize=256)
def is_loopback(name: str) -> bool:
    """Whether a host name or address means this machine whoever asks: no name server has a say in it."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=256)
def _host_name(host: bytes) -> str:
    """Host without port, in lower case, and without the brackets of IPv6."""
    text = host.decode("latin-1").lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0]


def _shown(value: bytes) -> str:
    return repr(value[:200].decode("latin-1"))


def _words(text: str) -> list[str]:
    return text.lower().replace(",", " ").split()
