"""The result of one write under a claimed update."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from feed_assets.core.feeds import File

Counts = tuple[tuple[datetime, int], ...]
"""Records by window of event time: its start (UTC), and how many; each window once, in order, none without records."""


@dataclass(frozen=True)
class Written:
    """The files of a written update, exactly those listed after the write, and facts about their rows.

    `first` and `last` are the least and the greatest event time (UTC), None without one or without rows.
    `data_version` is the digest of the rows. `windows` are their counts, None if they were not requested; a row without
    an event time is in no window.
    """

    files: tuple[File, ...]
    records: int
    bytes: int
    first: datetime | None
    last: datetime | None
    data_version: str
    windows: Counts | None = None
    columns: tuple[tuple[str, str], ...] = ()
    """Name and type of each column."""
    preview: str = ""
    """Its first rows as a Markdown table."""
    observed: Mapping[str, object] = field(default_factory=dict[str, object])
    """SQL aggregates of its rows by name, as far as they were computed on the way."""
