"""Partitions that read each other across time zones, both ways."""

from datetime import UTC, datetime, timedelta

import dagster as dg
from hypothesis import given
from hypothesis import strategies as st

from feed_assets.orchestration.declare.mappings import (
    BatchDate,
    DayToDate,
    Previous,
    Within,
    downstream,
    span_of,
    upstream,
)
from feed_assets.orchestration.declare.partitions import extent_of, times_of
from feed_assets_tests.support.each_case import each_case

ZONES = ["UTC", "Asia/Singapore", "Asia/Kolkata", "America/Los_Angeles", "Europe/Berlin", "Asia/Kathmandu"]
REGIONS = dg.StaticPartitionsDefinition(["apac", "emea"])


def hours(zone: str = "UTC") -> dg.HourlyPartitionsDefinition:
    return dg.HourlyPartitionsDefinition("2026-01-01-00:00", timezone=zone)


def days(zone: str) -> dg.DailyPartitionsDefinition:
    return dg.DailyPartitionsDefinition("2026-01-01", timezone=zone)


TENS = dg.TimeWindowPartitionsDefinition(cron_schedule="*/10 * * * *", start="2026-01-01-00:00", fmt="%Y-%m-%d-%H:%M")
REGION_HOURS = dg.MultiPartitionsDefinition({"time": hours(), "region": REGIONS})
REGION_DAYS = dg.MultiPartitionsDefinition({"day": days("UTC"), "region": REGIONS})


def reads(mapping, child, parent, path: str) -> list[str]:
    return upstream(mapping, child, parent, path)


@each_case(
    ("zone", "day", "first", "last", "count"),
    [
        ("Asia/Singapore", "2026-01-02", "2026-01-01-16:00", "2026-01-02-15:00", 24),
        ("America/Los_Angeles", "2026-01-02", "2026-01-02-08:00", "2026-01-03-07:00", 24),
        ("America/Los_Angeles", "2026-03-08", "2026-03-08-08:00", "2026-03-09-06:00", 23),
        ("America/Los_Angeles", "2026-11-01", "2026-11-01-07:00", "2026-11-02-07:00", 25),
        # Half an hour of the first and of the last lies in another day.
        ("Asia/Kolkata", "2026-01-02", "2026-01-01-18:00", "2026-01-02-18:00", 25),
    ],
)
def test_the_day_of_a_region_reads_its_utc_hours(zone, day, first, last, count):
    found = reads(Within(), days(zone), hours(), day)
    assert (found[0], found[-1], len(found)) == (first, last, count)


def test_ten_minutes_read_ten_minutes_of_a_half_hour_region():
    found = reads(Within(), days("Asia/Kolkata"), TENS, "2026-01-02")
    assert (found[0], found[-1], len(found)) == ("2026-01-01-18:30", "2026-01-02-18:20", 144)


def test_hours_before_the_first_partition_are_none():
    assert reads(Within(), days("Asia/Singapore"), hours(), "2026-01-01")[0] == "2026-01-01-00:00"


@each_case("zone", ZONES)
def test_a_batch_date_is_the_same_date_by_every_clock(zone):
    assert reads(BatchDate(), days("UTC"), days(zone), "2026-01-05") == ["2026-01-05"]
    assert reads(BatchDate(), days(zone), days("UTC"), "2026-01-05") == ["2026-01-05"]


def test_day_to_date_reads_hours_00_to_15_by_the_clock_of_the_output():
    assert reads(DayToDate(), hours(), hours(), "2026-01-02-15:00") == [f"2026-01-02-{h:02}:00" for h in range(16)]
    found = reads(DayToDate(), hours("Asia/Singapore"), hours(), "2026-01-02-01:00")
    assert found == ["2026-01-01-16:00", "2026-01-01-17:00"]


def test_previous_reads_the_one_before_and_the_first_reads_none():
    assert reads(Previous(), REGION_DAYS, REGION_DAYS, "2026-01-02/emea") == ["2026-01-01/emea"]
    assert reads(Previous(), REGION_DAYS, REGION_DAYS, "2026-01-01/emea") == []


def test_only_chooses_keys_of_other_dimensions_and_equal_names_are_equal_keys():
    apac = reads(Within(only={"region": "apac"}), days("UTC"), REGION_HOURS, "2026-01-02")
    assert apac == [f"2026-01-02-{hour:02}:00/apac" for hour in range(24)]
    assert reads(Within(), REGION_DAYS, REGION_HOURS, "2026-01-02/emea")[0] == "2026-01-02-00:00/emea"
    assert len(reads(Within(), days("UTC"), REGION_HOURS, "2026-01-02")) == 48
    assert reads(Within(only={"region": "nobody"}), days("UTC"), REGION_HOURS, "2026-01-02") == []


def reached(mapping, child, parent, path: str) -> list[str]:
    """Return the outputs that a change of an input's partition reaches."""
    changed = extent_of(parent, path)
    return downstream(mapping, child, span_of(changed), changed.zone, changed.values)


def test_an_hour_reaches_the_day_of_a_region_and_half_an_hour_reaches_two():
    assert reached(Within(), days("Asia/Singapore"), hours(), "2026-01-02-16:00") == ["2026-01-03"]
    assert reached(Within(), days("Asia/Kolkata"), hours(), "2026-01-02-18:00") == ["2026-01-02", "2026-01-03"]
    assert reached(Within(only={"region": "apac"}), days("UTC"), REGION_HOURS, "2026-01-02-16:00/emea") == []


def test_an_hour_reaches_the_rest_of_its_day_cumulatively():
    assert reached(DayToDate(), hours(), hours(), "2026-01-02-21:00") == [f"2026-01-02-{h}:00" for h in (21, 22, 23)]


DEFINITIONS = [*map(days, ZONES), *map(hours, ZONES[:5]), TENS, REGION_HOURS, REGION_DAYS]
MAPPINGS = [Within(), BatchDate(), DayToDate(), Previous(), Within(only={"region": "emea"})]


@given(
    st.sampled_from(MAPPINGS),
    st.sampled_from(DEFINITIONS),
    st.sampled_from(DEFINITIONS),
    st.integers(0, 360_000).map(lambda minutes: datetime(2026, 3, 1, tzinfo=UTC) + timedelta(minutes=minutes)),
)
def test_each_way_is_the_inverse_of_the_other(mapping, child, parent, moment):
    """Check that an output is reached by what it reads, and reads what reaches it."""
    parent = child if mapping == Previous() else parent
    output = at(child, moment)
    assert all(output in reached(mapping, child, parent, path) for path in reads(mapping, child, parent, output))
    changed = at(parent, moment)
    for path in reached(mapping, child, parent, changed):
        assert changed in reads(mapping, child, parent, path)


def at(definition, moment: datetime) -> str:
    times = times_of(definition)
    key = times.get_partition_key_for_timestamp(moment.timestamp())
    return key if definition is times else f"{key}/apac"
