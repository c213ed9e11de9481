"""One schema of many Parquet files: what their writers' libraries differ in is evened out, what their columns are not.

| in a file | here |
|---|---|
| a timestamp of any zone, or INT96, which Spark writes by default | of UTC, the same moment |
| a timestamp without a zone | as it is |
| large or view strings and binaries, large or view lists, dictionaries | strings, binaries, lists, their values |
| promises that there are no NULLs, metadata | left out |
| the order of columns | that of the first file |
"""

from array import array
from collections.abc import Collection, Sequence
from typing import Any

import pyarrow  # pyright: ignore[reportMissingTypeStubs]

from feed_assets.core.errors import UnreadableUpdate

pa: Any = pyarrow  # It has no types.

Found = tuple[str, Any]
"""A file's key and its columns."""

_MICROSECONDS = pa.timestamp("us", "UTC")


def plain(schema: Any, int96: Collection[str]) -> Any:
    """The columns of a file as they are here; `int96` has the paths of those that are moments by their old form."""
    return pa.schema([pa.field(each.name, _plain(each.type, _has(each.name, int96))) for each in schema])


def unified(found: Sequence[Found], *, union_by_name: bool) -> Any:
    """The columns of all files. Raises UnreadableUpdate for a type that differs, or a column, unless that may lack."""
    first, schema = found[0]
    target = {each.name: each.type for each in schema}
    for key, other in found[1:]:
        types = {each.name: each.type for each in other}
        names = sorted(target.keys() & types.keys()) if union_by_name else sorted(target.keys() | types.keys())
        if wrong := [_difference(name, types, target) for name in names if types.get(name) != target.get(name)]:
            raise UnreadableUpdate(_differs(key, first, wrong, lacks_alone=not union_by_name and _lacks(target, types)))
        target = {**target, **{name: kind for name, kind in types.items() if name not in target}}
    return pa.schema([*target.items()])


def fitted(table: Any, schema: Any) -> Any:
    """A file's rows with exactly these columns: NULL in those that it has not."""
    columns = [
        table.column(each.name).cast(each.type)
        if each.name in table.schema.names
        else pa.nulls(table.num_rows, each.type)
        for each in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def with_column(table: Any, name: str, value: str) -> Any:
    """The rows with one column more, which has the same text in each.

    The text comes by its bytes: to see whether a value of Python's is one of pandas', pyarrow would load pandas.
    """
    text = value.encode()
    offsets = pa.py_buffer(array("i", [0, len(text)]))
    one = pa.StringArray.from_buffers(1, offsets, pa.py_buffer(text))
    return table.append_column(name, pa.repeat(one[0], table.num_rows))


def _plain(kind: Any, is_int96: bool) -> Any:
    types = pa.types
    if types.is_timestamp(kind):
        return _MICROSECONDS if is_int96 else pa.timestamp(kind.unit, "UTC" if kind.tz else None)
    if types.is_dictionary(kind):
        return _plain(kind.value_type, is_int96)
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    return _nested(kind, is_int96)


def _nested(kind: Any, is_int96: bool) -> Any:
    types = pa.types
    if types.is_struct(kind):
        return pa.struct([pa.field(each.name, _plain(each.type, is_int96)) for each in kind.fields])
    if types.is_map(kind):
        return pa.map_(_plain(kind.key_type, is_int96), _plain(kind.item_type, is_int96))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_list_view(kind) or types.is_large_list_view(kind):
        return pa.list_(_plain(kind.value_type, is_int96))
    return kind


def _has(name: str, paths: Collection[str]) -> bool:
    """Whether a column, or one in it, is among these paths."""
    return any(path == name or path.startswith(f"{name}.") for path in paths)


def _lacks(target: dict[str, Any], types: dict[str, Any]) -> bool:
    """Whether columns differ only in that some are not there."""
    return all(types[name] == target[name] for name in target.keys() & types.keys())


def _difference(name: str, found: dict[str, Any], expected: dict[str, Any]) -> str:
    return f"{name}: found {found.get(name, 'no such column')}, expected {expected.get(name, 'no such column')}"


def _differs(key: str, first: str, wrong: Sequence[str], *, lacks_alone: bool) -> str:
    advice = (
        "Read with union_by_name=True, which has NULL where a column lacks, or each update by itself."
        if lacks_alone
        else "Read each update by itself, or have the producer publish a new version of the feed."
    )
    return f"{key} has other columns than {first}: {'; '.join(wrong)}. {advice}"
