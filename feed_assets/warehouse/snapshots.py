"""Snapshots of a topic: once one is loaded whole, the rows of its partition that it did not name are removed.

A signal says that a snapshot begins with its chunk, or ends with it. The state table `snapshots` has the snapshots that
have begun, and changes in the transactions of loads. So a kill or a restart between begin and end loses nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from feed_assets.core.sql_text import literal
from feed_assets.core.topic_unions import UnionPart
from feed_assets.warehouse import loader_tables
from feed_assets.warehouse.engines import Connection, Engine
from feed_assets.warehouse.load_groups import Signalled
from feed_assets.warehouse.loader_tables import LoaderTable
from feed_assets.warehouse.shapes import DELETED_AT, OFFSET, PARTITION, Shape
from feed_assets.warehouse.statements import STATE, deleted_of, names_of

_TABLES = (
    LoaderTable(
        "snapshots",
        ("topic {text}", "topic_partition integer", "begin_offset bigint", "end_offset bigint"),
        ("PRIMARY KEY (topic, topic_partition, begin_offset)",),
    ),
)
"""`end_offset` is the offset after a snapshot, or null if its end was not loaded yet."""


class Snapshot(NamedTuple):
    """A snapshot in a partition: the offset with which it begins, and the offset after its end."""

    partition: int
    begin: int
    end: int


class SnapshotProgress(NamedTuple):
    """The snapshots after the chunks of a load.

    `opened` has the begins of those without an end, by partition. `broken` are partitions and begins of those with a
    dead letter, which end there.
    """

    opened: Mapping[int, int]
    ended: Sequence[Snapshot]
    broken: Sequence[tuple[int, int]]


def progress(
    opened: Mapping[int, int], signals: Iterable[Signalled], part: UnionPart | None = None
) -> SnapshotProgress:
    """Return the snapshots after the chunks of some signals, which are in the order of offsets in each partition.

    A begin without an end before it replaces the earlier one: that snapshot broke off. An end without a begin says
    nothing. A chunk that was cut again may come from before the begin. It says nothing either.
    """
    begins, ended, broken = dict(opened), list[Snapshot](), list[tuple[int, int]]()
    for signal, _ in signals:
        number = part.partitions[signal.partition] if part else signal.partition
        if signal.snapshot_begins:
            begins[number] = signal.first_offset
        begin = begins.get(number)
        if begin is None or signal.first_offset < begin:
            continue
        if signal.dead_letters:
            broken.append((number, begins.pop(number)))
        elif signal.snapshot_ends:
            ended.append(Snapshot(number, begins.pop(number), signal.next_offset))
    return SnapshotProgress(begins, ended, broken)


def prepare(connection: Connection, engine: Engine) -> None:
    """Create the state table if it is missing. A role with more rights may have created it."""
    if not exists(connection, engine):
        for each in _TABLES:
            connection.execute(each.create(engine, "CREATE TABLE IF NOT EXISTS"))


def exists(connection: Connection, engine: Engine) -> bool:
    """Return whether the state table exists. Raise LoadFailed if it is altered or untrusted."""
    return loader_tables.exist(connection, engine, _TABLES)


def is_open(connection: Connection, engine: Engine, table: str) -> bool:
    """Return whether a snapshot has begun in a table whose end was not loaded yet."""
    return exists(connection, engine) and bool(_opened(connection, table))


def apply(
    connection: Connection,
    engine: Engine,
    table: str,
    *,
    shape: Shape | None,
    loaded: Iterable[int],
    signals: Iterable[Signalled],
    part: UnionPart | None,
) -> list[str]:
    """Record the snapshots that begin and end with the chunks of a load. Remove the rows that ended ones did not name.

    `loaded` are the partitions with a position before the load. Return lines that say what was removed, or why not.
    """
    opened = _opened(connection, table)
    before = {number: begin for number, begin in opened.items() if number in {*loaded}}
    after = progress(before, signals, part)
    lines = [_kept(table, *each, "has dead letters, and removes nothing") for each in after.broken]
    if (after.opened or after.ended) and _has_refused(connection, table):
        # Somebody may drop these rows before the end is loaded, so the begin must not count any more.
        begins = [*after.opened.items(), *((each.partition, each.begin) for each in after.ended)]
        why = f"removes nothing, because {STATE}.refused has rows of the table"
        lines += [_kept(table, *each, why) for each in begins]
        after = after._replace(opened={}, ended=())
    for each in _recorded(table, opened, after):
        connection.execute(each)
    if shape is not None and not shape.is_history:
        lines += [_removed(connection, engine, table, shape, each) for each in after.ended]
    return lines


def forget(connection: Connection, engine: Engine, table: str, condition: str = "") -> Iterator[str]:
    """Yield the statement that forgets the snapshots of a table, or those with an SQL condition."""
    if exists(connection, engine):
        yield f"DELETE FROM {STATE}.snapshots WHERE topic = {literal(table)}{condition}"


def ended_in(table: str, names: tuple[str, str, str]) -> str:
    """Return the query for the snapshots of a table that were loaded whole: partition, begin and end by these names."""
    at, begin, end = names
    return (
        f"SELECT topic_partition AS {at}, begin_offset AS {begin}, end_offset AS {end} "
        f"FROM {STATE}.snapshots WHERE topic = {literal(table)} AND end_offset IS NOT NULL"
    )


def _opened(connection: Connection, table: str) -> dict[int, int]:
    """Return the begins of the snapshots without an end. Raise LoadFailed for rows that no load can have written."""
    where = f"WHERE topic = {literal(table)} AND end_offset IS NULL"
    rows = connection.execute(f"SELECT topic_partition, begin_offset FROM {STATE}.snapshots {where}")
    opened = dict[int, int](rows)
    if len(opened) < len(rows) or not all(loader_tables.is_number(each) for row in rows for each in row):
        expected = f"one open snapshot of each partition of {table} at most, with offsets of 0 or more"
        advice = f"Delete them: DELETE FROM {STATE}.snapshots {where}. Then make another snapshot."
        raise loader_tables.altered("snapshots", loader_tables.rows_text(rows), expected, advice)
    return opened


def _recorded(table: str, before: Mapping[int, int], after: SnapshotProgress) -> Iterator[str]:
    """Yield statements that store the open snapshots, and those that were loaded whole."""
    changed = {each.partition for each in after.ended}
    changed |= {each for each in {*before, *after.opened} if before.get(each) != after.opened.get(each)}
    ends: dict[tuple[int, int], int | None] = {(each.partition, each.begin): each.end for each in after.ended}
    ends |= {(number, begin): None for number, begin in after.opened.items() if number in changed}
    for number in sorted(changed):
        begins = [str(begin) for partition, begin in ends if partition == number]
        is_same = f" OR begin_offset IN ({', '.join(begins)})" if begins else ""
        where = f"topic = {literal(table)} AND topic_partition = {number} AND (end_offset IS NULL{is_same})"
        yield f"DELETE FROM {STATE}.snapshots WHERE {where}"
    rows = [f"({literal(table)}, {number}, {begin}, {end or 'NULL'})" for (number, begin), end in ends.items()]
    if rows:
        yield f"INSERT INTO {STATE}.snapshots VALUES {', '.join(rows)}"


def _kept(table: str, number: int, begin: int, why: str) -> str:
    return (
        f"{table}: the snapshot of partition {number} from offset {begin} on {why}. Its rows stay. Correct the cause, "
        "and make another snapshot."
    )


def _has_refused(connection: Connection, table: str) -> bool:
    return bool(connection.execute(f"SELECT 1 FROM {STATE}.refused WHERE topic = {literal(table)} LIMIT 1"))


def _removed(connection: Connection, engine: Engine, table: str, shape: Shape, snapshot: Snapshot) -> str:
    """Remove the rows that a snapshot did not name, and remember their keys. Return the line that says so."""
    target, keys = engine.table(table), names_of(shape.key)
    rows = f"FROM {target} WHERE {PARTITION} = {snapshot.partition} AND {OFFSET} < {snapshot.begin}"
    [(count,)] = connection.execute(f"SELECT count(*) {rows}")
    gone = f"SELECT {keys}, {PARTITION}, {snapshot.begin - 1}, {engine.now} {rows}"
    connection.execute(f"INSERT INTO {deleted_of(table)} ({keys}, {PARTITION}, {OFFSET}, {DELETED_AT}) {gone}")
    connection.execute(f"DELETE {rows}")
    number, begin, end = snapshot
    removed = f"{count:,} row{'s' * (count != 1)}"
    place = f"{table}: the snapshot of partition {number}, offsets {begin} to {end - 1},"
    return f"{place} removed {removed} not named in it."
