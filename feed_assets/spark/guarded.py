"""A guard for actions on Spark: it detects that Spark has ended, and ends Spark's work if a run is interrupted."""

import errno
import re
import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any

from py4j.protocol import Py4JError  # pyright: ignore[reportMissingTypeStubs]
from pyspark import SparkContext
from pyspark.sql import SparkSession

from feed_assets.core.attempts import OF_ITS_OWN
from feed_assets.core.errors import DiskFull, OutOfMemory, SparkDied, SparkUnavailable
from feed_assets.core.message_words import text_of
from feed_assets.spark.error_words import is_of_python, quotes_records, words_of
from feed_assets.spark.spark_errors import SPARK_ERRORS, cause

_FULL = re.compile(r"(?:: |\()(?:No space left on device|Disk quota exceeded)\)?$", re.MULTILINE)
"""The end of a JVM's message about a full disk. The same words in the name of a file do not match."""

_FULL_IN_PYTHON = re.compile(rf"OSError: \[Errno (?:{errno.ENOSPC}|{errno.EDQUOT})\]")
_SERVER_IS_GONE = re.compile(r"SESSION_(CLOSED|CHANGED|NOT_FOUND)|StatusCode\.UNAVAILABLE|\[NO_ACTIVE_SESSION\]")

_NO_MEMORY = re.compile(r"java\.lang\.OutOfMemoryError|UNABLE_TO_ACQUIRE_MEMORY|SparkOutOfMemoryError")
_EXIT_WITHOUT_MEMORY = 52
"""Exit status of a JVM that Spark ends after an OutOfMemoryError (`SparkExitCode.OOM`)."""

_KILLED = "it was killed, ran out of memory, or its server was stopped."
_NEXT = "This process cannot start another Spark: start the command again."
SECONDS_TO_CANCEL = 5
"""Seconds that Spark gets to cancel its jobs. Its process then gets the same time to end, before it is killed."""


@contextmanager
def guarded(spark: SparkSession, size: int = 0) -> Generator[None]:
    """Turn errors that are caused by Spark's end, lack of memory or a full disk into errors that name this cause.

    These are SparkDied, OutOfMemory and DiskFull. An interrupt ends Spark's work. `size` is the number of bytes that
    the run reads.
    """
    heap = _heap(spark)
    try:
        yield
    except OF_ITS_OWN as error:
        if _has_ended(spark, error):
            is_memory = is_out_of_memory(error) or _ended_for_memory(spark)
            why = _needs_more(heap, size) if is_memory else _KILLED
            raise SparkDied(f"Spark ended while this run used it: {why} {_NEXT}") from error
        if is_out_of_memory(error):
            raise OutOfMemory(_needs_more(heap, size)) from error
        if is_full(error):
            raise DiskFull(f"Spark finds no space left on a disk that it writes to: {_line(error)}") from error
        raise
    except BaseException:
        _halt(spark)
        raise


def refuse_an_ended_one() -> None:
    """Raise SparkUnavailable if this process's session has ended.

    No new session replaces the ended one, because user code may keep objects of the ended session. These objects would
    not work in another session.
    """
    context = getattr(SparkContext, "_active_spark_context", None)
    if context and _is_stopped(context):
        raise _ended()


def _ended() -> SparkUnavailable:
    return SparkUnavailable(f"Spark has ended while this process used it. {_NEXT}")


def _needs_more(heap: str, size: int) -> str:
    return (
        f"the run needs more memory: Spark had a heap of {heap} for {size / (1 << 20):,.1f} MiB of input. Set "
        'spark.driver.memory in FEED_ASSETS_SPARK_CONF, such as {"spark.driver.memory": "8g"}, or change the function '
        "to hold less in memory at a time."
    )


def _heap(spark: object) -> str:
    """Return a text with the heap size of the session's JVM, such as `4.0 GiB`. The JVM must still run."""
    context = _context(spark)
    if context is None:
        return "its server's size"
    java: Any = getattr(context, "_jvm", None)
    return f"{java.java.lang.Runtime.getRuntime().maxMemory() / (1 << 30):.1f} GiB"


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether a Spark error is about too little memory."""
    return isinstance(error, SPARK_ERRORS) and bool(_NO_MEMORY.search(words_of(error)))


def _ended_for_memory(spark: object) -> bool:
    """Return whether a session's JVM has ended itself because it ran out of memory."""
    process: Any = getattr(getattr(SparkContext, "_gateway", None), "proc", None)
    context = _context(spark)
    if context is None or process is None or not _is_stopped(context):
        return False
    with suppress(subprocess.TimeoutExpired):
        return process.wait(SECONDS_TO_CANCEL) == _EXIT_WITHOUT_MEMORY
    return False


def _has_ended(spark: SparkSession, error: BaseException) -> bool:
    """Return whether a session has ended. If the session has its own JVM, ask the JVM.

    For such a session, the error proves nothing, because another service that a function uses may raise the same error.
    For a Connect server, only the error shows the end.
    """
    context = _context(spark)
    if context:
        return _is_stopped(context)
    return not quotes_records(error) and bool(_SERVER_IS_GONE.search(text_of(error)))


def _is_stopped(context: SparkContext) -> bool:
    """Return whether a context's JVM has ended, or has stopped the context."""
    try:
        java: Any = getattr(context, "_jsc", None)
        return java is None or bool(java.sc().isStopped())
    except (Py4JError, OSError):
        return True


def is_full(error: BaseException) -> bool:
    """Return whether an error means a full disk.

    An error of Python shows this by its `errno`, and an error of Spark by its message.
    """
    if not isinstance(error, SPARK_ERRORS):
        return getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
    if is_of_python(error) and _FULL_IN_PYTHON.match(cause(text_of(error))):
        return True
    return bool(_FULL.search(words_of(error)))


def _context(spark: object) -> SparkContext | None:
    """Return the context of a session with its own JVM. Return None for a session of a Connect server."""
    return spark.sparkContext if isinstance(spark, SparkSession) else None


def _halt(spark: SparkSession) -> None:
    """End all of Spark's work for this process. Otherwise Spark might write parts after the run's parts were swept.

    Another thread does this, because this thread's connection to the JVM may be in the middle of an answer. The JVM is
    also ended, because a canceled job may continue for a while.
    """
    thread = threading.Thread(target=_cancel, args=(spark,), daemon=True)
    thread.start()
    thread.join(SECONDS_TO_CANCEL)
    gateway: Any = getattr(SparkContext, "_gateway", None)
    if _context(spark) and (process := getattr(gateway, "proc", None)):
        _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(SECONDS_TO_CANCEL)
        return
    process.kill()
    process.wait()


def _cancel(spark: SparkSession) -> None:
    with suppress(Exception):
        if context := _context(spark):
            context.setLogLevel("OFF")
            context.cancelAllJobs()
        else:
            spark.interruptAll()


def _line(error: BaseException) -> str:
    text = text_of(error).strip()
    return next((line.strip() for line in words_of(error).splitlines() if _FULL.search(line)), text)
