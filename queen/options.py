"""Queue options (C1-C3, Z8): one row per option, from which validation, defaults and the wire form follow."""

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec

from queen.errors import Invalid

STRICT: Final = "strict"
RELAXED: Final = "relaxed"

# Seconds and milliseconds stay below 2**31 (68 years), so that every deadline fits 64 bits of microseconds.
_MAX_SPAN = 2**31 - 1
_MAX_INTEGER = 2**53 - 1


class QueueOptions(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """All options of one queue. The wire names are the camelCase of these; `OPTIONS` says what each one means."""

    lease_time: int = 300
    retry_limit: int = 3
    retry_delay: int = 0
    retry_backoff: float = 1
    priority: int = 0
    max_size: int = 0
    ttl: int = 0
    dlq_after_max_retries: bool = False
    delayed_processing: int = 0
    window_buffer: int = 0
    retention_seconds: int = 0
    completed_retention_seconds: int = 0
    retention_enabled: bool = False
    encryption_enabled: bool = False
    max_wait_time_seconds: int = 0
    ordering: str = STRICT


class Option(NamedTuple):
    """What `configure` accepts for one option. `low` and `high` bound numbers, both ends included."""

    name: str
    kind: Literal["integer", "number", "boolean", "ordering"]
    unit: str
    meaning: str
    low: int = 0
    high: int = _MAX_SPAN


OPTIONS: Final = {
    option.name: option
    for option in (
        Option("leaseTime", "integer", "s", "how long a popped message stays with its consumer", low=1),
        Option("retryLimit", "integer", "", "how often a failed message is tried again; 0: never"),
        Option("retryDelay", "integer", "ms", "wait before a failed message is available again"),
        Option(
            "retryBackoff",
            "number",
            "",
            f"factor on retryDelay for each further retry; the delay is {_MAX_SPAN} ms at most",
            low=1,
            high=1000,
        ),
        Option(
            "priority",
            "integer",
            "",
            "order among the queues of one filter, highest first",
            low=-_MAX_INTEGER,
            high=_MAX_INTEGER,
        ),
        Option("maxSize", "integer", "messages", "bound on pending + processing; 0: none", high=_MAX_INTEGER),
        Option("ttl", "integer", "s", "age at which a pending message is given up; 0: never"),
        Option("dlqAfterMaxRetries", "boolean", "", "given-up messages become dead letters"),
        Option("delayedProcessing", "integer", "s", "delay between a push and its first delivery"),
        Option("windowBuffer", "integer", "s", "silence that a partition waits for before it delivers"),
        Option("retentionSeconds", "integer", "s", "age at which pending messages are deleted; 0: never"),
        Option("completedRetentionSeconds", "integer", "s", "time from settling to deletion; 0: never"),
        Option("retentionEnabled", "boolean", "", "turns both retentions on"),
        Option(
            "encryptionEnabled",
            "boolean",
            "",
            "payloads pushed from now on are encrypted on disk; needs `QUEEN_ENCRYPTION_KEY` or a key file",
        ),
        Option("maxWaitTimeSeconds", "integer", "s", "cap on the timeout of long polls; 0: none"),
        Option("ordering", "ordering", "", "strict: one lease at a time in a partition; relaxed: side by side"),
    )
}

DEFAULTS: Final = QueueOptions()


def merge(current: QueueOptions, changes: Mapping[str, Any]) -> QueueOptions:
    """`current` with `changes` in their wire names; a `None` resets its option (C1). Raises `Invalid`."""
    values = as_dict(current)
    defaults = as_dict(DEFAULTS)
    for name, value in changes.items():
        option = OPTIONS.get(name)
        if option is None:
            raise Invalid(f"options.{name}", f"unknown option; known are {', '.join(OPTIONS)}")
        values[name] = defaults[name] if value is None else _checked(option, value)
    return msgspec.convert(values, QueueOptions)


def as_dict(options: QueueOptions) -> dict[str, Any]:
    """Every option under its wire name, defaults included; whole numbers without a fraction, however they came."""
    values = {
        name: getattr(options, field)
        for name, field in zip(options.__struct_encode_fields__, options.__struct_fields__, strict=True)
    }
    return {
        name: int(value) if isinstance(value, float) and value.is_integer() else value for name, value in values.items()
    }


def changed(options: QueueOptions) -> dict[str, Any]:
    """The options that differ from their defaults, under their wire names: what events store."""
    result: dict[str, Any] = msgspec.to_builtins(options)
    return result


def _checked(option: Option, value: Any) -> Any:
    where = f"options.{option.name}"
    if option.kind == "boolean":
        if not isinstance(value, bool):
            raise Invalid(where, "must be true or false")
        return value
    if option.kind == "ordering":
        if value not in (STRICT, RELAXED):
            raise Invalid(where, f"must be '{STRICT}' or '{RELAXED}'")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Invalid(where, f"must be {'an integer' if option.kind == 'integer' else 'a number'}")
    if option.kind == "integer" and not isinstance(value, int):
        raise Invalid(where, "must be an integer")
    if not option.low <= value <= option.high:
        raise Invalid(where, f"must be from {option.low} to {option.high}")
    return value
