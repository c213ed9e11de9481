"""Two partners' impressions, by day: `men` pushes events as they happen, `women` writes files that we pull.

The two feeds are defined only if FEED_ASSETS_BLACKBOARDS has the blackboard `women`.
"""

from typing import TYPE_CHECKING

import dagster as dg

from feed_assets import Input, Late, Pull, Settings, Within, checks, feed_asset, foreign_feed
from feed_assets.defs.ads.effectiveness import with_ctr

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = "impression_id string, timestamp timestamp, policy string, item_id int, position int, click int"
WOMEN = "women"
"""The blackboard of the partner `women`."""

hours = dg.HourlyPartitionsDefinition("2026-01-01-00:00")

men = foreign_feed(
    "partners/men/v1.0",
    schema=SCHEMA,
    partitions_def=hours,
    format="json",
    event_time="timestamp",
    intake="push",
    description="Impressions of men's fashion, as its team pushes them to the receiver.",
)
women = foreign_feed(
    "partners/women/v1.0",
    schema=SCHEMA,
    partitions_def=hours,
    intake=Pull(WOMEN, "%Y-%m-%d/%H/ads_*.csv", lookback=7),
    description="Impressions of women's fashion, from the files that its team writes.",
)


@feed_asset(
    "ads/partners_daily/v1.0",
    partitions_def=dg.DailyPartitionsDefinition("2026-01-01"),
    inputs={name: Input(feed, mapping=Within(), late=Late("5%")) for name, feed in (("men", men), ("women", women))},
    checks=[checks.not_empty(), checks.unique("campaign", "policy"), checks.within("ctr", 0, 1)],
    figures={"impressions": "sum(impressions)", "clicks": "sum(clicks)", "ctr": "sum(clicks) / sum(impressions)"},
    owners=["team:ads"],
)
def partners_daily(men: "DataFrame", women: "DataFrame") -> "DataFrame":
    """Click-through rate of each partner's campaign and policy on a day, rebuilt if late data add 5 % or more."""
    from pyspark.sql import functions as sf

    named = [each.withColumn("campaign", sf.lit(name)) for name, each in (("men", men), ("women", women))]
    counted = named[0].unionByName(named[1]).groupBy("campaign", "policy")
    return with_ctr(counted.agg(sf.count("click").alias("impressions"), sf.sum("click").alias("clicks")))


@dg.definitions
def defs() -> dg.Definitions:
    """Return both feeds and the dataset, or nothing if the partners' blackboard is not configured.

    Without that setting, the sensor `pull` would open an alert about the missing blackboard.
    """
    if WOMEN not in Settings().blackboards.get_secret_value():
        return dg.Definitions()
    return dg.Definitions(assets=[men, women, partners_daily])
