"""Where tests write: in memory, if there is plenty of it.

A commit of SQLite waits for the disk three times, a whole session of tests tens of thousands of times, and what that is
for no test can show: a process that is killed loses nothing of it, only a machine without power does.
"""

import os
import shutil
import tempfile
from pathlib import Path

import psutil

IN_MEMORY = Path("/dev/shm")  # noqa: S108
NEEDED = 4 * 1024**3
"""Bytes that must be free there, and twice as many in the machine: several times what a session holds at once."""


def prepare() -> None:
    """Have this process and all that it starts make temporary files in memory, unless `TMPDIR` says where."""
    if "TMPDIR" not in os.environ and _is_roomy():
        os.environ["TMPDIR"] = str(IN_MEMORY)
        tempfile.tempdir = None  # Pytest has looked before.


def _is_roomy() -> bool:
    if not os.access(IN_MEMORY, os.W_OK) or os.statvfs(IN_MEMORY).f_flag & os.ST_NOEXEC:
        return False  # Tests write programs, too.
    return shutil.disk_usage(IN_MEMORY).free > NEEDED and psutil.virtual_memory().available > 2 * NEEDED
