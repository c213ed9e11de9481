"""Conversion of dates in Spark's old calendar, as in Spark itself. Moments that cannot be converted are refused."""

from collections.abc import Iterator
from datetime import date
from typing import Any

import pyarrow  # pyright: ignore[reportMissingTypeStubs]
import pyarrow.compute  # pyright: ignore[reportMissingTypeStubs]

from feed_assets.core.errors import UnreadableUpdate
from feed_assets.core.parquet_values import FIRST_NEW_DAY, OLD_DAY, OLD_MOMENT, OLD_MOMENTS, REBASED, TOO_LARGE
from feed_assets.feeds.parquet_columns import FileColumns

pa: Any = pyarrow  # pyarrow has no type hints.
pc: Any = pyarrow.compute

_1970 = date(1970, 1, 1)
_MOST = 9_223_372_036_854
"""Seconds before and after 1970 that 64 bits of microseconds reach."""


def in_todays_calendar(table: Any, columns: FileColumns) -> Any:
    """Return the rows of a file, with all days converted to today's calendar.

    Raise UnreadableUpdate for old days and moments that cannot be converted (`core.parquet_values`).
    """
    for at, name in enumerate(table.column_names):
        if name in columns.old:
            column = table.column(at)
            if pa.types.is_date(column.type):
                table = table.set_column(at, table.schema.field(at), _rebased(column, columns.key, name))
            else:
                _check(column, columns.key, name)
    return table


def check_years(seconds: Any, key: str) -> None:
    """Raise UnreadableUpdate for an INT96 moment, in seconds, that pyarrow would silently move to another year."""
    for name, column in zip(seconds.column_names, seconds.columns, strict=True):
        for leaf in (each for each in _leaves(column) if pa.types.is_timestamp(each.type)):
            least, most = pc.min_max(leaf.cast(pa.int64())).as_py().values()
            if least is not None and not -_MOST <= least <= most <= _MOST:
                raise UnreadableUpdate(f"{key}: column {name} {TOO_LARGE}")


def _rebased(column: Any, key: str, name: str) -> Any:
    days = column.cast(pa.int32())
    least = pc.min(days).as_py()
    if least is None or least >= REBASED[-1][0]:
        return column
    if least < REBASED[0][0]:
        raise UnreadableUpdate(f"{key}: column {name} {OLD_DAY}")
    shift = pa.scalar(REBASED[0][1], pa.int32())
    for first, later_shift in REBASED[1:]:
        is_later = pc.greater_equal(days, pa.scalar(first, pa.int32()))
        shift = pc.if_else(is_later, pa.scalar(later_shift, pa.int32()), shift)
    return pc.add(days, shift).cast(pa.date32())


def _check(column: Any, key: str, name: str) -> None:
    for leaf in _leaves(column):
        if pa.types.is_date(leaf.type):
            least = pc.min(leaf.cast(pa.int32())).as_py()
            if least is not None and least < (FIRST_NEW_DAY - _1970).days:
                raise UnreadableUpdate(f"{key}: column {name} {OLD_DAY}")
        elif pa.types.is_timestamp(leaf.type) and leaf.type.tz:
            least = pc.min(leaf.cast(pa.timestamp("s", "UTC"), safe=False).cast(pa.int64())).as_py()
            if least is not None and least < OLD_MOMENTS:
                raise UnreadableUpdate(f"{key}: column {name} {OLD_MOMENT}")


def _leaves(column: Any) -> Iterator[Any]:
    """Yield the arrays of values in a column, also the arrays inside lists, structs and maps."""
    kind = column.type
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        if pa.types.is_struct(kind):
            for inner in chunk.flatten():
                yield from _leaves(inner)
        elif pa.types.is_map(kind):
            yield from [*_leaves(chunk.keys), *_leaves(chunk.items)]
        elif pa.types.is_list(kind):
            yield from _leaves(chunk.flatten())
        else:
            yield chunk
