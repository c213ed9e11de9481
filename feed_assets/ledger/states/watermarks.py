"""Watermarks: up to when a dataset is complete, without a hole before (`contiguous`) and at all (`latest`).

They are moved with each transition, by as much as it completes: nobody goes through the history to find a hole.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from feed_assets.core.completeness import DONE
from feed_assets.core.errors import InvalidName
from feed_assets.core.feeds import Feed
from feed_assets.core.members import Tracked
from feed_assets.core.windows import DAY, window_at, window_of
from feed_assets.ledger import wanted
from feed_assets.ledger.database import upsert
from feed_assets.ledger.states.rows import Row, is_
from feed_assets.ledger.tables import watermark, window

WINDOWS_PER_READ = 300
"""Windows that are read at a time while a watermark moves on: a day of 5 minutes in one read."""

Line = tuple[Feed, str, str]
"""Dataset, sub-partition and grain: what has watermarks of its own."""


@dataclass(frozen=True)
class Watermarks:
    """Ends of windows (UTC); None as long as nothing is complete. `contiguous` has no hole before it."""

    contiguous: datetime | None = None
    latest: datetime | None = None


@dataclass
class _Marks:
    """The same, by the keys of windows; `first` is the first window that is known."""

    first: str
    contiguous: str | None
    latest: str | None


def watermarks(connection: sa.Connection, lines: Iterable[Line]) -> dict[Line, Watermarks]:
    """The watermarks of some datasets, sub-partitions and grains: a few index seeks for each."""
    asked = wanted.rows(connection, _LINE, ((str(dataset), *rest) for dataset, *rest in lines))
    columns = [watermark.c[name] for name in _LINE]
    ends = _end(watermark.c.contiguous).label("to_hole"), _end(watermark.c.latest).label("last")
    found = connection.execute(sa.select(*columns, *ends).join(asked, wanted.same(watermark, asked)))
    return {(Feed.parse(row.dataset), row.sub_partition, row.grain): Watermarks(row.to_hole, row.last) for row in found}


_LINE = ("dataset", "sub_partition", "grain")


def _end(key: sa.ColumnElement[Any]) -> sa.ScalarSelect[Any]:
    mine = sa.and_(*(window.c[name] == watermark.c[name] for name in _LINE), window.c.key == key)
    return sa.select(window.c.end).where(mine).correlate(watermark).scalar_subquery()


def move(connection: sa.Connection, tracked: Tracked, changed: Iterable[Row]) -> None:
    """Move the watermarks of one dataset after its windows were written."""
    lines: dict[Line, list[Row]] = {}
    for row in changed:
        at = row.address
        lines.setdefault((at.dataset, at.sub_partition, at.grain), []).append(row)
    known = _known(connection, lines)
    moved = [
        {**dict(zip(_LINE, (str(line[0]), *line[1:]), strict=True)), **vars(marks)}
        for line, rows in sorted(lines.items())
        if (marks := _Moving(connection, tracked, line).move(known.get(line), rows))
    ]
    upsert(connection, watermark, moved, ["first", "contiguous", "latest"])


def _known(connection: sa.Connection, lines: Iterable[Line]) -> dict[Line, _Marks]:
    asked = wanted.rows(connection, _LINE, ((str(dataset), *rest) for dataset, *rest in lines))
    rows = connection.execute(sa.select(watermark).join(asked, wanted.same(watermark, asked)))
    return {
        (Feed.parse(row.dataset), row.sub_partition, row.grain): _Marks(row.first, row.contiguous, row.latest)
        for row in rows
    }


@dataclass(frozen=True)
class _Moving:
    connection: sa.Connection
    tracked: Tracked
    line: Line

    def move(self, known: _Marks | None, rows: Sequence[Row]) -> _Marks | None:
        """Where the watermarks are after these windows have changed; None if they stay."""
        kept = [row.address.key for row in rows if row.is_kept]
        done = [row.address.key for row in rows if row.state in DONE]
        undone = [row.address.key for row in rows if row.state not in DONE]
        first = self._first(known, kept, undone)
        if first is None:
            return None
        latest = max((key for key in (known.latest if known else None, *done) if key), default=None)
        if latest in undone:
            latest = self._latest()
        marks = _Marks(first, self._contiguous(known, first, done, undone), latest)
        return None if marks == known else marks

    def _first(self, known: _Marks | None, kept: Sequence[str], undone: Sequence[str]) -> str | None:
        if known and known.first in undone and known.first not in kept:  # Nothing is known of it any more.
            return (
                self.connection.execute(sa.select(sa.func.min(window.c.key)).where(self._mine())).scalar()
                or known.first
            )
        return min([*kept, *([known.first] if known else [])], default=None)

    def _latest(self) -> str | None:
        mine = self._mine() & window.c.state.in_([state.value for state in DONE])
        return self.connection.execute(sa.select(sa.func.max(window.c.key)).where(mine)).scalar()

    def _contiguous(self, known: _Marks | None, first: str, done: Sequence[str], undone: Sequence[str]) -> str | None:
        """The last window of the run of done ones that begins with the first: walked on from where it was."""
        at = known.contiguous if known and known.first == first else None
        if at and (holes := [key for key in undone if key <= at]):
            at = self._before(min(holes))
            at = at if at and at >= first else None
        if not done and known and known.first == first:
            return at
        expected = first if at is None else self._after(at)
        while reached := self._walk(expected):
            at, expected = reached, self._after(reached)
        return at

    def _walk(self, expected: str) -> str | None:
        """The last done window of those that follow each other from this one on, of so many as are read at a time."""
        query = sa.select(window.c.key, window.c.state).where(self._mine(), window.c.key >= expected)
        at = None
        for key, state in self.connection.execute(query.order_by(window.c.key).limit(WINDOWS_PER_READ)):
            if key != expected or state not in DONE:
                break
            at, expected = key, self._after(key)
        return at

    def _mine(self) -> sa.ColumnElement[bool]:
        dataset, sub_partition, grain = self.line
        return is_(str(dataset), sub_partition, grain)

    def _after(self, key: str) -> str:
        return self._next(key, 1)

    def _before(self, key: str) -> str | None:
        return self._next(key, -1)

    def _next(self, key: str, step: int) -> str:
        """The key of the window after one, or before it. Some zones have left out a day."""
        _, sub_partition, grain = self.line
        if grain != DAY:
            found = window_at(grain, key)
            return window_of(grain, found.start + step * (found.end - found.start)).key
        day = date.fromisoformat(key)
        while True:
            day += timedelta(days=step)
            try:
                return self.tracked.window(sub_partition, grain, day.isoformat()).key
            except InvalidName:
                continue
