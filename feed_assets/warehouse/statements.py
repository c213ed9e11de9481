"""The statements that make a table, change it, and merge rows into it: the same for each warehouse, by its types.

Source: "Streaming Messages from Kafka into Redshift in near Real-Time" (Yelp, 2016), the Redshift Spolt: staging
table, highest offset of each key, delete from the target, drop deletes, insert the rest.
"""

from collections.abc import Iterable, Iterator

from feed_assets.warehouse.engines import Engine, literal, quoted
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
from feed_assets.warehouse.shapes import OFFSET, OPERATION, PARTITION, Column, Shape

STATE, DELETED = "feed_assets", "feed_assets_deleted"
"""Schemas of what is ours: the state tables, and for each table the keys that were deleted from it."""

STAGING, NEWEST = '"feed_assets staging"', '"feed_assets newest"'
"""Temporary tables: what is in the files, and of that the newest row of each key. No topic has a blank in its name."""

_DELETED_AT = "_deleted_at"


def deleted_of(table: str) -> str:
    """Where the deleted keys of a table are remembered."""
    return f"{DELETED}.{quoted(table)}"


def create(engine: Engine, table: str, shape: Shape) -> Iterator[str]:
    """Make a table, and the one that remembers its deleted keys."""
    ours = [f"{PARTITION} integer NOT NULL", f"{OFFSET} bigint NOT NULL"]
    key = [f"PRIMARY KEY ({_names(shape.key)})"] if engine.has_keys else []
    columns = [_column(engine, each) for each in shape.columns]
    yield f"CREATE TABLE {quoted(table)} ({', '.join([*columns, *ours, *key])})"
    for each in shape.columns:
        if each.comment:
            yield _comment(table, each.name, each.comment)
    keys = [_column(engine, each) for each in shape.key_columns]
    remembered = [*keys, *ours, f"{_DELETED_AT} timestamptz NOT NULL", *key]
    yield f"CREATE TABLE {deleted_of(table)} ({', '.join(remembered)})"
    if engine.has_keys:
        yield f"CREATE INDEX ON {deleted_of(table)} ({_DELETED_AT})"


def alter(engine: Engine, table: str, step: Step, shape: Shape) -> Iterator[str]:
    """Do one step of a migration."""
    if isinstance(step, SetComment):
        yield _comment(table, step.name, step.comment)
    elif isinstance(step, WidenColumn):
        yield from _widen(engine, table, step, shape)
    else:
        yield f"ALTER TABLE {quoted(table)} {_change(engine, step)}"
    if isinstance(step, AddColumn) and step.column.comment:
        yield _comment(table, step.column.name, step.column.comment)


def _change(engine: Engine, step: AddColumn | DropColumn | RenameColumn | MakeNullable | SetDefault) -> str:
    match step:
        case AddColumn(column):
            return f"ADD COLUMN {_column(engine, column)}"
        case DropColumn(name):
            return f"DROP COLUMN {quoted(name)}"
        case RenameColumn(name, new):
            return f"RENAME COLUMN {quoted(name)} TO {quoted(new)}"
        case MakeNullable(name):
            return f"ALTER COLUMN {quoted(name)} DROP NOT NULL"
        case SetDefault(column):
            default = _default(engine, column)
            return f"ALTER COLUMN {quoted(column.name)} {f'SET {default}' if default else 'DROP DEFAULT'}"


def _widen(engine: Engine, table: str, step: WidenColumn, shape: Shape) -> Iterator[str]:
    """Its default is of the old type, and is set anew; a column of the key is widened where it is remembered, too."""
    column, kind = quoted(step.name), engine.type_of(step.kind)
    yield f"ALTER TABLE {quoted(table)} ALTER COLUMN {column} DROP DEFAULT"
    for each in (quoted(table), *([deleted_of(table)] if step.name in shape.key else [])):
        yield f"ALTER TABLE {each} ALTER COLUMN {column} SET DATA TYPE {kind} USING CAST({column} AS {kind})"


def stage(engine: Engine, shape: Shape, ignored: Iterable[str]) -> str:
    """Make the staging table; `ignored` are columns of files that the table has not."""
    columns = [
        f"{quoted(each.name)} {engine.staged(each.kind)}{_staged_default(engine, each)}" for each in shape.columns
    ]
    ours = [f"{OPERATION} text", f"{PARTITION} integer", f"{OFFSET} bigint"]
    return (
        f"CREATE TEMP TABLE {STAGING} ({', '.join([*ours, *columns, *(f'{quoted(each)} text' for each in ignored)])})"
    )


def refuse(engine: Engine, topic: str, shape: Shape) -> Iterator[str]:
    """Keep the place of each staged row that the warehouse cannot hold, with the reason, and go on without it."""
    for wrong, reason in engine.rejections(shape):
        place = f"{literal(topic)}, {PARTITION}, {OFFSET}, {literal(reason)}, {engine.now}"
        yield f"INSERT INTO {STATE}.refused SELECT {place} FROM {STAGING} WHERE {wrong} ON CONFLICT DO NOTHING"
        yield f"DELETE FROM {STAGING} WHERE {wrong}"


def newest(engine: Engine, shape: Shape) -> Iterator[str]:
    """Keep of each key the row with the highest offset."""
    values = {each.name: engine.value(quoted(each.name), each.kind) for each in shape.columns}
    key = ", ".join(values[name] for name in shape.key)
    columns = [OPERATION, PARTITION, OFFSET, *(f"{value} AS {quoted(name)}" for name, value in values.items())]
    rows = f"SELECT DISTINCT ON ({key}) {', '.join(columns)} FROM {STAGING} ORDER BY {key}, {OFFSET} DESC"
    yield f"CREATE TEMP TABLE {NEWEST} AS {rows}"


def strays_among(shape: Shape) -> str:
    """Ask for a staged key that came from two partitions: its values, and the two."""
    names = _names(shape.key)
    return (
        f"SELECT {names}, min({PARTITION}), max({PARTITION}) FROM {STAGING} GROUP BY {names} "
        f"HAVING min({PARTITION}) <> max({PARTITION}) LIMIT 1"
    )


def obstacle(there: str, shape: Shape) -> str:
    """Ask for a key that is there from another partition, else for one that is there with a newer row.

    Its values, and the two partitions, which are the same in the second case. In one search of the large table.
    """
    keys = ", ".join(f"s.{quoted(name)}" for name in shape.key)
    is_stray = f"t.{PARTITION} <> s.{PARTITION}"
    return (
        f"SELECT {keys}, t.{PARTITION}, s.{PARTITION} FROM {NEWEST} s JOIN {there} t ON {_same(shape)} "
        f"WHERE {is_stray} OR t.{OFFSET} >= s.{OFFSET} ORDER BY {is_stray} DESC LIMIT 1"
    )


def replace(there: str, shape: Shape) -> str:
    """Delete the rows of which there are newer ones, or older ones."""
    return f"DELETE FROM {there} t USING {NEWEST} s WHERE {_same(shape)}"


def replace_and_ask(there: str, shape: Shape) -> str:
    """Both at once, where a deletion tells what it deleted: the large table is searched once."""
    keys, was, came = _names(shape.key), '"feed_assets was"', '"feed_assets came"'
    told = ", ".join(f"s.{quoted(name)}" for name in shape.key)
    more = f'{told}, t.{PARTITION} AS {was}, s.{PARTITION} AS {came}, t.{OFFSET} >= s.{OFFSET} AS "feed_assets newer"'
    return (
        f"WITH gone AS ({replace(there, shape)} RETURNING {more}) SELECT {keys}, {was}, {came} FROM gone "
        f'WHERE {was} <> {came} OR "feed_assets newer" ORDER BY {was} <> {came} DESC LIMIT 1'
    )


def drop_older(there: str, shape: Shape) -> str:
    """Forget the rows of which there are newer ones."""
    return f"DELETE FROM {NEWEST} s USING {there} t WHERE {_same(shape)} AND t.{OFFSET} >= s.{OFFSET}"


def merge(engine: Engine, table: str, shape: Shape, deleted_days: float) -> Iterator[str]:
    """Merge the newest rows into the table: none of them is older than the one that it replaces."""
    target, deleted = quoted(table), deleted_of(table)
    keys, is_delete = _names((*shape.key, PARTITION, OFFSET)), f"{OPERATION} = 'delete'"
    yield (f"INSERT INTO {deleted} ({keys}, {_DELETED_AT}) SELECT {keys}, {engine.now} FROM {NEWEST} WHERE {is_delete}")
    yield f"DELETE FROM {NEWEST} WHERE {is_delete}"
    names = _names((*(each.name for each in shape.columns), PARTITION, OFFSET))
    yield f"INSERT INTO {target} ({names}) SELECT {names} FROM {NEWEST}"
    yield f"DROP TABLE {NEWEST}"
    yield f"DROP TABLE {STAGING}"
    seconds = int(deleted_days * 86_400)
    yield f"DELETE FROM {deleted} WHERE {_DELETED_AT} < {engine.now} - INTERVAL '{seconds} seconds'"


def _column(engine: Engine, column: Column) -> str:
    parts = [quoted(column.name), engine.type_of(column.kind), _default(engine, column)]
    return " ".join(filter(None, [*parts, "" if column.is_nullable else "NOT NULL"]))


def _default(engine: Engine, column: Column) -> str:
    return f"DEFAULT {engine.value(literal(column.default), column.kind)}" if column.default is not None else ""


def _staged_default(engine: Engine, column: Column) -> str:
    if column.default is None:
        return ""
    return f" DEFAULT CAST({literal(column.default)} AS {engine.staged(column.kind)})"


def _comment(table: str, column: str, comment: str) -> str:
    return f"COMMENT ON COLUMN {quoted(table)}.{quoted(column)} IS {literal(comment)}"


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(quoted, names))


def _same(shape: Shape) -> str:
    return " AND ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in shape.key)
