"""Readers agree about every Parquet file: a run, `feed_assets.read` with and without Spark, and the files' footers.

Either all of them have equal values, or all refuse the file, by its name and with what to do.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from feed_assets.core.errors import UnreadableUpdate
from feed_assets.core.parquet_values import REBASED
from feed_assets.spark.input_frames import clean, read
from feed_assets.spark.spark_errors import reading
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.odd_parquet import FILES, PARQUET_TESTING, REFUSED, SCHEMAS, SPARK_2, crafted, one
from feed_assets_tests.support.parquet_lake import MONDAY, Lake
from feed_assets_tests.support.parquet_schemas import schema_of

FOLDER = Path(__file__).parent / "parquet_testing"


def in_a_run(lake: Lake, spark: Any) -> list[Any]:
    updates = lake.read(MONDAY).updates
    with reading(updates):
        return (
            clean(read(spark, lake.board, updates, "parquet", schema_of(lake.board, updates[0]))).toArrow().to_pylist()
        )


def by_a_session(lake: Lake, spark: Any) -> list[Any]:
    data = lake.read(MONDAY)
    with reading(data.updates):
        return data.to_spark(spark).toArrow().to_pylist()


def without_spark(lake: Lake, _: Any) -> list[Any]:
    return lake.read(MONDAY).to_arrow().to_pylist()


def batch_by_batch(lake: Lake, _: Any) -> list[Any]:
    return lake.read(MONDAY).to_reader().read_all().to_pylist()


READERS = (without_spark, batch_by_batch, in_a_run, by_a_session)


def answer(reader: Callable[[Lake, Any], list[Any]], lake: Lake, spark: Any) -> Any:
    """Return the rows that a reader reads from a file, REFUSED, or the text of any other error."""
    try:
        return reader(lake, spark)
    except UnreadableUpdate as error:
        says_what_to_do = re.search(r"part-0\.parquet.*(have it published|invalidate) ", str(error), re.IGNORECASE)
        return REFUSED if says_what_to_do else str(error)


def answers(lake: Lake, spark: Any) -> list[Any]:
    return [answer(reader, lake, spark) for reader in READERS]


def assert_agreed(lake: Lake, spark: Any, expected: Any) -> None:
    for found in answers(lake, spark):
        assert (found if found == REFUSED else [next(iter(row.values())) for row in found]) == expected


@each_case("name", FILES)
def test_all_readers_return_equal_values_or_refuse(local_lake, spark, name):
    data, expected = FILES[name]
    local_lake.put(MONDAY, data)
    assert_agreed(local_lake, spark, expected)


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas_that_other_libraries_write(local_lake, spark, tmp_path, name):
    schema, rows, expected = SCHEMAS[name]
    local_lake.put(MONDAY, crafted(spark, tmp_path / "crafted.parquet", schema, rows))
    assert_agreed(local_lake, spark, expected)


@each_case("name", PARQUET_TESTING)
def test_files_of_apache_parquet_testing(local_lake, spark, name):
    local_lake.put(MONDAY, (FOLDER / name).read_bytes())
    found, expected = answers(local_lake, spark), PARQUET_TESTING[name]
    assert found[0] == found[1] == found[2]
    assert (found[0] if found[0] == REFUSED else len(found[0])) == expected


def test_each_day_of_the_old_calendar_is_the_one_that_spark_reads(local_lake, spark):
    """Every 97th day, and days around each one from which the calendars differ by one more day."""
    days = sorted({*range(-719_164, 0, 97), *(first + more for first, _ in REBASED for more in (0, 1))})
    days = sorted({*days, *(first - 1 for first, _ in REBASED[1:])})
    local_lake.put(MONDAY, one(days, pa.date32(), SPARK_2))
    found = answers(local_lake, spark)
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == len(days)


def test_files_that_are_stored_differently_are_read_together(local_lake, spark):
    """Mix nanoseconds and microseconds, old and new days in one update: its rows are those of each file."""
    names = ["nanoseconds", "of another zone", "seconds", "INT96"]
    local_lake.put(MONDAY, *(FILES[name][0] for name in names))
    expected = sorted(str(each) for name in names for each in FILES[name][1])
    for found in answers(local_lake, spark):
        assert sorted(str(row["x"]) for row in found) == expected


def test_a_refusal_names_file_column_and_cure(local_lake, spark):
    local_lake.put(MONDAY, FILES["finer nanoseconds"][0])
    said = (
        r"part-0\.parquet: column x has timestamps in nanoseconds that are no whole microseconds: expected "
        r"microseconds, the finest unit of Spark\. Have it published with microseconds \(of pandas: to_parquet\(…, "
    )
    for reader in READERS:
        with pytest.raises(UnreadableUpdate, match=said):
            reader(local_lake, spark)
