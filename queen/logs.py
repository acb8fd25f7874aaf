"""The server's log on standard error: lines for people, or JSON. Whatever a value holds, it stays inside its line:
names and error texts come from clients, and a newline or an escape sequence could forge lines or steer a terminal.
"""

import logging
import sys
from contextlib import suppress
from typing import Any, Final, TextIO

import structlog
from structlog.typing import EventDict, WrappedLogger

from queen.settings import Settings

_MARGIN: Final = "    "


def configure_logging(settings: Settings, file: TextIO | None = None) -> None:
    """Log to `file` (standard error): lines for people on a terminal, else JSON. Tracebacks never show local values."""
    file = sys.stderr if file is None else file
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    console = settings.log_format == "console" or (settings.log_format == "auto" and file.isatty())
    renderer = structlog.dev.ConsoleRenderer(colors=file.isatty(), exception_formatter=structlog.dev.plain_traceback)
    shape: list[Any] = [_contained, renderer] if console else [structlog.processors.JSONRenderer()]
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            *shape,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=_Log(file)),  # type: ignore[arg-type]
        cache_logger_on_first_use=True,
    )
    # Hypercorn logs through the standard library: only what is alarming, in the same shape.
    logging.basicConfig(level=max(level, logging.WARNING), handlers=[_Passed()], force=True)


def printable(text: str) -> str:
    """The text with everything that is no visible character, surrogates included, spelled as Python spells it."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _contained(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """For people: every value on its line, and each line of a traceback behind a margin, where no line begins."""
    for key, value in event.items():
        if key == "exception":
            event[key] = "\n".join(_MARGIN + printable(line) for line in str(value).split("\n"))
        else:
            event[key] = printable(value if isinstance(value, str) else repr(value))
    return event


class _Passed(logging.Handler):
    """Hands on what the standard library's loggers are told."""

    def emit(self, record: logging.LogRecord) -> None:
        """Called by `logging`."""
        structlog.get_logger(record.name).log(record.levelno, record.getMessage(), exc_info=record.exc_info)


class _Log:
    """A file as far as it can be written: a full disk or a closed pipe there must not end the server."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> None:
        """Write, or lose the text."""
        with suppress(OSError, ValueError):
            self._file.write(text)

    def flush(self) -> None:
        """Flush, or lose what is buffered."""
        with suppress(OSError, ValueError):
            self._file.flush()
