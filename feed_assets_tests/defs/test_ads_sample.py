import csv
import gzip
from collections import Counter
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import pytest

from feed_assets.defs.ads import sample
from feed_assets_tests.support import ads_figures
from feed_assets_tests.support.each_case import each_case

DAYS = tuple(f"2019-11-{day}" for day in range(24, 31))
PARTITIONS = [(day, campaign) for day in DAYS for campaign in ("men", "women")]
SHOWN = (
    "impression_id,timestamp,campaign,policy,item_id,position,propensity_score,"
    "user_feature_0,user_feature_1,user_feature_2,user_feature_3"
)


def rows(content):
    return list(csv.DictReader(StringIO(content.decode(), newline="")))


def flags(policy, campaign):
    """Return timestamp and click flag of each row of the source file, unchanged."""
    path = Path(sample.__file__).with_name("sample") / f"{policy}_{campaign}.csv.gz"
    with gzip.open(path, "rt", newline="") as file:
        return [(row["timestamp"], row["click"]) for row in csv.DictReader(file)]


@pytest.fixture(scope="module")
def shown():
    return {partition: rows(sample.shown_csv(*partition)) for partition in PARTITIONS}


@pytest.fixture(scope="module")
def clicked():
    return {partition: rows(sample.clicked_csv(*partition)) for partition in PARTITIONS}


def test_the_sample_is_seven_days():
    assert sample.days() == DAYS


def test_headers_are_those_of_the_raw_feeds():
    assert sample.shown_csv("2019-11-24", "men").splitlines()[0].decode() == SHOWN
    assert sample.clicked_csv("2019-11-24", "men").splitlines()[0] == b"impression_id,clicked_at"


def test_lines_end_with_a_newline_alone():
    content = sample.shown_csv("2019-11-24", "men") + sample.clicked_csv("2019-11-24", "men")
    assert b"\r" not in content
    assert content.endswith(b"\n")


def test_each_row_of_each_file_is_in_exactly_one_day(shown):
    ids = Counter(row["impression_id"] for part in shown.values() for row in part)
    expected = {f"{p}-{c}-{n}" for p in ("bts", "random") for c in ("men", "women") for n in range(10_000)}
    assert ids == Counter(expected)


def test_a_row_is_in_the_partition_of_its_date_and_campaign(shown):
    for (day, campaign), part in shown.items():
        assert {(row["timestamp"][:10], row["timestamp"][-6:], row["campaign"]) for row in part} == {
            (day, "+00:00", campaign)
        }


@pytest.mark.parametrize("campaign", ["men", "women"])
@pytest.mark.parametrize("policy", ["bts", "random"])
def test_clicks_and_timestamps_are_those_of_the_source(shown, clicked, policy, campaign):
    source = flags(policy, campaign)
    impressions = {row["impression_id"]: row["timestamp"] for part in shown.values() for row in part}
    clicks = {row["impression_id"]: row["clicked_at"] for part in clicked.values() for row in part}
    prefix = f"{policy}-{campaign}-"
    assert [impressions[f"{prefix}{n}"] for n in range(len(source))] == [moment for moment, _ in source]
    expected = {f"{prefix}{n}": moment for n, (moment, click) in enumerate(source) if click == "1"}
    assert {name: moment for name, moment in clicks.items() if name.startswith(prefix)} == expected


def test_a_missing_day_or_campaign_of_the_sample_is_named():
    with pytest.raises(ValueError, match="no day '2019-12-01'"):
        sample.shown_csv("2019-12-01", "men")
    with pytest.raises(ValueError, match="no campaign 'children'"):
        sample.clicked_csv("2019-11-24", "children")


def test_the_figures_add_up_to_the_sample():
    totals = [ads_figures.total(sample.shown_csv(*each), sample.clicked_csv(*each)) for each in PARTITIONS]
    assert sum(total.impressions for total in totals) == 40_000
    assert sum(total.clicks for total in totals) == 69 + 46 + 46 + 46


def test_the_figures_by_policy_add_up_to_the_total():
    raw = sample.shown_csv("2019-11-24", "men"), sample.clicked_csv("2019-11-24", "men")
    policies = ads_figures.by_policy(*raw)
    assert {name: figure.impressions for name, figure in policies.items()} == {"bts": 1837, "random": 1687}
    assert sum(figure.clicks for figure in policies.values()) == ads_figures.total(*raw).clicks


@each_case(
    ("clicks", "impressions", "low", "high"),
    [  # Newcombe, Statistics in Medicine 17 (1998), table I, method 3: to four digits
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_the_interval_is_wilsons(clicks, impressions, low, high):
    assert ads_figures.wilson(clicks, impressions) == pytest.approx((low, high), abs=5e-5)


def test_impressions_between_two_moments_are_all_there_are_in_order():
    start, end = datetime(2019, 11, 26, 15, 58, tzinfo=UTC), datetime(2019, 11, 26, 16, 8, tzinfo=UTC)
    every = [at for policy in sample.POLICIES for campaign in sample.CAMPAIGNS for at, _ in flags(policy, campaign)]
    wanted = sorted(at for at in every if "2019-11-26 15:58" <= at < "2019-11-26 16:08")
    assert [row["timestamp"] for row in sample.shown_between(start, end)] == wanted
    assert len(wanted) > 30


def test_every_region_has_impressions_and_a_user_feature_is_always_of_one():
    rows = sample.shown_between(datetime(2019, 11, 24, tzinfo=UTC), datetime(2019, 12, 1, tzinfo=UTC))
    regions = {}
    for row in rows:
        regions.setdefault(row["user_feature_2"], set()).add(row["region"])
    assert {region for found in regions.values() for region in found} == {*sample.REGIONS}
    assert {len(found) for found in regions.values()} == {1}
    assert len(rows) == 40_000
