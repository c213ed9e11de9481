"""The merge of a table with `newest_by`: for each key the greatest (value, partition, offset) wins, and null is lowest.

A delete has the greatest value that its key has had in its own partition, or its own value if that is greater. So it
always deletes the older rows of its partition, also without a value. For a row of another partition it needs a value.
"""

from collections.abc import Iterator

from feed_assets.core.sql_text import quoted
from feed_assets.warehouse.engines import Engine
from feed_assets.warehouse.shapes import OFFSET, OPERATION, ORDER, PARTITION, Column, Shape
from feed_assets.warehouse.statements import (
    NEWEST,
    STAGED_ORDER,
    STAGING,
    deleted_of,
    names_of,
    replace,
    same_key,
)

WINNERS = '"feed_assets winners"'
"""A temporary table with the stored winner of each staged key: its place, its order value, and its row's id."""

_PARTITION, _OFFSET, _VALUE, _ID = (f'"feed_assets {each}"' for each in ("partition", "offset", "value", "id"))
_STAGED_ID = '"feed_assets row"'
_DELETED, _RANK = '"feed_assets deleted"', '"feed_assets rank"'


def newest(engine: Engine, table: str, shape: Shape) -> Iterator[str]:
    """Yield statements that create NEWEST with the staged winners, and delete what they replace.

    The stored winners of the staged keys are read first, because they decide what a delete without a value is greater
    than. NEWEST has only keys whose staged winner is greater than the stored one, so a message loaded twice changes
    nothing.
    """
    yield _stored_winners(engine, table, shape)
    yield _staged_winners(engine, shape)
    for quoted_table, is_deleted in ((engine.table(table), False), (deleted_of(table), True)):
        yield _replaced(engine, quoted_table, shape, is_deleted=is_deleted)
    yield from engine.dropped(WINNERS)
    if engine.thins:  # `merge` drops the staging table only for the other engines.
        yield f"DROP TABLE {STAGING}"


def create_winners(engine: Engine, shape: Shape) -> str:
    """Return the statement that creates WINNERS, if it has to exist before the transaction."""
    kinds = {each.name: engine.type_of(each.kind) for each in shape.columns}
    keys = [f"{quoted(name)} {kinds[name]}" for name in shape.key]
    places = [f"{_PARTITION} integer", f"{_OFFSET} bigint", f"{_VALUE} {kinds[shape.newest_by]}"]
    return f"CREATE TEMP TABLE {WINNERS} ({', '.join([*keys, *places, f'{_ID} bigint', f'{_DELETED} boolean'])})"


def _stored_winners(engine: Engine, table: str, shape: Shape) -> str:
    """Return the statement that creates WINNERS. It searches the table and its deleted keys once, by key."""
    keys = [f"{engine.value(quoted(each.name), each.kind)} AS {quoted(each.name)}" for each in shape.key_columns]
    row_id = engine.row_id(shape)
    rows = [
        f"SELECT {', '.join(f't.{quoted(name)}' for name in shape.key)}, t.{PARTITION} AS {_PARTITION}, "
        f"t.{OFFSET} AS {_OFFSET}, t.{value} AS {_VALUE}, {f't.{row_id}' if row_id else '0'} AS {_ID}, "
        f"{is_deleted} AS {_DELETED} FROM {quoted_table} t JOIN k ON {same_key(shape, 't', 'k')}"
        for quoted_table, value, is_deleted in (
            (engine.table(table), quoted(shape.newest_by), "false"),
            (deleted_of(table), ORDER, "true"),
        )
    ]
    staged = f"WITH k AS (SELECT DISTINCT {', '.join(keys)} FROM {STAGING})"
    return engine.stored(WINNERS, f"{staged} {' UNION ALL '.join(rows)}")


def _staged_winners(engine: Engine, shape: Shape) -> str:
    """Return the statement that creates NEWEST: the staged row that wins, of each key whose stored winner loses.

    If rows have an id, only the columns that decide are sorted, and the winners' other columns are then read by it.
    """
    row_id = engine.row_id(shape)
    if not row_id:
        names = names_of((OPERATION, PARTITION, OFFSET, *(each.name for each in shape.columns)))
        return engine.stored(NEWEST, _ranked(shape, engine.columns(shape), f"{names}, {STAGED_ORDER}"))
    deciding = shape.model_copy(update={"columns": tuple(_deciding(shape))})
    columns = f"{engine.columns(deciding)}, {row_id} AS {_STAGED_ID}"
    winners = _ranked(deciding, columns, f"{_STAGED_ID}, {STAGED_ORDER}", staged_id=f", s.{_STAGED_ID}")
    return engine.stored(
        NEWEST,
        f"SELECT {engine.columns(shape)}, {STAGED_ORDER} "
        f"FROM {STAGING} JOIN ({winners}) g ON {STAGING}.{row_id} = g.{_STAGED_ID}",
    )


def _deciding(shape: Shape) -> Iterator[Column]:
    """Yield the key columns and the column of `newest_by`."""
    for each in shape.columns:
        if each.name in (*shape.key, shape.newest_by):
            yield each


def _ranked(shape: Shape, columns: str, result: str, *, staged_id: str = "") -> str:
    """Return the query for staged rows that win. `columns` and `result` are what it reads and returns."""
    keys = ", ".join(f"s.{quoted(name)}" for name in shape.key)
    value, names = f"s.{quoted(shape.newest_by)}", [each.name for each in shape.columns]
    staged = ", ".join([f"s.{OPERATION}", f"s.{PARTITION}", f"s.{OFFSET}", *(f"s.{quoted(each)}" for each in names)])
    # These include values of later messages. A delete then loses to that message, which has a higher offset.
    staged_value = f"max({value}) OVER (PARTITION BY {keys}, s.{PARTITION})"
    stored_value = f"CASE WHEN w.{_PARTITION} = s.{PARTITION} THEN w.{_VALUE} END"
    # In Snowflake, the greatest of a value and null is null.
    greatest = f"COALESCE(GREATEST({staged_value}, {stored_value}), {staged_value}, {stored_value})"
    order = f"CASE WHEN s.{OPERATION} = 'delete' THEN {greatest} ELSE {value} END"
    rows = (
        f"SELECT {staged}{staged_id}, w.{_PARTITION}, w.{_OFFSET}, w.{_VALUE}, {order} AS {STAGED_ORDER} "
        f"FROM (SELECT {columns} FROM {STAGING}) s LEFT JOIN {WINNERS} w ON {same_key(shape, 'w', 's')}"
    )
    rank = (
        f"ROW_NUMBER() OVER (PARTITION BY {keys} "
        f"ORDER BY s.{STAGED_ORDER} DESC NULLS LAST, s.{PARTITION} DESC, s.{OFFSET} DESC)"
    )
    ranked = f"SELECT s.*, {rank} AS {_RANK} FROM ({rows}) s"
    return f"SELECT {result} FROM ({ranked}) s WHERE {_RANK} = 1 AND ({_is_greater()})"


def _is_greater() -> str:
    """Return the SQL condition that a staged row is greater than its key's stored winner, or that there is none."""
    is_tie = f"{STAGED_ORDER} = {_VALUE} OR ({STAGED_ORDER} IS NULL AND {_VALUE} IS NULL)"
    is_later = f"{PARTITION} > {_PARTITION} OR ({PARTITION} = {_PARTITION} AND {OFFSET} > {_OFFSET})"
    return (
        f"{_PARTITION} IS NULL OR {STAGED_ORDER} > {_VALUE} OR ({STAGED_ORDER} IS NOT NULL AND {_VALUE} IS NULL) "
        f"OR (({is_tie}) AND ({is_later}))"
    )


def _replaced(engine: Engine, quoted_table: str, shape: Shape, *, is_deleted: bool) -> str:
    """Return the statement that deletes the stored winners of the keys in NEWEST, by their id if rows have one."""
    row_id = engine.row_id(shape)
    if not row_id:
        return replace(quoted_table, shape)
    kind = "" if is_deleted else "NOT "
    ids = f"SELECT w.{_ID} FROM {WINNERS} w JOIN {NEWEST} s ON {same_key(shape, 'w', 's')} WHERE {kind}w.{_DELETED}"
    return f"DELETE FROM {quoted_table} USING ({ids}) g WHERE {quoted_table}.{row_id} = g.{_ID}"
