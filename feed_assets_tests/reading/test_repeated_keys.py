"""Repeated keys: DuckDB and Spark judge the same rows alike, value by value, with limited memory."""

from datetime import UTC, datetime

import pytest

from feed_assets.core.errors import DiskFull
from feed_assets.core.feeds import Feed, Partition, Update
from feed_assets.feeds.write import claim
from feed_assets.reading import repeated_keys
from feed_assets.reading.repeated_keys import is_judged_alike, repeated_rows
from feed_assets.runs.checks import unique
from feed_assets.spark.input_frames import read_own
from feed_assets.spark.written_frame import write
from feed_assets_tests.support.each_case import each_case

PARTITION = Partition(Feed.parse("web/keys/v1.0"), "")

VALUES = {
    "boolean": ["true", "false"],
    "tinyint": ["0", "-128", "127"],
    "smallint": ["0", "-32768", "32767"],
    "int": ["0", "-2147483648", "2147483647"],
    "bigint": ["0", "-9223372036854775808", "9223372036854775807"],
    "decimal(10,2)": ["0", "-0.00", "0.01", "12345678.90"],
    "decimal(38,10)": ["0", "0.0000000001", "9999999999999999999999999999.9999999999"],
    "string": [
        "''",
        "' '",
        "'a'",
        "'A'",
        "'a '",
        "'\\u00e9'",
        "'e\\u0301'",
        "'a\\u0000'",
        "'a\\u0000b'",
        "'\\U0001f600'",
    ],
    "binary": ["x''", "x'00'", "x'0000'", "x'ff'", "x'fffe'"],
    "date": ["date'0001-01-01'", "date'1582-10-15'", "date'1970-01-01'", "date'9999-12-31'"],
    "timestamp": [
        "timestamp'1582-10-15 00:00:00Z'",
        "timestamp'1969-12-31 23:59:59.999999Z'",
        "timestamp'1970-01-01 00:00:00Z'",
        "timestamp'9999-12-31 23:59:59.999999Z'",
    ],
    "timestamp_ntz": ["timestamp_ntz'1969-12-31 23:59:59.999999'", "timestamp_ntz'2026-03-29 02:30:00'"],
}
"""Values of each type, all different except `-0.00`."""
SAME = {"decimal(10,2)": 1}
"""Number of values that equal another one."""


@pytest.fixture
def written(spark, local_board):
    """Write a frame as an update, and return it."""

    def write_it(frame, files=None):
        update_id = claim(local_board, PARTITION, b"test", datetime.now(UTC))
        return Update(PARTITION, update_id, write(frame, local_board, PARTITION, update_id, files=files).files)

    return write_it


def _by_spark(spark, board, update, *columns):
    return read_own(spark, board, update).selectExpr(f"{unique(*columns).aggregate} AS n").collect()[0]["n"]


@each_case("kind", VALUES)
def test_values_of_a_type_are_equal_for_both_or_for_none(spark, local_board, written, kind):
    assert is_judged_alike(kind)
    values = [*VALUES[kind], "NULL"]
    texts = ", ".join(f"cast({value} AS {kind})" for value in values)
    rows = spark.range(3).selectExpr("least(id, 1) AS again", f"explode(array({texts})) AS key")
    update = written(rows, files=1)
    same = SAME.get(kind, 0)
    repeated = 3 * len(values) - len(values) + same
    assert repeated_rows(local_board, update, ["key"]) == _by_spark(spark, local_board, update, "key") == repeated
    both = 3 * len(values) - 2 * (len(values) - same)
    assert (
        repeated_rows(local_board, update, ["key", "again"])
        == _by_spark(spark, local_board, update, "key", "again")
        == both
    )


@each_case(
    "kind", ["float", "double", "string collate UTF8_LCASE", "array<int>", "struct<a:int>", "variant", "interval day"]
)
def test_other_types_are_left_to_spark(kind):
    assert not is_judged_alike(kind)


@each_case("name", ["a.b", "a b", '"', "`", "ключ"])
def test_a_column_may_have_any_name(spark, local_board, written, name):
    frame = spark.createDataFrame([(1, 1), (1, 2)], ["first", "second"]).withColumnsRenamed({"first": name})
    update = written(frame)
    assert repeated_rows(local_board, update, [name]) == 1
    assert repeated_rows(local_board, update, [name, "second"]) == 0


def test_an_update_without_rows_has_no_repeated_keys(spark, local_board, written):
    assert repeated_rows(local_board, written(spark.range(0)), ["id"]) == 0


def test_keys_of_several_files_are_compared(spark, s3_board):
    update_id = claim(s3_board, PARTITION, b"test", datetime.now(UTC))
    frame = spark.range(0, 20_000, 1, 4).selectExpr("id % 15000 AS key", "id")
    update = Update(PARTITION, update_id, write(frame, s3_board, PARTITION, update_id).files)
    assert len(update.files) == 4
    assert repeated_rows(s3_board, update, ["key"]) == 5_000


def test_more_keys_than_memory_holds_are_spilled(spark, local_board, written, monkeypatch):
    monkeypatch.setattr(repeated_keys, "_MEMORY", "64MB")
    rows = 2_000_000
    frame = spark.range(0, rows, 1, 4).selectExpr("concat('a rather long text of a key ', id % 1999999) AS key")
    assert repeated_rows(local_board, written(frame), ["key"]) == 1


@pytest.mark.parametrize("kind", ["IOException", "OutOfMemoryException"])
def test_a_full_temporary_folder_is_named(spark, local_board, written, monkeypatch, kind):
    """Imitate a full folder: DuckDB reports out of memory when it can offload no more data."""

    def full(**_):
        raise getattr(repeated_keys.duckdb, kind)("could not write: No space left on device")

    update = written(spark.range(3))
    monkeypatch.setattr(repeated_keys.duckdb, "connect", full)
    with pytest.raises(DiskFull, match=r"keys of web/keys/v1\.0/.* No space left on device\. Make room, or set TMPDIR"):
        repeated_rows(local_board, update, ["id"])
