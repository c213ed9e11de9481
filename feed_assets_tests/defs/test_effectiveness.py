"""The ads domain, end to end on its sample: a day of two campaigns, one of them late, and an incomplete day."""

import csv
from io import StringIO

import dagster as dg
import pytest
import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition
from feed_assets.defs.ads import sample
from feed_assets.feeds import read
from feed_assets.feeds.opened import open_board
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.tables import consumed
from feed_assets.settings import settings
from feed_assets.spark.input_frames import read_own
from feed_assets.spark.session import session
from feed_assets.testing import Harness
from feed_assets_tests.support import ads_figures
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.sum_projects import inputs_of

DAY, NEXT_DAY = "2019-11-24", "2019-11-25"
PARTITIONS = [(DAY, "men"), (NEXT_DAY, "men"), (DAY, "women")]
"""Partitions of the sample; the last one comes late."""
BAD_PARTITION = (DAY, "men")
"""Partition with every kind of bad record."""


def shown_row(**changes: str) -> str:
    """Return the sample's first impression of the bad partition as a line, with some values changed."""
    row = next(csv.DictReader(StringIO(sample.shown_csv(*BAD_PARTITION).decode(), newline="")))
    return ",".join((row | changes)[column] for column in sample.SHOWN)


DUPLICATE = "duplicate of impression_id"
BAD_SHOWN = [
    (shown_row(timestamp="2019-11-24 23:59:59+00:00"), DUPLICATE),  # a later one of an id that is there
    (shown_row(user_feature_3="zzz"), DUPLICATE),  # as early: the greater text goes
    (shown_row(impression_id=""), "impression_id: missing"),
    (shown_row(impression_id="bad-1", timestamp="yesterday"), "timestamp: not a timestamp"),
    (shown_row(impression_id="bad-2", timestamp="2019-11-25 00:00:00+00:00"), "timestamp: not on 2019-11-24"),
    (shown_row(impression_id="bad-3", item_id="-1"), "item_id: missing or negative"),
    (shown_row(impression_id="bad-4", position="0"), "position: not 1, 2 or 3"),
    (shown_row(impression_id="bad-5", position="4"), "position: not 1, 2 or 3"),
    ("bad-6,only three,values", "malformed"),
]
EARLY = shown_row(impression_id="early", timestamp="2019-11-24 01:00:00+00:00")
EARLIER = shown_row(impression_id="early", timestamp="2019-11-24 00:59:59+00:00", position="3")
CLICKED_ID = next(csv.DictReader(StringIO(sample.clicked_csv(*BAD_PARTITION).decode(), newline="")))["impression_id"]
BAD_CLICKED = [
    (f"{CLICKED_ID},2019-11-24 23:59:59+00:00", DUPLICATE),
    (",2019-11-24 12:00:00+00:00", "impression_id: missing"),
    ("bad-7,", "clicked_at: missing"),
    ("bad-8,2019-11-23 12:00:00+00:00", "clicked_at: not on 2019-11-24"),
]


def lines(rows) -> bytes:
    return "".join(f"{line}\n" for line in rows).encode()


class Ads:
    """The domain after its sample was published and run, and rows as Spark reads them."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness

    def rows(self, feed: str, partition: str) -> list[dict]:
        update = read.latest(open_board(settings()), Partition(Feed.parse(feed), partition)).update
        return [row.asDict() for row in read_own(session(settings()), open_board(settings()), update).collect()]


@pytest.fixture(scope="module")
def ads(spark, tmp_path_factory):
    """Publish three partitions of the sample, one with bad records and one late; run until idle."""
    from feed_assets.definitions import defs

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAGSTER_HOME", str(tmp_path_factory.mktemp("ads")))
        settings.cache_clear()
        with Harness(defs()) as harness:
            yield dropped(Ads(harness))
    settings.cache_clear()


def dropped(ads: Ads) -> Ads:
    for day, campaign in PARTITIONS[:-1]:
        drop(ads, day, campaign)
    ads.first = ads.harness.run_until_idle()
    drop(ads, *PARTITIONS[-1])
    ads.second = ads.harness.run_until_idle()
    return ads


def drop(ads: Ads, day: str, campaign: str) -> None:
    is_bad = (day, campaign) == BAD_PARTITION
    shown, clicked = sample.shown_csv(day, campaign), sample.clicked_csv(day, campaign)
    if is_bad:
        shown += lines([*(line for line, _ in BAD_SHOWN), EARLY, EARLIER])
        clicked += lines(line for line, _ in BAD_CLICKED)
    ads.harness.drop("ads/shown_raw/v1.0", f"{day}/{campaign}", {"shown.csv": shown})
    ads.harness.drop("ads/clicked_raw/v1.0", f"{day}/{campaign}", {"clicked.csv": clicked})


def clean_csvs(day: str, campaign: str) -> tuple[bytes, bytes]:
    """Return the raw bytes without bad records, from which the figures are computed."""
    extra = lines([EARLIER]) if (day, campaign) == BAD_PARTITION else b""
    return sample.shown_csv(day, campaign) + extra, sample.clicked_csv(day, campaign)


def assert_figure(row: dict, expected: ads_figures.Figures) -> None:
    assert (row["impressions"], row["clicks"]) == (expected.impressions, expected.clicks)
    for name in ("ctr", "ctr_low", "ctr_high"):
        assert row[name] == pytest.approx(getattr(expected, name), rel=0, abs=1e-12), name


def test_every_run_succeeded_and_no_partition_was_built_twice(ads):
    runs = ads.first + ads.second
    assert [run.error for run in runs if not run.succeeded] == []
    assert len({(run.assets, run.partition) for run in runs}) == len(runs) == 3 * 3 + 1


def test_a_day_is_built_only_when_every_campaign_is_present(ads):
    daily = [
        [run.partition for run in runs if run.assets == ("ads/effectiveness_daily",)]
        for runs in (ads.first, ads.second)
    ]
    assert daily == [[], [DAY]]
    assert ads.harness.newest("ads/effectiveness_daily/v1.0", NEXT_DAY) is None


@pytest.mark.parametrize(("day", "campaign"), PARTITIONS)
def test_effectiveness_equals_separately_computed_figures(ads, day, campaign):
    rows = ads.rows("ads/effectiveness/v1.0", f"{day}/{campaign}")
    expected = ads_figures.by_slot(*clean_csvs(day, campaign))
    assert {(row["policy"], row["item_id"], row["position"]) for row in rows} == expected.keys()
    assert len(rows) == len(expected)
    for row in rows:
        assert_figure(row, expected[row["policy"], row["item_id"], row["position"]])


def test_effectiveness_daily_equals_separately_computed_figures(ads):
    rows = ads.rows("ads/effectiveness_daily/v1.0", DAY)
    expected = {
        (campaign, policy): figure
        for campaign in ("men", "women")
        for policy, figure in ads_figures.by_policy(*clean_csvs(DAY, campaign)).items()
    }
    assert {(row["campaign"], row["policy"]) for row in rows} == expected.keys()
    for row in rows:
        assert_figure(row, expected[row["campaign"], row["policy"]])


@pytest.mark.parametrize(("feed", "more"), [("shown", len(BAD_SHOWN) + 2), ("clicked", len(BAD_CLICKED))])
def test_rows_in_are_clean_rows_and_rejected_rows(ads, feed, more):
    raw = {"shown": sample.shown_csv, "clicked": sample.clicked_csv}[feed](*BAD_PARTITION)
    clean = ads.rows(f"ads/{feed}/v1.0", "/".join(BAD_PARTITION))
    rejected = ads.rows(f"ads/{feed}_rejects/v1.0", "/".join(BAD_PARTITION))
    assert len(clean) + len(rejected) == raw.count(b"\n") - 1 + more


@each_case(("line", "reason"), [*BAD_SHOWN, (EARLY, DUPLICATE)])
def test_a_bad_impression_is_rejected_with_reason_file_and_raw_text(ads, line, reason):
    assert_rejected(ads, "shown", line, reason)


@pytest.mark.parametrize(("line", "reason"), BAD_CLICKED)
def test_a_bad_click_is_rejected_with_reason_file_and_raw_text(ads, line, reason):
    assert_rejected(ads, "clicked", line, reason)


def assert_rejected(ads: Ads, feed: str, line: str, reason: str) -> None:
    found = [row for row in ads.rows(f"ads/{feed}_rejects/v1.0", "/".join(BAD_PARTITION)) if row["raw"] == line]
    assert len(found) == 1
    assert reason in found[0]["reason"]
    assert found[0]["file"].startswith(f"ads/{feed}_raw/v1.0/2019-11-24/men/")
    assert found[0]["file"].endswith(f"/{feed}.csv")


def test_the_earliest_impression_of_an_id_is_kept(ads):
    (kept,) = [row for row in ads.rows("ads/shown/v1.0", "2019-11-24/men") if row["impression_id"] == "early"]
    assert kept["position"] == 3


def test_valid_input_has_no_rejects(ads):
    assert ads.rows("ads/shown_rejects/v1.0", f"{NEXT_DAY}/men") == []


def test_effectiveness_shows_a_chart_its_inputs_and_its_rows(ads):
    (reported,) = ads.harness.reported("ads/effectiveness", "men|2019-11-24")
    assert reported.metadata["chart"].startswith("![click-through rate](data:image/svg+xml;base64,")
    assert inputs_of(reported).keys() == {"ads/shown/v1.0/2019-11-24/men", "ads/clicked/v1.0/2019-11-24/men"}
    assert reported.metadata["dagster/row_count"] == len(ads.rows("ads/effectiveness/v1.0", "2019-11-24/men"))
    assert reported.metadata["preview"].startswith("| policy | item_id | position |")


def test_a_materialization_has_the_range_of_event_times(ads):
    (reported,) = ads.harness.reported("ads/shown", f"men|{NEXT_DAY}")
    assert {"first event", "last event"} <= reported.metadata.keys()


def test_every_check_passed_in_every_partition(ads):
    for asset in ("ads/shown", "ads/clicked", "ads/effectiveness"):
        for day, campaign in PARTITIONS:
            found = ads.harness.checks(asset, f"{campaign}|{day}")
            assert found, asset
            assert all(found.values()), (asset, found)


def test_dagster_knows_of_every_partition(ads):
    for asset in ("ads/shown_raw", "ads/shown", "ads/shown_rejects", "ads/effectiveness"):
        known = ads.harness.instance.get_materialized_partitions(dg.AssetKey(asset.split("/")))
        assert known == {f"{campaign}|{day}" for day, campaign in PARTITIONS}


def test_the_clean_update_names_its_rejects_for_lineage(ads):
    mine = (consumed.c.feed == "ads/shown/v1.0") & (consumed.c.partition == "2019-11-24/men") & ~consumed.c.is_input
    with open_ledger(settings().ledger).read() as connection:
        (row,) = connection.execute(sa.select(consumed.c.input_feed, consumed.c.position).where(mine))
    assert tuple(row) == (
        "ads/shown_rejects/v1.0",
        ads.harness.newest("ads/shown_rejects/v1.0", "2019-11-24/men"),
    )
