"""Rows of windows: read by address, written in bulk."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from feed_assets.core.completeness import DONE, WindowState
from feed_assets.core.feeds import Feed
from feed_assets.core.offset_comparison import OffsetProblems
from feed_assets.core.sub_partitions import Tracked
from feed_assets.core.windows import Window, WindowAddress
from feed_assets.ledger import bulk, key_tables
from feed_assets.ledger.tables import coverage, report, watermark, window, window_offsets

_SAID = ("accepted", "issue", "marked", "flagged", "stale", "held")
_OFFSETS = ("uncovered", "doubled")
_KEY = ("dataset", "sub_partition", "grain", "key")
_STATE = ("records", "parts", "sources", "state", "changed", "since", *_SAID, "folded", "data", "told", *_OFFSETS)
"""The stored columns of a window, in the order of the fields of `WindowRow`."""

COLUMNS = tuple(window.c[name] for name in (*_KEY, "start", "end", *_STATE))
"""The columns from which `row_of` reads a window, in this order."""

DIGESTS = 1 << 62
"""Modulus of sums of report digests."""


@dataclass(slots=True)
class WindowRow:
    """The ledger's row of a window. Times are UTC. `sources` has the records and the number of reports by tier."""

    address: WindowAddress
    start: datetime
    end: datetime
    records: int = 0
    parts: int = 0
    sources: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    state: WindowState = WindowState.OPEN
    changed: int | None = None
    """The log number of the window's last transition."""
    since: datetime | None = None
    accepted: str | None = None
    issue: str | None = None
    """The reason of the window's failed check."""
    marked: str | None = None
    """The problem of the data from which the window was built."""
    flagged: str | None = None
    """The problem of a window that contains this window: a larger window, or a window of a sub-partition above."""
    stale: str | None = None
    """The reason of a check that failed before the window was made again, and has not run since."""
    held: str | None = None
    """The problem of a part of the window, if nothing else keeps the window open."""
    folded: bool = False
    data: int = 0
    """A digest of the ingested reports in the window, independent of their order."""
    told: int | None = None
    """The value of `data` at the last log entry about this row's `state` or `held`.

    Later data are announced only with the next entry.
    """
    uncovered: str | None = None
    """Text about offsets that no part holds, although they lie between offsets that the window names."""
    doubled: str | None = None
    """Text about offsets that several parts of the window hold."""

    @property
    def window(self) -> Window:
        """Return the window of the row."""
        return Window(self.start, self.end, self.address.grain, self.address.key)

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of records that the sources have reported, by tier."""
        return {tier: records for tier, (records, parts) in self.sources.items() if parts}

    @property
    def offsets(self) -> OffsetProblems:
        """Return what is wrong with the offsets that reports name for the window."""
        return OffsetProblems(self.uncovered, self.doubled)

    @offsets.setter
    def offsets(self, comparison: OffsetProblems) -> None:
        self.uncovered, self.doubled = comparison.uncovered, comparison.doubled

    @property
    def is_kept(self) -> bool:
        """Return whether the window is stored: it is not open, or has reports, an acceptance or a problem."""
        remark = self.accepted or self.issue or self.marked or self.stale or self.held
        return bool(self.parts or remark) or self.state is not WindowState.OPEN

    @property
    def suspicion(self) -> str | None:
        """Return why the data of the window, and of the windows inside of it, are suspect. Return None if they are not.

        A failed check makes a complete window invalid when this window is judged. The windows inside may be judged
        earlier, so the text already says "invalid".
        """
        problem = self.issue or self.stale
        is_there = self.state not in (WindowState.OPEN, WindowState.COMPLETE)
        state = WindowState.INVALID if self.issue and self.state in DONE else self.state
        return f"{self.named} is {state}: {problem}" if problem and is_there else None

    @property
    def judged_as(self) -> WindowState:
        """Return the state that larger windows count. A complete window with a stale check counts as invalid."""
        is_stale = self.stale and self.state in DONE
        return WindowState.INVALID if is_stale else self.state

    @property
    def bad(self) -> str | None:
        """Return the problem of the window, of its parts, or of a window that contains it.

        Return None if there is none.
        """
        if self.state is WindowState.COMPLETE_WITH_ISSUE:
            return self.flagged or self.marked or self.stale
        is_bad = self.judged_as is WindowState.INVALID
        return self.held or (self.issue or self.stale if is_bad else None)

    @property
    def named(self) -> str:
        """Return a text with the grain, the key and the sub-partition of the window."""
        at = self.address
        return f"{at.grain} {at.key}{f' in {at.sub_partition}' if at.sub_partition else ''}"

    def values(self) -> dict[str, Any]:
        """Return the values of the window's row, by column."""
        at = self.address
        sources = {tier: each for tier, each in self.sources.items() if each[1]}
        return {
            "dataset": str(at.dataset),
            "sub_partition": at.sub_partition,
            "grain": at.grain,
            "key": at.key,
            "start": self.start,
            "end": self.end,
            **{name: getattr(self, name) for name in _STATE},
            "state": self.state.value,
            "sources": json.dumps(sources, sort_keys=True) if sources else None,
        }


def rows(connection: sa.Connection, addresses: Iterable[WindowAddress]) -> dict[WindowAddress, WindowRow]:
    """Return the stored windows. Cost: one index lookup for each window."""
    values = [(str(at.dataset), at.sub_partition, at.grain, at.key) for at in addresses]
    if not values:
        return {}
    key_table = key_tables.rows(connection, ("dataset", "sub_partition", "grain", "key"), values)
    query = sa.select(*COLUMNS).join(key_table, key_tables.same_keys(window, key_table))
    return {row.address: row for row in map(row_of, connection.execute(query).all())}


def row_of(columns: Sequence[Any]) -> WindowRow:
    """Return the window that these values of `COLUMNS` describe."""
    dataset, sub_partition, grain, key, start, end, records, parts, sources, state, *details = columns
    counts = {tier: (counted, named) for tier, (counted, named) in json.loads(sources).items()} if sources else {}
    at = WindowAddress(Feed.parse(dataset), sub_partition, grain, key)
    values = at, start, end, records, parts, counts, WindowState(state), *details
    return WindowRow(*values)


BACKFILLING = window.c.state == sa.literal(WindowState.BACKFILLING.value, literal_execute=True)
"""Condition for windows in backfill. It has a literal, because a parameter would prevent use of the partial index."""


def backfilling(connection: sa.Connection, datasets: Collection[Feed]) -> list[WindowRow]:
    """Return the windows of datasets that are being backfilled. The query uses a partial index."""
    condition = BACKFILLING & window.c.dataset.in_(sorted(map(str, datasets)))
    return [*map(row_of, connection.execute(sa.select(*COLUMNS).where(condition)).all())] if datasets else []


def empty(tracked: Tracked, at: WindowAddress) -> WindowRow:
    """Return the row of a window that is not stored: open, without counts."""
    window = tracked.window(at.sub_partition, at.grain, at.key)
    return WindowRow(at, window.start, window.end)


def write(connection: sa.Connection, changed: Iterable[WindowRow]) -> None:
    """Write the rows of windows. Delete rows that no longer have content to store (`is_kept`)."""
    kept: list[dict[str, Any]] = []
    gone: list[dict[str, str]] = []
    for row in sorted(changed, key=_by_address):
        at = row.address
        if row.is_kept:
            kept.append(row.values())
        else:
            key = {"dataset": str(at.dataset), "sub_partition": at.sub_partition, "grain": at.grain, "key": at.key}
            gone.append({f"its_{name}": value for name, value in key.items()})
    bulk.insert(connection, window, kept, replaced=(*_STATE, "start", "end"))
    if gone:
        key_conditions = (column == sa.bindparam(f"its_{column.name}") for column in window.primary_key)
        connection.execute(sa.delete(window).where(*key_conditions), gone)


def all_rows(connection: sa.Connection, dataset: Feed) -> list[WindowRow]:
    """Return every window of a dataset. This is needed only after a change of its declaration."""
    return [*map(row_of, connection.execute(sa.select(*COLUMNS).where(window.c.dataset == str(dataset))).all())]


def remove(connection: sa.Connection, dataset: Feed, grains: Collection[str]) -> None:
    """Remove the windows and watermarks of these grains of a dataset."""
    for table in (window, watermark):
        condition = (table.c.dataset == str(dataset)) & table.c.grain.in_(grains)
        connection.execute(sa.delete(table).where(condition))


def place(connection: sa.Connection, dataset: Feed, tracked: Tracked) -> None:
    """Bring the levels of stored sub-partitions into the declared order."""
    for table in (report, window, watermark, coverage, window_offsets):
        of_dataset = table.c.dataset == str(dataset)
        paths = connection.execute(sa.select(table.c.sub_partition).where(of_dataset).distinct()).scalars().all()
        for path in (path for path in paths if tracked.path_of(path) != path):
            renamed = sa.update(table).where(of_dataset, table.c.sub_partition == path)
            connection.execute(renamed.values(sub_partition=tracked.path_of(path)))


def _by_address(row: WindowRow) -> WindowAddress:
    return row.address


def is_(dataset: str, sub_partition: str, grain: str) -> sa.ColumnElement[bool]:
    """Return the SQL condition for the windows of one dataset, sub-partition and grain (length of windows)."""
    return (window.c.dataset == dataset) & (window.c.sub_partition == sub_partition) & (window.c.grain == grain)


def state_counts(states: Iterable[WindowState]) -> Mapping[WindowState, int]:
    """Return the number of windows by state."""
    counts: dict[WindowState, int] = {}
    for state in states:
        counts[state] = counts.get(state, 0) + 1
    return counts
