"""The whole way on a real S3 server, from raw files to a late re-run: every object follows the protocol."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from feed_assets import with_automation
from feed_assets.core.feeds import Feed, Partition
from feed_assets.definitions import defs
from feed_assets.defs.ads import sample
from feed_assets.feeds import read
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.opened import open_board
from feed_assets.feeds.write import publish
from feed_assets.orchestration.runner import Runner
from feed_assets.settings import settings
from feed_assets.spark.input_frames import read_own
from feed_assets.testing import Harness
from feed_assets_tests.support import ads_figures
from feed_assets_tests.support.servers import S3Server, partner_settings
from feed_assets_tests.support.sum_projects import DAY as SUMS_DAY
from feed_assets_tests.support.sum_projects import PICKED, RAW, SUMS, picked_of, raw_feed, sums_of

DAY, CAMPAIGN = "2019-11-24", "men"
SHOWN, CLICKED = sample.shown_csv(DAY, CAMPAIGN), sample.clicked_csv(DAY, CAMPAIGN)


@pytest.fixture
def lake(home, s3_env: S3Server, s3_url: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Blackboard:
    monkeypatch.setenv("FEED_ASSETS_BLACKBOARD", s3_url)
    monkeypatch.setenv("FEED_ASSETS_S3_ENDPOINT", s3_env.endpoint)
    settings.cache_clear()
    return Blackboard.open(s3_url, endpoint=s3_env.endpoint)


@pytest.fixture
def runner(lake: Blackboard) -> Iterator[Runner]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Runner(defs(), instance)


def partition(feed: str) -> Partition:
    return Partition(Feed.parse(feed), f"{DAY}/{CAMPAIGN}")


def drop(lake: Blackboard, feed: str, content: bytes) -> None:
    publish(lake, partition(feed), {"part-1.csv": content}, datetime.now(UTC))


def totals(lake: Blackboard, spark: SparkSession) -> tuple[int, int]:
    update = read.require(read.latest(lake, partition("ads/effectiveness/v1.0")))
    row = read_own(spark, lake, update).selectExpr("sum(impressions)", "sum(clicks)").collect()[0]
    return row[0], row[1]


def test_raw_files_on_s3_are_published_and_late_ones_published_again(
    lake: Blackboard, runner: Runner, spark: SparkSession
) -> None:
    drop(lake, "ads/shown_raw/v1.0", SHOWN)
    early = b"".join(CLICKED.splitlines(keepends=True)[:3])
    drop(lake, "ads/clicked_raw/v1.0", early)
    runner.run_until_idle()
    wanted = ads_figures.total(SHOWN, early)
    assert totals(lake, spark) == (wanted.impressions, wanted.clicks)
    drop(lake, "ads/clicked_raw/v1.0", CLICKED)
    runner.run_until_idle()
    wanted = ads_figures.total(SHOWN, CLICKED)
    assert totals(lake, spark) == (wanted.impressions, wanted.clicks)


def test_spark_leaves_only_parts_and_a_manifest_on_s3(lake: Blackboard, runner: Runner) -> None:
    drop(lake, "ads/clicked_raw/v1.0", CLICKED)
    runner.run_until_idle()
    keys = [file.key for file in lake.files("ads/clicked/v1.0")]
    assert [key.rsplit("/", 1)[1].split("-")[0] for key in keys] == ["_SUCCESS", "part"]
    assert lake.get(keys[0]) == b"1"


def test_a_dataset_is_written_into_a_bucket_with_other_keys(lake, partner_url, s3_env, spark, monkeypatch) -> None:
    place = {**partner_settings(s3_env, partner_url), "writable": True}
    monkeypatch.setenv("FEED_ASSETS_BLACKBOARDS", json.dumps({"archive": place}))
    settings.cache_clear()
    raw = raw_feed()
    sums = sums_of(raw, blackboard="archive")
    with Harness(with_automation(dg.Definitions(assets=[raw, sums, picked_of(sums)]))) as world:
        for lines in ("k,n\na,1\na,x\n", "k,n\na,1\na,2\n"):
            world.drop(RAW, SUMS_DAY, lines)
            assert all(run.succeeded for run in world.run_until_idle())
        assert world.rows(SUMS, SUMS_DAY) == world.rows(PICKED, SUMS_DAY) == [{"k": "a", "n": 3}]
    archive = open_board(settings(), name="archive")
    assert {str(feed) for feed in read.feeds(archive)} == {SUMS, "t/sums_rejects/v1.0"}
    assert {str(feed) for feed in read.feeds(lake)} == {RAW, PICKED}
