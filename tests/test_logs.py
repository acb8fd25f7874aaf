"""What gets into the log, and what can't."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from queen.logs import configure_logging, printable
from queen.settings import Settings

NASTY = [
    "a\nb",
    "a\r\n2026-01-01 [error    ] forged",
    "\x1b[2J\x1b]0;owned\x07",
    "\x00",
    "\x9b31m",
    "\ud800",
    "\u202e",
    "\u2028",
]


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    structlog.reset_defaults()
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


def logged(form: str) -> io.StringIO:
    file = io.StringIO()
    configure_logging(Settings(log_format=form, log_level="debug"), file)
    return file


@pytest.mark.parametrize("text", NASTY)
@pytest.mark.parametrize("form", ["console", "json"])
def test_a_value_stays_on_its_line(form: str, text: str) -> None:
    file = logged(form)
    structlog.get_logger("test").warning(text, queue=text, queues=[text], error=ValueError(text))
    logging.getLogger("elsewhere").error("said %s", text)
    lines = file.getvalue().split("\n")
    assert len(lines) == 3  # two, and what is behind the last newline
    assert all(line.isprintable() for line in lines)
    file.getvalue().encode()
    if form == "json":
        assert json.loads(lines[0])["queue"] == text


@pytest.mark.parametrize("text", NASTY)
@pytest.mark.parametrize("form", ["console", "json"])
def test_a_traceback_begins_no_line(form: str, text: str) -> None:
    file = logged(form)
    try:
        raise RuntimeError(text)
    except RuntimeError:
        structlog.get_logger("test").exception("failed")
        logging.getLogger("elsewhere").exception("failed")
    lines = file.getvalue().rstrip("\n").split("\n")
    assert all(line.isprintable() for line in lines)
    beginnings = [line for line in lines if not line.startswith("    ")]
    assert len(beginnings) == 2
    assert all("failed" in line for line in beginnings)


def test_what_is_visible_stays_as_it_is() -> None:
    assert printable("Bestellung №7 – 注文 🎉 'x'") == "Bestellung №7 – 注文 🎉 'x'"
    assert printable("a\tb\\n") == "a\\tb\\n"
