"""The statements that create, change and fill a table: the same for each warehouse, except for its types.

Source: "Streaming Messages from Kafka into Redshift in near Real-Time" (Yelp, 2016), the Redshift Spolt: staging
table, highest offset of each key, delete from the target, drop deletes, insert the rest.
"""

from collections.abc import Iterable, Iterator, Mapping

from feed_assets.core.sql_text import literal, quoted
from feed_assets.warehouse.engines import ColumnGrowth, Engine, comment
from feed_assets.warehouse.migrations import (
    AddColumn,
    DropColumn,
    MakeNullable,
    RenameColumn,
    SetComment,
    SetDefault,
    Step,
    WidenColumn,
)
from feed_assets.warehouse.shapes import DELETED_AT, OFFSET, OPERATION, ORDER, PARTITION, TEXT, Column, Shape

STATE, DELETED = "feed_assets", "feed_assets_deleted"
"""Our own schemas: for the state tables, and for each table's deleted keys."""

REFUSED_PLACE = "topic, topic_partition, topic_offset, reason, refused_at"
"""The columns of a refused row's place and reason."""

STAGED_ORDER = '"feed_assets order"'
"""The column of NEWEST with the order value of a row or a delete, if the table has `newest_by`."""

STAGING, NEWEST = '"feed_assets staging"', '"feed_assets newest"'
"""Temporary tables: all rows of the files, and each key's newest row. No topic's name contains a blank."""

_OPERATION_COLUMN = Column(name=OPERATION, kind=TEXT, is_nullable=False)

_PASSED = '"feed_assets passed"'
"""A temporary sequence that counts the rows that a deletion skips."""


def deleted_of(table: str) -> str:
    """Return the name of the table that has the deleted keys of another table."""
    return f"{DELETED}.{quoted(table)}"


def create(engine: Engine, table: str, shape: Shape) -> Iterator[str]:
    """Yield the statements that create a table and, if it has the latest row of each key, the table of deleted keys."""
    position_columns = (
        [f"{PARTITION} integer NOT NULL", f"{OFFSET} bigint NOT NULL"] if shape.key else [f"{PARTITION} text NOT NULL"]
    )
    primary_key = (PARTITION, OFFSET) if shape.is_history else shape.key
    key = [f"PRIMARY KEY ({names_of(primary_key)})"] if engine.has_keys and shape.key else []
    if shape.is_history:
        position_columns = [engine.column(_OPERATION_COLUMN), *position_columns]
    columns = [engine.column(each) for each in shape.columns]
    yield f"CREATE TABLE {engine.table(table)} ({', '.join([*columns, *position_columns, *key])}){engine.layout}"
    for each in shape.columns:
        yield from comment(engine.table(table), each)
    if shape.key and not shape.is_history:
        yield from _create_deleted(engine, table, shape, position_columns, key)
    elif engine.has_keys and not shape.key:
        yield f"CREATE INDEX ON {engine.table(table)} ({PARTITION})"


def _create_deleted(
    engine: Engine, table: str, shape: Shape, position_columns: Iterable[str], key: Iterable[str]
) -> Iterator[str]:
    keys = [engine.column(each) for each in shape.key_columns]
    order = [engine.column(each.model_copy(update={"name": ORDER})) for each in _order_columns(shape)]
    remembered = [*keys, *position_columns, *order, f"{DELETED_AT} timestamptz NOT NULL", *key]
    yield f"CREATE TABLE {deleted_of(table)} ({', '.join(remembered)}){engine.layout}"
    if engine.has_keys:
        yield f"CREATE INDEX ON {deleted_of(table)} ({DELETED_AT})"


def _order_columns(shape: Shape) -> list[Column]:
    return [each for each in shape.columns if each.name == shape.newest_by]


def alter(engine: Engine, table: str, step: Step, shape: Shape) -> Iterator[str]:
    """Yield the statements of one migration step."""
    target = engine.table(table)
    match step:
        case DropColumn(name):
            yield f"ALTER TABLE {target} DROP COLUMN {quoted(name)}"
        case RenameColumn(name, new):
            yield f"ALTER TABLE {target} RENAME COLUMN {quoted(name)} TO {quoted(new)}"
        case SetComment(name, text):
            yield f"COMMENT ON COLUMN {target}.{quoted(name)} IS {literal(text)}"
        case _:
            yield from _altered(engine, table, step, shape)


def _altered(
    engine: Engine, table: str, step: AddColumn | WidenColumn | MakeNullable | SetDefault, shape: Shape
) -> Iterator[str]:
    """Yield the statements of a step that differs between warehouses."""
    target = engine.table(table)
    match step:
        case AddColumn(column):
            yield from (*engine.add(target, column), *comment(target, column))
        case MakeNullable(name):
            yield from engine.make_nullable(target, name)
        case SetDefault(column):
            yield from engine.set_default(target, column)
        case WidenColumn(name, _, was):
            [column] = [each for each in shape.columns if each.name == name]
            for each in _places(engine, table, name, shape):
                yield from engine.widen(each, column, was)
            if name == shape.newest_by and not shape.is_history:
                order = column.model_copy(update={"name": ORDER, "comment": ""})
                yield from engine.widen(deleted_of(table), order, was)


def grow(engine: Engine, table: str, shape: Shape, longer: Shape) -> Iterator[ColumnGrowth]:
    """Yield statements that make a table's text columns as long as in the shape `longer`."""
    for old, new in zip(shape.columns, longer.columns, strict=True):
        if old != new:
            for each in _places(engine, table, new.name, shape):
                yield from engine.grow(each, new)


def _places(engine: Engine, table: str, column: str, shape: Shape) -> list[str]:
    """Return the tables in which a column exists. A key column is also in the table of deleted keys."""
    has_deleted = column in shape.key and not shape.is_history
    return [engine.table(table), *([deleted_of(table)] if has_deleted else [])]


def stage(engine: Engine, shape: Shape, ignored: Iterable[str]) -> str:
    """Return the statement that creates the staging table. `ignored` are columns of files that the table lacks."""
    columns = [
        f"{quoted(each.name)} {engine.staged(each.kind)}{_staged_default(engine, each)}" for each in shape.columns
    ]
    load_columns = [f"{OPERATION} {engine.text}", f"{PARTITION} integer", f"{OFFSET} bigint"]
    ignored_columns = [f"{quoted(each)} {engine.text}" for each in ignored]
    return f"CREATE TEMP TABLE {STAGING} ({', '.join([*load_columns, *columns, *ignored_columns])})"


def temporary(engine: Engine, shape: Shape) -> Iterator[str]:
    """Yield the statement that creates NEWEST, if it has to exist before the transaction. A history needs none."""
    if not shape.is_history:
        columns = [f"{quoted(each.name)} {engine.type_of(each.kind)}" for each in shape.columns]
        order = [f"{STAGED_ORDER} {engine.type_of(each.kind)}" for each in _order_columns(shape)]
        places = [f"{OPERATION} {engine.text}", f"{PARTITION} integer", f"{OFFSET} bigint"]
        yield f"CREATE TEMP TABLE {NEWEST} ({', '.join([*places, *columns, *order])})"


def refuse(engine: Engine, topic: str, shape: Shape) -> Iterator[str]:
    """Yield statements that delete staged rows that the warehouse cannot store, and record each with its reason."""
    names = {each.name: quoted(each.name) for each in shape.columns}
    for wrong, reason in engine.rejections(shape):
        yield from refuse_rows(engine, topic, wrong, reason, names)


def refuse_strays(engine: Engine, topic: str, shape: Shape) -> Iterator[str]:
    """Yield statements that refuse staged rows of keys that have come from another partition before.

    If only staged rows have the key, the lowest partition keeps it.
    """
    names = {each.name: quoted(each.name) for each in shape.columns}
    reason = "its key has come from another partition, so nobody knows which row is the newer one"
    keys = {each.name: engine.value(f"{STAGING}.{quoted(each.name)}", each.kind) for each in shape.key_columns}
    for table in (engine.table(topic), deleted_of(topic)):
        has_same_key = " AND ".join(f"t.{quoted(name)} = {value}" for name, value in keys.items())
        is_stray = f"EXISTS (SELECT 1 FROM {table} t WHERE {has_same_key} AND t.{PARTITION} <> {STAGING}.{PARTITION})"
        yield from refuse_rows(engine, topic, is_stray, reason, names)
    staged_keys = {each.name: engine.value(f"t.{quoted(each.name)}", each.kind) for each in shape.key_columns}
    has_same_key = " AND ".join(f"{staged_keys[name]} = {value}" for name, value in keys.items())
    is_stray = f"EXISTS (SELECT 1 FROM {STAGING} t WHERE {has_same_key} AND t.{PARTITION} < {STAGING}.{PARTITION})"
    yield from refuse_rows(engine, topic, is_stray, reason, names)


def refuse_rows(engine: Engine, topic: str, wrong: str, reason: str, texts: Mapping[str, str]) -> Iterator[str]:
    """Yield statements that delete the staged rows with a condition, and record them.

    Overlapping chunks may have a row twice, so rows are grouped by their place.
    """
    place = f"{literal(topic)}, {PARTITION}, {OFFSET}, {literal(reason)}, {engine.now}"
    row = engine.row_json(texts)
    named, value = ("", "") if row == "NULL" else (", row_json", f", max({row})")
    is_known = (
        f"SELECT 1 FROM {STATE}.refused r WHERE r.topic = {literal(topic)} "
        f"AND r.topic_partition = {STAGING}.{PARTITION} AND r.topic_offset = {STAGING}.{OFFSET}"
    )
    rows = f"{STAGING} WHERE ({wrong}) AND NOT EXISTS ({is_known}) GROUP BY {PARTITION}, {OFFSET}"
    yield f"INSERT INTO {STATE}.refused ({REFUSED_PLACE}{named}) SELECT {place}{value} FROM {rows}"
    yield f"DELETE FROM {STAGING} WHERE {wrong}"


def strays_among(engine: Engine, shape: Shape) -> str:
    """Return a query for a staged key that comes from two partitions: its values, and both partitions."""
    names = engine.keys(shape) if engine.ddl_commits else names_of(shape.key)  # There, keys are staged as texts.
    return (
        f"SELECT {names}, min({PARTITION}), max({PARTITION}) FROM {STAGING} GROUP BY {names} "
        f"HAVING min({PARTITION}) <> max({PARTITION}) LIMIT 1"
    )


def obstacle(quoted_table: str, shape: Shape) -> str:
    """Return a query for one key that prevents a simple replacement of rows.

    Either the table has the key from another partition, or its row of the key is newer than the staged one. The query
    prefers the first case. Its result has the key's values and both partitions, which are equal in the second case.
    """
    keys = ", ".join(f"s.{quoted(name)}" for name in shape.key)
    is_stray = f"t.{PARTITION} <> s.{PARTITION}"
    return (
        f"SELECT {keys}, t.{PARTITION}, s.{PARTITION} FROM {NEWEST} s JOIN {quoted_table} t "
        f"ON {same_key(shape, 't', 's')} WHERE {is_stray} OR t.{OFFSET} >= s.{OFFSET} ORDER BY {is_stray} DESC LIMIT 1"
    )


def replace(quoted_table: str, shape: Shape) -> str:
    """Return the statement that deletes the table's rows with staged keys, even rows that are newer."""
    return f"DELETE FROM {quoted_table} USING {NEWEST} s WHERE {same_key(shape, quoted_table, 's')}"


def replace_and_ask(quoted_table: str, shape: Shape) -> str:
    """Return a statement that deletes like `replace`, and selects one deleted row that must not be deleted.

    Such a row is newer than its staged row, or from another partition. In one statement, the large table is searched
    only once.
    """
    keys, was, came = names_of(shape.key), '"feed_assets was"', '"feed_assets came"'
    staged_key = ", ".join(f"s.{quoted(name)}" for name in shape.key)
    is_newer = f'{quoted_table}.{OFFSET} >= s.{OFFSET} AS "feed_assets newer"'
    returned = f"{staged_key}, {quoted_table}.{PARTITION} AS {was}, s.{PARTITION} AS {came}, {is_newer}"
    return (
        f"WITH gone AS ({replace(quoted_table, shape)} RETURNING {returned}) SELECT {keys}, {was}, {came} FROM gone "
        f'WHERE {was} <> {came} OR "feed_assets newer" ORDER BY {was} <> {came} DESC LIMIT 1'
    )


def replace_and_count(quoted_table: str, shape: Shape) -> Iterator[str]:
    """Yield statements that delete the rows that staged rows replace.

    They skip and count rows that are newer or come from another partition. If the last statement returns a row, rows
    were skipped and are still in the table.
    """
    passed = f"nextval({literal(_PASSED)})"
    is_passed = f"{quoted_table}.{PARTITION} <> s.{PARTITION} OR {quoted_table}.{OFFSET} >= s.{OFFSET}"
    yield f"CREATE OR REPLACE TEMP SEQUENCE {_PASSED}"
    yield f"{replace(quoted_table, shape)} AND CASE WHEN {is_passed} THEN {passed} < 0 ELSE true END"
    yield f"SELECT 1 WHERE {passed} > 1"


def drop_older(quoted_table: str, shape: Shape) -> str:
    """Return the statement that deletes each row of NEWEST that is not newer than its key's row in `quoted_table`."""
    is_newer = f"t.{OFFSET} >= {NEWEST}.{OFFSET}"
    return f"DELETE FROM {NEWEST} USING {quoted_table} t WHERE {same_key(shape, 't', NEWEST)} AND {is_newer}"


def merge(engine: Engine, table: str, shape: Shape, deleted_days: float) -> Iterator[str]:
    """Yield statements that insert the rows of NEWEST into the table, or record the keys of deleted rows.

    The last statements drop the temporary tables, and forget keys that were deleted more than `deleted_days` ago.
    """
    target, deleted = engine.table(table), deleted_of(table)
    keys, is_delete = names_of((*shape.key, PARTITION, OFFSET)), f"{OPERATION} = 'delete'"
    order, value = (f", {ORDER}", f", {STAGED_ORDER}") if shape.newest_by else ("", "")
    gone = f"SELECT {keys}{value}, {engine.now} FROM {NEWEST} WHERE {is_delete}"
    yield f"INSERT INTO {deleted} ({keys}{order}, {DELETED_AT}) {gone}"
    yield f"DELETE FROM {NEWEST} WHERE {is_delete}"
    names = names_of((*(each.name for each in shape.columns), PARTITION, OFFSET))
    yield f"INSERT INTO {target} ({names}) SELECT {names} FROM {NEWEST}"
    yield from engine.dropped(NEWEST)
    if not engine.thins:
        yield from engine.dropped(STAGING)
    seconds = int(deleted_days * 86_400)
    yield f"DELETE FROM {deleted} WHERE {DELETED_AT} < {engine.now} - INTERVAL '{seconds} seconds'"


def remove(engine: Engine, table: str, key: str) -> str:
    """Return the statement that deletes the rows of a dataset's partition."""
    return f"DELETE FROM {engine.table(table)} WHERE {PARTITION} = {literal(key)}"


def insert(engine: Engine, table: str, shape: Shape, key: str) -> Iterator[str]:
    """Yield statements that insert the staged rows into a dataset's partition, and drop the staging table."""
    values = ", ".join(engine.value(quoted(each.name), each.kind) for each in shape.columns)
    names = names_of((*(each.name for each in shape.columns), PARTITION))
    yield f"INSERT INTO {engine.table(table)} ({names}) SELECT {values}, {literal(key)} FROM {STAGING}"
    yield from engine.dropped(STAGING)


def _staged_default(engine: Engine, column: Column) -> str:
    if column.default is None:
        return ""
    return f" DEFAULT CAST({literal(column.default)} AS {engine.staged(column.kind)})"


def names_of(names: Iterable[str]) -> str:
    """Return a list of columns in SQL."""
    return ", ".join(map(quoted, names))


def same_key(shape: Shape, table: str, other: str) -> str:
    """Return the SQL condition that rows of two tables have one key."""
    return " AND ".join(f"{table}.{quoted(name)} = {other}.{quoted(name)}" for name in shape.key)
