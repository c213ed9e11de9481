"""Reports to the state store: counts of records by window.

A report counts either a part (ingested data that are counted together, such as a file), or records at a source.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from hashlib import sha256

from feed_assets.core.completeness import INGESTED
from feed_assets.core.feeds import Feed

NO_VERSION = f"{0:020d}"
"""The version of a report that names no version. A correction of such a report must name one."""
INPUTS = "inputs"
"""The check whose state follows from lineage (`ledger/tainted.py`). It cannot be reported."""
FOLDED = "(folded)"
"""The name of the row into which old parts are merged. No part may have it."""


@dataclass(frozen=True)
class Report:
    """Counts of records in windows of the smallest grain: of one ingested part, or of a source (then `tier` names it).

    Among reports of the same dataset, sub-partition, tier and part, only the one with the greatest version counts.
    Versions sort as text (`core.events.encode`).
    """

    dataset: Feed
    sub_partition: str
    part: str
    windows: tuple[tuple[datetime, int], ...]
    """Start (UTC, on the grid of the base grain) and records of each window, without repetitions."""
    tier: str = INGESTED
    version: str = NO_VERSION
    records: int | None = None
    first: datetime | None = None
    """Least event time."""
    last: datetime | None = None
    """Greatest event time."""
    offsets: str | None = None
    """First and last offset by partition of a topic, as JSON (`core.offsets`).

    The JSON is one object for all windows, or a list of windows with an object each.
    """
    snapshot: str | None = None
    batch: str | None = None
    schema: str | None = None
    line: str | None = field(default=None, compare=False, repr=False)
    """The received line; None for counts of our own runs."""

    @property
    def key(self) -> tuple[str, str, str]:
        """Return the key that identifies the report within its dataset."""
        return self.sub_partition, self.tier, self.part

    @cached_property
    def counts(self) -> str:
        """Return the counts by window as JSON, sorted by the start of the window."""
        return text_of(self.windows)

    @cached_property
    def digest(self) -> str:
        """Return a digest of the content, without the version."""
        times = self.first, self.last
        content = self.counts, self.records, times, self.offsets, self.snapshot, self.batch, self.schema
        return sha256(repr(content).encode()).hexdigest()[:32]


def version_shown(version: str) -> str:
    """Return a version in readable form."""
    return version.lstrip("0") or "0" if version.isdigit() else version


_KEY_LENGTH = len("YYYY-MM-DD-HH:MM")


def key_of(start: datetime) -> str:
    """Return a window's key: its start in UTC, such as `2026-01-01-15:00`."""
    return _key_in_utc(start.astimezone(UTC))


@lru_cache(maxsize=16_384)  # Many reports of a batch name the same windows.
def _key_in_utc(start: datetime) -> str:
    """Return the key of a start in UTC. In other zones, the two moments of a repeated hour would share a cache key."""
    return start.strftime("%Y-%m-%d-%H:%M").zfill(_KEY_LENGTH)


def text_of(windows: Iterable[tuple[datetime, int]]) -> str:
    """Return counts by window as JSON: a list of pairs of a window's key and its count, sorted by start."""
    return json.dumps([[key_of(start), count] for start, count in sorted(windows)])


def windows_of(counts: str) -> dict[datetime, int]:
    """Parse a text that `text_of` returned."""
    return {start_at(key): count for key, count in json.loads(counts)}


def start_at(key: str) -> datetime:
    """Return the start of a window (UTC) from its key, such as `2026-01-01-15:00`. `key_of` makes such keys.

    An older version wrote a year before 1000 without zeros.
    """
    key = key.zfill(_KEY_LENGTH)
    return datetime.fromisoformat(f"{key[:10]}T{key[11:]}").replace(tzinfo=UTC)


def window_named(start: datetime) -> str:
    """Return the default name of a source's part: the start of the window."""
    return f"{start:%Y-%m-%dT%H:%M}Z"


def counts_of(windows: Mapping[datetime, int]) -> tuple[tuple[datetime, int], ...]:
    """Return counts by window, in order, in the form that reports use."""
    return tuple(sorted(windows.items()))


def as_text(report: Report) -> str:
    """Return a report as one line, for display and for rejects: the received line, if there is one."""
    if report.line is not None:
        return report.line
    values = {name: getattr(report, name) for name in Report.__annotations__ if name not in ("windows", "line")}
    texts = {name: str(value) for name, value in values.items() if value not in (None, "")}
    return json.dumps({**texts, "windows": json.loads(report.counts)})
