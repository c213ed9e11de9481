"""Counts of an input's records on the way: used if every record passes, computed separately if not."""

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as sf

from feed_assets.spark.tally import Tally, reads_whole
from feed_assets_tests.support.each_case import each_case

ROWS = 100
FOUND = {"records": ROWS, "most": ROWS - 1}


@pytest.fixture
def records(spark):
    return spark.range(0, ROWS, 1, 4).withColumn("part", sf.col("id") % 7)


def _view(frame):
    frame.createOrReplaceTempView("records")
    return frame.sparkSession


WHOLE = {
    "select": lambda frame: frame.select("id"),
    "filter": lambda frame: frame.where("id < 3"),
    "aggregate": lambda frame: frame.groupBy("part").count(),
    "count": lambda frame: frame.agg(sf.count(sf.lit(1))),
    "distinct": lambda frame: frame.select("part").distinct(),
    "window": lambda frame: frame.selectExpr("id", "row_number() OVER (PARTITION BY part ORDER BY id) AS n").where(
        "n = 1"
    ),
    "sort": lambda frame: frame.orderBy("id").repartition(2),
    "explode": lambda frame: frame.selectExpr("explode(sequence(0, part)) AS each"),
    "union": lambda frame: frame.union(frame.sparkSession.range(5).selectExpr("id", "id").limit(1)),
    "view": lambda frame: _view(frame).sql("SELECT part, max(id) FROM records GROUP BY part"),
}
IN_PART = {
    "limit": lambda frame: frame.limit(3),
    "join": lambda frame: frame.join(frame.sparkSession.range(0), "id"),
    "python": lambda frame: frame.mapInPandas(lambda batches: [next(batches)], "id long, part long"),
    "twice": lambda frame: frame.union(frame.where("id < 3")),
    "unused": lambda frame: frame.sparkSession.range(3),
    "filter by a subquery": lambda frame: _view(frame).sql(
        "SELECT id FROM records WHERE id NOT IN (SELECT id FROM range(3))"
    ),
    "subquery": lambda frame: _view(frame).sql("SELECT id FROM range(0) WHERE id IN (SELECT id FROM records)"),
    "with": lambda frame: _view(frame).sql("WITH some AS (SELECT * FROM records) SELECT * FROM some LIMIT 1"),
    "cached": lambda frame: frame.cache().limit(1),
}


def _tally(records, function):
    tally = Tally.of(records, {"records": sf.expr("count(1) AS records"), "most": sf.expr("max(id) AS most")})
    result = function(tally.frame)
    judged = tally.judged(result)
    result.write.format("noop").mode("overwrite").save()
    return judged


@pytest.mark.connect
@each_case("how", WHOLE)
def test_a_complete_pass_counts_records_without_another_job(spark, records, how):
    tally = _tally(records, WHOLE[how])
    assert tally.is_whole
    assert tally.values == FOUND


@pytest.mark.connect
@each_case("how", IN_PART)
def test_a_partial_pass_counts_records_in_another_job(spark, records, how):
    tally = _tally(records, IN_PART[how])
    assert not tally.is_whole
    assert tally.values == FOUND


@pytest.mark.connect
def test_an_action_of_the_function_itself_is_not_taken_for_the_write(records):
    def peeks(frame):
        frame.first()
        return frame

    assert _tally(records, peeks).values == FOUND


@pytest.mark.connect
def test_an_error_that_the_function_catches_ends_no_count(records):
    def tries(frame):
        with pytest.raises(AnalysisException):
            frame.select("missing").collect()
        return frame

    assert _tally(records, tries).values == FOUND


@pytest.mark.connect
def test_a_pass_removed_by_the_optimizer_is_counted_in_another_job(records):
    assert _tally(records, lambda frame: frame.where("1 = 0")).values == FOUND


def test_a_line_that_is_no_node_makes_no_plan_whole():
    good = "Project [a]\n+- CollectMetrics name, [count(1)]\n   +- Range (0, 1)"
    assert reads_whole(good, "name")
    assert not reads_whole(good.replace("Project [a]", "Project [a\nLimit b]"), "name")
    assert not reads_whole(good.replace("Project", "GlobalLimit"), "name")
    assert not reads_whole(good, "other")
