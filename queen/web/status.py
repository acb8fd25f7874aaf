"""Which HTTP status an error has, and when its asker may come back. The only place that joins the two worlds (W4)."""

from typing import Final, NamedTuple

from queen.errors import (
    Busy,
    ChainBroken,
    Conflict,
    Corrupt,
    FolderLocked,
    FormatUnknown,
    Invalid,
    KeyMissing,
    NoFolder,
    NotFound,
    Quarantined,
    QueenError,
    QueueFull,
    QueueGone,
    SealBroken,
    ShuttingDown,
    StoreFailed,
    StoreFull,
    TooLarge,
    TransactionRefused,
    Unavailable,
)


class Row(NamedTuple):
    """A status, and the seconds for `Retry-After` where there is a point in coming back."""

    status: int
    retry_after: int | None = None


STATUS: Final[dict[type[QueenError], Row]] = {
    Invalid: Row(400),
    TooLarge: Row(413),
    NotFound: Row(404),
    NoFolder: Row(404),
    Conflict: Row(409),
    QueueGone: Row(409),
    TransactionRefused: Row(409),
    Busy: Row(503, 1),
    QueueFull: Row(429, 1),
    Unavailable: Row(503, 1),
    ShuttingDown: Row(503, 5),
    Quarantined: Row(503, 60),
    KeyMissing: Row(503, 60),
    StoreFull: Row(507, 10),
    StoreFailed: Row(503, 60),
    Corrupt: Row(503),
    ChainBroken: Row(503),
    SealBroken: Row(503),
    FormatUnknown: Row(503),
    FolderLocked: Row(503),
    QueenError: Row(500),
}


def row_of(error: QueenError) -> Row:
    """The row of the error's class, or of the nearest class above it."""
    row = next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)
    if isinstance(error, Busy):
        return Row(row.status, error.retry_after)
    return row
