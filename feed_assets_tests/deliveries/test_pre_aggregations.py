"""Pre-aggregated datasets: a late hour of one region is summed again for its day, its region and the level above."""

import dagster as dg
import pytest

from feed_assets import Input, Within, feed_asset, foreign_feed
from feed_assets.testing import Given
from feed_assets_tests.support import sum_projects
from feed_assets_tests.support.sum_projects import harness, read

DAY = "2020-01-01"
HOURS = dg.HourlyPartitionsDefinition(f"{DAY}-00:00", end_date="2020-01-03-00:00")
DAYS = dg.DailyPartitionsDefinition(DAY, end_date="2020-01-03")
REGIONS = dg.StaticPartitionsDefinition(["apac", "emea"])
RAW, BY_REGION, OF_ALL = "t/clicks/v1.0", "t/by_region/v1.0", "t/of_all/v1.0"


@pytest.fixture
def world(home):
    """Return hours of each region -> days of each region -> days of all regions."""
    raw = foreign_feed(
        RAW, schema="k string, n int", partitions_def=dg.MultiPartitionsDefinition({"date": HOURS, "region": REGIONS})
    )

    @feed_asset(
        BY_REGION,
        partitions_def=dg.MultiPartitionsDefinition({"date": DAYS, "region": REGIONS}),
        inputs={"clicks": Input(raw, mapping=Within())},
    )
    def by_region(clicks):
        """Return the clicks of a day and region."""

    @feed_asset(
        OF_ALL,
        partitions_def=DAYS,
        inputs={"by_region": Input(by_region, mapping=dg.MultiToSingleDimensionPartitionMapping("date"))},
    )
    def of_all(by_region):
        """Return the clicks of a day."""

    def give(task):
        [source] = task.recipe.sources
        found = [row for update in task.updates[source.name] for row in read(source, update)]
        return Given([{"k": "a", "n": sum(row["n"] for row in found)}])

    yield harness(raw, by_region, of_all, give=give)
    sum_projects.opened.close()


def test_only_the_impacted_day_region_and_level_are_computed_again(world):
    for day in (DAY, "2020-01-02"):
        for hour in range(24):
            for region in ("apac", "emea"):
                world.drop(RAW, f"{day}-{hour:02}:00/{region}", "k,n\na,1\n")
    first = world.run_until_idle()
    assert all(run.succeeded for run in first)
    assert len(first) == 4 + 2
    world.drop(RAW, f"{DAY}-15:00/apac", "k,n\na,8\n")
    again = [(run.assets[0], run.partition) for run in world.run_until_idle()]
    assert again == [("t/by_region", f"{DAY}|apac"), ("t/of_all", DAY)]
    figures = {key: world.rows(BY_REGION, key)[0]["n"] for key in (f"{DAY}/apac", f"{DAY}/emea", "2020-01-02/apac")}
    assert figures == {f"{DAY}/apac": 31, f"{DAY}/emea": 24, "2020-01-02/apac": 24}
    assert [world.rows(OF_ALL, day)[0]["n"] for day in (DAY, "2020-01-02")] == [55, 48]
