"""Result of comparing offsets: the parts (ingested files) of a window with each other, and with its sources."""

from dataclasses import dataclass


@dataclass(frozen=True)
class OffsetProblems:
    """Texts that describe what is wrong with the offsets that a window's reports name. None means no problem."""

    uncovered: str | None = None
    """Offsets that no part holds."""
    doubled: str | None = None
    """Offsets that several parts of the window hold."""
