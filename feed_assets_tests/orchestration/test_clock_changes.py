"""Days and weeks with a repeated midnight are built, and rebuilt, once all hours are there, in any order."""

import dagster as dg
import pytest

from feed_assets import Late, feed_asset, foreign_feed, with_automation
from feed_assets.testing import Harness, PlainMaker

FIRST, AGAIN = "2025-10-26-00:00", "2025-10-26-00:00-0100"


def world(zone: str, first: str, outputs: dg.TimeWindowPartitionsDefinition, last: str) -> dg.Definitions:
    hours = dg.HourlyPartitionsDefinition(f"{first}-00:00", end_date=f"{last}-00:00", timezone=zone)
    raw = foreign_feed("clocks/raw/v1.0", schema="a int", partitions_def=hours)

    @feed_asset("clocks/long/v1.0", partitions_def=outputs, inputs={"raw": raw}, late=Late(growth=0))
    def long(raw):
        """Return the rows of a longer window."""
        return raw

    return with_automation(dg.Definitions(assets=[raw, long]))


def hours_of(defs: dg.Definitions, begin: str, end: str) -> list[str]:
    parts = defs.resolve_asset_graph().get(dg.AssetKey(["clocks", "raw"])).partitions_def
    return [key for key in parts.get_partition_keys() if begin <= key[:10] < end]


@pytest.mark.parametrize(
    ("zone", "day", "last"),
    [
        ("Atlantic/Azores", "2025-10-26", FIRST),
        ("Atlantic/Azores", "2025-10-26", AGAIN),
        ("America/Havana", "2025-11-02", "2025-11-02-00:00"),
    ],
)
def test_a_25_hour_day_is_built_and_rebuilt_whichever_hour_comes_last(zone, day, last):
    after = f"{day[:8]}{int(day[8:]) + 1:02}"
    days = dg.DailyPartitionsDefinition(day, end_date=after, timezone=zone)
    defs = world(zone, day, days, after)
    hours = hours_of(defs, day, after)
    assert len(hours) == 25
    built_and_built_again(defs, hours, day, last)


@pytest.mark.parametrize("last", [FIRST, AGAIN, "2025-10-27-05:00"])
def test_a_week_that_dagster_cannot_map_is_built_and_built_again(last):
    zone = "Atlantic/Azores"
    weeks = dg.WeeklyPartitionsDefinition("2025-10-26", end_date="2025-11-02", timezone=zone)
    defs = world(zone, "2025-10-26", weeks, "2025-11-02")
    hours = hours_of(defs, "2025-10-26", "2025-11-02")
    assert len(hours) == 169
    built_and_built_again(defs, hours, "2025-10-26", last)


def built_and_built_again(defs: dg.Definitions, hours: list[str], output: str, last: str) -> None:
    with Harness(defs, maker=PlainMaker()) as harness:
        for hour in hours:
            if hour != last:
                harness.drop("clocks/raw/v1.0", hour, "a\n1\n")
        assert harness.run_until_idle() == []
        for content in ("a\n1\n", "a\n1\n2\n"):
            harness.drop("clocks/raw/v1.0", last, content)
            assert [(run.partition, run.succeeded) for run in harness.run_until_idle()] == [(output, True)]
        (row,) = harness.rows("clocks/long/v1.0", output)
        assert len(row["raw"]) == len(hours)
