"""Reports of others to the state store: how many records of each window a part holds, or a source has."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from hashlib import sha256

from feed_assets.core.completeness import INGESTED
from feed_assets.core.feeds import Feed

NO_VERSION = f"{0:020d}"
"""The version of a report without one: a correction of it has to name one."""
INPUTS = "inputs"
"""The check whose state follows from lineage (`ledger/tainted.py`): nobody reports it."""
FOLDED = "(folded)"
"""The part that stands for those that are no longer kept: no other part has this name."""


@dataclass(frozen=True)
class Report:
    """Records by base window of one part, or of a source (`tier`). It replaces what was reported of it before.

    For each (dataset, sub-partition, tier, part) the greatest version counts; versions sort as their texts do
    (`core.events.encode`).
    """

    dataset: Feed
    sub_partition: str
    part: str
    windows: tuple[tuple[datetime, int], ...]
    """Start (UTC, on the grid of the base grain) and records of each window, each once."""
    tier: str = INGESTED
    version: str = NO_VERSION
    records: int | None = None
    first: datetime | None = None
    """Least event time."""
    last: datetime | None = None
    """Greatest event time."""
    offsets: str | None = None
    """First and last offset by partition of a topic, as JSON: an object, or a list of windows, each with one of its
    own (`core.offsets`)."""
    snapshot: str | None = None
    batch: str | None = None
    schema: str | None = None
    line: str | None = field(default=None, compare=False, repr=False)
    """The line that was sent; None for counts of our own runs."""

    @property
    def key(self) -> tuple[str, str, str]:
        """Return the key for which a dataset has one report."""
        return self.sub_partition, self.tier, self.part

    @cached_property
    def counts(self) -> str:
        """Return the windows as JSON, by start."""
        return text_of(self.windows)

    @cached_property
    def digest(self) -> str:
        """Return a digest of all that it reports, but for the version."""
        times = self.first, self.last
        content = self.counts, self.records, times, self.offsets, self.snapshot, self.batch, self.schema
        return sha256(repr(content).encode()).hexdigest()[:32]


def version_shown(version: str) -> str:
    """Return a version as people write it."""
    return version.lstrip("0") or "0" if version.isdigit() else version


def key_of(start: datetime) -> str:
    """Return the name of a window in such a text, by its start."""
    return _key_in_utc(start.astimezone(UTC))


@lru_cache(maxsize=16_384)  # Many reports of a batch name the same windows.
def _key_in_utc(start: datetime) -> str:
    """Return the key of a start in UTC: both moments of a zone's doubled hour are equal, and one key of the cache."""
    return start.strftime("%Y-%m-%d-%H:%M")


def text_of(windows: Iterable[tuple[datetime, int]]) -> str:
    """Return counts by window as JSON, by start."""
    return json.dumps([[key_of(start), count] for start, count in sorted(windows)])


def windows_of(counts: str) -> dict[datetime, int]:
    """Return the windows that `text_of` made a text of."""
    return {start_at(key): count for key, count in json.loads(counts)}


def start_at(key: str) -> datetime:
    """Return the start of a window that such a text names."""
    return datetime.fromisoformat(f"{key[:10]}T{key[11:]}").replace(tzinfo=UTC)


def window_named(start: datetime) -> str:
    """Return the name of the part that a source has of a window, if it names none."""
    return f"{start:%Y-%m-%dT%H:%M}Z"


def counts_of(windows: Mapping[datetime, int]) -> tuple[tuple[datetime, int], ...]:
    """Return counts by window, in order, as reports have them."""
    return tuple(sorted(windows.items()))


def as_text(report: Report) -> str:
    """Return a report as one line, as it is shown and kept when it is refused: the line that was sent, if any."""
    if report.line is not None:
        return report.line
    values = {name: getattr(report, name) for name in Report.__annotations__ if name not in ("windows", "line")}
    texts = {name: str(value) for name, value in values.items() if value not in (None, "")}
    return json.dumps({**texts, "windows": json.loads(report.counts)})
