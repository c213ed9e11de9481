"""The data version: a digest of the schema and the rows. The rows' order, files and part names do not matter."""

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from feed_assets.core.data_version import SLICES, data_version
from feed_assets.core.errors import InvalidDefinition
from feed_assets.spark.parse import EXACT_JSON, column


def parts(schema: StructType) -> dict[str, Column]:
    """Return the aggregates of a digest: an xor of the rows' hashes, a count and sums.

    The xor alone is not enough, because two equal rows cancel each other out.
    """
    return parts_of(hash_of([(_hashable(field.name, field.dataType), column(field.name)) for field in schema]))


def parts_of(row: Column) -> dict[str, Column]:
    """Return the aggregates of a digest for a column of row hashes. A row whose hash is NULL does not count."""
    sums = {f"_sum{low}": sf.sum(_bits(row, low, width)) for low, width in SLICES}
    return {"_records": sf.count(row), "_xor": sf.bit_xor(row), **sums}


def hash_of(columns: Sequence[tuple[Column, Column]]) -> Column:
    """Return the hash of a row. Each pair has the expression to hash, and the column to compare with NULL.

    xxhash64 skips NULLs, so (NULL, 'a') and ('a', NULL) would get the same hash. Therefore the hash includes a NULL
    flag for each column.
    """
    return sf.xxhash64(*[part for hashed, each in columns for part in (hashed, each.isNull())])


def digest(schema: StructType, values: Mapping[str, Any]) -> str:
    """Return the digest of the schema (names, types, order) and the aggregates' values, as 32 hexadecimal digits."""
    return data_version([(field.name, field.dataType.simpleString()) for field in schema], values)


def measured(frame: DataFrame) -> tuple[int, str]:
    """Return a frame's record count and digest, as `write` would compute them. Call this within `reading`.

    This runs one job.
    """
    row = frame.agg(*[found.alias(name) for name, found in parts(frame.schema).items()]).collect()[0]
    values = row.asDict()
    return values["_records"], digest(frame.schema, values)


def _bits(row: Column, low: int, width: int) -> Column:
    return sf.shiftrightunsigned(row, low).bitwiseAND(sf.lit((1 << width) - 1).cast("bigint"))


def _hashable(name: str, kind: DataType) -> Column:
    if _has_map(kind):
        raise InvalidDefinition(
            f"column {name!r} is a {kind.simpleString()}, whose entries have no order, so a digest is impossible: "
            "use array_sort(map_entries(…)) instead."
        )
    # xxhash64 skips NULLs inside arrays and structs, too, and gives [[1], [2]] and [[1, 2]] the same hash. As JSON,
    # such values differ.
    nested = isinstance(kind, (ArrayType, StructType, VariantType))
    return sf.to_json(sf.struct(column(name)), EXACT_JSON) if nested else column(name)


def _has_map(kind: DataType) -> bool:
    match kind:
        case StructType():
            return any(_has_map(field.dataType) for field in kind)
        case ArrayType():
            return _has_map(kind.elementType)
        case _:
            return isinstance(kind, MapType)
