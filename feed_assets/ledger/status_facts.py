"""Facts for a status page of partitions: a fixed number of statements, by seeks of what is shown and no history."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from feed_assets.core.completeness import DONE, WindowState
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.grid import PartitionFacts
from feed_assets.core.readiness import State
from feed_assets.core.sub_partitions import Tracked
from feed_assets.core.windows import WindowAddress
from feed_assets.ledger import closures, due, key_tables, log, quality, runs, waivers
from feed_assets.ledger.states import window_policies
from feed_assets.ledger.states.flags import holding
from feed_assets.ledger.states.lacking import whys
from feed_assets.ledger.states.window_queries import known as known_windows
from feed_assets.ledger.states.window_rows import WindowRow
from feed_assets.ledger.tables import batch, change, event, update
from feed_assets.ledger.tables import due as due_table
from feed_assets.ledger.updates import PUBLISHED

TO_BE_DECIDED = "to be decided"
"""State in place of a verdict: something has changed since the last one."""


@dataclass(frozen=True)
class ShownPartition:
    """A partition to show: the windows that it is, and how its existence is known."""

    partition: Partition
    windows: tuple[WindowAddress, ...] = ()
    is_set: bool = False
    """True if it holds batches."""
    is_table: bool = False
    """True if it has events, and no updates."""


@dataclass(frozen=True)
class Stale:
    """A partition that was built and is out of date: what is to be done about it, why, and since when (UTC)."""

    partition: Partition
    state: str
    since: datetime
    why: str


def known(connection: sa.Connection, asked: Sequence[ShownPartition]) -> dict[Partition, PartitionFacts]:
    """Return what the ledger has of each partition."""
    partitions = [each.partition for each in asked]
    published = there(connection, asked)
    uncounted = {each.partition: _UNCOUNTED for each in asked if each.windows and each.partition in published}
    kinds = (_listed(connection, partitions), uncounted | _windows(connection, asked), _said(connection, asked))
    found = {at: {key: value for kind in kinds for key, value in kind.get(at, {}).items()} for at in partitions}
    return {at: PartitionFacts(published=at in published, **values) for at, values in found.items()}


def _said(connection: sa.Connection, asked: Sequence[ShownPartition]) -> dict[Partition, dict[str, Any]]:
    """Return what runs, checks and people report of partitions. A person may name the window that one is."""
    named = {each.partition: [each.partition, *(one.partition for one in each.windows)] for each in asked}
    every = [name for names in named.values() for name in names]
    by_name = {
        "failed": quality.failed(connection, named, (quality.FAILED, quality.STALE)),
        "marked": quality.failed(connection, named, (quality.MARKED,)),
        "running": {each.output: _run(each) for each in runs.running(connection)},
        "closed": _closed(connection, asked),
        "waiver": {at: (each.problem, each.who, each.why) for at, each in waivers.waived(connection, every).items()},
    }
    return {
        at: {what: found[name] for what, found in by_name.items() for name in names if name in found}
        for at, names in named.items()
    }


def _closed(connection: sa.Connection, asked: Iterable[ShownPartition]) -> dict[Partition, str]:
    """Return why partitions are closed: by themselves, the window that one is, or a larger one that holds it."""
    shown = closures.of_feeds(connection, {each.partition.feed for each in asked})
    mine = [each for each in asked if each.partition.feed in shown]
    tracked = window_policies.tracked(connection, shown) if shown else {}
    named = {each.partition: [each.partition, *(at.partition for at in _holding(tracked, each))] for each in mine}
    known = closures.closed(connection, {name for names in named.values() for name in names}) if named else {}
    final = {at: next((name for name in names if name in known), None) for at, names in named.items()}
    own = {each.partition: {each.partition, *(one.partition for one in each.windows)} for each in mine}
    return {
        at: f"{known[name]}" if name in own[at] else f"{name.key} is {known[name]}"
        for at, name in final.items()
        if name
    }


def _holding(tracked: Mapping[Feed, Tracked], asked: ShownPartition) -> list[WindowAddress]:
    """Return the windows that a partition is, and those that hold the first of them."""
    judged = tracked.get(asked.partition.feed)
    if judged is None or not asked.windows:
        return [*asked.windows]
    first = asked.windows[0]
    start = judged.window(first.sub_partition, first.grain, first.key).start
    return [*asked.windows, *holding(judged, first, start)]


_UNCOUNTED: Mapping[str, Any] = {"window": WindowState.OPEN, "window_why": "its records are not counted yet"}


def _run(run: runs.Run) -> str:
    by = f", asked for by {run.asked_by}" if run.asked_by else ""
    return f"a run of it goes on since {run.started:%Y-%m-%d %H:%M:%S} UTC{by}"


def there(connection: sa.Connection, asked: Iterable[ShownPartition]) -> set[Partition]:
    """Return what has a valid update, itself or in a batch of it, or an event: one seek for each."""
    kinds: dict[Callable[[sa.CTE], sa.Exists], list[Partition]] = {}
    for each in asked:
        exists = _has_event if each.is_table else _has_batch if each.is_set else _has_update
        kinds.setdefault(exists, []).append(each.partition)
    found: set[Partition] = set()
    for exists, partitions in kinds.items():
        mine = key_tables.partitions(connection, partitions)
        query = sa.select(mine.c.feed, mine.c.partition).where(exists(mine))
        found |= {Partition(Feed.parse(feed), key) for feed, key in connection.execute(query)}
    return found


def _has_update(mine: sa.CTE) -> sa.Exists:
    return sa.exists().where(key_tables.same(update, mine), update.c.state == PUBLISHED).correlate(mine)


def _has_batch(mine: sa.CTE) -> sa.Exists:
    of_batch = (update.c.feed == batch.c.feed) & (update.c.partition == batch.c.key) & (update.c.state == PUBLISHED)
    return sa.exists().where(key_tables.same(batch, mine), of_batch).correlate(mine)


def _has_event(mine: sa.CTE) -> sa.Exists:
    return sa.exists().where(key_tables.same(event, mine)).correlate(mine)


def _listed(connection: sa.Connection, partitions: Iterable[Partition]) -> dict[Partition, dict[str, Any]]:
    """Return the verdicts of what is on the list, except of what is no partition yet."""
    asked = key_tables.partitions(connection, partitions)
    query = sa.select(due_table).join(asked, key_tables.same(due_table, asked))
    rows = [row for row in connection.execute(query) if row.state != due.NOT_YET]
    return {
        Partition(Feed.parse(row.feed), row.partition): {
            "verdict": verdict_of(row.state),
            "reason": row.reason or TO_BE_DECIDED,
            "since": row.since,
        }
        for row in rows
    }


def verdict_of(state: str | None) -> str:
    """Return a verdict as it is shown: what cannot be decided takes a person, who has its alert."""
    return State.WAITS_FOR_A_PERSON.value if state == due.UNDECIDED else state or TO_BE_DECIDED


def _windows(connection: sa.Connection, asked: Iterable[ShownPartition]) -> dict[Partition, Mapping[str, Any]]:
    """Return the state of each partition that is a window; if it is several, of the first that is not done or good."""
    of = {each.partition: each.windows for each in asked if each.windows}
    rows = known_windows(connection, {at for each in of.values() for at in each}) if of else {}
    worst = {at: rows[min(known, key=lambda one: _rank(rows[one]))] for at, known in _there(of, rows).items()}
    tracked = window_policies.tracked(connection, {at.feed for at in worst}) if worst else {}
    said = whys(connection, [row for row in worst.values() if row.state is not WindowState.COMPLETE], tracked)
    found: dict[Partition, Mapping[str, Any]] = {}
    for at, row in worst.items():
        lacking = next((one for one in of[at] if one not in rows), None)
        why = said.get(row.address, "")
        is_flagged = row.bad is not None or row.state is WindowState.COMPLETE_WITH_ISSUE
        found[at] = {"window": row.state, "window_why": why, "is_flagged": is_flagged}
        if row.state in DONE and lacking:
            why = f"nothing is reported of {lacking.grain} {lacking.key}"
            found[at] = {"window": WindowState.OPEN, "window_why": why}
    return found


def _there(
    of: Mapping[Partition, Iterable[WindowAddress]], rows: Collection[WindowAddress]
) -> dict[Partition, list[WindowAddress]]:
    """Return the windows of each partition that anything is known of, if there are some."""
    found = {at: [one for one in each if one in rows] for at, each in of.items()}
    return {at: each for at, each in found.items() if each}


def _rank(row: WindowRow) -> tuple[bool, bool]:
    return row.state in DONE, row.state is WindowState.COMPLETE


def said(connection: sa.Connection, windows: Collection[WindowAddress]) -> dict[WindowAddress, str]:
    """Return why windows are not complete."""
    rows = known_windows(connection, windows) if windows else {}
    tracked = window_policies.tracked(connection, {at.dataset for at in rows}) if rows else {}
    found = whys(connection, rows.values(), tracked)
    return {at: found.get(at) or "nothing is reported of it" for at in windows}


def latest_keys(connection: sa.Connection, feeds: Iterable[Feed]) -> dict[Feed, str]:
    """Return the last partition by name of each feed that has a valid update: one seek for each."""
    return _latest(connection, feeds, update, update.c.state == PUBLISHED)


def latest_event_keys(connection: sa.Connection, tables: Iterable[Feed]) -> dict[Feed, str]:
    """Return the last partition by name of each table that has an event: one seek for each."""
    return _latest(connection, tables, event, sa.true())


def _latest(
    connection: sa.Connection, feeds: Iterable[Feed], table: sa.Table, is_there: sa.ColumnElement[bool]
) -> dict[Feed, str]:
    asked = key_tables.rows(connection, ("feed",), [[str(feed)] for feed in feeds])
    mine = (table.c.feed == asked.c.feed) & is_there
    last = sa.select(sa.func.max(table.c.partition)).where(mine).correlate(asked).scalar_subquery()
    return {Feed.parse(feed): key for feed, key in connection.execute(sa.select(asked.c.feed, last)) if key is not None}


def stale(connection: sa.Connection, feeds: Collection[Feed], limit: int | None = None) -> tuple[list[Stale], int]:
    """Return what was built of some datasets and is out of date, longest first, and how much that is in all.

    It is read from the list of what is due, which is as long as what is new or incomplete. Skip what a run has
    published since the decision.
    """
    asked = key_tables.rows(connection, ("feed",), [[str(feed)] for feed in feeds])
    mine = (update.c.feed == due_table.c.feed) & (update.c.partition == due_table.c.partition)
    built = sa.exists().where(mine, update.c.state == PUBLISHED).correlate(due_table)
    query = sa.select(due_table, sa.func.count().over().label("total")).join(asked, key_tables.same(due_table, asked))
    own = (change.c.feed == due_table.c.feed) & (change.c.partition == due_table.c.partition)
    since = sa.exists().where(own, change.c.kind == log.UPDATE, change.c.sequence > due_table.c.changed)
    decided = due_table.c.state.is_not(None) & due_table.c.state.not_in([due.NOT_YET, State.BUILD.value])
    query = query.where(built, decided, ~since.correlate(due_table))
    rows = connection.execute(
        query.order_by(due_table.c.since, due_table.c.feed, due_table.c.partition).limit(limit)
    ).all()
    found = [Stale(Partition(Feed.parse(row.feed), row.partition), row.state, row.since, row.reason) for row in rows]
    return found, rows[0].total if rows else 0
