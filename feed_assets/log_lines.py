"""Lines that services write to stderr: text for people, or JSON objects for programs that collect logs."""

import json
import logging
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from feed_assets.core.control_characters import printable
from feed_assets.core.secrets import masked

OURS = "feed_assets"
"""The logger above all loggers of feed_assets."""

_COMMAND = "feed-assets"

_make_record = logging.getLogRecordFactory()
_formatter = logging.Formatter()


def write(message: str, level: str = "info", prefix: str = "feed-assets: ") -> None:
    """Write a message of this process to stderr. Escape control characters, except line ends and tabs.

    Only a text line has the `prefix`, and only a JSON line has the `level`.
    """
    if _json_lines.service:
        sys.stderr.write(json_line(datetime.now(UTC), level, _json_lines.service, message))
    else:
        sys.stderr.write(f"{prefix}{printable(message)}\n")


def json_line(moment: datetime, level: str, service: str, message: str) -> str:
    """Return a line with one JSON object: time (UTC, ISO 8601), level, service and message, without secrets.

    The line is ASCII, so no encoding of a stream can break it. A program that decodes it gets no control characters
    either, except line ends and tabs.
    """
    text = printable(masked(message))
    line = {"time": moment.astimezone(UTC).isoformat(timespec="milliseconds"), "level": level.lower()}
    return f"{json.dumps({**line, 'service': printable(service), 'message': text})}\n"


def as_json(service: str) -> None:
    """Write later messages of `write` and of our loggers as JSON lines. A repeated call only changes the service."""
    _json_lines.service = service
    logger = logging.getLogger(OURS)
    logger.addHandler(_json_lines)
    logger.propagate = False  # Otherwise the handlers of Dagster's processes write each line once more.


def escape_records() -> None:
    """Escape control characters in later lines of our loggers, whichever handler writes them."""
    logging.setLogRecordFactory(_escaped_record)


def _escaped_record(*arguments: Any, **options: Any) -> logging.LogRecord:
    """Return a log record. If it is ours, its message and stack trace have no control characters."""
    record = _make_record(*arguments, **options)
    name: str | None = record.name  # `logging.makeLogRecord` makes a record without a name, and then fills it.
    if name and name.partition(".")[0] == OURS:
        with suppress(Exception):  # The handler reports a message that cannot be formatted.
            text = record.getMessage()
            if (escaped := printable(text)) != text:
                record.msg, record.args = escaped, ()
            if record.exc_info:
                record.exc_text = printable(_formatter.formatException(record.exc_info))
    return record


def as_text() -> None:
    """Undo `as_json`: write later messages as text."""
    _json_lines.service = ""
    logger = logging.getLogger(OURS)
    logger.removeHandler(_json_lines)
    logger.propagate = True


def service_of(arguments: Sequence[str]) -> str:
    """Return the name of the service that a command line starts: our first subcommand, or else the program."""
    program = Path(arguments[0] if arguments else "").name
    words = [each for each in arguments[1:] if not each.startswith("-")]
    return words[0] if program == _COMMAND and words else program or "python"


class _JsonLines(logging.Handler):
    """Writes records of our loggers as JSON lines, if a service is set."""

    service = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, with its stack trace if it has one."""
        try:
            moment = datetime.fromtimestamp(record.created, UTC)
            sys.stderr.write(json_line(moment, record.levelname, self.service, self.format(record)))
        except Exception:  # noqa: BLE001 (as in logging's own handlers: a log line must not end its caller)
            self.handleError(record)


_json_lines = _JsonLines()
