"""Limits of a walk through folders of the blackboard, and the position where it stopped."""

from collections.abc import Callable
from dataclasses import dataclass
from sys import maxsize
from typing import Self

MOST_LISTINGS = 1000
"""The most listings in a row that find no update below one name of a feed. A producer can make any number of them."""


@dataclass
class WalkLimit:
    """Limits of one walk. It lists at least one folder from `start` on, so that walks in turn reach every folder."""

    start: str
    """The path at which the walk begins. Paths before it are left out, and folders above it are listed again."""
    out_of_time: Callable[[], bool]
    carried: int = 0
    """Number of listings without a result that the walks before this one ended with."""
    most: int = MOST_LISTINGS
    stopped: str | None = None
    """The path at which the next walk has to begin. None if this walk reached the end."""
    _in_row: int = 0
    _has_moved: bool = False

    @classmethod
    def unlimited(cls) -> Self:
        """Return a limit that never stops a walk."""
        return cls("", lambda: False, most=maxsize)

    @property
    def fruitless(self) -> int:
        """Return the number of listings in a row without a result, up to now."""
        return self.carried + self._in_row

    def allows(self, path: str) -> bool:
        """Return whether a folder may be listed. Otherwise the walk ends, and `stopped` is this path."""
        if self.stopped is not None:
            return False
        if _segments(path) < _segments(self.start):
            return True
        if self._has_moved and (self._in_row >= self.most or self.out_of_time()):
            self.stopped = path
            return False
        self._has_moved = True
        self._in_row += 1
        return True

    def leaves_out(self, path: str) -> bool:
        """Return whether everything below a path lies before the start, or after the place where the walk stopped."""
        segments = _segments(path)
        return self.stopped is not None or segments < _segments(self.start)[: len(segments)]

    def add_result(self) -> None:
        """Count again from zero, because the walk has reached an update."""
        self.carried = self._in_row = 0

    def covers(self, path: str) -> bool:
        """Return whether this walk has passed a path, so that it would have been a result if it was there."""
        is_before_end = self.stopped is None or _segments(path) < _segments(self.stopped)
        return is_before_end and not _segments(path) < _segments(self.start)


def _segments(path: str) -> tuple[str, ...]:
    return tuple(path.split("/")) if path else ()
