"""Name the file and line of the user's function or check that an error is from."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from feed_assets.core.attempts import OF_ITS_OWN
from feed_assets.core.errors import FeedAssetsError, FunctionFailed, FunctionWrong, InvalidDefinition
from feed_assets.core.message_words import text_of
from feed_assets.core.source_lines import line_of, raised_at, with_notes

_LASTING = (ModuleNotFoundError, NameError)
"""Mistakes of a function that every other run of it repeats. Others, and classes derived from these, may be due to a
service's answer: a parser's SyntaxError, a name that is unbound since a call failed.
"""


def located(error: BaseException, function: Callable[..., Any]) -> BaseException:
    """Return the error of a run as its user reads it: with file and line, if it is from the user's code.

    `function` is the dataset's own, which is named for a result that is not as declared.
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
    """Note on what a check's own functions raise which check it was."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, FeedAssetsError):  # Ours name it themselves.
            error.add_note(f'check "{name}"')
        raise


def _is_of_dagster(error: BaseException) -> bool:
    """Return whether an error is a function's signal to Dagster: to retry, or that it has failed."""
    return type(error).__module__.startswith("dagster")
