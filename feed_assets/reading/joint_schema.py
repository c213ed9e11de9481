"""Joint schemas of many Parquet files. Files may differ by their writer's library, but not in their columns.

| in a file | in the joint schema |
|---|---|
| types of values | the types of `feeds.parquet_columns`, which are those of Spark |
| NOT NULL constraints, metadata | left out |
| order of columns | the order of the first file |
"""

from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow  # pyright: ignore[reportMissingTypeStubs]
import pyarrow.compute  # pyright: ignore[reportMissingTypeStubs]

from feed_assets.core.errors import UnreadableUpdate

pa: Any = pyarrow  # pyarrow has no type hints.
pc: Any = pyarrow.compute

Found = tuple[str, Any]
"""A file's key and its columns (a `pyarrow.Schema`)."""


def unified(files: Sequence[Found], *, union_by_name: bool) -> Any:
    """Return the joint columns of all files. Raise UnreadableUpdate if the type of a column differs between files.

    Raise it for a column that is missing in a file, too, unless `union_by_name` is True.
    """
    first, schema = files[0]
    target = {each.name: each.type for each in schema}
    for key, other in files[1:]:
        types = {each.name: each.type for each in other}
        names = sorted(target.keys() & types.keys()) if union_by_name else sorted(target.keys() | types.keys())
        if wrong := [_difference(name, types, target) for name in names if types.get(name) != target.get(name)]:
            raise UnreadableUpdate(_differs(key, first, wrong, lacks_alone=not union_by_name and _lacks(target, types)))
        target = {**target, **{name: kind for name, kind in types.items() if name not in target}}
        cases = Counter(map(str.lower, target))
        if alike := sorted(name for name in target if cases[name.lower()] > 1):
            raise UnreadableUpdate(
                f"{key} and {first} have the columns {', '.join(alike)}, which Spark cannot tell apart, because it "
                "ignores case: expected names that differ by more than case. Read each update by itself."
            )
    return pa.schema([*target.items()])


def fitted(table: Any, schema: Any, misfit: Callable[[str, Any], str]) -> Any:
    """Return a file's rows with exactly these columns. Missing columns are NULL.

    Raise UnreadableUpdate for a value that the type of its column cannot hold. `misfit` returns the error's message.
    """
    columns: list[Any] = []
    for each in schema:
        if each.name not in table.schema.names:
            columns.append(pa.nulls(table.num_rows, each.type))
            continue
        try:
            column = _without_views(table.column(each.name)).cast(each.type)
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise UnreadableUpdate(misfit(each.name, each.type)) from error
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=schema)


def _without_views(column: Any) -> Any:
    """Convert list views to lists, because pyarrow's own cast makes too few offsets."""
    if not pa.types.is_list_view(column.type) and not pa.types.is_large_list_view(column.type):
        return column
    chunks = [_list(chunk) for chunk in column.chunks]
    return pa.chunked_array(chunks, pa.large_list(column.type.value_type))


def _list(views: Any) -> Any:
    lengths = pc.fill_null(pc.list_value_length(views), 0).cast(pa.int64())
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths)])
    return pa.LargeListArray.from_arrays(offsets, views.flatten(), mask=views.is_null())


def with_column(table: Any, name: str, value: str) -> Any:
    """Add a column with the same text in each row.

    The text is passed as bytes: for a Python value pyarrow would load pandas, to check for pandas' types.
    """
    text = value.encode()
    offsets = pa.py_buffer(array("i", [0, len(text)]))
    one = pa.StringArray.from_buffers(1, offsets, pa.py_buffer(text))
    return table.append_column(name, pa.repeat(one[0], table.num_rows))


def _lacks(target: dict[str, Any], types: dict[str, Any]) -> bool:
    """Return whether the only difference is missing columns."""
    return all(types[name] == target[name] for name in target.keys() & types.keys())


def _difference(name: str, types: dict[str, Any], expected: dict[str, Any]) -> str:
    return f"{name}: found {types.get(name, 'no such column')}, expected {expected.get(name, 'no such column')}"


def _differs(key: str, first: str, wrong: Sequence[str], *, lacks_alone: bool) -> str:
    advice = (
        "Read with union_by_name=True, which has NULL for a missing column, or read each update by itself."
        if lacks_alone
        else "Read each update by itself, or have the producer publish a new version of the feed."
    )
    return f"{key} has other columns than {first}: {'; '.join(wrong)}. {advice}"
