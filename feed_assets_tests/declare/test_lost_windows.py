"""Windows that begin at a skipped time: refused if Dagster lists a partition that it cannot run."""

from datetime import UTC, datetime

import dagster as dg
import pytest

from feed_assets import feed_asset, foreign_feed
from feed_assets.core.errors import InvalidDefinition
from feed_assets.orchestration.declare.lost_windows import lost_window
from feed_assets_tests.support.each_case import each_case

END = datetime(2027, 12, 1, tzinfo=UTC)


def windows(zone: str, cron: str, start: str = "2020-09-25-00:00") -> dg.TimeWindowPartitionsDefinition:
    return dg.TimeWindowPartitionsDefinition(cron_schedule=cron, timezone=zone, start=start, fmt="%Y-%m-%d-%H:%M")


LOST = [
    ("Europe/Dublin", "0 1 * * *", "2021-03-28-01:00"),
    ("Europe/Dublin", "30 1 * * *", "2021-03-28-01:00"),
    ("Europe/Dublin", "0 1 * * 0", "2021-03-28-01:00"),
    ("Africa/Casablanca", "0 2 * * *", "2021-05-16-02:00"),
    ("America/Nuuk", "0 23 * * *", "2024-03-30-23:00"),
    ("Pacific/Chatham", "45 2 * * *", "2020-09-27-03:00"),
    ("Antarctica/Casey", "0 */2 * * *", "2020-10-04-02:00"),
]


@each_case(("zone", "cron", "key"), LOST)
def test_a_window_that_dagster_lists_and_knows_not_is_named(zone, cron, key):
    times = windows(zone, cron)
    assert lost_window(times, END) == key
    with dg.partition_loading_context(END):
        assert key in times.get_partition_keys()
        assert not times.has_partition_key(key)


@each_case(
    ("zone", "cron"),
    [
        ("Europe/Dublin", "0 0 * * *"),
        ("Europe/Dublin", "0 2 * * *"),
        ("Europe/Dublin", "0 1 1 * *"),
        ("Europe/Berlin", "0 2 * * *"),
        ("Europe/Berlin", "30 2 * * *"),
        ("Europe/Berlin", "*/15 * * * *"),
        ("America/New_York", "0 2 * * *"),
        ("Australia/Lord_Howe", "0 2 * * *"),
        ("UTC", "0 2 * * *"),
    ],
)
def test_windows_are_accepted_if_dagster_knows_each_partition(zone, cron):
    times = windows(zone, cron)
    assert lost_window(times, END) is None
    with dg.partition_loading_context(END):
        around = [key for key in times.get_partition_keys() if key[5:7] in {"03", "10"}]
        assert all(times.has_partition_key(key) for key in around)


def test_partitions_that_end_before_or_begin_after_a_clock_change_are_accepted():
    assert lost_window(windows("Europe/Dublin", "0 1 * * *"), datetime(2021, 3, 1, tzinfo=UTC)) is None
    assert (
        lost_window(windows("Africa/Casablanca", "0 2 * * *", "2026-03-25-00:00"), datetime(2026, 9, 1, tzinfo=UTC))
        is None
    )


def test_a_feed_and_a_dataset_with_such_windows_are_refused_with_what_to_do():
    says = (
        r"t/raw/v1\.0 has windows by the cron '0 1 \* \* \*' in Europe/Dublin, where clocks skip the beginning of "
        r"2021-03-28-01:00: .* Change the cron, or the time zone\."
    )
    times = windows("Europe/Dublin", "0 1 * * *")
    with pytest.raises(InvalidDefinition, match=says):
        foreign_feed("t/raw/v1.0", partitions_def=times, schema="k int")
    kinds = dg.MultiPartitionsDefinition({"day": times, "kind": dg.StaticPartitionsDefinition(["a", "b"])})
    with pytest.raises(InvalidDefinition, match=says):
        feed_asset("t/raw/v1.0", partitions_def=kinds, inputs={})(lambda: None)
