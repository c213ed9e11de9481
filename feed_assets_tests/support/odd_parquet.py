"""Parquet files that readers disagree about: types that pyarrow writes, and schemas that only parquet-java writes."""

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from feed_assets_tests.support.parquet_lake import parquet

REFUSED = "refused"
"""Marks a file that every reader must refuse."""

SPARK_2 = {"org.apache.spark.version": "2.4.6"}
UTC_MICROSECONDS = pa.timestamp("us", "UTC")
MOMENT = datetime(2026, 6, 1, 10, 0, 0, 123456, tzinfo=UTC)
NANOSECONDS = int(MOMENT.timestamp()) * 10**9 + 123456000
OLD_DAY = -171_499  # 1500-06-15 by today's calendar, 1500-06-05 by that of Spark 2


def one(values: list[Any], kind: pa.DataType, notes: Mapping[str, str] | None = None, **options: Any) -> bytes:
    """Return a file with one column `x`."""
    return parquet(pa.table({"x": pa.array(values, kind)}).replace_schema_metadata(notes), **options)


def _bad_text() -> pa.Array:
    offsets = pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0")
    return pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"a\xff")])


def _integers() -> dict[str, tuple[bytes, Any]]:
    kinds = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
    files: dict[str, tuple[bytes, Any]] = {}
    for kind in kinds:
        is_signed = pa.types.is_signed_integer(kind)
        ends = (
            (-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1) if is_signed else (0, 2**kind.bit_width - 1)
        )
        files[str(kind)] = (one([*ends, None], kind), [*ends, None])
    return files


def _moments() -> dict[str, tuple[bytes, Any]]:
    naive = MOMENT.replace(tzinfo=None)
    files: dict[str, tuple[bytes, Any]] = {
        "seconds": (one([MOMENT.replace(microsecond=0)], pa.timestamp("s", "UTC")), [MOMENT.replace(microsecond=0)]),
        "of another zone": (one([MOMENT], pa.timestamp("us", "Europe/Berlin")), [MOMENT]),
        "nanoseconds": (one([NANOSECONDS, None, -1000], pa.timestamp("ns", "UTC")), [MOMENT, None, _before_1970()]),
        "nanoseconds without a zone": (one([NANOSECONDS, None], pa.timestamp("ns")), [naive, None]),
        "nanoseconds in a list": (one([[NANOSECONDS], None], pa.list_(pa.timestamp("ns", "UTC"))), [[MOMENT], None]),
        "nanoseconds in a struct": (one([{"a": NANOSECONDS}], pa.struct([("a", pa.timestamp("ns"))])), [{"a": naive}]),
        "nanoseconds in a map": (
            one([[("k", NANOSECONDS)]], pa.map_(pa.string(), pa.timestamp("ns", "UTC"))),
            [[("k", MOMENT)]],
        ),
        "finer nanoseconds": (one([NANOSECONDS + 1], pa.timestamp("ns", "UTC")), REFUSED),
        "finer nanoseconds of before 1970": (one([-1], pa.timestamp("ns")), REFUSED),
        "finer nanoseconds in a list": (one([[1]], pa.list_(pa.timestamp("ns", "UTC"))), REFUSED),
        "milliseconds beyond microseconds": (one([2**62], pa.timestamp("ms", "UTC")), REFUSED),
        "INT96": (one([NANOSECONDS], pa.timestamp("ns"), use_deprecated_int96_timestamps=True), [MOMENT]),
    }
    return files


def _before_1970() -> datetime:
    return datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)


def _old() -> dict[str, tuple[bytes, Any]]:
    """Return files with days and moments of Spark 2, and of later versions in its legacy mode."""
    days, old = [OLD_DAY, -719_164, -141_428, -141_427, 0, None], pa.date32()
    read = [date(1500, 6, 5), date(1, 1, 1), date(1582, 10, 4), date(1582, 10, 15), date(1970, 1, 1), None]
    before, after = -2_208_988_800 * 10**6 - 1, -2_208_902_400 * 10**6
    moments = {"use_deprecated_int96_timestamps": True}
    files: dict[str, tuple[bytes, Any]] = {
        "days of Spark 2": (one(days, old, SPARK_2), read),
        "days of Spark 3": (one([OLD_DAY], old, {"org.apache.spark.version": "3.0.0"}), [date(1500, 6, 15)]),
        "days of Spark 3 as Spark 2 wrote them": (
            one([OLD_DAY], old, {"org.apache.spark.version": "3.5.0", "org.apache.spark.legacyDateTime": ""}),
            [date(1500, 6, 5)],
        ),
        "days of no year": (one([-719_165], old, SPARK_2), REFUSED),
        "days of Spark 2 in a list": (
            one([[0], [-141_427]], pa.list_(old), SPARK_2),
            [[date(1970, 1, 1)], [date(1582, 10, 15)]],
        ),
        "old days of Spark 2 in a list": (one([[OLD_DAY]], pa.list_(old), SPARK_2), REFUSED),
        "old days of Spark 2 in a struct": (one([{"a": OLD_DAY}], pa.struct([("a", old)]), SPARK_2), REFUSED),
        "moments of Spark 2": (
            one([0, after], UTC_MICROSECONDS, SPARK_2),
            [datetime(1970, 1, 1, tzinfo=UTC), datetime(1900, 1, 2, tzinfo=UTC)],
        ),
        "old moments of Spark 2": (one([before], UTC_MICROSECONDS, SPARK_2), REFUSED),
        "old INT96 of Spark 2": (one([before], pa.timestamp("us"), SPARK_2, **moments), REFUSED),
        "old INT96 of Spark 3.0": (
            one([before], pa.timestamp("us"), {"org.apache.spark.version": "3.0.1"}, **moments),
            REFUSED,
        ),
        "old INT96 of nobody": (
            one([before], pa.timestamp("us"), None, **moments),
            [datetime(1899, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)],
        ),
    }
    return files


def _noted(kind: str, more: str = "{}") -> dict[str, str]:
    field = f'{{"name":"x","type":"{kind}","nullable":true,"metadata":{more}}}'
    return {"org.apache.spark.sql.parquet.row.metadata": f'{{"type":"struct","fields":[{field}]}}'}


def _others() -> dict[str, tuple[bytes, Any]]:
    renamed = parquet(pa.table({"y": [7]}).replace_schema_metadata(_noted("long")))
    return {
        "decimals": (one([Decimal("-123.45"), None], pa.decimal128(5, 2)), [Decimal("-123.45"), None]),
        "decimals as integers": (
            one([Decimal("1.50")], pa.decimal128(18, 2), store_decimal_as_integer=True),
            [Decimal("1.50")],
        ),
        "decimals of 38 digits": (one([Decimal("1E-18")], pa.decimal128(38, 18)), [Decimal("1E-18")]),
        "decimals of 50 digits": (one([Decimal("1.5")], pa.decimal256(50, 2)), REFUSED),
        "half floats": (one([1.5], pa.float16()), REFUSED),
        "a time of day": (one([1], pa.time64("us")), REFUSED),
        "a time of day in milliseconds": (one([1], pa.time32("ms")), REFUSED),
        "durations, of which Parquet has none": (one([1, None], pa.duration("us")), [1, None]),
        "a UUID": (one([b"0123456789abcdef", None], pa.uuid()), [b"0123456789abcdef", None]),
        "JSON": (one(['{"a":1}'], pa.json_()), ['{"a":1}']),
        "booleans in a byte": (one([1, None], pa.bool8()), [1, None]),
        "NULL alone": (one([None, None], pa.null()), [None, None]),
        "a dictionary": (parquet(pa.table({"x": pa.array(["a", None]).dictionary_encode()})), ["a", None]),
        "large text": (one(["é", None], pa.large_string()), ["é", None]),
        "bytes of one size": (one([b"abc", None], pa.binary(3)), [b"abc", None]),
        "views of lists": (one([[1], None, [2, 3], []], pa.list_view(pa.int32())), [[1], None, [2, 3], []]),
        "text that is not UTF-8": (parquet(pa.table({"x": _bad_text()})), REFUSED),
        "names that differ by case": (parquet(pa.table({"a": [1], "A": [2]})), REFUSED),
        "fields that differ by case": (
            one([{"a": 1, "A": 2}], pa.struct([("a", pa.int32()), ("A", pa.int32())])),
            REFUSED,
        ),
        "a name twice": (parquet(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])), REFUSED),
        "no columns": (parquet(pa.table({})), REFUSED),
        "no rows": (one([], pa.int64()), []),
        "Brotli": (one([1], pa.int64(), compression="brotli"), REFUSED),
        "a column that Spark noted by another name": (renamed, [7]),
        "a type that Spark noted before a cast": (one([7], pa.int32(), _noted("string")), [7]),
        "a width that Spark noted": (
            one(["a"], pa.string(), _noted("string", '{"__CHAR_VARCHAR_TYPE_STRING":"char(5)"}')),
            ["a"],
        ),
        "no zone that Spark noted": (one([MOMENT], UTC_MICROSECONDS, _noted("timestamp_ntz")), [MOMENT]),
        "notes that are no JSON": (
            one([7], pa.int64(), {"org.apache.spark.sql.parquet.row.metadata": "nonsense"}),
            [7],
        ),
    }


FILES: dict[str, tuple[bytes, Any]] = {**_integers(), **_moments(), **_old(), **_others()}
"""Files by name, each with the values of its one column, or REFUSED."""

Fill = Callable[[Any, Any], None]
"""A function that fills a group of parquet-java; the second argument makes a binary of bytes."""


def _binary(*values: bytes) -> list[Fill]:
    return [lambda group, binary, value=value: group.append("x", binary(value)) for value in values]


def _in_list(child: str, *steps: str) -> list[Fill]:
    def fill(group: Any, _: Any) -> None:
        for step in ("x", *steps):
            group = group.addGroup(step)
        group.append(child, 1).append(child, 2)

    return [fill]


SCHEMAS: dict[str, tuple[str, list[Fill], Any]] = {
    "a decimal in a byte array": (
        "required binary x (DECIMAL(4,2));",
        _binary(b"\x64", b"\xff"),
        [Decimal("1.00"), Decimal("-0.01")],
    ),
    "a long decimal in a byte array": ("required binary x (DECIMAL(20,2));", _binary(b"\x64"), [Decimal("1.00")]),
    "a decimal that is longer than its type": ("required binary x (DECIMAL(4,2));", _binary(b"\x01\0\0"), REFUSED),
    "a fixed decimal that is longer": (
        "required fixed_len_byte_array(16) x (DECIMAL(4,2));",
        _binary(bytes(13) + b"\x01\0\0"),
        REFUSED,
    ),
    "a long fixed decimal that is longer": (
        "required fixed_len_byte_array(16) x (DECIMAL(20,2));",
        _binary(bytes(6) + b"\x7f" + bytes(9)),
        REFUSED,
    ),
    "an integer as a decimal that is longer": (
        "required int32 x (DECIMAL(4,2));",
        [lambda group, _: group.append("x", 123456)],
        REFUSED,
    ),
    "ENUM": ("required binary x (ENUM);", _binary(b"A"), ["A"]),
    "BSON": ("required binary x (BSON);", _binary(b"A"), [b"A"]),
    "INTERVAL": ("required fixed_len_byte_array(12) x (INTERVAL);", _binary(b"A" * 12), REFUSED),
    "a repeated column": ("repeated int32 x;", [lambda group, _: group.append("x", 1).append("x", 2)], [[1, 2]]),
    "a list of two levels": ("optional group x (LIST) { repeated int32 array; }", _in_list("array"), [[1, 2]]),
    "a list in a list without a group": (
        "optional group x (LIST) { repeated group list { repeated int32 element; } }",
        _in_list("element", "list"),
        REFUSED,
    ),
    "a map by its old name": (
        "optional group x (MAP_KEY_VALUE) { repeated group map { required binary key (UTF8); optional int32 value; } }",
        [lambda group, _: group.addGroup("x").addGroup("map").append("key", "k").append("value", 1)],
        [[("k", 1)]],
    ),
}
"""Schemas by name, each with its rows and the values of its one column, or REFUSED."""


def crafted(spark: Any, path: Path, schema: str, rows: list[Fill]) -> bytes:
    """Return a file that parquet-java writes in the JVM of a Spark session."""
    jvm, conf = spark._jvm, spark._jsc.hadoopConfiguration()
    message = jvm.org.apache.parquet.schema.MessageTypeParser.parseMessageType(f"message m {{ {schema} }}")
    target = jvm.org.apache.hadoop.fs.Path(path.as_uri())
    builder = jvm.org.apache.parquet.hadoop.example.ExampleParquetWriter.builder(target)
    writer = builder.withType(message).withConf(conf).build()
    groups = jvm.org.apache.parquet.example.data.simple.SimpleGroupFactory(message)
    for fill in rows:
        group = groups.newGroup()
        fill(group, jvm.org.apache.parquet.io.api.Binary.fromConstantByteArray)
        writer.write(group)
    writer.close()
    return path.read_bytes()


PARQUET_TESTING: dict[str, Any] = {
    "byte_array_decimal.parquet": 24,
    "crs-geography.parquet": 1,
    "crs-projjson.parquet": 1,
    "encrypt_columns_plaintext_footer.parquet.encrypted": REFUSED,
    "hadoop_lz4_compressed.parquet": 4,
    "incorrect_map_schema.parquet": REFUSED,
    "map_no_value.parquet": REFUSED,
    "non_hadoop_lz4_compressed.parquet": REFUSED,
    "nullable.impala.parquet": 7,
    "old_list_structure.parquet": 1,
    "repeated_no_annotation.parquet": REFUSED,
    "unknown-logical-type.parquet": REFUSED,
}
"""Files of apache/parquet-testing by name, each with its number of rows, or REFUSED."""
