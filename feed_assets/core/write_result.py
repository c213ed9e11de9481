"""The result of one write under a claimed update."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from feed_assets.core.feeds import File

Counts = tuple[tuple[datetime, int], ...]
"""Records by window of event time, as pairs of the window's start (UTC) and a number of records.

Windows are in order and distinct. Windows without records are left out.
"""


@dataclass(frozen=True)
class Written:
    """The files of a written update, and facts about their rows. The files are from a listing after the write.

    `first` and `last` are the least and the greatest event time (UTC), None if no row has one. `data_version` is the
    digest of the rows. `windows` has the number of rows by window, None if it was not requested. Rows without an event
    time are in no window.
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
    """The first rows as a Markdown table."""
    observed: Mapping[str, object] = field(default_factory=dict[str, object])
    """SQL aggregates of the rows by name, if they were computed during the write."""
