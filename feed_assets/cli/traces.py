"""Errors in one line: known errors in their own words, other errors with the place in the code.

The option `-v` adds stack traces.
"""

import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Annotated

import typer

from feed_assets import log_lines
from feed_assets.core.errors import FeedAssetsError, InvalidSetting, SecretUnavailable, ServiceUnavailable
from feed_assets.core.secrets import masked

_LIBRARIES = ("alembic", "pydantic", "pydantic_core", "sqlalchemy")
"""Libraries whose errors concern data or a database, not our code.

The list has only names, because few commands load these libraries.
"""

_WANTED: set[str] = set()


def want(value: bool) -> bool:
    """Print stack traces from now on, if `value` is set."""
    if value:
        _WANTED.add("traces")
    return value


Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", callback=want, help="Print the stack traces of errors, on stderr.")
]


def are_wanted() -> bool:
    """Return whether the user wants stack traces."""
    return bool(_WANTED)


@contextmanager
def errors_in_a_line() -> Generator[None]:
    """End the process on an error: one line on stderr, exit code 1, or 4 if a service is not available."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 (it is printed, and ends the process)
        _read_form_of_lines()
        if are_wanted():
            log_lines.write(masked("".join(traceback.format_exception(error))).rstrip("\n"), "debug", prefix="")
        log_lines.write(_error_text(error), "error")
        sys.exit(4 if isinstance(error, ServiceUnavailable) else 1)


def _read_form_of_lines() -> None:
    """Read the settings, which say whether lines are JSON: the command may have failed before it read them."""
    from feed_assets.settings import settings

    with suppress(InvalidSetting, SecretUnavailable):  # The command's own error reports this.
        settings()


def _error_text(error: Exception) -> str:
    """Return an error's own words if it is ours or the system's. For other errors, return one line without secrets."""
    if isinstance(error, FeedAssetsError | OSError):
        return str(error)
    line = f"{type(error).__name__}: {masked(' '.join(str(error).split()))}"
    return line if type(error).__module__.partition(".")[0] in _LIBRARIES else f"{line} ({_place(error)})"


def _place(error: Exception) -> str:
    """Return where an unexpected error was raised, and how to see its stack trace."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    hint = "" if are_wanted() else "; `feed-assets -v …` prints its stack trace"
    return f"{frame.filename}:{frame.lineno}{hint}"
