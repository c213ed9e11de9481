"""Starts and ends of runs in the order of the log, with their inputs, outputs and check results, for lineage."""

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
    """The result of a check, with its time (UTC). `by` is the run or person that reported it."""

    partition: Partition
    check: str
    state: str
    reason: str | None
    by: str | None
    at: datetime


@dataclass(frozen=True)
class RunChange:
    """The start or end of a run: its log number, the state (`running`, or the end state), the time (UTC) and reason.

    `written` are the updates that the run wrote, and `read` are the pins of its inputs. `output_findings` are the check
    results that it reported about its output. `input_findings` are the check results of its inputs before its end.
    """

    sequence: int
    run: Run
    state: str
    at: datetime
    why: str | None
    written: tuple[updates.UpdateRow, ...] = ()
    read: tuple[Pin, ...] = ()
    output_findings: tuple[Finding, ...] = ()
    input_findings: tuple[Finding, ...] = ()
    columns: Mapping[_Key, Sequence[tuple[str, str]]] = field(default_factory=dict[_Key, Sequence[tuple[str, str]]])
    """Name and type of each column, for updates that our runs wrote."""


def run_changes(connection: sa.Connection, after: int, limit: int) -> tuple[RunChange, ...]:
    """Return the first run changes after a log number, in order. A start has no inputs and outputs yet."""
    condition = (change.c.kind == log.RUN) & (change.c.sequence > after)
    changes = connection.execute(sa.select(change).where(condition).order_by(change.c.sequence).limit(limit)).all()
    run_by_id = runs.find(connection, {each.subject for each in changes})
    ended = {each.subject for each in changes if each.after != runs.RUNNING}
    written, read = _written(connection, ended), _read(connection, ended)
    outputs = {each: run_by_id[each].output for each in ended & run_by_id.keys()}
    findings = _findings(connection, {*outputs.values(), *(pin.partition for pins in read.values() for pin in pins)})
    columns = _columns(connection, [pin for pins in (*read.values(), *map(_pins, written.values())) for pin in pins])

    def change_of(row: sa.Row[Any]) -> RunChange:
        run_id, its = row.subject, run_by_id[row.subject]
        if row.after == runs.RUNNING:
            return RunChange(row.sequence, its, row.after, row.at, row.why)
        pins, own_updates = tuple(read.get(run_id, ())), tuple(written.get(run_id, ()))
        own = tuple(each for each in findings.get(its.output, ()) if each.by == run_id)
        at_the_end = tuple(_before(row.at, pins, findings))
        return RunChange(
            row.sequence,
            its,
            row.after,
            at=row.at,
            why=row.why,
            written=own_updates,
            read=pins,
            output_findings=own,
            input_findings=at_the_end,
            columns=columns,
        )

    return tuple(change_of(row) for row in changes if row.subject in run_by_id)


def _pins(rows: Iterable[updates.UpdateRow]) -> list[Pin]:
    return [row.pin for row in rows]


def _before(at: datetime, pins: Iterable[Pin], findings: Mapping[Partition, Sequence[Finding]]) -> Iterator[Finding]:
    """Yield the check results of a run's inputs, in order, except those reported after its end."""
    for partition in sorted({pin.partition for pin in pins}):
        yield from (each for each in findings.get(partition, ()) if each.at <= at)


def _written(connection: sa.Connection, run_ids: Iterable[str]) -> dict[str, list[updates.UpdateRow]]:
    """Return the updates that these runs wrote, by run, in the order of their feeds."""
    key_table, rows = (
        key_tables.rows(connection, ("run",), [[each] for each in sorted(run_ids)]),
        dict[str, list[updates.UpdateRow]](),
    )
    query = (
        sa.select(*updates.COLUMNS)
        .join(key_table, update.c.run == key_table.c.run)
        .order_by(update.c.feed, update.c.id)
    )
    for row in map(updates.row_of, connection.execute(query).mappings()):
        rows.setdefault(row.run or "", []).append(row)
    return rows


def _read(connection: sa.Connection, run_ids: Iterable[str]) -> dict[str, list[Pin]]:
    """Return the pins of the updates that these runs read, in order, by run.

    A compaction has read the updates that it replaces, which are of its own feed. It has their pins, too, but has not
    read these.
    """
    key_table, pins = (
        key_tables.rows(connection, ("run",), [[each] for each in sorted(run_ids)]),
        dict[str, list[Pin]](),
    )
    is_read = consumed.c.is_input & (update.c.origin != updates.COMPACTED)
    is_replaced = ~consumed.c.is_input & (consumed.c.input_feed == consumed.c.feed)
    is_read |= is_replaced & (update.c.origin == updates.COMPACTED)
    same_partition = (consumed.c.feed == update.c.feed) & (consumed.c.partition == update.c.partition)
    query = sa.select(update.c.run, consumed).select_from(key_table).join(update, update.c.run == key_table.c.run)
    query = query.join(consumed, same_partition & (consumed.c.id == update.c.id) & is_read)
    for row in connection.execute(query):
        pins.setdefault(row.run, []).append(updates.pin_of(row))
    return {each: sorted(set(read)) for each, read in pins.items()}


def _findings(connection: sa.Connection, partitions: Iterable[Partition]) -> dict[Partition, list[Finding]]:
    """Return the newest check results of partitions."""
    key_table, findings = key_tables.partitions(connection, sorted(partitions)), dict[Partition, list[Finding]]()
    query = sa.select(quality).join(key_table, key_tables.same_keys(quality, key_table)).order_by(quality.c.check)
    for row in connection.execute(query):
        at = Partition(Feed.parse(row.feed), row.partition)
        findings.setdefault(at, []).append(Finding(at, row.check, row.state, reason=row.reason, by=row.by, at=row.at))
    return findings


def _columns(connection: sa.Connection, pins: Iterable[Pin]) -> dict[_Key, list[tuple[str, str]]]:
    """Return name and type of the columns of updates, as the runs that wrote them recorded."""
    key_table = key_tables.updates(connection, {(pin.partition, pin.update_id) for pin in pins})
    has_columns = key_tables.same_keys(update, key_table) & update.c.columns.is_not(None)
    rows = connection.execute(
        sa.select(update.c.feed, update.c.partition, update.c.id, update.c.columns).join(key_table, has_columns)
    )
    return {(Partition(Feed.parse(row.feed), row.partition), row.id): json.loads(row.columns) for row in rows}
