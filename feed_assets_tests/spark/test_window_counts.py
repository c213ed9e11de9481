"""Rows by window of event time: counted exactly while they are written, without another pass."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from pyspark.sql import functions as sf

from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.write_result import Counts
from feed_assets.spark.window_counts import SPAN, Counting
from feed_assets.spark.written_frame import write

SHOWN = Partition(Feed.parse("ads/shown/v1.0"), "2019-11-24/counted")
FIVE = timedelta(minutes=5)
COUNTING = Counting("at", FIVE)
_IDS = (f"20191124.{second:06d}" for second in count(1))


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def rows_at(spark, *moments: str):
    texts = [(each or None,) for each in moments]
    return spark.createDataFrame(texts, "at string").select(sf.col("at").cast("timestamp").alias("at"))


def counted(spark, board, frame, counting: Counting | None = COUNTING):
    return write(frame, board, SHOWN, next(_IDS), event_time="at", counting=counting).windows


@pytest.mark.connect
def test_each_row_is_in_the_window_in_which_it_happened(spark, s3_board):
    frame = rows_at(
        spark, "2019-11-24 15:55:00", "2019-11-24 15:59:59.999999", "2019-11-24 16:00:00", "2019-11-24 00:00:00", ""
    )
    assert counted(spark, s3_board, frame.repartition(3)) == (
        (at("2019-11-24 00:00"), 1),
        (at("2019-11-24 15:55"), 2),
        (at("2019-11-24 16:00"), 1),
    )


def test_windows_before_1970_begin_on_the_same_grid(spark, local_board):
    frame = rows_at(spark, "1969-12-31 23:59:59.5", "1970-01-01 00:00:00")
    assert counted(spark, local_board, frame) == ((at("1969-12-31 23:55"), 1), (at("1970-01-01 00:00"), 1))


def test_without_rows_there_are_no_windows_and_without_being_asked_no_counts(spark, local_board):
    assert counted(spark, local_board, rows_at(spark, "")) == ()
    assert counted(spark, local_board, rows_at(spark, "").where("at is not null")) == ()
    assert counted(spark, local_board, rows_at(spark, ""), counting=None) is None


def test_many_rows_of_many_tasks_are_counted_exactly(spark, local_board):
    """Compare a day in five-minute windows, in 30 tasks of 1,000 rows that share windows, with plain counts."""
    seconds = (sf.col("id") * 7919) % 86400
    frame = spark.range(0, 30_000, 1, 30).select(sf.timestamp_seconds(seconds + 1_574_553_600).alias("at"))
    found = counted(spark, local_board, frame)
    expected = Counter(number * 7919 % 86400 // 300 for number in range(30_000))
    assert found == tuple((at("2019-11-24 00:00") + FIVE * each, expected[each]) for each in sorted(expected))
    assert len(found) == 288


def jobs_of(spark, act) -> int:
    """Return the number of Spark jobs that a call starts."""
    group = f"counted-{next(_IDS)}"
    spark.sparkContext.setJobGroup(group, group)
    act()
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(group))


def test_counting_starts_no_job_and_reads_no_row_twice(spark, local_board):
    """Read rows through a function that counts its calls: a second pass would call it again."""
    calls = spark.sparkContext.accumulator(0)

    def called(value):
        calls.add(1)
        return value

    frame = spark.range(1000).select(sf.timestamp_seconds(sf.udf(called, "long")("id") + 1_574_553_600).alias("at"))
    plain = jobs_of(spark, lambda: counted(spark, local_board, frame, counting=None))
    assert (plain, calls.value) == (1, 1000)
    assert jobs_of(spark, lambda: counted(spark, local_board, frame)) == 1
    assert calls.value == 2000


@pytest.mark.parametrize(("hours", "jobs"), [(83, 1), (84, 2)])
def test_rows_from_too_far_apart_are_counted_in_what_was_written(spark, local_board, hours, jobs):
    """A thousand windows of five minutes are 83 hours and 20 minutes: one that is later has the number of another."""
    first, last = at("2019-11-24 15:55"), at("2019-11-24 15:55") + timedelta(hours=hours)
    frame = rows_at(spark, *(str(each.replace(tzinfo=None)) for each in (first, last)), "")
    found: list[Counts | None] = []
    ran = jobs_of(spark, lambda: found.append(counted(spark, local_board, frame)))
    assert (found, ran > 1) == ([((first, 1), (last, 1))], jobs > 1)


def test_windows_up_to_the_limit_are_counted_in_passing_for_any_tasks(spark, local_board):
    """Put each window in every task, so that a histogram must merge equal windows only."""
    moment = sf.timestamp_seconds(sf.col("id") % SPAN * 300 + 1_574_553_600)
    frame = spark.range(0, SPAN * 6, 1, 6).select(moment.alias("at"))
    found: list[Counts | None] = []
    assert jobs_of(spark, lambda: found.append(counted(spark, local_board, frame))) == 1
    assert found[0] == tuple((at("2019-11-24 00:00") + FIVE * each, 6) for each in range(SPAN))


@pytest.mark.parametrize("far", ["-719163 days", "2932897 days"])
def test_a_time_outside_of_pythons_years_is_not_counted_and_stops_no_run(spark, local_board, far):
    """JSON can have such times, too: 0000-01-01T00:00:00Z, and 9999-12-31T23:59:59-18:00."""
    moments = spark.sql(f"SELECT timestamp'1970-01-01 00:00:00' + make_interval(0, 0, 0, {far.split()[0]}) AS at")
    for frame in (moments, moments.unionAll(rows_at(spark, "2019-11-24 15:55:00"))):
        written = write(frame, local_board, SHOWN, next(_IDS), event_time="at", counting=COUNTING)
        expected = [at("2019-11-24 15:55")] * (written.records - 1)
        assert written.windows == tuple((each, 1) for each in expected)
        assert [each for each in (written.first, written.last) if each] == expected * 2
        assert COUNTING.counted(frame.coalesce(1), sf.lit("")).get("", ()) == written.windows
