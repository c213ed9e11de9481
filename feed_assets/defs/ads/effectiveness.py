"""The effectiveness of ads: from raw impressions and clicks to click-through rates.

Two teams write the raw feeds. Two pipelines clean them. A third pipeline joins the two clean datasets.
"""

from typing import TYPE_CHECKING

import dagster as dg

from feed_assets import Input, Partition, Settings, checks, feed_asset, foreign_feed
from feed_assets.defs.ads.chart import ctr_chart

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Z95 = 1.959963984540054
"""The 97.5 % quantile of the normal distribution, for an interval of 95 %."""

days = dg.DailyPartitionsDefinition("2019-11-24", end_date="2019-12-01")
days_and_campaigns = dg.MultiPartitionsDefinition(
    {"date": days, "campaign": dg.StaticPartitionsDefinition([*Settings().ads_campaigns])}
)

shown_raw = foreign_feed(
    "ads/shown_raw/v1.0",
    partitions_def=days_and_campaigns,
    schema=(
        "impression_id string, timestamp timestamp, campaign string, policy string, item_id int, position int, "
        "propensity_score double, user_feature_0 string, user_feature_1 string, user_feature_2 string, "
        "user_feature_3 string"
    ),
    description="Ads shown to users, as the ad server writes them.",
)
clicked_raw = foreign_feed(
    "ads/clicked_raw/v1.0",
    partitions_def=days_and_campaigns,
    schema="impression_id string, clicked_at timestamp",
    description="Ads clicked by users, as the click tracker writes them.",
)


@feed_asset(
    "ads/shown/v1.0",
    partitions_def=days_and_campaigns,
    inputs={"shown_raw": Input(shown_raw, tagged=True)},
    checks=[
        checks.not_empty(),
        checks.not_null("impression_id", "timestamp", "item_id", "position"),
        checks.unique("impression_id"),
        checks.within("position", 1, 3),
        checks.accounted(),
    ],
    event_time="timestamp",
    owners=["team:ads"],
)
def shown(shown_raw: "DataFrame", partition: Partition) -> "DataFrame":
    """Ads shown to users, cleaned: each impression once, in its day, at a real item and position."""
    from pyspark.sql import functions as sf

    from feed_assets import reject, reject_duplicates

    tagged = _on_the_day(shown_raw, "timestamp", partition)
    tagged = reject(tagged, sf.expr("item_id IS NULL OR item_id < 0"), "item_id: missing or negative")
    tagged = reject(tagged, sf.expr("position IS NULL OR position NOT IN (1, 2, 3)"), "position: not 1, 2 or 3")
    return reject_duplicates(tagged, ["impression_id"], [sf.col("timestamp")])


@feed_asset(
    "ads/clicked/v1.0",
    partitions_def=days_and_campaigns,
    inputs={"clicked_raw": Input(clicked_raw, tagged=True)},
    checks=[checks.not_null("impression_id", "clicked_at"), checks.unique("impression_id"), checks.accounted()],
    event_time="clicked_at",
    owners=["team:ads"],
)
def clicked(clicked_raw: "DataFrame", partition: Partition) -> "DataFrame":
    """Ads clicked by users, cleaned: the first click on each impression. A day without clicks is valid."""
    from pyspark.sql import functions as sf

    from feed_assets import reject_duplicates

    tagged = _on_the_day(clicked_raw, "clicked_at", partition)
    return reject_duplicates(tagged, ["impression_id"], [sf.col("clicked_at")])


@feed_asset(
    "ads/effectiveness/v1.0",
    partitions_def=days_and_campaigns,
    inputs={"shown": shown, "clicked": clicked},
    checks=[
        checks.not_empty(),
        checks.unique("policy", "item_id", "position"),
        checks.within("ctr", 0, 1),
        checks.references("clicked", "shown", on="impression_id", at_least=0.95),
    ],
    chart=ctr_chart,
    owners=["team:ads"],
)
def effectiveness(shown: "DataFrame", clicked: "DataFrame") -> "DataFrame":
    """Click-through rate of each policy, item and position on a day, with its 95 % interval (Wilson)."""
    from pyspark.sql import functions as sf

    clicks = clicked.select("impression_id", sf.lit(1).alias("click"))
    joined = shown.join(clicks, "impression_id", "left")
    counted = joined.groupBy("policy", "item_id", "position").agg(
        sf.count(sf.lit(1)).alias("impressions"), sf.count("click").alias("clicks")
    )
    return with_ctr(counted)


@feed_asset(
    "ads/effectiveness_daily/v1.0",
    partitions_def=days,
    inputs={"effectiveness": Input(effectiveness, mapping=dg.MultiToSingleDimensionPartitionMapping("date"))},
    checks=[checks.not_empty(), checks.unique("campaign", "policy"), checks.within("ctr", 0, 1)],
    owners=["team:ads"],
)
def effectiveness_daily(effectiveness: "DataFrame") -> "DataFrame":
    """Click-through rate of each campaign and policy on a day, once every campaign's data are there."""
    from pyspark.sql import functions as sf

    campaign = sf.element_at(sf.split("_partition", "/"), -1).alias("campaign")
    summed = effectiveness.groupBy(campaign, "policy").agg(
        sf.sum("impressions").alias("impressions"), sf.sum("clicks").alias("clicks")
    )
    return with_ctr(summed)


def _on_the_day(tagged: "DataFrame", time: str, partition: Partition) -> "DataFrame":
    """Reject records without an id or a time, and records that are not of the partition's day (UTC)."""
    from pyspark.sql import functions as sf

    from feed_assets import reject

    day = partition.key.split("/")[0]
    tagged = reject(tagged, sf.col("impression_id").isNull(), "impression_id: missing")
    tagged = reject(tagged, sf.col(time).isNull(), f"{time}: missing")
    return reject(tagged, sf.to_date(time) != sf.lit(day).cast("date"), f"{time}: not on {day}")


def with_ctr(counted: "DataFrame") -> "DataFrame":
    """Add `ctr`, `ctr_low` and `ctr_high` (Wilson's score interval, 95 %) to columns `clicks` and `impressions`."""
    from pyspark.sql import functions as sf

    n, share = sf.col("impressions").cast("double"), sf.col("clicks") / sf.col("impressions")
    scale = 1 + Z95**2 / n
    middle = (share + Z95**2 / (2 * n)) / scale
    half = Z95 / scale * sf.sqrt(share * (1 - share) / n + Z95**2 / (4 * n * n))
    low = sf.when(share == 0, 0.0).otherwise(middle - half)  # exactly 0, without a rounding error
    high = sf.when(share == 1, 1.0).otherwise(middle + half)
    return counted.withColumns({"ctr": share, "ctr_low": low, "ctr_high": high})
