"""The column that orders the rows of a key: the declared `newest_by` of a topic, in the shapes of its schemas."""

from feed_assets.core.errors import InvalidShape
from feed_assets.core.message_words import shortened
from feed_assets.warehouse.migrations import ORDERED
from feed_assets.warehouse.shapes import Column, Shape
from feed_assets.warehouse.variants import loose

_NAMED = 20
"""The most fields that a message lists."""


def with_order(shape: Shape, newest_by: str) -> Shape:
    """Return a schema's shape with its field for the declared `newest_by`, found by name or alias.

    The column may be null and has no default: a delete without a value would get the default, and win by it. For a
    schema without the field, the shape has the declared name, and no such column.
    """
    field = _field(shape, newest_by)
    if field is None:
        return shape.model_copy(update={"newest_by": newest_by})
    columns = tuple(loose(each) if each == field else each for each in shape.columns)
    return shape.model_copy(update={"columns": columns, "newest_by": field.name})


def check_first(shape: Shape) -> None:
    """Raise InvalidShape if a table cannot begin with a schema, because it has no column to order its rows."""
    if not shape.newest_by:
        return
    field = _field(shape, shape.newest_by)
    if field is None:
        raise InvalidShape(
            f"the schema has no field {shape.newest_by}, which newest_by declares: it has "
            f"{shortened([each.name for each in shape.columns], _NAMED)}. Declare a field that all schemas have."
        )
    if field.kind.name not in ORDERED:
        raise InvalidShape(
            f"newest_by is the field {field.name}, which is {field.kind}: expected one of "
            f"{', '.join(sorted(ORDERED))}, which every warehouse orders alike. Declare another field."
        )


def check_same(topic: str, table: Shape, shape: Shape) -> None:
    """Raise InvalidShape if the declared `newest_by` is not the column by which the table's rows are ordered.

    A table has only the winner of each key, so it cannot be ordered anew without the rows that lost.
    """
    if is_same(table, shape):
        return
    was = f"by {table.newest_by}" if table.newest_by else "by offset, without newest_by"
    now = f"newest_by='{shape.newest_by}'" if shape.newest_by else "no newest_by"
    raise InvalidShape(
        f"the rows of {topic} are ordered {was}, and the topic now declares {now}: expected the same. "
        f"`feed-assets warehouse reset WAREHOUSE {topic} --apply` makes the table anew from all chunks. Run it, or "
        "declare the topic as it was."
    )


def is_same(table: Shape, shape: Shape) -> bool:
    """Return whether the declared `newest_by` of a schema's shape is the column that orders a table, also renamed."""
    if table.newest_by == shape.newest_by or not (table.newest_by and shape.newest_by):
        return table.newest_by == shape.newest_by
    column, field = _field(table, table.newest_by), _field(shape, shape.newest_by)
    if column and shape.newest_by in column.aliases:
        return True
    is_renamed = field is not None and table.newest_by in field.aliases
    return is_renamed and table.newest_by not in {each.name for each in shape.columns}


def _field(shape: Shape, name: str) -> Column | None:
    named = [each for each in shape.columns if each.name == name]
    return next(iter([*named, *(each for each in shape.columns if name in each.aliases)]), None)
