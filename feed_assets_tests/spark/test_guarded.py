"""Runs with a full disk or a lost Connect server; killed JVMs are tested in `faults/test_stopped.py`."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from feed_assets.core.attempts import ABANDONED, FAILED, end_of, is_death
from feed_assets.core.errors import DiskFull, OutOfMemory, SparkDied
from feed_assets.spark.guarded import guarded
from feed_assets_tests.support.each_case import each_case


def write_to_a_full_disk():
    with Path("/dev/full").open("wb", buffering=0) as full:
        full.write(b"row")


@each_case(
    ("said", "expected"),
    [
        ("An error occurred.\nCaused by: java.io.IOException: No space left on device\n\tat x", DiskFull),
        ("java.io.IOException: Disk quota exceeded", DiskFull),
    ],
)
def test_errors_outside_of_the_run_are_no_attempt(said, expected):
    with pytest.raises(expected) as raised, guarded(None):
        raise PySparkException(said)
    assert end_of(raised.value) == ABANDONED
    assert "\n" not in str(raised.value)


@each_case(
    "said",
    [
        "[INVALID_HANDLE.SESSION_NOT_FOUND] The handle is invalid",
        "<_InactiveRpcError: status = StatusCode.UNAVAILABLE>",
    ],
)
def test_a_spark_that_ends_in_a_run_is_an_attempt(said):
    """Count an attempt, as the run itself may be the cause; two such attempts stop its partition."""
    with pytest.raises(SparkDied, match="Spark ended while this run used it: it was killed") as raised, guarded(None):
        raise RuntimeError(said)
    assert end_of(raised.value) == FAILED
    assert is_death(f"{type(raised.value).__name__}: {raised.value}")


def test_a_spark_without_memory_that_goes_on_is_an_attempt_with_a_cure():
    error = PySparkException("Job aborted: java.lang.OutOfMemoryError: Java heap space\n at x")
    with pytest.raises(OutOfMemory) as raised, guarded(None, 210 << 20):
        raise error
    assert str(raised.value).startswith(
        "the run needs more memory: Spark had a heap of its server's size for 210.0 MiB of input. Set "
        "spark.driver.memory in FEED_ASSETS_SPARK_CONF"
    )
    assert end_of(raised.value) == FAILED


class Gone(PySparkException):
    """An error that needs its ended JVM for the text."""

    def __str__(self):
        raise ConnectionRefusedError


def test_an_error_whose_text_is_gone_is_judged_without_it():
    error = Gone("a text")
    with pytest.raises(Gone) as raised, guarded(None):
        raise error
    assert raised.value is error


def test_a_full_disk_that_python_meets_is_no_attempt_and_other_errors_of_a_function_fail_the_run():
    with pytest.raises(DiskFull, match="No space left on device"), guarded(None):
        write_to_a_full_disk()
    with pytest.raises(ZeroDivisionError) as raised, guarded(None):
        raise ZeroDivisionError
    assert end_of(raised.value) == FAILED
