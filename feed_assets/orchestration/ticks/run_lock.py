"""A file that the process of a run keeps locked. Once the file is unlocked, the process is gone.

Host name and pid cannot show this, because a restarted container may have a new host name. But a lock ends with its
process, and all containers that share the home folder can see the lock. If the file does not exist, the state of the
process is unknown.
"""

import fcntl
import os
from pathlib import Path


def hold(storage: Path, run_id: str) -> None:
    """Lock the file of a run, in Dagster's folder for the run, until this process ends."""
    file = _file(storage, run_id)
    file.parent.mkdir(parents=True, exist_ok=True)
    fcntl.flock(os.open(file, os.O_RDWR | os.O_CREAT, 0o600), fcntl.LOCK_SH)


def is_let_go(storage: Path, run_id: str) -> bool:
    """Return whether the process that locked a run's file has ended for certain."""
    try:
        with _file(storage, run_id).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (FileNotFoundError, BlockingIOError):
        return False
    return True


def _file(storage: Path, run_id: str) -> Path:
    return storage / run_id / "held"
