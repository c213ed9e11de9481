"""Chunks as Parquet: the lines of a chunk, with a type for each column.

A chunk is first made as lines of the CSV dialect, whatever its format. So both formats are cut at the same offsets, and
refuse the same messages. Then the lines become columns. One version of pyarrow always makes the same bytes.
"""

from collections.abc import Collection, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow  # pyright: ignore[reportMissingTypeStubs]
from pyarrow import compute, csv, parquet  # pyright: ignore[reportMissingTypeStubs]

from feed_assets.kafka import dialect
from feed_assets.kafka.avro_types import is_decimal, named_types
from feed_assets.kafka.messages import OFFSET

pa: Any = pyarrow  # This library has no type hints.
_compute: Any = compute
_csv: Any = csv
_parquet: Any = parquet

MOST_DIGITS = 38
"""The most digits of a decimal in Parquet. DuckDB would read a longer one as a double, so it is a text."""

_TEXT, _BYTES, _OFFSET = pa.string(), pa.binary(), pa.int64()
_MOMENT, _LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")
_PLAIN = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": _BYTES,
    "fixed": _BYTES,
}
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time64("us"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): _MOMENT,
    ("long", "timestamp-micros"): _MOMENT,
    ("long", "local-timestamp-millis"): _LOCAL,
    ("long", "local-timestamp-micros"): _LOCAL,
}
"""Logical types that chunks support. All other types are texts, such as JSON for arrays, maps and records."""


_ALL = frozenset({_TEXT, *_PLAIN.values(), *_LOGICAL.values()})


def _types_of(record: Mapping[str, Any]) -> dict[str, Any]:
    named: Mapping[str, Any] = record.get("__named_schemas", {})
    return {str(each["name"]): _type(each["type"], named) for each in record["fields"]}


def _type(schema: Any, named: Mapping[str, Any]) -> Any:
    """Return the type of a field. A union of several types is a text, in which each value has its text of CSV."""
    types = [_of_branch(name, definition) for name, definition in named_types(schema, named)]
    return types[0] if types and all(each == types[0] for each in types) else _TEXT


def _of_branch(name: str, definition: Mapping[str, Any]) -> Any:
    if name in ("bytes", "fixed") and is_decimal(definition):
        digits, scale = definition["precision"], definition.get("scale", 0)
        return pa.decimal128(digits, scale) if digits <= MOST_DIGITS else _TEXT
    return _LOGICAL.get((name, str(definition.get("logicalType", "")))) or _PLAIN.get(name, _TEXT)


def written(lines: bytes, record: Mapping[str, Any]) -> bytes:
    """Return a Parquet file with the rows of lines in the CSV dialect. Columns have the types of an Avro record.

    A column is a text if the record lacks it, or if a value has no such type, so that a warehouse gets the same text as
    from CSV. A tombstone may have a key of another type than rows have, and an envelope of Debezium another `before`.
    """
    types = _types_of(record)
    head, _, body = lines.partition(b"\n")
    [names] = dialect.read(head + b"\n")
    columns = [str(each) for each in names]
    column_types = [_OFFSET if each == OFFSET else types.get(each, _TEXT) for each in columns]
    try:
        return _file(columns, _columns(body, column_types))
    except (pa.ArrowInvalid, ValueError):
        texts = _columns(body, [_TEXT] * len(columns))
        return _file(columns, [*map(_typed, texts, column_types)])


def _typed(texts: Any, column_type: Any) -> Any:
    """Return a column of texts as values of a type, or as it is if one of them is no such value.

    It is parsed alone. To parse the whole chunk for each column would take hours for thousands of columns.
    """
    if column_type == _TEXT:
        return texts
    lines = BytesIO()
    _csv.write_csv(pa.table({"c": texts}), lines, _csv.WriteOptions(include_header=False, quoting_style="all_valid"))
    try:
        return _columns(lines.getvalue(), [column_type], null="")[0]
    except (pa.ArrowInvalid, ValueError):
        return texts


def _columns(body: bytes, types: Sequence[Any], *, null: str = dialect.NULL) -> list[Any]:
    """Return the columns of lines. Raise ArrowInvalid or ValueError for a text that is no value of its type."""
    names = [f"c{number}" for number in range(len(types))]
    as_read = {name: _TEXT if each == _BYTES else each for name, each in zip(names, types, strict=True)}
    table = _csv.read_csv(
        BytesIO(body),
        # The whole chunk is one block, because a line has to end within its block.
        read_options=_csv.ReadOptions(column_names=names, use_threads=False, block_size=len(body) + 1),
        parse_options=_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=_csv.ConvertOptions(
            column_types=as_read,
            null_values=[null],
            true_values=["true"],
            false_values=["false"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    return [_bytes(table[name]) if each == _BYTES else table[name] for name, each in zip(names, types, strict=True)]


def _bytes(digits: Any) -> Any:
    return pa.array([None if each is None else bytes.fromhex(each) for each in digits.to_pylist()], _BYTES)


def _file(names: Sequence[str], columns: Sequence[Any]) -> bytes:
    return _content(pa.table([*columns], names=[*names]))


def _content(table: Any) -> bytes:
    """Return a table as a file of one row group."""
    file = BytesIO()
    rows = max(1, table.num_rows)
    _parquet.write_table(table, file, row_group_size=rows, store_schema=False, write_page_checksum=True)
    return file.getvalue()


def end_of(content: bytes) -> int:
    """Return the offset after the last record of a file; 0 if `content` is not a chunk."""
    try:
        return int(_parquet.read_table(BytesIO(content), columns=[OFFSET])[OFFSET][-1].as_py()) + 1
    except (pa.ArrowException, KeyError, IndexError, TypeError, ValueError, OSError):
        return 0


def layout(path: Path) -> tuple[int, dict[str, str]]:
    """Return the number of rows of a file, and the names of its columns' types. Raise ValueError for another file."""
    try:
        metadata = _parquet.read_metadata(path)
        schema = metadata.schema.to_arrow_schema()
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"it is no Parquet: {error}") from error
    for each in schema:
        if each.type not in _ALL and not pa.types.is_decimal128(each.type):
            raise ValueError(f"its column {each.name} is {each.type}, which no chunk has")
    return metadata.num_rows, {each.name: str(each.type) for each in schema}


def without(path: Path, offsets: Collection[int]) -> bytes:
    """Return a chunk's file without the rows of some offsets."""
    table = _parquet.read_table(path)
    is_left_out = _compute.is_in(table[OFFSET], value_set=pa.array([*offsets], _OFFSET))
    return _content(table.filter(_compute.invert(is_left_out)))
