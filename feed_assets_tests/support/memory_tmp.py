"""A folder in memory for temporary files, if there is enough of it.

A commit in SQLite waits for the disk three times, and a session of tests commits tens of thousands of times. No test
can observe the difference: only a machine that loses power loses such data, not a process that is killed.
"""

import os
import shutil
import tempfile
from pathlib import Path

import psutil

IN_MEMORY = Path("/dev/shm")  # noqa: S108
NEEDED = 4 * 1024**3
"""Bytes that must be free there, and twice as many in the machine: several times what a session needs at once."""


def prepare() -> None:
    """Make this process and its children write temporary files in memory, unless `TMPDIR` is set."""
    if "TMPDIR" not in os.environ and _is_roomy():
        os.environ["TMPDIR"] = str(IN_MEMORY)
        tempfile.tempdir = None  # Pytest has already read it.


def _is_roomy() -> bool:
    if not os.access(IN_MEMORY, os.W_OK) or os.statvfs(IN_MEMORY).f_flag & os.ST_NOEXEC:
        return False  # Tests also write programs there.
    return shutil.disk_usage(IN_MEMORY).free > NEEDED and psutil.virtual_memory().available > 2 * NEEDED
