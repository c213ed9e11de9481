"""Rows in the caller's Spark session: the same as Arrow reads, and CSV and JSON as runs read them."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from feed_assets import is_clean
from feed_assets.core.errors import InvalidDefinition, UnreadableUpdate, UpdateChanged
from feed_assets_tests.reading.exact_rows import EXACT
from feed_assets_tests.support.parquet_lake import MONDAY, OLD, TUESDAY, WEDNESDAY, parquet

SCHEMA = "id int, name string"


def test_spark_and_arrow_read_the_same_rows(lake, spark):
    lake.put(MONDAY, parquet(EXACT))
    lake.put(TUESDAY, parquet(EXACT.select([*reversed(EXACT.column_names)])))
    found = lake.read(MONDAY, WEDNESDAY)
    frame = found.to_spark(spark)
    assert frame.columns == found.schema.names
    rows = sorted((row.asDict(recursive=True) for row in frame.drop("at", "site").collect()), key=str)
    assert rows == sorted(found.to_arrow().drop_columns(["at", "site"]).to_pylist(), key=str)
    micros = frame.selectExpr("unix_micros(at) at", "unix_micros(site.at) inner_at").dropna().distinct().collect()
    moment = datetime(2026, 6, 1, 10, 0, 0, 123456, tzinfo=UTC)
    assert [tuple(row) for row in micros] == [(int(moment.timestamp()) * 10**6 + 123456,) * 2]
    assert rows[0]["price"] in (None, Decimal("12345678901234567890.12"))


def test_a_column_that_parts_lack_is_refused_or_null_as_in_arrow(local_lake, spark):
    local_lake.put("2026-06-01/region=apac", {"n": [1]})
    local_lake.put("2026-06-02/region=apac", {"n": [2], "more": ["x"]})
    ends = ("2026-06-01/region=apac", "2026-06-03/region=apac")
    with pytest.raises(UnreadableUpdate, match="more: found string, expected no such column"):
        local_lake.read(*ends).to_spark(spark)
    frame = local_lake.read(*ends, union_by_name=True).to_spark(spark)
    assert frame.columns == ["n", "more"]
    assert sorted(tuple(row) for row in frame.collect()) == [(1, None), (2, "x")]


@pytest.mark.parametrize(
    ("ending", "good", "bad"),
    [
        ("csv", b"id,name\n1,a\n", b"id,name\nx,b\n"),
        ("jsonl", b'{"id": 1, "name": "a"}\n', b'{"id": "x", "name": "b"}\n'),
    ],
)
def test_csv_and_json_are_a_runs_tagged_input(lake, spark, ending, good, bad):
    lake.put(MONDAY, good, bad, ending=ending)
    lake.put(TUESDAY)
    found = lake.read([MONDAY, TUESDAY])
    tagged = found.to_spark(spark, SCHEMA)
    assert tagged.columns == ["id", "name", "_raw", "_file", "_reasons"]
    assert [tuple(row) for row in tagged.where(is_clean()).select("id", "name").collect()] == [(1, "a")]
    (wrong,) = tagged.where(~is_clean()).collect()
    assert (wrong["_file"], wrong["_reasons"]) == (found.updates[0].files[1].key, ["id: not an int"])
    with pytest.raises(
        InvalidDefinition, match=r"is (CSV|JSON), whose columns have no types: .*to_spark\(session, schema"
    ):
        found.to_spark(spark)


def test_names_that_tell_of_no_format_or_of_two(local_lake, spark):
    local_lake.put(MONDAY, b"id,name\n1,a\n", ending="txt")
    found = local_lake.read(MONDAY)
    with pytest.raises(UnreadableUpdate, match="is not Parquet, by its last bytes"):
        found.to_spark(spark)
    assert found.to_spark(spark, SCHEMA, format="csv").select("id").collect() == [(1,)]
    local_lake.put(TUESDAY, b'{"id": 1}', ending="json")
    local_lake.put(WEDNESDAY, b"id,name\n1,a\n", ending="csv")
    with pytest.raises(UnreadableUpdate, match=r"files of csv and json by their names.*Give format="):
        local_lake.read([TUESDAY, WEDNESDAY]).to_spark(spark, SCHEMA)


def test_parquet_must_match_the_declared_schema(local_lake, spark):
    local_lake.put(MONDAY, {"id": [1]})
    with pytest.raises(UnreadableUpdate, match="id: found bigint, expected int"):
        local_lake.read(MONDAY).to_spark(spark, "id int")
    assert local_lake.read(MONDAY).to_spark(spark, "id bigint").columns == ["id", "_raw", "_file", "_reasons"]


def test_a_missing_or_empty_update_is_refused_and_no_empty_frame(local_lake, spark):
    local_lake.put(MONDAY)
    for given in ([], [SCHEMA]):
        with pytest.raises(UnreadableUpdate, match=rf"{MONDAY}/{OLD}: there is no file, so the columns are unknown"):
            local_lake.read(MONDAY).to_spark(spark, *given, format="csv" if given else None)
    local_lake.put(TUESDAY, {"n": [1]})
    found = local_lake.read(TUESDAY)
    _ = found.schema
    local_lake.board.sweep(found.updates[0].path)
    with pytest.raises(UpdateChanged):
        found.to_spark(spark)


def test_columns_that_differ_in_case_alone_are_one_to_spark_and_are_refused(local_lake, spark):
    local_lake.put(MONDAY, {"x": [1]}, {"X": [2]})
    found = local_lake.read(MONDAY, union_by_name=True)
    for read in (found.to_arrow, lambda: found.to_spark(spark)):
        with pytest.raises(
            UnreadableUpdate, match=r"part-0\.parquet have the columns X, x, which Spark cannot tell apart"
        ):
            read()


def test_a_schema_that_spark_cannot_parse_is_refused_before_any_read(local_lake, spark):
    local_lake.put(MONDAY, {"id": [1]})
    with pytest.raises(InvalidDefinition, match="schema 'id strung'"):
        local_lake.read(MONDAY).to_spark(spark, "id strung")
