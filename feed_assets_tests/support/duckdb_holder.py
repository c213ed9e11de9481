"""A process that holds a DuckDB file open, as a loader or a sensor does."""

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

_HOLD = "import duckdb, sys; held = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"


@contextmanager
def held_open(path: Path) -> Generator[subprocess.Popen[str]]:
    """Hold a file open until the end of the block, or until the input of the process is closed."""
    command = [sys.executable, "-c", _HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "open\n"
        yield process
        release(process)


def release(process: subprocess.Popen[str]) -> None:
    """Make the process close the file and end."""
    assert process.stdin
    process.stdin.close()
    process.wait()
