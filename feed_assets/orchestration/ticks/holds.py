"""A file that the process of a run holds locked: who finds it let go knows that the process is gone.

Neither a host's name nor a pid says that of a container that comes back: its name may be new. A lock ends with its
process, and is seen by all who have the home, in whichever container. Where there is no such file nobody knows.
"""

import fcntl
import os
from pathlib import Path


def hold(storage: Path, run_id: str) -> None:
    """Lock the file of a run, in Dagster's folder for it, until this process ends."""
    file = _file(storage, run_id)
    file.parent.mkdir(parents=True, exist_ok=True)
    fcntl.flock(os.open(file, os.O_RDWR | os.O_CREAT, 0o600), fcntl.LOCK_SH)


def is_let_go(storage: Path, run_id: str) -> bool:
    """Whether a process has held the file of a run, and surely has ended."""
    try:
        with _file(storage, run_id).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (FileNotFoundError, BlockingIOError):
        return False
    return True


def _file(storage: Path, run_id: str) -> Path:
    return storage / run_id / "held"
