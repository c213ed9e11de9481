"""Ledger facts for the status page. A fixed number of statements looks up only the partitions that are shown."""

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
from feed_assets.ledger.states.nested_windows import holding
from feed_assets.ledger.states.window_explanations import whys
from feed_assets.ledger.states.window_queries import stored_windows
from feed_assets.ledger.states.window_rows import WindowRow
from feed_assets.ledger.tables import batch, change, event, update
from feed_assets.ledger.tables import due as due_table
from feed_assets.ledger.updates import PUBLISHED

TO_BE_DECIDED = "to be decided"
"""State of an output that changed after its last verdict."""


@dataclass(frozen=True)
class ShownPartition:
    """A partition that the status shows, with its windows.

    `is_set` and `is_table` say whether the partition exists by its batches or by its events.
    """

    partition: Partition
    windows: tuple[WindowAddress, ...] = ()
    is_set: bool = False
    """True if the partition holds batches."""
    is_table: bool = False
    """True if the partition has events, and no updates."""


@dataclass(frozen=True)
class Stale:
    """A built partition that is out of date: its verdict, the reason, and the time (UTC) since which it is stale."""

    partition: Partition
    state: str
    since: datetime
    why: str


def grid_facts(connection: sa.Connection, requests: Sequence[ShownPartition]) -> dict[Partition, PartitionFacts]:
    """Return the ledger facts about each partition."""
    partitions = [each.partition for each in requests]
    published = existing(connection, requests)
    uncounted = {each.partition: _UNCOUNTED for each in requests if each.windows and each.partition in published}
    kinds = (
        _listed(connection, partitions),
        uncounted | _windows(connection, requests),
        _reports(connection, requests),
    )
    values_by_partition = {
        at: {key: value for kind in kinds for key, value in kind.get(at, {}).items()} for at in partitions
    }
    return {at: PartitionFacts(published=at in published, **values) for at, values in values_by_partition.items()}


def _reports(connection: sa.Connection, requests: Sequence[ShownPartition]) -> dict[Partition, dict[str, Any]]:
    """Return what runs, checks and people reported about each partition. People may name its windows instead."""
    named = {each.partition: [each.partition, *(one.partition for one in each.windows)] for each in requests}
    every = [name for names in named.values() for name in names]
    by_name = {
        "failed": quality.failed(connection, named, (quality.FAILED, quality.STALE)),
        "marked": quality.failed(connection, named, (quality.MARKED,)),
        "running": {each.output: _run(each) for each in runs.running(connection)},
        "closed": _closed(connection, requests),
        "waiver": {at: (each.problem, each.by, each.why) for at, each in waivers.waived(connection, every).items()},
    }
    return {
        at: {kind: values[name] for kind, values in by_name.items() for name in names if name in values}
        for at, names in named.items()
    }


def _closed(connection: sa.Connection, requests: Iterable[ShownPartition]) -> dict[Partition, str]:
    """Return the closure of each closed partition: its own, or the closure of its window or of a larger window."""
    closed_feeds = closures.of_feeds(connection, {each.partition.feed for each in requests})
    candidates = [each for each in requests if each.partition.feed in closed_feeds]
    tracked = window_policies.tracked(connection, closed_feeds) if closed_feeds else {}
    named = {each.partition: [each.partition, *(at.partition for at in _holding(tracked, each))] for each in candidates}
    closure_by_partition = (
        closures.closed(connection, {name for names in named.values() for name in names}) if named else {}
    )
    final = {at: next((name for name in names if name in closure_by_partition), None) for at, names in named.items()}
    own = {each.partition: {each.partition, *(one.partition for one in each.windows)} for each in candidates}
    return {
        at: f"{closure_by_partition[name]}" if name in own[at] else f"{name.key} is {closure_by_partition[name]}"
        for at, name in final.items()
        if name
    }


def _holding(tracked: Mapping[Feed, Tracked], request: ShownPartition) -> list[WindowAddress]:
    """Return the windows of a partition, and the windows that contain the first of these."""
    judged = tracked.get(request.partition.feed)
    if judged is None or not request.windows:
        return [*request.windows]
    first = request.windows[0]
    start = judged.window(first.sub_partition, first.grain, first.key).start
    return [*request.windows, *holding(judged, first, start)]


_UNCOUNTED: Mapping[str, Any] = {"window": WindowState.OPEN, "window_why": "its records are not counted yet"}


def _run(run: runs.Run) -> str:
    by = f", requested by {run.asked_by}" if run.asked_by else ""
    return f"a run of it has been in progress since {run.started:%Y-%m-%d %H:%M:%S} UTC{by}"


def existing(connection: sa.Connection, requests: Iterable[ShownPartition]) -> set[Partition]:
    """Return the partitions that have a valid update, a batch with a valid update, or an event.

    Cost: one index lookup for each partition.
    """
    kinds: dict[Callable[[sa.CTE], sa.Exists], list[Partition]] = {}
    for each in requests:
        exists = _has_event if each.is_table else _has_batch if each.is_set else _has_update
        kinds.setdefault(exists, []).append(each.partition)
    present: set[Partition] = set()
    for exists, partitions in kinds.items():
        key_table = key_tables.partitions(connection, partitions)
        query = sa.select(key_table.c.feed, key_table.c.partition).where(exists(key_table))
        present |= {Partition(Feed.parse(feed), key) for feed, key in connection.execute(query)}
    return present


def _has_update(key_table: sa.CTE) -> sa.Exists:
    return sa.exists().where(key_tables.same_keys(update, key_table), update.c.state == PUBLISHED).correlate(key_table)


def _has_batch(key_table: sa.CTE) -> sa.Exists:
    of_batch = (update.c.feed == batch.c.feed) & (update.c.partition == batch.c.key) & (update.c.state == PUBLISHED)
    return sa.exists().where(key_tables.same_keys(batch, key_table), of_batch).correlate(key_table)


def _has_event(key_table: sa.CTE) -> sa.Exists:
    return sa.exists().where(key_tables.same_keys(event, key_table)).correlate(key_table)


def _listed(connection: sa.Connection, partitions: Iterable[Partition]) -> dict[Partition, dict[str, Any]]:
    """Return the last decision about each partition that is on the due list.

    Outputs that are not partitions yet are skipped.
    """
    key_table = key_tables.partitions(connection, partitions)
    query = sa.select(due_table).join(key_table, key_tables.same_keys(due_table, key_table))
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
    """Return a verdict for display. An undecidable output, which has an alert, waits for a person."""
    return State.WAITS_FOR_A_PERSON.value if state == due.UNDECIDED else state or TO_BE_DECIDED


def _windows(connection: sa.Connection, requests: Iterable[ShownPartition]) -> dict[Partition, Mapping[str, Any]]:
    """Return the window state of each partition.

    If it has several windows, the first bad or incomplete window counts.
    """
    of = {each.partition: each.windows for each in requests if each.windows}
    rows = stored_windows(connection, {at for each in of.values() for at in each}) if of else {}
    worst = {at: rows[min(windows, key=lambda one: _rank(rows[one]))] for at, windows in _with_rows(of, rows).items()}
    tracked = window_policies.tracked(connection, {at.feed for at in worst}) if worst else {}
    reasons = whys(connection, [row for row in worst.values() if row.state is not WindowState.COMPLETE], tracked)
    values_by_partition: dict[Partition, Mapping[str, Any]] = {}
    for at, row in worst.items():
        lacking = next((one for one in of[at] if one not in rows), None)
        why = reasons.get(row.address, "")
        is_flagged = row.bad is not None or row.state is WindowState.COMPLETE_WITH_ISSUE
        values_by_partition[at] = {"window": row.state, "window_why": why, "is_flagged": is_flagged}
        if row.state in DONE and lacking:
            why = f"nothing is reported of {lacking.grain} {lacking.key}"
            values_by_partition[at] = {"window": WindowState.OPEN, "window_why": why}
    return values_by_partition


def _with_rows(
    of: Mapping[Partition, Iterable[WindowAddress]], rows: Collection[WindowAddress]
) -> dict[Partition, list[WindowAddress]]:
    """Return the recorded windows of each partition. Partitions without a recorded window are missing."""
    windows_by_partition = {at: [one for one in each if one in rows] for at, each in of.items()}
    return {at: each for at, each in windows_by_partition.items() if each}


def _rank(row: WindowRow) -> tuple[bool, bool]:
    return row.state in DONE, row.state is WindowState.COMPLETE


def window_reasons(connection: sa.Connection, windows: Collection[WindowAddress]) -> dict[WindowAddress, str]:
    """Return why windows are incomplete."""
    rows = stored_windows(connection, windows) if windows else {}
    tracked = window_policies.tracked(connection, {at.dataset for at in rows}) if rows else {}
    reasons = whys(connection, rows.values(), tracked)
    return {at: reasons.get(at) or "nothing is reported of it" for at in windows}


def latest_keys(connection: sa.Connection, feeds: Iterable[Feed]) -> dict[Feed, str]:
    """Return for each feed the last partition, by name, that has a valid update.

    Cost: one index lookup for each feed.
    """
    return _latest(connection, feeds, update, update.c.state == PUBLISHED)


def latest_event_keys(connection: sa.Connection, tables: Iterable[Feed]) -> dict[Feed, str]:
    """Return for each table the last partition, by name, that has an event. Cost: one index lookup for each table."""
    return _latest(connection, tables, event, sa.true())


def _latest(
    connection: sa.Connection, feeds: Iterable[Feed], table: sa.Table, is_there: sa.ColumnElement[bool]
) -> dict[Feed, str]:
    key_table = key_tables.rows(connection, ("feed",), [[str(feed)] for feed in feeds])
    condition = (table.c.feed == key_table.c.feed) & is_there
    last = sa.select(sa.func.max(table.c.partition)).where(condition).correlate(key_table).scalar_subquery()
    return {
        Feed.parse(feed): key for feed, key in connection.execute(sa.select(key_table.c.feed, last)) if key is not None
    }


def stale(connection: sa.Connection, feeds: Collection[Feed], limit: int | None = None) -> tuple[list[Stale], int]:
    """Return partitions that were built and are out of date, and their total number. The longest stale come first.

    They are read from the due list. Skip partitions that a run has published since the last decision.
    """
    key_table = key_tables.rows(connection, ("feed",), [[str(feed)] for feed in feeds])
    same_partition = (update.c.feed == due_table.c.feed) & (update.c.partition == due_table.c.partition)
    built = sa.exists().where(same_partition, update.c.state == PUBLISHED).correlate(due_table)
    query = sa.select(due_table, sa.func.count().over().label("total")).join(
        key_table, key_tables.same_keys(due_table, key_table)
    )
    own = (change.c.feed == due_table.c.feed) & (change.c.partition == due_table.c.partition)
    since = sa.exists().where(own, change.c.kind == log.UPDATE, change.c.sequence > due_table.c.changed)
    decided = due_table.c.state.is_not(None) & due_table.c.state.not_in([due.NOT_YET, State.BUILD.value])
    query = query.where(built, decided, ~since.correlate(due_table))
    rows = connection.execute(
        query.order_by(due_table.c.since, due_table.c.feed, due_table.c.partition).limit(limit)
    ).all()
    stale_partitions = [
        Stale(Partition(Feed.parse(row.feed), row.partition), row.state, row.since, row.reason) for row in rows
    ]
    return stale_partitions, rows[0].total if rows else 0
