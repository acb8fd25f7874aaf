"""The errors that Queen raises, by whose doing they are; this file knows no HTTP (`web/status.py` maps them).

The asker's fault: `Invalid`, `TooLarge`, `NotFound`, `Conflict`. The moment's: `Busy`, `Unavailable`.
The disk's: `Corrupt`. A bug of ours is an `AssertionError` and never a `QueenError`.
"""

import traceback
from collections.abc import Iterator


class QueenError(Exception):
    """Base of every refusal and failure that a caller may have to handle. `str(error)` is a full sentence."""


class Invalid(QueenError):
    """The request is wrong. `where` names the field, for example ``items[3].queue``."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}")
        self.where = where
        self.reason = reason


class TooLarge(QueenError):
    """The request is bigger than a configured limit."""


class NotFound(QueenError):
    """What the request names does not exist."""


class Conflict(QueenError):
    """The state refuses: already settled otherwise, never leased, or leased to somebody else (A3, A4)."""


class TransactionRefused(Conflict):
    """The transaction's operation at `index` would be refused, so nothing of it was done. `reason` is "not_found" or
    "conflict"."""

    def __init__(self, index: int, reason: str, sentence: str) -> None:
        super().__init__(f"operations[{index}]: {sentence}")
        self.index = index
        self.reason = reason


class QueueGone(Conflict):
    """The queue, or the consumer group, was deleted while the request was on its way; nothing of it was done."""


class Busy(QueenError):
    """Try again after `retry_after` seconds: a bound is reached that moves by itself."""

    def __init__(self, sentence: str, retry_after: int = 1) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after


class QueueFull(Busy):
    """A push would exceed the queue's `maxSize` (P6)."""


class Unavailable(QueenError):
    """The server can't do this now; nothing was changed unless the text says that the outcome is unknown."""


class ShuttingDown(Unavailable):
    """The broker is closing and takes no new work."""


class Quarantined(Unavailable):
    """The partition's actor crashed three times in a row and rests until an operator looks at it."""


class KeyMissing(Unavailable):
    """A message is encrypted, or to be, and the server does not have the key (C4)."""


class StoreFull(Unavailable):
    """No room on the disk or in the map for a push; acknowledgements and deletions go on from the reserve."""


class StoreFailed(Unavailable):
    """A commit's outcome is unknown (a failed sync, say): this process must not write again."""


class Corrupt(QueenError):
    """What is on the disk is not what was written, or not ours."""


class ChainBroken(Corrupt):
    """A record does not follow from its predecessor, or fails its checksum."""


class SealBroken(Corrupt):
    """An encrypted payload is not what was sealed for this message."""


class FormatUnknown(Corrupt):
    """The folder holds something else than a store of ours, or one of a newer version (X4)."""


class FolderLocked(QueenError):
    """Another process serves this data folder."""


class NoFolder(NotFound):
    """There is no data folder there."""


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors that a group is made of; of any other error, itself."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def named(error: BaseException) -> str:
    """An error in one line: its kind and what it says, of a group all of them."""
    return "; ".join(f"{type(leaf).__name__}: {leaf}" for leaf in leaves(error))


def traced(error: BaseException) -> str:
    """An error with its traceback, for a log: without the values of variables, which may be payloads."""
    return "".join(traceback.format_exception(error))
