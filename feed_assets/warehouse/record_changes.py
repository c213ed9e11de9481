"""Changes of a record, whose fields are columns, to another type, and the reverse.

The columns have different names, so no column would lose a value by its type. But the old ones would be dropped.
"""

from collections.abc import Collection

from feed_assets.core.record_columns import records_of
from feed_assets.warehouse.shapes import Shape


def changed_record(table: Shape, other: Shape, gone: Collection[str], names: Collection[str]) -> str | None:
    """Return the name of a field that is a record in one of two shapes, and of another type in the other one.

    `gone` are columns of the table that the other shape lacks, and `names` its columns that count. Return None if there
    is none, and for a table in which columns stay: rows keep their values there.
    """
    if other.is_history or other.is_union or not (table.is_flat or other.is_flat):
        return None
    changed = _records(names) & {*gone} or _records(gone) & {*names}
    return min(changed, default=None)


def with_kept(table: Shape, other: Shape, gone: Collection[str], names: Collection[str]) -> Shape:
    """Return a schema's shape that keeps the columns of fields that were a record, or are one now."""
    kept = {*other.kept}
    while (record := changed_record(table, other, {*gone} - kept, names)) is not None:
        kept |= {record, *(each for each in (*gone, *names) if record in records_of(each))}
    return other.model_copy(update={"kept": tuple(sorted(kept))})


def _records(columns: Collection[str]) -> set[str]:
    return {record for each in columns for record in records_of(each)}
