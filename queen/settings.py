"""Server settings: one row per setting, from which flags, environment variables, ranges and help follow.

Embedders need none of these; queue options are in `options.py`.
"""

from typing import Any, Final, Literal, NamedTuple

import msgspec

KIB = 1024
MIB = 1024 * KIB


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How a server runs. `SETTINGS` says what each one means."""

    data: str = "./queen-data"
    host: str = "127.0.0.1"
    port: int = 6632
    reserve: int = 64 * MIB
    compact_every: float = 0.0
    encryption_key_file: str = ""
    token_file: str = ""
    allow_anonymous: bool = False
    allowed_hosts: str = ""
    allowed_origins: str = ""
    certfile: str = ""
    keyfile: str = ""
    max_body: int = 10 * MIB
    max_header: int = 16 * KIB
    body_time: float = 30.0
    keep_alive: float = 75.0
    write_time: float = 30.0
    drain_time: float = 4.0
    ping_time: float = 30.0
    max_sockets: int = 1000
    fast_lane: bool = True
    log_level: str = "info"
    log_format: str = "auto"

    @property
    def max_target(self) -> int:
        """Bytes of a request's target at most."""
        return self.max_header // 2


class Setting(NamedTuple):
    """One setting. `low` and `high` bound numbers, both ends included."""

    name: str
    meaning: str
    low: float = 0
    high: float = 2**31
    choices: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        """The command line option."""
        return "--" + self.name.replace("_", "-")

    @property
    def env(self) -> str:
        """The environment variable; a flag wins over it."""
        return "QUEEN_" + self.name.upper()

    @property
    def default(self) -> Any:
        """The value that is used when nobody says otherwise."""
        return getattr(DEFAULTS, self.name)

    @property
    def kind(self) -> Literal["text", "integer", "number", "boolean"]:
        """What may stand there."""
        value = self.default
        if isinstance(value, bool):
            return "boolean"
        if isinstance(value, int):
            return "integer"
        return "number" if isinstance(value, float) else "text"


DEFAULTS: Final = Settings()

SETTINGS: Final = (
    Setting("data", "folder that holds everything; made if it isn't there"),
    Setting("host", "address or host name to listen on"),
    Setting("port", "TCP port to listen on; 0 takes a free one", high=65535),
    Setting("reserve", "bytes of the disk that pushes leave free for acknowledgements and deletions", high=2**50),
    Setting("compact_every", "hours between compactions of the file; 0: never by itself", high=24 * 366),
    Setting("encryption_key_file", "file with the keys for queues with encryptionEnabled, the current one first"),
    Setting("token_file", "file with the tokens; left empty, `tokens` in the data folder, if there is one"),
    Setting("allow_anonymous", "listen beyond this machine although there are no tokens"),
    Setting("allowed_hosts", "names that requests may call this server by, beside this machine's own; `*`: any"),
    Setting("allowed_origins", "origins whose pages may use this server, such as `https://app.example`; `*`: any"),
    Setting("certfile", "PEM file with the certificate (and its chain): the server speaks TLS"),
    Setting("keyfile", "PEM file with the certificate's key, where it isn't in the same file"),
    Setting("max_body", "bytes of a request's body at most; more is answered 413", low=KIB, high=64 * MIB),
    Setting(
        "max_header", "bytes of a request's line and headers at most; more is answered 431 or 414", low=KIB, high=MIB
    ),
    Setting("body_time", "seconds in which a request's body must have arrived; later is answered 408", low=0.01),
    Setting("keep_alive", "seconds after which a connection without a request is closed", low=0.01),
    Setting("write_time", "seconds in which a client must take the next part of an answer", low=0.01),
    Setting("drain_time", "seconds that requests in flight get to finish when the server stops", low=0.01, high=60),
    Setting(
        "ping_time", "seconds between pings to a WebSocket; one that has not answered by the next is closed", low=0.01
    ),
    Setting("max_sockets", "WebSockets at most; more are answered 503", low=1),
    Setting("fast_lane", "answer push, pop and ack ahead of the web framework; off, it serves them as well"),
    Setting("log_level", "what is logged", choices=("debug", "info", "warning", "error")),
    Setting(
        "log_format", "console, json, or auto: console on a terminal, else json", choices=("auto", "console", "json")
    ),
)
