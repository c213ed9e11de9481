"""The parts of a Spark error's text by which feed_assets classifies the error.

They come from the JVM, not from records, column names or file names, which a producer chooses. Otherwise a producer
could make failed runs look like an outage of the store.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import unquote

from py4j.protocol import Py4JError, Py4JJavaError  # pyright: ignore[reportMissingTypeStubs]
from pyspark.errors import (
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    NumberFormatException,
    PythonException,
    SparkRuntimeException,
)

from feed_assets.core.feeds import Update
from feed_assets.core.message_words import text_of

OF_VALUES = (ArithmeticException, ArrayIndexOutOfBoundsException, DateTimeException, NumberFormatException)
"""Errors of an expression whose text quotes a value of a record."""

_QUOTE_NO_RECORD = re.compile(
    r"java\.(?:io|net|nio)\.(?!.*(?:URISyntax|URL|Charset|Encoding|InvalidPath))"
    r"|java\.lang\.OutOfMemoryError|javax\.net\.|software\.amazon\.awssdk\.|org\.apache\.hadoop\."
    r"|org\.apache\.spark\.(?:memory|shuffle|storage)\."
)
"""Beginnings of the names of Java classes whose messages quote no record.

These are errors of files, networks, stores and memory.
"""

_CONDITION = re.compile(r"\[([A-Z0-9_.]+)\]")
_OF_READING = re.compile(r"FAILED_READ_FILE|CANNOT_READ_FILE|PATH_NOT_FOUND|UNABLE_TO_ACQUIRE_MEMORY")
"""Beginnings of Spark's error conditions whose messages may quote names of files, but no record."""

_CAUSES = 20
"""Greatest number of causes that are followed."""


def words_of(error: BaseException, updates: Iterable[Update] = ()) -> str:
    """Return a line for each error in the chain of causes, without the names of the updates' files.

    A line has the class of the error. It also has the message if messages of this class quote no record, otherwise only
    Spark's error condition. Over Connect the chain is not known: return the whole text, or '' if it may quote records.
    """
    lines = [_line(*each) for each in _chain(error)]
    words = "\n".join(lines) if lines else "" if quotes_records(error) else text_of(error)
    keys = [file.key for update in updates for file in update.files]
    if not any(key in words or key in unquote(words) for key in keys):
        return words
    words = unquote(words)
    for key in sorted(keys, key=len, reverse=True):
        words = words.replace(key, "")
    return words


def is_of_python(error: BaseException) -> bool:
    """Return whether a Python worker raised an error.

    Over Connect, return True unless the error's class rules it out.
    """
    classes = [name for name, _ in _chain(error)]
    if classes:
        return any(each.startswith("org.apache.spark.api.python.") for each in classes)
    return isinstance(error, PythonException) or not isinstance(error, (*OF_VALUES, SparkRuntimeException))


def quotes_records(error: BaseException) -> bool:
    """Return whether an error is about a value, or raised by a user's function. Its text may quote records."""
    if isinstance(error, SparkRuntimeException) and error.getCondition() == "USER_RAISED_EXCEPTION":
        return True
    return isinstance(error, (*OF_VALUES, PythonException))


def _line(name: str, message: str) -> str:
    condition = _CONDITION.match(message) if name.startswith("org.apache.spark.") else None
    is_of_reading = condition is not None and _OF_READING.match(condition[1])
    text = message if is_of_reading or _QUOTE_NO_RECORD.match(name) else condition[0] if condition else ""
    return f"{name}: {text}"


def _chain(error: BaseException) -> Iterator[tuple[str, str]]:
    """Yield the class and the message of each Java error in the chain of causes, beginning with the outermost error."""
    java: Any = getattr(error, "java_exception" if isinstance(error, Py4JJavaError) else "_origin", None)
    for _ in range(_CAUSES):
        if java is None:
            return
        try:
            name, message, java = _read(java)
        except (Py4JError, OSError):  # The JVM has ended.
            return
        yield name, message


def _read(java: Any) -> tuple[str, str, Any]:
    return java.getClass().getName(), java.getMessage() or "", java.getCause()
