"""A run of a million rows: one pass writes them, and no frame is kept for rejects. Jobs are counted, not seconds."""

from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from pyspark.sql import functions as sf

from feed_assets.core.errors import InvalidDefinition, UnstableRejects
from feed_assets.core.feeds import Partition
from feed_assets.core.profiles import Profile
from feed_assets.feeds.write import publish
from feed_assets.runs import checks
from feed_assets.runs.checks import Check
from feed_assets.runs.recipe import RecipeInput
from feed_assets.runs.spark_maker import SparkMaker
from feed_assets.spark import rejects
from feed_assets.spark.rejects import reject
from feed_assets_tests.support.build_lake import CLEAN, DAY, NOW, RAW, REJECTS, SCHEMA, rows, stepping

MILLION, SOME = 1_000_000, 20_000
CHECKS = (
    checks.not_empty(),
    checks.not_null("id", "at"),
    checks.within("id", 0, MILLION),
    checks.unique("id"),
    checks.unique("id", "at"),
    checks.accounted(),
)
DISTINCT = {"ids": "count(DISTINCT id)", "moments": "count(DISTINCT at)"}
ALL = f"parts of {CLEAN} written", f"parts of {REJECTS} written", "statistics in the ledger", "audited", "published"


@dataclass
class Watch:
    """Number of Spark jobs before each step, and the maximum of frames kept at once."""

    spark: object
    jobs: dict[str, int] = field(default_factory=dict)
    kept: int = 0

    def __post_init__(self):
        self.before = self._frames()

    def __call__(self, step):
        self.jobs[step] = max(self.spark.sparkContext.statusTracker().getJobIdsForGroup(None), default=-1)
        self.kept = max(self.kept, len(self._frames() - self.before))

    def _frames(self):
        return {int(number) for number in self.spark.sparkContext._jsc.getPersistentRDDs().keySet()}

    def between(self):
        """Return how many jobs there were up to each step, from the one before it on."""
        steps = ["claimed in the ledger", *ALL]
        return [self.jobs[after] - self.jobs[before] for before, after in pairwise(steps)]


@pytest.fixture
def drop(lake, spark, tmp_path):
    """Publish rows of the raw feed; of CSV every 1,000th does not parse."""

    def drop_it(form, count):
        moment = f"timestamp'{DAY} 00:00:00' + make_interval(0, 0, 0, 0, 0, 0, id % 86400)"
        frame = spark.range(0, count, 1, 2).selectExpr("cast(id AS int) AS id", f"{moment} AS at")
        if form == "csv":
            frame = frame.selectExpr("if(id % 1000 > 0, '', 'x') || id AS id", "date_format(at, 'yyyy-MM-dd HH:mm:ss')")
        frame.toDF("id", "at").write.format(form).option("header", True).save(str(tmp_path / form))
        parts = {file.name: file.read_bytes() for file in (tmp_path / form).glob("part-*")}
        publish(lake.services.board, Partition(RAW, DAY), parts, NOW)

    return drop_it


@pytest.mark.parametrize(
    ("form", "count", "tagged", "rejected", "jobs"),
    [
        ("csv", MILLION, False, 1000, [1, 1, 0, 0, 0]),
        ("csv", SOME, True, 20, [1, 1, 0, 0, 0]),
        ("parquet", MILLION, False, 0, [2, 0, 0, 0, 0]),
        ("parquet", SOME, True, 0, [2, 0, 0, 0, 0]),
    ],
)
def test_a_run_is_a_job_that_writes_and_one_for_rejects(lake, spark, drop, form, count, tagged, rejected, jobs):
    """Parquet takes one more job, which counts rows by the footers. Keys are compared without Spark."""
    drop(form, count)
    watch = Watch(spark)
    source = RecipeInput("raw", RAW, form, SCHEMA, tagged=tagged, event_time="at", grain="hour")
    lake.clean(sources=(source,), grain="hour", checks=CHECKS, services=stepping(lake, watch))
    assert (lake.newest().records, lake.newest(REJECTS).records) == (count - rejected, rejected)
    assert watch.between() == jobs
    assert watch.kept == 0


def test_json_is_a_job_that_writes_and_one_for_rejects(lake, spark, drop):
    lines = [f'{{"id": {n}, "at": "{DAY} 01:00:00"}}' if n % 100 else "no JSON" for n in range(10_000)]
    publish(lake.services.board, Partition(RAW, DAY), {"part-0.json": "\n".join([*lines, ""]).encode()}, NOW)
    watch = Watch(spark)
    lake.clean(sources=(RecipeInput("raw", RAW, "json", SCHEMA),), checks=CHECKS, services=stepping(lake, watch))
    assert lake.newest(REJECTS).records == 100
    assert (watch.between(), watch.kept) == ([1, 1, 0, 0, 0], 0)


def test_a_function_that_reads_in_part_has_its_rejects_counted_apart(lake, spark):
    lake.drop(f"1,{DAY} 01:00:00", f"x,{DAY} 01:00:00", f"2,{DAY} 01:00:00")
    watch = Watch(spark)
    lake.clean(transform=lambda raw: raw.limit(1), services=stepping(lake, watch))
    assert (len(rows(lake)), lake.newest(REJECTS).records) == (1, 1)
    assert watch.kept == 0


def test_a_function_that_is_not_deterministic_loses_no_record(lake, monkeypatch):
    """Input rows equal clean plus rejected rows; if too many are rejected to come along, nothing is published."""
    source = RecipeInput("raw", RAW, "csv", SCHEMA, tagged=True)
    lake.drop(*[f"{n},{DAY} 01:00:00" for n in range(200)])

    def by_chance(raw):
        return reject(raw, sf.expr("reflect('java.util.UUID', 'randomUUID') < '8'"), "by chance")

    with monkeypatch.context() as patch:
        patch.setattr(rejects, "KEPT", 1)
        with pytest.raises(UnstableRejects, match="Nothing was published"):
            lake.clean(sources=(source,), transform=by_chance)
    assert (lake.valid(), lake.valid(REJECTS)) == (None, None)

    lake.clean(sources=(source,), transform=by_chance)
    assert lake.newest().records + lake.newest(REJECTS).records == 200


def test_a_clean_row_may_be_of_chance(lake):
    source = RecipeInput("raw", RAW, "csv", SCHEMA, tagged=True)
    lake.drop(f"1,{DAY} 01:00:00", f"x,{DAY} 01:00:00")
    lake.clean(sources=(source,), transform=lambda raw: raw.withColumn("chance", sf.rand()))
    assert (lake.newest().records, lake.newest(REJECTS).records) == (1, 1)


def test_measures_that_cannot_be_observed_take_one_job(lake, spark):
    lake.drop(f"1,{DAY} 01:00:00", f"2,{DAY} 01:00:00", f"2,{DAY} 02:00:00")
    two = [Check(name, "two", lambda found: found == 2, sql) for name, sql in DISTINCT.items()]
    watch = Watch(spark)
    lake.clean(checks=(*two, checks.not_null("id")), services=stepping(lake, watch))
    assert lake.newest().records == 3
    assert watch.between() == [1, 0, 0, 1, 0]


def test_a_check_of_a_missing_column_is_named(lake):
    lake.drop(f"1,{DAY} 01:00:00")
    with pytest.raises(InvalidDefinition, match="the check 'lost' is 'sum\\(nothing\\)', which cannot be computed"):
        lake.clean(checks=(Check("lost", "nothing", lambda found: found == 0, "sum(nothing)"),))


def test_a_check_that_fails_while_rows_are_written_is_named(lake):
    lake.drop(f"1,{DAY} 01:00:00")
    with pytest.raises(
        InvalidDefinition, match="the check 'by_zero' is 'sum\\(id / \\(id - id\\)\\)', which cannot be"
    ):
        lake.clean(checks=(Check("by_zero", "nothing", lambda found: found == 0, "sum(id / (id - id))"),))
    assert lake.valid() is None


def test_a_session_is_asked_for_by_the_bytes_that_a_run_has_pinned(lake, spark):
    raw, sizes = lake.drop(f"1,{DAY} 01:00:00"), []

    def session(size):
        sizes.append(size)
        return nullcontext(spark)

    lake.clean(services=replace(lake.services, maker=lambda: SparkMaker(session)))
    assert sizes == [sum(file.size for file in raw.files)]


def test_a_monitor_s_measures_do_not_disturb_its_profile(lake, spark):
    """Use a profile with a column `found` that breaks the measure if both are computed together."""
    lake.drop(f"1,{DAY} 01:00:00", f"2,{DAY} 01:00:00")
    measures = Profile({"rows": "count(1)", "shares": "sum(1 / (found - 2))"}, "7 partitions")
    lake.clean(
        is_companion=True, rejects=None, event_time=None, profile=measures,
        transform=lambda raw: raw.withColumn("found", sf.lit(1)),
    )  # fmt: skip
    assert [row[0] for row in rows(lake)] == ["rows", "shares"]
