"""A file that the process of a run holds locked: once it is unlocked, the process is gone.

Neither a host's name nor a pid shows that of a container that is started again: its name may be new. A lock ends with
its process, and is visible to all that share the home, in whichever container. Without the file this is unknown.
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
    """Return whether a process has held the file of a run, and surely has ended."""
    try:
        with _file(storage, run_id).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (FileNotFoundError, BlockingIOError):
        return False
    return True


def _file(storage: Path, run_id: str) -> Path:
    return storage / run_id / "held"
