"""Windows that could never be complete are refused at declaration, with the remedy."""

import dagster as dg
import pytest

from feed_assets import Regions, Watermark, Within, feed_asset, foreign_feed, state_table
from feed_assets.core.errors import InvalidDefinition
from feed_assets.orchestration.declare.input_specs import Input
from feed_assets.orchestration.declare.partitions import windows_from
from feed_assets_tests.support.each_case import each_case

HOURS = dg.HourlyPartitionsDefinition("2026-01-01-00:00")
DAYS = dg.DailyPartitionsDefinition("2026-01-01")
SINGAPORE = dg.DailyPartitionsDefinition("2026-01-01", timezone="Asia/Singapore")
REGIONS = Regions({"apac": "Asia/Singapore", "emea": "UTC"})
FOO = state_table("web/foo", partitions_def=HOURS, regions=REGIONS)
RAW = foreign_feed("web/raw/v1.0", schema="k string", partitions_def=HOURS)
THREE = dg.TimeWindowPartitionsDefinition(cron_schedule="*/3 * * * *", start="2026-01-01-00:00", fmt="%Y-%m-%d-%H:%M")


def reader(partitions_def, read) -> None:
    @feed_asset("web/out/v1.0", partitions_def=partitions_def, inputs={"foo": read})
    def made(foo):
        """Read foo."""


def by_region(*keys: str) -> dg.MultiPartitionsDefinition:
    return dg.MultiPartitionsDefinition({"hour": HOURS, "region": dg.StaticPartitionsDefinition([*keys])})


@each_case(
    ("partitions_def", "read", "why"),
    [
        (HOURS, Input(FOO, mapping=Within(only={"region": "apca"})), "region=apca of web/foo"),
        (by_region("apac", "latam"), FOO, "region=latam of web/foo"),
        (SINGAPORE, RAW, r"Use Within\(\) or BatchDate\(\)"),
        (THREE, FOO, "its smallest windows have 5min"),
        (HOURS, Input(FOO, beyond=Watermark("end of partition")), "Remove `beyond`"),
    ],
)
def test_a_state_table_that_a_reader_could_never_use_is_refused(partitions_def, read, why):
    with pytest.raises(InvalidDefinition, match=why):
        reader(partitions_def, read)


def test_readable_state_tables_are_accepted():
    reader(by_region("apac", "emea"), FOO)
    reader(HOURS, Input(FOO, mapping=Within(only={"region": "apac"})))
    reader(SINGAPORE, Input(RAW, mapping=Within()))
    reader(DAYS, RAW)


def test_days_of_a_state_table_begin_at_midnight():
    with pytest.raises(InvalidDefinition, match="begin at 06:00: expected midnight"):
        state_table("web/foo", partitions_def=dg.DailyPartitionsDefinition("2026-01-01", hour_offset=6))


@each_case("start", ["01.01.2026", "2026-01-01-00:00", "soon"])
def test_a_start_date_that_is_no_day_is_refused_with_the_form(start):
    with pytest.raises(InvalidDefinition, match=f"start '{start}': expected a day, such as 2026-01-01"):
        windows_from(start, "hour")
