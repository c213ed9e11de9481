"""The data version: equal for the same rows in any layout, and different for other rows."""

import random
from decimal import Decimal

import pytest
from pyspark.sql import Observation

from feed_assets.core.errors import InvalidDefinition
from feed_assets.spark.digest import digest, parts
from feed_assets_tests.support.each_case import each_case

ROWS = "select * from values (1, 'a', 1.5D), (2, null, null), (3, 'c', 0.0D) as t(id, name, share)"


def version(frame):
    row = frame.agg(*[column.alias(name) for name, column in parts(frame.schema).items()]).first()
    return digest(frame.schema, row.asDict())


def test_the_order_and_the_layout_of_rows_do_not_matter(spark):
    frame = spark.sql(ROWS)
    others = [frame.orderBy("id"), frame.orderBy("id", ascending=False), frame.repartition(3), frame.coalesce(1)]
    assert {version(other) for other in others} == {version(frame)}


@each_case(
    ("one", "other"),
    [
        ("select 1 id", "select 2 id"),
        ("select 1 id", "select 1 id union all select 1"),
        ("select 1 id", "select 1 id union all select 1 union all select 1"),
        ("select 1 id union all select 2 union all select 2", "select 1 id union all select 3 union all select 3"),
        ("select 1 id", "select 1 id where false"),
        ("select 1 id", "select 1L id"),
        ("select 1 id", "select 1 ip"),
        ("select 1 a, 2 b", "select 2 b, 1 a"),
        ("select string(null) a, 'x' b", "select 'x' a, string(null) b"),
        ("select cast(null as int) a", "select 0 a"),
        ("select cast(null as string) a", "select '' a"),
        ("select 'ab' a, 'c' b", "select 'a' a, 'bc' b"),
        ("select struct(string(null) x, 'a' y) s", "select struct('a' x, string(null) y) s"),
        ("select array(null, 'a') s", "select array('a', null) s"),
        ("select array(array(1), array(2)) s", "select array(array(1, 2), array()) s"),
        ("select array('a,b') s", "select array('a', 'b') s"),
        ("select array(timestamp'2020-01-01 00:00:00.000001') s", "select array(timestamp'2020-01-01 00:00:00') s"),
        ("select timestamp'2020-01-01 00:00:00.000001' s", "select timestamp'2020-01-01 00:00:00' s"),
        ("select 1.50BD a", "select 1.51BD a"),
        ("select x'00' a", "select x'0000' a"),
    ],
)
def test_any_difference_in_rows_or_schema_is_another_version(spark, one, other):
    assert version(spark.sql(one)) != version(spark.sql(other))


@pytest.mark.connect
def test_a_version_is_the_same_in_every_release_and_engine_mode(spark):
    """Compare with a literal: another digest would rebuild every downstream dataset."""
    assert version(spark.sql(ROWS)) == "c2128e2ecdd09d059fa986e95c078d80"


def test_nullability_does_not_change_the_digest(spark):
    nullable = spark.createDataFrame([(1,)], "id int")
    assert version(nullable) == version(spark.sql("select 1 id"))


@pytest.mark.parametrize("column", ["map('a', 1)", "array(map('a', 1))", "struct(map('a', 1) as m)"])
def test_map_columns_are_refused_by_the_digest(spark, column):
    with pytest.raises(InvalidDefinition, match=r"column 'm' is a .*map.*array_sort\(map_entries"):
        parts(spark.sql(f"select {column} m").schema)


def test_random_rows_survive_shuffling_and_no_single_change(spark):
    draw = random.Random(20191124)  # noqa: S311
    schema = "id bigint, name string, price decimal(9,2), tags array<string>"

    def row():
        return (
            draw.choice([None, draw.randrange(-(2**63), 2**63)]),
            draw.choice([None, "", "a", "é😀"]),
            draw.choice([None, Decimal(draw.randrange(10**8)) / 100]),
            draw.choice([None, [], [None], ["a", None], [None, "a"]]),
        )

    for _ in range(2):
        rows = [row() for _ in range(draw.randrange(1, 60))]
        base = version(spark.createDataFrame(rows, schema).coalesce(1))
        mixed = draw.sample(rows, len(rows))
        assert version(spark.createDataFrame(mixed, schema).repartition(3)) == base
        assert version(spark.createDataFrame(mixed[1:], schema)) != base
        assert version(spark.createDataFrame([*mixed, mixed[0]], schema)) != base
        assert version(spark.createDataFrame([*mixed[1:], (1, "another", None, None)], schema)) != base


def test_sums_of_many_great_hashes_do_not_overflow(spark):
    """Avoid a plain sum of 64-bit hashes, which overflows under ANSI long before a hundred thousand rows."""
    observation = Observation()
    frame = spark.range(100_000).selectExpr("0 as same")
    frame.observe(observation, *[column.alias(name) for name, column in parts(frame.schema).items()]).count()
    assert observation.get["_records"] == 100_000
    assert observation.get["_xor"] == 0
