"""Comparison of the offsets of a window's parts with each other and with its sources."""

from dataclasses import dataclass


@dataclass(frozen=True)
class OffsetProblems:
    """The offsets of a window that are wrong, in words; None where nothing is wrong."""

    uncovered: str | None = None
    """The offsets that no part holds."""
    doubled: str | None = None
    """The offsets that several parts of the window hold."""
