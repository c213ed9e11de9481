"""Comparison of the offsets of a window's parts with each other and with its sources."""

from dataclasses import dataclass


@dataclass(frozen=True)
class OffsetProblems:
    """Descriptions of a window's offset problems. None means no problem."""

    uncovered: str | None = None
    """Offsets that no part holds."""
    doubled: str | None = None
    """Offsets that several parts of the window hold."""
