"""The newest windows of a definition: Dagster's last partitions, and the current window."""

from datetime import UTC, datetime

import dagster as dg

from feed_assets.orchestration.declare.time_windows import newest_keys
from feed_assets_tests.support.each_case import each_case

NOW = datetime(2025, 6, 3, 12, 30, tzinfo=UTC)
WEEKDAYS = dg.TimeWindowPartitionsDefinition(cron_schedule="0 0 * * 1-5", start="2025-01-01", fmt="%Y-%m-%d")


@each_case(
    ("times", "going_on"),
    [
        (dg.DailyPartitionsDefinition("2025-01-01"), ["2025-06-03"]),
        (dg.DailyPartitionsDefinition("2025-06-01"), ["2025-06-03"]),
        (dg.DailyPartitionsDefinition("2025-01-01", timezone="America/Sao_Paulo"), ["2025-06-03"]),
        (dg.HourlyPartitionsDefinition("2025-01-01-00:00"), ["2025-06-03-12:00"]),
        (dg.MonthlyPartitionsDefinition("2020-01-01"), ["2025-06-01"]),
        (WEEKDAYS, ["2025-06-03"]),
        (dg.DailyPartitionsDefinition("2010-01-01", end_date="2010-03-01"), []),
        (dg.DailyPartitionsDefinition("2026-01-01"), []),
    ],
)
def test_the_newest_windows_are_dagsters_last_partitions_and_the_one_that_goes_on(times, going_on):
    last = times.get_partition_keys(current_time=NOW)[-24:]
    assert [*newest_keys(times, NOW, 24)] == [*last, *going_on]
