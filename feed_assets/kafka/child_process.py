"""Child processes that read topics. If an assertion of librdkafka fails, only the child ends, and not this process.

The child writes its progress into a shared file of integers, so this process can read it after a crash.
"""

import json
import os
import signal
import subprocess
import sys
from array import array
from collections.abc import Callable, Mapping
from contextlib import suppress
from tempfile import TemporaryFile
from typing import Any, NamedTuple

Place = tuple[str, int]
"""Topic and number of a partition."""

Starts = Mapping[Place, int]
"""The offset to read from, by partition."""

_START_SECONDS = 30.0
"""Seconds for a child to start and to end."""

_CRASHES = frozenset({signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE})
"""Signals by which a process ends because of an error in it. Other signals come from people and from the system."""

_WIDTH = array("q").itemsize


class ChildResult(NamedTuple):
    """The end of a child: whether it crashed, whether it succeeded, its progress, and what it wrote on stderr."""

    is_crash: bool
    is_success: bool
    progress: list[int]
    text: str


def no_wait() -> None:
    """Do nothing while a child runs."""


def run(
    module: str, job: Mapping[str, Any], progress: list[int], seconds: float, on_wait: Callable[[], None] = no_wait
) -> ChildResult:
    """Run a module of ours as a child for up to `seconds`, plus the time to start. Call `on_wait` every second.

    The job has passwords, so it is passed by a pipe.
    """
    with TemporaryFile() as file:
        array("q", progress).tofile(file)
        file.flush()
        command = [sys.executable, "-P", "-m", module]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=file, stderr=subprocess.PIPE)  # noqa: S603 (the command is ours)
        text = _waited(process, json.dumps(job).encode(), seconds + _START_SECONDS, on_wait)
        file.seek(0)
        (reached := array("q")).frombytes(file.read(len(progress) * _WIDTH))
    return ChildResult(-process.returncode in _CRASHES, process.returncode == 0, [*reached], text)


def _waited(process: subprocess.Popen[bytes], job: bytes, seconds: float, on_wait: Callable[[], None]) -> str:
    """Wait for the end of a child, and kill it if it takes longer. Return its stderr."""
    content: bytes | None = job
    try:
        for _ in range(int(seconds)):
            with suppress(subprocess.TimeoutExpired):
                return process.communicate(content, timeout=1)[1].decode(errors="replace")
            content = None
            on_wait()
        return "no answer"
    finally:
        process.kill()
        process.wait()


def report(number: int, value: int) -> None:
    """Set the integer at position `number` of the progress, a list of integers. Only the child calls this."""
    os.pwrite(sys.stdout.fileno(), array("q", [value]).tobytes(), number * _WIDTH)
