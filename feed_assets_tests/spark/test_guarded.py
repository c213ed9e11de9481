"""What a full disk or a lost Connect server makes of a run; a killed JVM is in `faults/test_stopped.py`."""

from pathlib import Path

import pytest

from feed_assets.core.attempts import ABANDONED, FAILED, end_of
from feed_assets.core.errors import DiskFull, SparkUnavailable
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
        ("[INVALID_HANDLE.SESSION_NOT_FOUND] The handle is invalid", SparkUnavailable),
        ("<_InactiveRpcError: status = StatusCode.UNAVAILABLE>", SparkUnavailable),
    ],
)
def test_what_a_run_is_not_to_blame_for_is_no_attempt(said, expected):
    with pytest.raises(expected) as raised, guarded(None):
        raise RuntimeError(said)
    assert end_of(raised.value) == ABANDONED
    assert "\n" not in str(raised.value)


def test_a_full_disk_that_python_meets_is_no_attempt_either():
    with pytest.raises(DiskFull, match="No space left on device"), guarded(None):
        write_to_a_full_disk()


def test_what_a_function_raises_is_its_own():
    with pytest.raises(ZeroDivisionError) as raised, guarded(None):
        raise ZeroDivisionError
    assert end_of(raised.value) == FAILED
