"""The effectiveness of ads in each region: complete hours, then days of the region, then the global day.

The article "Data Dependency Driven Orchestration" describes regions that each have their own midnight. The sample has
no regions. Here they are derived from a hashed feature of the user, so they have no meaning. Campaigns stand for the
article's business units.
"""

from typing import TYPE_CHECKING, Any

import dagster as dg

from feed_assets import (
    BatchDate,
    Completeness,
    Input,
    Regions,
    Settings,
    Span,
    SubPartitions,
    Within,
    checks,
    feed_asset,
    state_table,
)
from feed_assets.defs.ads.effectiveness import with_ctr
from feed_assets.defs.ads.sample import REGIONS, shown_between

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FIRST_DAY, END = "2019-11-25", "2019-11-30"
"""The first day that the sample covers completely in every region, and the day after the last such day."""

hours = dg.HourlyPartitionsDefinition("2019-11-24-00:00", end_date="2019-12-01-00:00")

impressions = state_table(
    "ads/impressions",
    partitions_def=hours,
    completeness=Completeness(tiers=("adserver",)),
    regions=Regions(REGIONS, below=SubPartitions("campaign", dict.fromkeys(Settings().ads_campaigns))),
    description="Impressions as they are ingested, by region and campaign: complete by the ad server's own counts.",
    owners=["team:ads"],
)


@feed_asset(
    "ads/hourly/v1.0",
    partitions_def=hours,
    inputs={"impressions": impressions},
    checks=[checks.unique("region", "campaign"), checks.not_null("region", "campaign", "clicks")],
    owners=["team:ads"],
)
def hourly(impressions: Span) -> "DataFrame":
    """Impressions and clicks of each region and campaign in an hour (UTC), once the hour is complete everywhere."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as sf

    # With a real table, a function would read `impressions.where("timestamp")`. Here the sample replaces the table.
    rows = [
        (row["region"], row["campaign"], int(row["click"])) for row in shown_between(impressions.start, impressions.end)
    ]
    spark: Any = SparkSession.active()
    frame: DataFrame = spark.createDataFrame(rows, "region string, campaign string, click int")
    counted = frame.groupBy("region", "campaign")
    return counted.agg(sf.count("click").alias("impressions"), sf.sum("click").alias("clicks"))


def _day_of(region: str, zone: str) -> dg.AssetsDefinition:
    @feed_asset(
        f"ads/daily_{region}/v1.0",
        partitions_def=dg.DailyPartitionsDefinition(FIRST_DAY, end_date=END, timezone=zone),
        inputs={"hourly": Input(hourly, mapping=Within())},
        checks=[checks.unique("campaign"), checks.within("ctr", 0, 1)],
        owners=["team:ads"],
    )
    def daily(hourly: "DataFrame") -> "DataFrame":
        """Click-through rate of each campaign on a day of this region, from its own midnight to the next."""
        from pyspark.sql import functions as sf

        own = hourly.where(sf.col("region") == region).groupBy("campaign")
        return with_ctr(own.agg(sf.sum("impressions").alias("impressions"), sf.sum("clicks").alias("clicks")))

    return daily


region_days = [_day_of(region, zone) for region, zone in REGIONS.items()]


@feed_asset(
    "ads/daily/v1.0",
    partitions_def=dg.DailyPartitionsDefinition(FIRST_DAY, end_date=END),
    inputs={region: Input(day, mapping=BatchDate()) for region, day in zip(REGIONS, region_days, strict=True)},
    checks=[checks.not_empty(), checks.unique("region", "campaign")],
    owners=["team:ads"],
)
def daily(apac: "DataFrame", south_asia: "DataFrame", emea: "DataFrame", americas: "DataFrame") -> "DataFrame":
    """Click-through rate of each region and campaign on a batch date, once the day of every region is built."""
    from functools import reduce

    from pyspark.sql import functions as sf

    days = zip(REGIONS, (apac, south_asia, emea, americas), strict=True)
    named = [day.drop("_partition").withColumn("region", sf.lit(region)) for region, day in days]
    return reduce(lambda one, other: one.unionByName(other), named)
