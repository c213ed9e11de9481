"""Compaction on Spark: few files with sorted rows, the same digest, and windows that stay as they were."""

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import dagster as dg
import pyarrow.parquet as pq
import pytest

from feed_assets import Compact, Completeness, Late, Wait, compacted_copy, feed_asset, foreign_feed, report_state
from feed_assets.compaction import rewriting
from feed_assets.compaction.arrangement import Arrangement
from feed_assets.compaction.whole_partitions import compact_partition
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.windows import WindowAddress
from feed_assets.feeds.stores import local_root
from feed_assets.intake.batch_publication import BatchContent, publish
from feed_assets.ledger import log, updates
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.states import window_queries
from feed_assets.runs.services import Services
from feed_assets.settings import settings
from feed_assets_tests.support import sum_projects
from feed_assets_tests.support.sum_projects import harness

pytestmark = pytest.mark.usefixtures("home")

RAW, OWN, COPY = "t/raw/v1.0", Feed.parse("t/own/v1.0"), "t/raw_compacted/v1.0"
DAY = "2026-05-17"
DAYS = dg.DailyPartitionsDefinition(DAY, end_date="2026-05-18")
STARTS = [datetime(2026, 5, 17, hour, tzinfo=UTC) for hour in range(24)]
NOW = datetime(2026, 5, 19, tzinfo=UTC)
LINES = [f"{hour},{DAY} {hour:02}:30:00" for hour in range(24)]


@pytest.fixture(autouse=True)
def closing():
    yield
    sum_projects.opened.close()


def keys_of(world, feed: str) -> list:
    with open_ledger(settings().ledger).read() as connection:
        recorded = updates.recorded(connection, Partition(Feed.parse(feed), DAY), world.newest(feed, DAY))
    return [local_root(settings().blackboard) / each.key for each in recorded.files]


def files_of(world, feed: str) -> list:
    return [*map(pq.read_table, keys_of(world, feed))]


def state_of_day() -> str:
    address = WindowAddress(OWN, "", "day", DAY)
    with open_ledger(settings().ledger).read() as connection:
        return str(window_queries.stored_windows(connection, [address])[address].state)


def transitions() -> int:
    with open_ledger(settings().ledger).read() as connection:
        return len(log.newest(connection, log.WINDOW, 0, upto=log.last(connection), limit=1_000, feeds=[OWN]))


def last_job(spark) -> int:
    return max(spark.sparkContext.statusTracker().getJobIdsForGroup(None))


def test_files_of_a_complete_day_are_merged_and_sorted_and_its_windows_stay_complete(spark):
    raw = foreign_feed(RAW, schema="id int, at timestamp", partitions_def=DAYS)
    served = Completeness(grains=("hour", "day"), tiers=("kafka",))

    @feed_asset(
        str(OWN),
        partitions_def=DAYS,
        inputs={"raw": raw},
        event_time="at",
        completeness=served,
        compact=Compact(sort_by=("id",), files=4),
        code_version="1",
    )
    def own(raw):
        return raw.repartition(6, "at").orderBy("at", ascending=False).repartition(6, "id")

    world = harness(raw, own, maker=None, now=lambda: NOW)
    world.drop(RAW, DAY, "\n".join(["id,at", *LINES, ""]))
    world.run_until_idle()
    before = world.newest(str(OWN), DAY)
    assert len(files_of(world, str(OWN))) > 4
    assert all(run.assets for run in world.run_until_idle()), "no hour is complete yet"
    windows = [{"start": start, "records": 1} for start in STARTS]
    assert report_state([{"kind": "source", "dataset": str(OWN), "tier": "kafka", "windows": windows}]).rejected == []
    assert state_of_day() == "complete"
    seen, jobs = transitions(), last_job(spark)
    assert [run.succeeded for run in world.run_until_idle()] == [True]
    assert last_job(spark) == jobs + 1, "the schema is in a footer that is read anyway"
    [table] = files_of(world, str(OWN))
    assert table["id"].to_pylist() == list(range(24))
    after, partition = world.newest(str(OWN), DAY), Partition(OWN, DAY)
    with open_ledger(settings().ledger).read() as connection:
        old, new = (updates.find(connection, partition, each) for each in (before, after))
    assert (new.origin, new.version) == ("compacted", old.version)
    assert (state_of_day(), transitions()) == ("complete", seen)
    assert world.run_until_idle() == []


def test_files_have_about_the_target_size_with_and_without_an_order(spark, tmp_path):
    rows = spark.range(600_000).selectExpr("id", "rand(1) AS price").repartition(12)
    rows.write.parquet(str(tmp_path / "small"))
    size = sum(each.stat().st_size for each in (tmp_path / "small").glob("*.parquet"))
    for sort_by in ((), ("price",)):
        arrange = Arrangement.of(Compact(sort_by=sort_by, target="1m"), size)
        merged = arrange(spark.read.parquet(str(tmp_path / "small")))
        folder = tmp_path / f"merged-{sort_by}"
        merged.write.parquet(str(folder))
        sizes = [each.stat().st_size / (1 << 20) for each in folder.glob("*.parquet")]
        assert len(sizes) > 4
        assert all(1 / 1.5 < each < 1.5 for each in sizes), sizes


def test_a_partition_without_rows_is_compacted_as_any_other(spark):
    raw = foreign_feed(RAW, schema="id int", partitions_def=DAYS)
    own = feed_asset(str(OWN), partitions_def=DAYS, inputs={"raw": raw})(lambda raw: raw.where("id < 0"))
    world = harness(raw, own, maker=None, now=lambda: NOW)
    world.drop(RAW, DAY, "id\n1\n")
    world.run_until_idle()
    done = compact_partition(Services.of(settings()), Partition(OWN, DAY), Compact(sort_by=("id",), files=1))
    assert (done.files_before, done.files_after) == (1, 1)
    assert [table.num_rows for table in files_of(world, str(OWN))] == [0]


def test_sorted_files_have_small_row_groups_that_readers_skip(spark, monkeypatch):
    raw = foreign_feed(RAW, schema="id int", partitions_def=DAYS)
    own = feed_asset(str(OWN), partitions_def=DAYS, inputs={"raw": raw})(lambda raw: raw.repartition(4))
    world = harness(raw, own, maker=None, now=lambda: NOW)
    world.drop(RAW, DAY, "\n".join(["id", *map(str, range(3_000)), ""]))
    world.run_until_idle()
    monkeypatch.setattr(rewriting, "ROW_GROUP", 1 << 10)
    assert compact_partition(Services.of(settings()), Partition(OWN, DAY), Compact(sort_by=("id",)))
    [table] = files_of(world, str(OWN))
    assert table.num_rows == 3_000
    [key] = keys_of(world, str(OWN))
    groups = pq.ParquetFile(key).metadata
    columns = [groups.row_group(number).column(0).statistics for number in range(groups.num_row_groups)]
    assert len(columns) > 3
    assert all(one.max < other.min for one, other in pairwise(columns))


def test_a_compacted_copy_of_a_foreign_feed_has_its_rows_sorted_in_few_files(spark):
    raw = foreign_feed(RAW, schema="id int, at timestamp", partitions_def=DAYS)
    copy = compacted_copy(raw, COPY, sort_by=("at",))
    read = dg.AssetKey(["t", "raw_compacted"])
    assert read in copy.keys
    world = harness(raw, copy, maker=None, now=lambda: NOW)
    world.drop(RAW, DAY, {f"{n}.csv": "\n".join(["id,at", *LINES[::-1][n::8], ""]) for n in range(8)})
    world.run_until_idle()
    [table] = files_of(world, COPY)
    assert table["at"].to_pylist() == sorted(table["at"].to_pylist())
    assert table.num_rows == 24


def test_pushed_batches_are_copied_after_their_hour_and_again_when_enough_late_ones_came(spark):
    hours, key = dg.HourlyPartitionsDefinition(f"{DAY}-00:00", end_date=f"{DAY}-01:00"), f"{DAY}-00:00"
    raw = foreign_feed(
        RAW, schema="id int, at timestamp", event_time="at", format="json", partitions_def=hours, intake="push"
    )
    wait, late = Wait(delay=timedelta(minutes=10)), Late(files=2)
    copy = compacted_copy(raw, COPY, sort_by=("id",), wait=wait, late=late)
    world = harness(raw, copy, maker=None, now=lambda: STARTS[1] + timedelta(minutes=5))

    def push(*ids: int) -> list[int] | None:
        """Push a batch of each row, run what is due, and return the ids of a new copy."""
        for each in ids:
            line = json.dumps({"id": each, "at": f"{DAY}T00:30:00Z"}).encode()
            batch = Partition(Feed.parse(RAW), key).batch(f"r-{each}")
            publish(Services.of(settings()), BatchContent(batch, {"events.json": line + b"\n"}), "a receiver")
        ran = world.run_until_idle()
        assert all(run.succeeded for run in ran)
        return [row["id"] for row in world.rows(COPY, key)] if ran else None

    assert push(3, 1, 2) is None, "the hour ended five minutes ago"
    world.now = lambda: STARTS[1] + timedelta(minutes=10)
    assert push() == [1, 2, 3]
    assert push(0) is None, "one late batch is too few"
    assert push(4) == [0, 1, 2, 3, 4]
    with open_ledger(settings().ledger).read() as connection:
        recorded = updates.recorded(connection, Partition(Feed.parse(COPY), key), world.newest(COPY, key))
    assert len(recorded.files) == 1
