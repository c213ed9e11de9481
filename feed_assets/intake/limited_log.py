"""A log of problems that unknown clients cause. It grows by a limited number of lines per minute."""

import logging
from collections import Counter
from threading import Lock
from time import monotonic

MINUTE = 60.0
"""Seconds within which the same line about the same address is written only once. Its repetitions are counted."""

LINES_A_MINUTE = 100
"""The most different lines per minute and level. Further lines are counted in one line.

Each level has its own limit, so many warnings do not suppress errors.
"""

ADDRESS_LENGTH = 60
"""The most logged characters of an address. A proxy may pass on any text that its client sent as an address."""

_OTHERS = "other lines of other addresses"
_log = logging.getLogger(__name__)


class LimitedLog:
    """A log that writes a new line at once, and counts its repetitions. After a minute, it writes the counts."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts = Counter[tuple[str, str, int]]()
        self._ends = 0.0

    def add(self, text: str, address: str, level: int = logging.WARNING, error: BaseException | None = None) -> None:
        """Write a line, or only count it if it was already written in this minute."""
        self.write_counts()
        line = text, repr(address[:ADDRESS_LENGTH]), level
        with self._lock:
            is_over = line not in self._counts and sum(each[2] == level for each in self._counts) >= LINES_A_MINUTE
            line = (_OTHERS, "others", level) if is_over else line
            self._ends = self._ends if self._counts else monotonic() + MINUTE
            is_first = line not in self._counts
            self._counts[line] += 1
        if is_first:
            _log.log(level, "%s (from %s)", *line[:2], exc_info=error)

    def write_counts(self) -> None:
        """Write how often each line was repeated, once the minute is over."""
        with self._lock:
            if not self._counts or monotonic() < self._ends:
                return
            counts, self._counts = self._counts, Counter[tuple[str, str, int]]()
        for (text, address, level), count in counts.items():
            if count > 1:
                _log.log(level, "%s (from %s): %d times in the last minute", text, address, count)


class ConnectionLog:
    """The logger that uvicorn uses for one connection. It writes to the limited log."""

    level = logging.WARNING
    """uvicorn checks this level before it logs each connection."""

    def __init__(self, log: LimitedLog, address: str) -> None:
        self._log, self._address = log, address

    def warning(self, text: str) -> None:
        """Write a client's error."""
        self._log.add(text.strip(), self._address)

    def error(self, text: str, exc_info: BaseException | None = None) -> None:
        """Write an error of this process."""
        self._log.add(text.strip(), self._address, logging.ERROR, exc_info)
