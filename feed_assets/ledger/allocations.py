"""Compute resources that runs have. A row whose run has ended, or never began, is removed (`unused`).

So a killed run does not keep its resources for ever. Requests that wait for resources are rows of the same table
(`resource_queue.py`).
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from functools import lru_cache
from typing import Any

import sqlalchemy as sa

from feed_assets.core.feeds import Partition
from feed_assets.core.launching import LONGEST_WAIT
from feed_assets.core.resources import Amount, Resources
from feed_assets.core.target_room import Grant
from feed_assets.ledger import key_tables
from feed_assets.ledger.database import Ledger, insert_missing
from feed_assets.ledger.tables import allocation, cursor, due, run

_LOCK = "allocations"


@dataclass(frozen=True)
class Allocation:
    """Resources of a compute target that were given to one run."""

    id: str
    target: str
    reason: str
    at: datetime
    dagster_run: str | None
    resources: Resources


def lock(connection: sa.Connection) -> None:
    """Lock the queue of resources until the transaction ends.

    A transaction that also locks the history budget must lock it before this call, to avoid a deadlock.
    """
    insert_missing(connection, cursor, [{"name": _LOCK, "value": ""}])
    connection.execute(sa.select(cursor.c.value).where(cursor.c.name == _LOCK).with_for_update())


def grants(connection: sa.Connection) -> dict[str, list[Grant]]:
    """Return the resources that are given to runs that have not ended, by target."""
    by_target: dict[str, list[Grant]] = {}
    for row in connection.execute(sa.select(allocation).where(allocation.c.target.is_not(None))):
        by_target.setdefault(row.target, []).append(Grant(Amount(row.cores, row.memory), row.started))
    return by_target


def of_outputs(connection: sa.Connection, outputs: Iterable[Partition]) -> dict[Partition, Allocation]:
    """Return the resources that were given to the next run of each output."""
    rows = rows_of_outputs(connection, outputs, allocation.c.target.is_not(None))
    return {output: _allocation(row) for output, row in rows.items()}


def rows_of_outputs(
    connection: sa.Connection, outputs: Iterable[Partition], condition: sa.ColumnElement[bool]
) -> dict[Partition, Any]:
    """Return for each output the row of its resources or of its request, if the row meets a condition."""
    key_table = key_tables.partitions(connection, outputs)
    query = sa.select(due.c.feed, due.c.partition, allocation)
    query = query.join(key_table, key_tables.same_keys(due, key_table))
    query = query.join(allocation, allocation.c.id == due.c.allocation).where(condition)
    by_path = {(row.feed, row.partition): row for row in connection.execute(query)}
    return {each: by_path[key] for each in outputs if (key := (str(each.feed), each.key)) in by_path}


def _allocation(row: Any) -> Allocation:
    return Allocation(row.id, row.target, row.reason, row.at, dagster_run=row.dagster_run, resources=resources_of(row))


def resources_of(row: Any) -> Resources:
    """Return the resources of a row. Skip fields that only another version of this package has."""
    return _parsed(row.resources)


@lru_cache(1000)
def _parsed(text: str) -> Resources:
    """Return the resources of a text. A queue of hundreds of outputs has few texts, and each tick reads all of it."""
    names = {each.name for each in fields(Resources)}
    return Resources(**{name: value for name, value in json.loads(text).items() if name in names})


def take_up(ledger: Ledger, allocation_id: str, dagster_run: str) -> Allocation | None:
    """Let a run that begins use the resources that were given to it. Return None if they were taken back.

    A second call of the same run changes nothing.
    """
    free = allocation.c.dagster_run.is_(None) | (allocation.c.dagster_run == dagster_run)
    own = (allocation.c.id == allocation_id) & allocation.c.target.is_not(None) & free
    with ledger.write() as connection:
        connection.execute(sa.update(allocation).where(own).values(dagster_run=dagster_run))
        row = connection.execute(sa.select(allocation).where(own)).first()
    return _allocation(row) if row else None


def session_is_up(ledger: Ledger, allocation_id: str, now: datetime) -> None:
    """Record that the Spark session of a run is up, so that later answers of its target count its resources."""
    first = (allocation.c.id == allocation_id) & allocation.c.started.is_(None)
    with ledger.write() as connection:
        connection.execute(sa.update(allocation).where(first).values(started=now))


def end(connection: sa.Connection, ids: Iterable[str]) -> None:
    """Delete the rows of resources and requests. Skip ids without a row."""
    if rows := [{"its_id": each} for each in sorted(ids)]:
        connection.execute(sa.delete(allocation).where(allocation.c.id == sa.bindparam("its_id")), rows)


def in_use(connection: sa.Connection) -> list[Allocation]:
    """Return all resources that were given to runs, and the requests of runs that have already begun."""
    has = allocation.c.target.is_not(None) | allocation.c.dagster_run.is_not(None)
    return [_allocation(row) for row in connection.execute(sa.select(allocation).where(has))]


def end_not_begun(ledger: Ledger, now: datetime) -> None:
    """Take back the resources of runs that did not begin in time. Ticks do this, too, but perhaps none is running."""
    with ledger.read() as connection:
        listed = [each for each in in_use(connection) if each.dagster_run is None and _is_old(each, now)]
    if listed:
        with ledger.write() as connection:
            lock(connection)
            end(connection, unused(connection, listed, lambda _: True, now))


def _is_old(grant: Allocation, now: datetime) -> bool:
    return abs(now - grant.at) > LONGEST_WAIT  # A time in the far future (wrong clock) counts as old, too.


def unused(
    connection: sa.Connection,
    listed: Sequence[Allocation],
    unfinished: Callable[[str], bool | None],
    now: datetime,
) -> set[str]:
    """Return the ids of `listed` whose run has ended, or did not begin in time.

    A run that waits in Dagster's own queue, for a pool or a limit, counts as not begun. It loses its resources, so that
    they do not idle, and asks for resources again when it begins. A run without a running build may be between two of
    its partitions. It keeps its resources while its Dagster run is unfinished.

    `unfinished` returns whether a Dagster run is unfinished; None if Dagster does not know the run, because it may
    belong to another instance. The caller has locked the queue, and has read `listed` before Dagster's runs. So a run
    that begins in between is not missed.
    """
    not_begun = sa.select(allocation.c.id).where(allocation.c.dagster_run.is_(None))
    idle = {*connection.execute(not_begun.with_for_update()).scalars()}
    builds = sa.select(run.c.dagster_run).where(run.c.dagster_run.is_not(None))
    building = {*connection.execute(builds.where(run.c.state == "running")).scalars()}
    recent = {*connection.execute(builds.where(run.c.ended > now - LONGEST_WAIT)).scalars()}
    unused_ids: set[str] = set()
    for each in listed:
        is_old = _is_old(each, now)
        if each.dagster_run is None:
            has_ended = is_old and each.id in idle
        else:
            state = unfinished(each.dagster_run)
            is_lost = state is None and is_old and each.dagster_run not in recent
            has_ended = each.dagster_run not in building and (state is False or is_lost)
        if has_ended:
            unused_ids.add(each.id)
    return unused_ids
