"""Folding of old reports: old reports of complete windows are merged into one row for each sub-partition and tier.

Windows keep their counts, which are in their own rows. Reports by the counter of feeds are not folded, because a feed
may be rolled back after years. A later report that would change a folded window is rejected (`count_reports.report`).
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from feed_assets.core.completeness import WindowState
from feed_assets.core.events import LAST_VERSION, encode
from feed_assets.core.feeds import Feed
from feed_assets.core.reports import FOLDED, text_of, windows_of
from feed_assets.core.sub_partitions import Tracked
from feed_assets.core.windows import WindowAddress, window_of
from feed_assets.ledger import key_tables
from feed_assets.ledger.database import Ledger, get_cursor, put_cursors, upsert
from feed_assets.ledger.states import window_policies
from feed_assets.ledger.states.window_rows import WindowRow, rows, write
from feed_assets.ledger.tables import report
from feed_assets.ledger.update_counts import COUNTER

REPORTS_PER_STEP = 500
"""Number of reports that one step checks. After the last report, the steps begin again with the first."""

_CURSOR = "state folded"
_Key = Sequence[str]
_KEY = ("dataset", "sub_partition", "tier", "part")
_BEGINNING = json.dumps([""] * len(_KEY))
_NOTHING = text_of(())
_AFTER_ALL = encode(LAST_VERSION)
"""The version of a folded row. It is the greatest version, so no report replaces the row."""


def fold(ledger: Ledger, now: datetime, days: int, limit: int = REPORTS_PER_STEP) -> int:
    """Fold up to `limit` reports whose windows have all been complete for `days`. Return how many were folded.

    Each dataset is folded in one transaction. After all datasets, the stored position moves. If the process is killed
    before that, some reports are checked again.
    """
    with ledger.read() as connection:
        after = json.loads(get_cursor(connection, _CURSOR) or _BEGINNING)
        looked = _after(connection, after, limit)
    done = sum(_fold(ledger, name, _of(looked, name), now, now - timedelta(days=days)) for name in _names(looked))
    reached = json.dumps(looked[-1]) if len(looked) == limit else _BEGINNING
    if reached != json.dumps(after):
        with ledger.write() as connection:
            put_cursors(connection, {_CURSOR: reached})
    return done


def fold_all(ledger: Ledger, now: datetime, days: int, limit: int = REPORTS_PER_STEP, *, apply: bool) -> int:
    """Fold all reports whose windows have been complete for `days`, and return their number.

    Without `apply`, only count them.
    """
    after, before, done = json.loads(_BEGINNING), now - timedelta(days=days), 0
    while True:
        with ledger.read() as connection:
            looked = _after(connection, after, limit)
        for name in _names(looked):
            keys = _of(looked, name)
            done += _fold(ledger, name, keys, now, before) if apply else _to_fold(ledger, name, keys, before)
        if len(looked) < limit:
            return done
        after = looked[-1]


def _to_fold(ledger: Ledger, name: str, keys: Sequence[_Key], before: datetime) -> int:
    dataset = Feed.parse(name)
    with ledger.read() as connection:
        tracked = window_policies.tracked(connection, [dataset])[dataset]
        return len(_Folding(connection, dataset, tracked, before).old(keys))


def _after(connection: sa.Connection, after: _Key, limit: int) -> list[_Key]:
    """Return the keys of the reports that follow a key, in order.

    The query reads one range of the primary key's index.
    """
    columns = [report.c[name] for name in _KEY]
    query = sa.select(*columns).where(sa.tuple_(*columns) > sa.tuple_(*map(sa.literal, after)))
    return [[*row] for row in connection.execute(query.order_by(*columns).limit(limit))]


def _names(keys: Iterable[_Key]) -> list[str]:
    return sorted({key[0] for key in keys})


def _of(keys: Iterable[_Key], name: str) -> list[_Key]:
    return [key for key in keys if key[0] == name]


def _fold(ledger: Ledger, name: str, keys: Sequence[_Key], now: datetime, before: datetime) -> int:
    """Fold the old reports with these keys, under the lock of their dataset. Return how many were folded."""
    dataset = Feed.parse(name)
    with ledger.write() as connection:
        tracked = window_policies.lock(connection, [dataset], now)[dataset]
        folding = _Folding(connection, dataset, tracked, before)
        old = folding.old(keys)
        folding.fold(old, now)
    return len(old)


@dataclass(frozen=True)
class _Folding:
    connection: sa.Connection
    dataset: Feed
    tracked: Tracked
    before: datetime

    def old(self, keys: Sequence[_Key]) -> list[Any]:
        """Return the reports that can be folded: old reports whose windows have all been complete for long."""
        is_foldable = report.c.by.is_distinct_from(COUNTER) & (report.c.part != FOLDED) & (report.c.at <= self.before)
        key_table = key_tables.rows(self.connection, _KEY, keys)
        query = (
            sa.select(report)
            .join(key_table, key_tables.same_keys(report, key_table))
            .where(is_foldable, report.c.windows != _NOTHING)
        )
        reports = self.connection.execute(query).all()
        windows = self._windows(reports)
        return [each for each in reports if all(self._is_old(windows.get(at)) for at in self._named(each))]

    def fold(self, old: Sequence[Any], now: datetime) -> None:
        """Merge old reports into the row of their sub-partition and tier.

        Set `folded` in the rows of the windows for which these reports have counts.
        """
        windows = self._windows(old)
        for row in windows.values():
            row.folded = True
        write(self.connection, windows.values())
        for sub_partition, tier in {(each.sub_partition, each.tier) for each in old}:
            group = [each for each in old if (each.sub_partition, each.tier) == (sub_partition, tier)]
            self._put(sub_partition, tier, group, now)
        gone = [{f"its_{name}": getattr(each, name) for name in _KEY} for each in old]
        key_conditions = (report.c[name] == sa.bindparam(f"its_{name}") for name in _KEY)
        if gone:
            self.connection.execute(sa.delete(report).where(*key_conditions), gone)

    def _put(self, sub_partition: str, tier: str, old: Sequence[Any], now: datetime) -> None:
        key = dict(zip(_KEY, (str(self.dataset), sub_partition, tier, FOLDED), strict=True))
        same_key = sa.and_(*(report.c[name] == value for name, value in key.items()))
        previous = self.connection.execute(sa.select(report).where(same_key)).first()
        counts = [each for row in old for each in windows_of(row.windows).items()]
        records = sum(count for _, count in counts) + (previous.records if previous else 0)
        bounds = [start for start, _ in counts] + ([previous.first, previous.last] if previous else [])
        values = {"records": records, "first": min(bounds), "last": max(bounds), "at": now}
        constants = {"version": _AFTER_ALL, "digest": "", "windows": _NOTHING, "by": FOLDED}
        upsert(self.connection, report, [{**key, **constants, **values}], [*values])

    def _windows(self, reports: Iterable[Any]) -> dict[WindowAddress, WindowRow]:
        return rows(self.connection, {at for each in reports for at in self._named(each)})

    def _named(self, each: Any) -> list[WindowAddress]:
        """Return the base windows (windows of the smallest grain) that a report counts."""
        base, zone = self.tracked.base, self.tracked.zone_of(each.sub_partition)
        keys = [window_of(base, start, zone).key for start in windows_of(each.windows)]
        return [WindowAddress(self.dataset, each.sub_partition, base, key) for key in keys]

    def _is_old(self, row: WindowRow | None) -> bool:
        if row is None or row.state not in (WindowState.COMPLETE, WindowState.BACKFILLED) or row.stale:
            return False
        return row.since is not None and row.since <= self.before
