"""Times as people and scripts write them: ISO 8601, `now`, `-5m`, or the number of a record as `#123`. Pure."""

import re
from datetime import UTC, datetime, tzinfo
from typing import Final, NamedTuple

from queen.errors import Invalid
from queen.names import SECOND, check_instant, parse_instant

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_AGO = re.compile(r"-(?:\d+(?:\.\d+)?[smhdw])+")
_SPAN = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_SEQ = re.compile(r"#(\d{1,19})")

FORMS: Final = "an ISO 8601 time (UTC where it names no zone), 'now', '-5m', '-1h30m', or a record's number as '#123'"


class When(NamedTuple):
    """An instant in µs, or the number of a record: one of the two."""

    at: int = 0
    seq: int | None = None


def parse_time(text: str, now: int, where: str = "time", zone: tzinfo = UTC) -> When:
    """Read one. `now` is what "now" and "-5m" count from; `zone` is that of a time without one.

    Raises `Invalid` naming `where`."""
    stripped = text.strip()
    if stripped == "now":
        return When(now)
    if match := _SEQ.fullmatch(stripped):
        return When(seq=int(match[1]))
    try:
        if _AGO.fullmatch(stripped):
            ago = sum(round(float(count) * _UNITS[unit] * SECOND) for count, unit in _SPAN.findall(stripped))
            return When(check_instant(now - ago, where))
        moment = datetime.fromisoformat(stripped)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=zone)
        return When(parse_instant(moment.isoformat()))
    except (ValueError, OverflowError):
        raise Invalid(where, f"must be {FORMS}; is {text!r}") from None
