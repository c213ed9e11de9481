"""Watermarks of datasets. `latest` is the end of the last complete window. Before `contiguous` there is no hole.

Each transition of a window moves the watermarks, so the history is never searched for holes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from feed_assets.core.completeness import DONE, WindowState
from feed_assets.core.errors import InvalidName
from feed_assets.core.feeds import Feed
from feed_assets.core.sub_partitions import Tracked
from feed_assets.core.windows import DAY, WindowAddress, window_at, window_of
from feed_assets.ledger import key_tables
from feed_assets.ledger.database import upsert
from feed_assets.ledger.states.window_rows import WindowRow, is_
from feed_assets.ledger.tables import watermark, window

WINDOWS_PER_READ = 300
"""Number of windows that are read at a time while a watermark moves: more than a day of 5-minute windows."""

_LAST = "9999-12-31-23:59"
_UNDONE = [state.value for state in WindowState if state not in DONE]

Line = tuple[Feed, str, str]
"""Dataset, sub-partition and grain. Each line has its own watermarks."""


@dataclass(frozen=True)
class Watermarks:
    """The progress of a dataset's complete windows.

    Both values are ends of windows (UTC), or None if no window is complete.

    `contiguous` has no hole before it. `latest` is the end of the last complete window, even after a hole.
    """

    contiguous: datetime | None = None
    latest: datetime | None = None


@dataclass
class _Marks:
    """The progress of a line of windows, as keys of windows. `first` is the first recorded window.

    All windows up to `reached` were done at some time. A hole before `reached` is a window that opened again. An index
    lookup finds it.
    """

    first: str
    contiguous: str | None
    reached: str | None
    latest: str | None


def watermarks(connection: sa.Connection, lines: Iterable[Line]) -> dict[Line, Watermarks]:
    """Return the watermarks of each line: a dataset, a sub-partition and a grain (length of windows).

    Cost: a few index lookups for each line.
    """
    key_table = key_tables.rows(connection, _LINE, ((str(dataset), *names) for dataset, *names in lines))
    columns = [watermark.c[name] for name in _LINE]
    ends = _end(watermark.c.contiguous).label("to_hole"), _end(watermark.c.latest).label("last")
    rows = connection.execute(sa.select(*columns, *ends).join(key_table, key_tables.same_keys(watermark, key_table)))
    return {(Feed.parse(row.dataset), row.sub_partition, row.grain): Watermarks(row.to_hole, row.last) for row in rows}


_LINE = ("dataset", "sub_partition", "grain")


def next_done(connection: sa.Connection, addresses: Iterable[WindowAddress]) -> dict[WindowAddress, str]:
    """Return for each window the key of the first done window after it. Leave out windows without such a window.

    Cost: one index lookup for each window and state.
    """
    keys = {(str(at.dataset), at.sub_partition, at.grain, at.key): at for at in addresses}
    key_table = key_tables.rows(connection, (*_LINE, "key"), keys)
    is_later = sa.and_(*(window.c[name] == key_table.c[name] for name in _LINE), window.c.key > key_table.c.key)
    firsts = [
        sa.select(sa.func.min(window.c.key)).where(is_later, window.c.state == state.value).correlate(key_table)
        for state in sorted(DONE)
    ]
    rows = connection.execute(sa.select(key_table, *(each.scalar_subquery() for each in firsts)))
    width = len(_LINE) + 1
    later = ((keys[tuple(row[:width])], [each for each in row[width:] if each]) for row in rows)
    return {at: min(each) for at, each in later if each}


def _end(key: sa.ColumnElement[Any]) -> sa.ScalarSelect[Any]:
    same_window = sa.and_(*(window.c[name] == watermark.c[name] for name in _LINE), window.c.key == key)
    return sa.select(window.c.end).where(same_window).correlate(watermark).scalar_subquery()


def move(connection: sa.Connection, tracked: Tracked, changed: Iterable[WindowRow]) -> None:
    """Move the watermarks of one dataset after its windows were written."""
    lines: dict[Line, list[WindowRow]] = {}
    for row in changed:
        at = row.address
        lines.setdefault((at.dataset, at.sub_partition, at.grain), []).append(row)
    marks_by_line = _marks_by_line(connection, lines)
    moved = [
        {**dict(zip(_LINE, (str(line[0]), *line[1:]), strict=True)), **vars(marks)}
        for line, rows in sorted(lines.items())
        if (marks := _Moving(connection, tracked, line).move(marks_by_line.get(line), rows))
    ]
    upsert(connection, watermark, moved, ["first", "contiguous", "reached", "latest"])


def _marks_by_line(connection: sa.Connection, lines: Iterable[Line]) -> dict[Line, _Marks]:
    rows = key_tables.matching(connection, watermark, ((str(dataset), *names) for dataset, *names in lines), _LINE)
    return {
        (Feed.parse(row.dataset), row.sub_partition, row.grain): _Marks(
            row.first, row.contiguous, row.reached, row.latest
        )
        for row in rows
    }


@dataclass(frozen=True)
class _Moving:
    connection: sa.Connection
    tracked: Tracked
    line: Line

    def move(self, before: _Marks | None, rows: Sequence[WindowRow]) -> _Marks | None:
        """Return the line's watermarks after these windows changed. Return None if the watermarks stay as they are."""
        kept = [row.address.key for row in rows if row.is_kept]
        gone = [row.address.key for row in rows if not row.is_kept]
        done = [row.address.key for row in rows if row.state in DONE]
        first = self._first(before, kept, gone)
        if first is None:
            return None
        reached = self._reached(before, first, gone, is_further=bool(done))
        latest = max((key for key in (before.latest if before else None, *done) if key), default=None)
        if latest and latest in {row.address.key for row in rows} - {*done}:
            latest = self._latest()
        marks = _Marks(first, self._contiguous(first, reached), reached, latest)
        return None if marks == before else marks

    def _first(self, before: _Marks | None, kept: Sequence[str], gone: Sequence[str]) -> str | None:
        if before and before.first in gone:  # The first window is no longer recorded.
            return (
                self.connection.execute(sa.select(sa.func.min(window.c.key)).where(self._of_line())).scalar()
                or before.first
            )
        return min([*kept, *([before.first] if before else [])], default=None)

    def _latest(self) -> str | None:
        is_done = self._of_line() & window.c.state.in_([state.value for state in DONE])
        return self.connection.execute(sa.select(sa.func.max(window.c.key)).where(is_done)).scalar()

    def _reached(self, before: _Marks | None, first: str, gone: Sequence[str], *, is_further: bool) -> str | None:
        """Return the last window up to which all windows were done.

        The search continues from where the last search ended.
        """
        at = before.reached if before else None
        if at and (lost := [key for key in gone if key <= at]):
            at = self._before(min(lost))
        at = at if at and at >= first else None
        if before and first < before.first:
            at = self._joined(first, before.first, at)
        expected = first if at is None else self._after(at)
        while is_further and (walked := self._walk(expected)):
            at, expected = walked, self._after(walked)
        return at

    def _joined(self, first: str, old: str, reached: str | None) -> str | None:
        """Return the new `reached` after windows were added before `old`, which was the first window.

        If all windows from `first` up to `old` are done, `reached` stays. Otherwise return the last window before the
        hole.
        """
        at, expected = None, first
        while expected < old and (walked := self._walk(expected, old)):
            at, expected = walked, self._after(walked)
        return reached or at if expected == old else at

    def _contiguous(self, first: str, reached: str | None) -> str | None:
        """Return the last complete window before the first incomplete one. If all are complete, return `reached`.

        Cost: one index lookup for each state that makes a hole.
        """
        if reached is None:
            return None
        within = self._of_line() & (window.c.key >= first) & (window.c.key <= reached)
        holes = [sa.select(sa.func.min(window.c.key)).where(within, window.c.state == state) for state in _UNDONE]
        first_holes = [key for key in self.connection.execute(sa.union_all(*holes)).scalars() if key]
        before = self._before(min(first_holes)) if first_holes else reached
        return before if before >= first else None

    def _walk(self, expected: str, end: str = _LAST) -> str | None:
        """Return the last of the consecutive complete windows that begin with `expected`.

        Return None if `expected` is not complete.

        Read at most `WINDOWS_PER_READ` windows.
        """
        within = self._of_line() & (window.c.key >= expected) & (window.c.key < end)
        query = sa.select(window.c.key, window.c.state).where(within)
        at = None
        for key, state in self.connection.execute(query.order_by(window.c.key).limit(WINDOWS_PER_READ)).all():
            if key != expected or state not in DONE:
                break
            at, expected = key, self._after(key)
        return at

    def _of_line(self) -> sa.ColumnElement[bool]:
        dataset, sub_partition, grain = self.line
        return is_(str(dataset), sub_partition, grain)

    def _after(self, key: str) -> str:
        return self._next(key, 1)

    def _before(self, key: str) -> str:
        return self._next(key, -1)

    def _next(self, key: str, step: int) -> str:
        """Return the key of the next window (`step` 1) or the previous window (-1).

        Some time zones have skipped a calendar day. Such days have no window.
        """
        _, sub_partition, grain = self.line
        if grain != DAY:
            current = window_at(grain, key)
            return window_of(grain, current.start + step * (current.end - current.start)).key
        day = date.fromisoformat(key)
        while True:
            day += timedelta(days=step)
            try:
                return self.tracked.window(sub_partition, grain, day.isoformat()).key
            except InvalidName:
                continue
