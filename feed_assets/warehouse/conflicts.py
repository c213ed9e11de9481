"""Changes of a table that a schema needs, and the choice for a schema that the table cannot take."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from feed_assets.core.errors import InvalidShape, NotMigratable
from feed_assets.core.topics import Conflicts
from feed_assets.warehouse import message_history, statements
from feed_assets.warehouse.engines import Engine
from feed_assets.warehouse.load_state import TopicState
from feed_assets.warehouse.migrations import SetComment, loosened, migrate, places, projected
from feed_assets.warehouse.order_column import check_first, check_same
from feed_assets.warehouse.shapes import Shape, widens


class Refusal(NamedTuple):
    """Why the table refuses the rows of a schema. With `has_key`, it still follows the deletes among them.

    With `has_order`, these deletes have a value for the column of `newest_by`.
    """

    reason: str
    has_key: bool
    has_order: bool = False


class TableChange(NamedTuple):
    """A change of a table that must come before rows of a schema are merged: its statements, and the state after it.

    `shape` is the schema's shape, in which fields of another type have the names of variants. With a refusal, the table
    stays as it is, and the rows are recorded as refused.
    """

    statements: tuple[str, ...]
    state: TopicState
    shape: Shape | None = None
    refusal: Refusal | None = None


Refusals = Mapping[int | None, Refusal]
"""The refusals of a load's schemas, by schema id."""


def change(
    engine: Engine,
    table: str,
    state: TopicState,
    schema_id: int | None,
    shape: Shape | None,
    conflicts: Conflicts = "stop",
) -> TableChange:
    """Return the change that a table needs before rows of a schema are loaded.

    The table is created, migrated to a newer schema, or widened for an older schema. If that is impossible, raise
    InvalidShape or NotMigratable, or return a refusal if `conflicts` says so. A table's first schema, another key and
    another `newest_by` are never refused: then every row would be.
    """
    if state.shape is not None and shape is not None and not shape.is_history:
        check_same(table, state.shape, shape)
    try:
        return _changed(engine, table, state, schema_id, _projected(state, schema_id, shape, conflicts))
    except (InvalidShape, NotMigratable) as error:
        if conflicts == "stop" or state.shape is None or shape is None or state.shape.key != shape.key:
            raise
        reason = str(error).partition(". The table is ")[0]
        refusal = Refusal(
            f"the schema {schema_id}: {reason}", _has_key(state.shape, shape), _has_order(state.shape, shape)
        )
        return TableChange((), state, shape, refusal)


def _projected(state: TopicState, schema_id: int | None, shape: Shape | None, conflicts: Conflicts) -> Shape | None:
    if conflicts != "variant" or shape is None or schema_id is None or state.shape is None or state.schema_id is None:
        return shape
    return projected(state.shape, shape, schema_id > state.schema_id)


def _has_key(table: Shape, shape: Shape) -> bool:
    """Return whether the table's key columns can store the key of a refused schema."""
    pairs = zip(shape.key_columns, table.key_columns, strict=True)
    return all(widens(of_schema.kind, of_table.kind) for of_schema, of_table in pairs)


def _has_order(table: Shape, shape: Shape) -> bool:
    """Return whether the table's column of `newest_by` can store the values of a refused schema's field."""
    kinds = [{each.name: each.kind for each in one.columns} for one in (table, shape)]
    of_table, of_schema = (each.get(table.newest_by) for each in kinds)
    return of_table is not None and of_schema is not None and widens(of_schema, of_table)


def _changed(engine: Engine, table: str, state: TopicState, schema_id: int | None, shape: Shape | None) -> TableChange:
    if schema_id is None or shape is None:
        return TableChange((), state)
    if state.shape is None or state.schema_id is None:
        check_first(shape)
        _check(engine, table, shape)
        created = (*statements.create(engine, table, shape), *_view(engine, table, shape))
        _check_copied(engine, len(created), shape)
        return TableChange(created, replace(state, schema_id=schema_id, shape=shape), shape)
    is_newer = schema_id > state.schema_id
    if shape.is_history:
        steps, merged = message_history.changed(state.shape, shape, is_newer=is_newer)
    else:
        steps, merged = (migrate if is_newer else loosened)(state.shape, shape)
    places(merged, shape)
    _check(engine, table, merged)
    altered = [each for step in steps for each in statements.alter(engine, table, step, merged)]
    is_in_the_way = any(not isinstance(step, SetComment) for step in steps)
    if is_in_the_way or _view(engine, table, state.shape) != _view(engine, table, merged):
        altered = [*_dropped_view(engine, table, merged), *altered, *_view(engine, table, merged)]
    _check_copied(engine, len(altered), state.shape, merged)
    after = replace(state, schema_id=max(schema_id, state.schema_id), shape=merged)
    return TableChange(tuple(altered), after, shape)


def _check(engine: Engine, table: str, shape: Shape) -> None:
    """Raise InvalidShape for a table, or a view of its history, that the warehouse cannot store."""
    engine.check(table, shape)
    if shape.is_history:
        message_history.check(shape)
        engine.check(message_history.view_of(table), shape)


def _view(engine: Engine, table: str, shape: Shape) -> tuple[str, ...]:
    return (message_history.create_view(engine, table, shape),) if shape.is_history else ()


def _dropped_view(engine: Engine, table: str, shape: Shape) -> tuple[str, ...]:
    return (message_history.drop_view(engine, table),) if shape.is_history else ()


def _check_copied(engine: Engine, count: int, *shapes: Shape) -> None:
    """Raise InvalidShape if `count` statements would copy too many columns of a table with these shapes."""
    columns, most = max(len(each.columns) for each in shapes), engine.most_copied_columns
    if most is not None and count * columns > most:
        raise InvalidShape(
            f"the change of the table takes {count:,} statements, each for all {columns:,} columns: expected at most "
            f"{most // columns:,} statements, because this warehouse keeps the columns of each in memory. Change fewer "
            "fields at once, give the table fewer columns or comments, or make it anew."
        )
