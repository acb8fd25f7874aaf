"""Times as people write them."""

from datetime import timedelta, timezone

import pytest

from queen.audit.times import When, parse_time
from queen.errors import Invalid
from queen.names import FIRST_INSTANT, LAST_INSTANT, SECOND, check_instant, instant_text, parse_instant

NOW = parse_instant("2026-11-30T12:00:00Z")


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("now", NOW),
        ("-5m", NOW - 300 * SECOND),
        ("-1h30m", NOW - 5400 * SECOND),
        ("-1.5s", NOW - 1_500_000),
        ("-2d", NOW - 172_800 * SECOND),
        ("2026-11-30T12:00:00Z", NOW),
        ("2026-11-30T12:00", NOW),
        ("2026-11-30T13:00+01:00", NOW),
        ("2026-11-30", NOW - 43_200 * SECOND),
        (" 2026-11-30 12:00:00.000001 ", NOW + 1),
    ],
)
def test_an_instant(text: str, at: int) -> None:
    assert parse_time(text, NOW) == When(at)


def test_the_number_of_a_record() -> None:
    assert parse_time("#123", NOW) == When(seq=123)


def test_a_time_without_a_zone_is_of_the_zone_that_is_given() -> None:
    assert parse_time("2026-11-30T14:00", NOW, zone=timezone(timedelta(hours=2))) == When(NOW)


@pytest.mark.parametrize(
    "text", ["", "noon", "5m", "-5", "-5y", "--5m", "#", "#-1", "2026-13-01", "0000-00-00", "#1e3", f"-{'9' * 400}h"]
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(Invalid, match="at: must be an ISO 8601 time"):
        parse_time(text, NOW, "at")


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-14:00", "-99999999999999h"])
def test_a_time_outside_the_years_that_can_be_spelled(text: str) -> None:
    with pytest.raises(Invalid, match="at: "):
        parse_time(text, NOW, "at")


def test_every_number_can_be_spelled_and_what_is_read_is_spelled_as_it_was() -> None:
    first, last = "0001-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z"
    for at in (-(2**200), -(2**63), FIRST_INSTANT - 1, FIRST_INSTANT):
        assert instant_text(at) == first
    for at in (2**200, 2**63 - 1, LAST_INSTANT + 1, LAST_INSTANT):
        assert instant_text(at) == last
    assert (parse_instant(first), parse_instant(last)) == (FIRST_INSTANT, LAST_INSTANT - 999)
    for wrong in (FIRST_INSTANT - 1, LAST_INSTANT + 1, True, 1.0, "now"):
        with pytest.raises(Invalid, match="timestamp: "):
            check_instant(wrong, "timestamp")
