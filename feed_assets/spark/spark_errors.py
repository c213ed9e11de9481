"""Translation of the errors that Spark raises while it reads into errors of feed_assets."""

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError  # pyright: ignore[reportMissingTypeStubs]
from pyspark.errors import AnalysisException, PySparkException, SparkRuntimeException

from feed_assets.core import errors
from feed_assets.core.attempts import NO_ATTEMPT
from feed_assets.core.errors import (
    BlackboardRefused,
    BlackboardUnavailable,
    FeedAssetsError,
    FunctionFailed,
    FunctionWrong,
    NotAsDeclared,
    UnreadableUpdate,
    UpdateChanged,
)
from feed_assets.core.feeds import Update
from feed_assets.core.message_words import excerpt, text_of
from feed_assets.core.source_lines import raised_at, users_place, with_notes
from feed_assets.spark.error_words import OF_VALUES, is_of_python, quotes_records, words_of

SPARK_ERRORS: tuple[type[Exception], ...] = (PySparkException, Py4JJavaError)
"""Errors that an action may raise. In a session without Connect, a failed job raises a Py4JJavaError."""

_LASTING = (AnalysisException, *OF_VALUES, SparkRuntimeException)
"""Errors of an expression that Spark cannot resolve, or cannot compute from these rows.

They would recur in each run.
"""

_MAY_PASS = re.compile(
    r"\[(?:TABLE_OR_VIEW_NOT_FOUND|SCHEMA_NOT_FOUND|PATH_NOT_FOUND|USER_RAISED_EXCEPTION"
    r"|UNABLE_TO_INFER_SCHEMA|FAILED_JDBC|UNABLE_TO_FETCH_HIVE_TABLES)|HiveException|MetaException"
)
"""Errors about data that a function itself reads, and errors that a function raises.

They may not occur in the next run. Examples: a folder of another team has no files yet, or a database or metastore does
not answer.
"""

UNREADABLE = "feed_assets cannot read "
"""Beginning of the message of an action that fails on an unreadable value. The file's key follows."""

_OURS = re.compile(rf"\[USER_RAISED_EXCEPTION\] {UNREADABLE}(.+?) SQLSTATE")
_REFUSED = re.compile(r"AccessDenied|Status Code: 40[13]\b|Permission denied")
_DOWN = re.compile(r"SdkClientException|(?:Connect|Socket\w*|UnknownHost)Exception|Status Code: 5\d\d\b")
_GONE = re.compile(r"\[PATH_NOT_FOUND\]|FAILED_READ_FILE\.FILE_NOT_EXIST|RemoteFileChangedException")
_HEADER = re.compile(r"CSV header does not conform to the schema|Number of column in CSV header is not equal")
_UNREADABLE = re.compile(r"FAILED_READ_FILE|UNABLE_TO_INFER_SCHEMA|PARQUET_TYPE|CANNOT_READ_FILE|PARQUET_CONVERSION")
_DAMAGED = re.compile(r"CRC checksum verification failed")
_RAISED = re.compile(
    r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(?P<module>(?:\w+\.)*)(?P<error>\w+.*)"
    r"|(?P<end>Python worker exited[^.\n]*)"
)
_PYTHON_LINE = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+)')
_CALL_SITE = re.compile(r"was called from\n(?P<file>[^\n]+):(?P<line>\d+)")
_CAUSE = re.compile(r"Caused by: (?:[\w.$]+: )?(.+)")


@contextmanager
def reading(updates: Sequence[Update]) -> Generator[None]:
    """Translate errors of reading.

    Wrap every action on frames of `read` in `reading`: Spark reads when an action runs. Raise UpdateChanged for a
    missing file. Raise UnreadableUpdate for a wrong header, a damaged file or a wrong format. Raise BlackboardRefused
    or BlackboardUnavailable for a store that refuses access or does not answer. Other errors pass unchanged.
    """
    try:
        yield
    except SPARK_ERRORS as error:
        if (translated := _translated(error, updates)) is None:
            raise
        raise translated from error


def of_function(error: Exception, declared_at: str | None) -> Exception | None:
    """Return an error that names the line of user code that a Spark error concerns. Return None if no line is known.

    `declared_at` is the line of the function's declaration. It is used if no other line is known, because Spark may
    compute the result after the function has returned. Some errors of feed_assets do not count as an attempt. If a
    Python worker raised one of these, return this error, as if the driver had raised it.
    """
    text = text_of(error)
    if is_of_python(error) and (not_counted := _not_counted(text)):
        return not_counted
    lines = [users_place(each["file"], each["line"]) for each in _PYTHON_LINE.finditer(text)]
    lines += [users_place(each["file"], each["line"]) for each in _CALL_SITE.finditer(text)]
    place = raised_at(error) or next(filter(None, reversed(lines)), None)
    stays = is_lasting(error)
    place = place or (declared_at if stays else None)
    if place is None:
        return None
    reason = cause(text) if is_of_python(error) and _RAISED.search(text) else f"{type(error).__name__}: {excerpt(text)}"
    return (FunctionWrong if stays else FunctionFailed)(f"{with_notes(place, error)}: {reason}")


def _not_counted(text: str) -> Exception | None:
    """Return the error of feed_assets that a Python worker raised, if it must not count as a failed attempt.

    Return None for any other error.
    """
    raised = [*_RAISED.finditer(text)]
    if not raised or raised[-1]["module"] != f"{errors.__name__}.":
        return None
    name, _, message = raised[-1]["error"].partition(": ")
    kind = getattr(errors, name, None)
    return kind(message) if isinstance(kind, type) and issubclass(kind, NO_ATTEMPT) else None


def is_lasting(error: Exception) -> bool:
    """Return whether Spark will always fail to resolve an expression, or to compute it from these rows."""
    may_pass = not isinstance(error, OF_VALUES) and _MAY_PASS.search(words_of(error))
    return isinstance(error, _LASTING) and not may_pass


def _translated(error: Exception, updates: Sequence[Update]) -> FeedAssetsError | None:
    text = text_of(error)
    if match := _OURS.search(text):
        return UnreadableUpdate(match[1])
    if quotes_records(error):
        return None
    words = words_of(error, updates)
    named = _named(text, updates)
    file = named or f"A file of {', '.join(update.path for update in updates)}"
    # Check for errors of the store first. Spark's text for these also says that a file is unreadable or missing.
    if _REFUSED.search(words):
        return BlackboardRefused(f"{file}: the store refuses access ({cause(text)}). Check Spark's credentials.")
    if _DOWN.search(words):
        return BlackboardUnavailable(
            f"{file}: the store does not answer ({cause(text)}). Check the store, then try again."
        )
    if named is None and not _HEADER.search(text):
        # The error is about something that the function itself has read, not about an input. So do not invalidate an
        # update.
        return None
    return _of_file(text, words, file)


def _of_file(text: str, words: str, file: str) -> FeedAssetsError | None:
    """Return the error about a file of an input. Return None if the text names no known problem of a file."""
    if _GONE.search(words):
        return UpdateChanged(
            f"{file} was removed or altered after it was listed: pin the newest update and read again."
        )
    if _HEADER.search(text):
        return NotAsDeclared(
            f"{file} has another header than the schema: {_header(text)}. "
            "Correct the schema, or invalidate the update (`feed-assets feed invalidate`) and have the producer send "
            "a correct file. If files are pulled, the correct file needs another name."
        )
    if _DAMAGED.search(text):
        return UnreadableUpdate(
            f"{file} is damaged: the bytes of a page do not match its writer's checksum ({cause(text)}). "
            "Invalidate the update, and have it published or built again."
        )
    if _UNREADABLE.search(text):
        return UnreadableUpdate(f"{file} cannot be read: {cause(text)}. Invalidate the update, or correct the format.")
    return None


def _named(text: str, updates: Sequence[Update]) -> str | None:
    """Return the key of the file that Spark's text names, as a URL or a path.

    Return None if the text names no file of these updates.
    """
    texts = (text, unquote(text))
    named = [file.key for update in updates for file in update.files if any(file.key in each for each in texts)]
    return max(named, key=len, default=None)


def _header(text: str) -> str:
    """Return Spark's lines about the header as one line: the expected and the found columns."""
    lines = re.findall(r"^\s*(Header(?: length)?:.*|Schema:.*|Expected:.*)$", text, re.MULTILINE)
    return "; ".join(dict.fromkeys(line.strip() for line in lines)) or cause(text)


def cause(text: str) -> str:
    """Return the root cause that a Spark error names: the message of a Python function's error, or of a Java error."""
    if raised := [*_RAISED.finditer(text)]:
        return str(raised[-1]["error"] or raised[-1]["end"]).rstrip(".")
    causes: list[str] = _CAUSE.findall(text)
    return causes[-1].strip() if causes else text.strip().splitlines()[0]
