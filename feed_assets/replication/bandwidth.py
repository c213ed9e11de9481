"""Limit of the bytes that one process sends to a place in a second."""

import time
from collections.abc import Callable
from threading import Lock


class Bandwidth:
    """Limit in megabytes (1,000,000 bytes) a second, or None for no limit. The threads of the process share it."""

    def __init__(
        self,
        megabytes: float | None,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._per_second = megabytes and megabytes * 1e6
        self._clock, self._wait, self._lock = clock, wait, Lock()
        self._free_at = 0.0

    def take(self, size: int, keep: Callable[[], None]) -> None:
        """Wait until the link has had the time for further bytes. Call `keep` before, and each ten seconds meanwhile.

        Raise the errors of `keep`.
        """
        keep()
        seconds = self._seconds(size)
        while seconds > 0:
            self._wait(min(seconds, 10))
            seconds -= 10
            keep()

    def _seconds(self, size: int) -> float:
        if not self._per_second:
            return 0
        with self._lock:
            now = self._clock()
            self._free_at = max(now, self._free_at) + size / self._per_second
            return self._free_at - now
