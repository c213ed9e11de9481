"""Starts and ends of runs, in the order of the log, with what they read, wrote and found: for lineage."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.pins import Pin
from feed_assets.ledger import key_tables, log, runs, updates
from feed_assets.ledger.runs import Run
from feed_assets.ledger.tables import change, consumed, quality, update

_Key = tuple[Partition, str]


@dataclass(frozen=True)
class Finding:
    """The result of a check, and when it was found (UTC); `by` is the run or person that reported it."""

    partition: Partition
    check: str
    state: str
    reason: str | None
    by: str | None
    at: datetime


@dataclass(frozen=True)
class RunChange:
    """A run that began or ended, with the number of that change: `running`, or how it ended, when (UTC) and why.

    `written` are its updates, `read` what the last of them was made of; `found` are the checks of what it built, and
    `known` those of what it read.
    """

    sequence: int
    run: Run
    state: str
    at: datetime
    why: str | None
    written: tuple[updates.UpdateRow, ...] = ()
    read: tuple[Pin, ...] = ()
    found: tuple[Finding, ...] = ()
    known: tuple[Finding, ...] = ()
    columns: Mapping[_Key, Sequence[tuple[str, str]]] = field(default_factory=dict[_Key, Sequence[tuple[str, str]]])
    """Name and type of each column of those of these updates that a run of ours wrote."""


def run_changes(connection: sa.Connection, after: int, limit: int) -> tuple[RunChange, ...]:
    """Return the first changes of runs after a number, in order. A run that began has read and written nothing yet."""
    mine = (change.c.kind == log.RUN) & (change.c.sequence > after)
    told = connection.execute(sa.select(change).where(mine).order_by(change.c.sequence).limit(limit)).all()
    known = runs.find(connection, {each.subject for each in told})
    ended = {each.subject for each in told if each.after != runs.RUNNING}
    written, read = _written(connection, ended), _read(connection, ended)
    outputs = {each: known[each].output for each in ended & known.keys()}
    found = _found(connection, {*outputs.values(), *(pin.partition for pins in read.values() for pin in pins)})
    columns = _columns(connection, [pin for pins in (*read.values(), *map(_pins, written.values())) for pin in pins])

    def change_of(row: sa.Row[Any]) -> RunChange:
        run_id, its = row.subject, known[row.subject]
        if row.after == runs.RUNNING:
            return RunChange(row.sequence, its, row.after, row.at, row.why)
        pins, mine = tuple(read.get(run_id, ())), tuple(written.get(run_id, ()))
        own = tuple(each for each in found.get(its.output, ()) if each.by == run_id)
        at_the_end = tuple(_before(row.at, pins, found))
        return RunChange(row.sequence, its, row.after, row.at, row.why, mine, pins, own, at_the_end, columns)

    return tuple(change_of(row) for row in told if row.subject in known)


def _pins(rows: Iterable[updates.UpdateRow]) -> list[Pin]:
    return [row.pin for row in rows]


def _before(at: datetime, pins: Iterable[Pin], found: Mapping[Partition, Sequence[Finding]]) -> Iterator[Finding]:
    """Yield the results of checks of what a run read, in order, unless they were reported after its end."""
    for partition in sorted({pin.partition for pin in pins}):
        yield from (each for each in found.get(partition, ()) if each.at <= at)


def _written(connection: sa.Connection, run_ids: Iterable[str]) -> dict[str, list[updates.UpdateRow]]:
    """Return the updates of some runs, in order of their feeds."""
    asked, rows = (
        key_tables.rows(connection, ("run",), [[each] for each in sorted(run_ids)]),
        dict[str, list[updates.UpdateRow]](),
    )
    query = sa.select(*updates.COLUMNS).join(asked, update.c.run == asked.c.run).order_by(update.c.feed, update.c.id)
    for row in map(updates.row_of, connection.execute(query).mappings()):
        rows.setdefault(row.run or "", []).append(row)
    return rows


def _read(connection: sa.Connection, run_ids: Iterable[str]) -> dict[str, list[Pin]]:
    """Return what the updates of some runs were made of, in order."""
    asked, pins = key_tables.rows(connection, ("run",), [[each] for each in sorted(run_ids)]), dict[str, list[Pin]]()
    same = (consumed.c.feed == update.c.feed) & (consumed.c.partition == update.c.partition)
    query = sa.select(update.c.run, consumed).select_from(asked).join(update, update.c.run == asked.c.run)
    query = query.join(consumed, same & (consumed.c.id == update.c.id) & consumed.c.is_input)
    for row in connection.execute(query):
        pins.setdefault(row.run, []).append(updates.pin_of(row))
    return {each: sorted(set(read)) for each, read in pins.items()}


def _found(connection: sa.Connection, partitions: Iterable[Partition]) -> dict[Partition, list[Finding]]:
    """Return the newest results of the checks of some partitions."""
    asked, found = key_tables.partitions(connection, sorted(partitions)), dict[Partition, list[Finding]]()
    query = sa.select(quality).join(asked, key_tables.same(quality, asked)).order_by(quality.c.check)
    for row in connection.execute(query):
        at = Partition(Feed.parse(row.feed), row.partition)
        found.setdefault(at, []).append(Finding(at, row.check, row.state, row.reason, row.by, row.at))
    return found


def _columns(connection: sa.Connection, pins: Iterable[Pin]) -> dict[_Key, list[tuple[str, str]]]:
    """Return name and type of the columns of those of some updates that a run of ours wrote."""
    asked = key_tables.updates(connection, {(pin.partition, pin.update_id) for pin in pins})
    mine = key_tables.same(update, asked) & update.c.columns.is_not(None)
    rows = connection.execute(
        sa.select(update.c.feed, update.c.partition, update.c.id, update.c.columns).join(asked, mine)
    )
    return {(Partition(Feed.parse(row.feed), row.partition), row.id): json.loads(row.columns) for row in rows}
