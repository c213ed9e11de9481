"""Errors of users' functions and checks, completed with their origin: file and line, or the check's name."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from feed_assets.core.attempts import OF_ITS_OWN
from feed_assets.core.errors import FeedAssetsError, FunctionFailed, FunctionWrong, InvalidDefinition
from feed_assets.core.message_words import text_of
from feed_assets.core.source_lines import line_of, raised_at, with_notes

_LASTING = (ModuleNotFoundError, NameError)
"""Errors that show a mistake in the function: it will fail in every run.

Other errors, and subclasses of these two, may depend on the answer of a service. Examples are a SyntaxError of a
parser, and an UnboundLocalError after a failed call.
"""


def located(error: BaseException, function: Callable[..., Any]) -> BaseException:
    """Return the error to show to the user. If the user's code raised it, its message has file and line.

    `function` is the dataset's function. An error about the function's result names the function's line.
    """
    if isinstance(error, InvalidDefinition):
        error.place = error.place or line_of(function)
    is_theirs = isinstance(error, OF_ITS_OWN) and not isinstance(error, FeedAssetsError)
    place = raised_at(error) if is_theirs and not _is_of_dagster(error) else None
    if place is None:
        return error
    kind = FunctionWrong if type(error) in _LASTING else FunctionFailed
    named = kind(f"{with_notes(place, error)}: {type(error).__name__}: {text_of(error).strip()}")
    named.__cause__ = error
    return named


@contextmanager
def naming_check(name: str) -> Generator[None]:
    """Add the check's name to errors that the check's own functions raise."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, FeedAssetsError):  # Our own errors already name the check.
            error.add_note(f'check "{name}"')
        raise


def _is_of_dagster(error: BaseException) -> bool:
    """Return whether a function raised one of Dagster's errors, which are signals to Dagster to retry or to fail."""
    return type(error).__module__.startswith("dagster")
