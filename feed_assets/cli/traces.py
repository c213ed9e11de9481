"""Errors in a line: known ones in their own words, all others with their place; `-v` shows where they come from."""

import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated

import typer

from feed_assets.cli.terminal import echo
from feed_assets.core.errors import FeedAssetsError, ServiceUnavailable
from feed_assets.core.secrets import masked

_LIBRARIES = ("alembic", "pydantic", "pydantic_core", "sqlalchemy")
"""Libraries whose errors are about data or a database, not our code; by name, as most commands load none of them."""

_WANTED: set[str] = set()


def want(value: bool) -> bool:
    """Print stack traces from now on, if somebody requests them."""
    if value:
        _WANTED.add("traces")
    return value


Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", callback=want, help="Print the stack traces of errors, on stderr.")
]


def are_wanted() -> bool:
    """Return whether stack traces are to be printed."""
    return bool(_WANTED)


@contextmanager
def errors_in_a_line() -> Generator[None]:
    """End the process by an error: one line on stderr and exit code 1, or 4 if a service is not there."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 (it is printed, and ends the process)
        if are_wanted():
            echo(masked("".join(traceback.format_exception(error))), err=True, nl=False)
        echo(f"feed-assets: {_error_text(error)}", err=True)
        sys.exit(4 if isinstance(error, ServiceUnavailable) else 1)


def _error_text(error: Exception) -> str:
    """Return an error in its own words, if it is ours or the system's; a library's has many lines, maybe a secret."""
    if isinstance(error, FeedAssetsError | OSError):
        return str(error)
    line = f"{type(error).__name__}: {masked(' '.join(str(error).split()))}"
    return line if type(error).__module__.partition(".")[0] in _LIBRARIES else f"{line} ({_place(error)})"


def _place(error: Exception) -> str:
    """Return where an unexpected error was raised, and how to see more."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    hint = "" if are_wanted() else "; `feed-assets -v …` prints its stack trace"
    return f"{frame.filename}:{frame.lineno}{hint}"
