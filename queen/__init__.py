"""Queen: a durable message queue, as a server and as a library for trio applications."""

from queen.broker import Broker, QueueConfiguration
from queen.clock import TrioClock
from queen.condition import Health, Readiness
from queen.consumer import Consumer
from queen.errors import (
    Busy,
    ChainBroken,
    Conflict,
    Corrupt,
    FolderLocked,
    FormatUnknown,
    Invalid,
    KeyMissing,
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
from queen.leased import LeasedMessage
from queen.messages import Acknowledgement, Caller, Delivery, Message, NewMessage, StoredMessage, Wanted
from queen.notices import Notice
from queen.opening import open_broker
from queen.options import QueueOptions
from queen.replies import Receipt, Settlement
from queen.reply import Reply
from queen.store.keyring import KeyRing

__all__ = [
    "Acknowledgement",
    "Broker",
    "Busy",
    "Caller",
    "ChainBroken",
    "Conflict",
    "Consumer",
    "Corrupt",
    "Delivery",
    "FolderLocked",
    "FormatUnknown",
    "Health",
    "Invalid",
    "KeyMissing",
    "KeyRing",
    "LeasedMessage",
    "Message",
    "NewMessage",
    "NotFound",
    "Notice",
    "Quarantined",
    "QueenError",
    "QueueConfiguration",
    "QueueFull",
    "QueueGone",
    "QueueOptions",
    "Readiness",
    "Receipt",
    "Reply",
    "SealBroken",
    "Settlement",
    "ShuttingDown",
    "StoreFailed",
    "StoreFull",
    "StoredMessage",
    "TooLarge",
    "TransactionRefused",
    "TrioClock",
    "Unavailable",
    "Wanted",
    "open_broker",
]
