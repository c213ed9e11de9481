"""History tables: each message of a topic is a row, appended once. A view has the versions of each key.

A row is identified by partition and offset, so no message replaces another one. The view is slowly changing dimension
type 2 (Kimball): each row with the half-open range in which it was valid. A delete ends a version, and is none.
"""

from collections.abc import Iterable, Iterator

from feed_assets.core.errors import InvalidShape, NotMigratable
from feed_assets.core.sql_text import quoted
from feed_assets.core.topics import HISTORY, versions_of
from feed_assets.warehouse.engines import ColumnGrowth, Engine
from feed_assets.warehouse.migrations import ORDERED, Migration, loosened, migrate, places
from feed_assets.warehouse.order_column import is_same
from feed_assets.warehouse.shapes import OFFSET, OPERATION, PARTITION, Shape
from feed_assets.warehouse.snapshots import ended_in
from feed_assets.warehouse.statements import STAGING, names_of
from feed_assets.warehouse.variants import loose

VALID_FROM, VALID_TO, IS_CURRENT = "valid_from", "valid_to", "is_current"
"""Columns of the view. They are values of `newest_by`, or offsets for a table without it."""

_RANK, _NEXT = '"feed_assets rank"', '"feed_assets next"'
_AT, _BEGIN, _END = '"feed_assets partition"', '"feed_assets begin"', '"feed_assets end"'
"""Names of columns of snapshots in the view's query. No field can have such a name."""


def with_history(shape: Shape, *, has_snapshots: bool = False) -> Shape:
    """Return the shape of a history table for a schema's shape.

    Its columns are nullable and have no default, except the key: a row has only values that its message had.
    """
    columns = tuple(each if each.name in shape.key else loose(each) for each in shape.columns)
    return shape.model_copy(update={"columns": columns, "is_history": True, "has_snapshots": has_snapshots})


def view_of(table: str) -> str:
    """Return the name of the view of a history table's versions."""
    return versions_of(table.removesuffix(HISTORY))


def check(shape: Shape) -> None:
    """Raise InvalidShape if a field has the name of a column of the view."""
    for each in shape.columns:
        if each.name.lower() in (VALID_FROM, VALID_TO, IS_CURRENT):
            raise InvalidShape(
                f"the schema has a field {each.name}: that is a column of the versions of a history table. Rename the "
                "field, or load the topic without history=True."
            )


def changed(table: Shape, shape: Shape, *, is_newer: bool) -> Migration:
    """Return the steps from a history table's shape to a schema's shape. Raise NotMigratable if there are none.

    Only the view is ordered by the column of `newest_by`, so another declaration changes the view, and no row.
    """
    unordered = table.model_copy(update={"newest_by": ""})
    steps, merged = (migrate if is_newer else loosened)(unordered, shape.model_copy(update={"newest_by": ""}))
    # A schema without the field keeps the order: the value of its rows is null.
    order = places(merged, shape).get(shape.newest_by, table.newest_by if is_same(table, shape) else shape.newest_by)
    kinds = {each.name: each.kind for each in merged.columns}
    if order and (order not in kinds or kinds[order].name not in ORDERED):
        raise NotMigratable(
            f"newest_by orders the versions by {order}, which is {kinds.get(order, 'no column')}: expected one of "
            f"{', '.join(sorted(ORDERED))}. The table is {table}, the schema {shape}. Declare another field."
        )
    has_snapshots = table.has_snapshots or shape.has_snapshots  # Rows of recorded snapshots stay.
    return Migration(steps, merged.model_copy(update={"newest_by": order, "has_snapshots": has_snapshots}))


def append(engine: Engine, table: str, shape: Shape, first_offset: int) -> Iterator[str]:
    """Yield statements that insert the staged rows that the table does not have, and drop the staging table.

    `first_offset` is the lowest staged one: a warehouse skips the older blocks of the table. Chunks that overlap have a
    row twice.
    """
    target, place = engine.table(table), f"{PARTITION}, {OFFSET}"
    names = names_of((OPERATION, PARTITION, OFFSET, *(each.name for each in shape.columns)))
    rank = f"ROW_NUMBER() OVER (PARTITION BY {place} ORDER BY {place}) AS {_RANK}"
    is_same = f"t.{PARTITION} = s.{PARTITION} AND t.{OFFSET} = s.{OFFSET}"
    is_known = f"SELECT 1 FROM {target} t WHERE {is_same} AND t.{OFFSET} >= {first_offset}"
    rows = f"SELECT {engine.columns(shape)}, {rank} FROM {STAGING}"
    yield f"INSERT INTO {target} ({names}) SELECT {names} FROM ({rows}) s WHERE {_RANK} = 1 AND NOT EXISTS ({is_known})"
    yield from engine.dropped(STAGING)


def drop_view(engine: Engine, table: str) -> str:
    """Return the statement that drops the view of a history table."""
    return f"DROP VIEW IF EXISTS {engine.table(view_of(table))}"


def without_view(engine: Engine, table: str, shape: Shape, growths: Iterable[ColumnGrowth]) -> Iterator[ColumnGrowth]:
    """Yield growths of a history table's columns whose transactions drop the view and make it again."""
    for each in growths:
        statements = (drop_view(engine, table), *each.otherwise, create_view(engine, table, shape))
        yield each._replace(otherwise=statements if each.otherwise else ())


def create_view(engine: Engine, table: str, shape: Shape) -> str:
    """Return the statement that creates the view of a history table's versions.

    The rows of a key are ordered as a table of latest rows orders them: by offset in their partition, or by the column
    of `newest_by`, partition and offset. Then a delete has the greatest value of its key in its partition up to it.
    """
    columns = names_of((*(each.name for each in shape.columns), OPERATION, PARTITION, OFFSET))
    key = names_of(shape.key if shape.newest_by else (*shape.key, PARTITION))
    order = _order(shape) if shape.newest_by else OFFSET
    rows = f"SELECT {columns}, {order} AS {VALID_FROM} FROM {engine.table(table)}"
    window = f"(PARTITION BY {key} ORDER BY {VALID_FROM} NULLS FIRST, {PARTITION}, {OFFSET})"
    following = f"LEAD({VALID_FROM}) OVER {window} AS {VALID_TO}, LEAD({OFFSET}) OVER {window} AS {_NEXT}"
    ranges = f"SELECT {columns}, {VALID_FROM}, {following} FROM ({rows}) r"
    if shape.has_snapshots and not shape.newest_by:
        ranges = _ended(table, columns, ranges)
    # A row that another row without a value of `newest_by` follows was valid at no known time.
    is_version = f"{OPERATION} <> 'delete' AND ({_NEXT} IS NULL OR {VALID_TO} IS NOT NULL)"
    return (
        f"CREATE VIEW {engine.table(view_of(table))} AS SELECT {columns}, {VALID_FROM}, {VALID_TO}, "
        f"{_NEXT} IS NULL AS {IS_CURRENT} FROM ({ranges}) v WHERE {is_version}"
    )


def _ended(table: str, columns: str, ranges: str) -> str:
    """Return the query for ranges that end with the first snapshot that does not name the key of their row."""
    is_unnamed = f"s.{_AT} = r.{PARTITION} AND s.{_BEGIN} > r.{OFFSET} AND (r.{_NEXT} IS NULL OR r.{_NEXT} >= s.{_END})"
    rank = f"ROW_NUMBER() OVER (PARTITION BY {PARTITION}, {OFFSET} ORDER BY {_BEGIN}) AS {_RANK}"
    following = ", ".join(f"COALESCE({_BEGIN}, {each}) AS {each}" for each in (VALID_TO, _NEXT))
    joined = (
        f"SELECT {columns}, {VALID_FROM}, {following}, {rank} "
        f"FROM ({ranges}) r LEFT JOIN ({ended_in(table, (_AT, _BEGIN, _END))}) s ON {is_unnamed}"
    )
    return f"SELECT {columns}, {VALID_FROM}, {VALID_TO}, {_NEXT} FROM ({joined}) e WHERE {_RANK} = 1"


def _order(shape: Shape) -> str:
    """Return SQL for the value of a row by which `newest_by` orders it."""
    value, place = quoted(shape.newest_by), names_of((*shape.key, PARTITION))
    rows_before = f"(PARTITION BY {place} ORDER BY {OFFSET} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
    return f"CASE WHEN {OPERATION} = 'delete' THEN max({value}) OVER {rows_before} ELSE {value} END"
