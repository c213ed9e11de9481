"""The exchange rate in effect on a date, from the European Central Bank's reference rates."""

from typing import TYPE_CHECKING

import dagster as dg

from feed_assets import Input, Partition, checks, feed_asset, foreign_feed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

days = dg.DailyPartitionsDefinition("2010-12-01", end_date="2011-12-10")  # the days of the invoices that need rates
last_seven_days = dg.TimeWindowPartitionMapping(start_offset=-6, end_offset=0)

ecb_raw = foreign_feed(
    "fx/ecb_raw/v1.0",
    partitions_def=days,
    schema="date date, GBP decimal(9,6), USD decimal(9,6)",
    description="Pounds and US dollars for one euro, as the European Central Bank publishes them; weekends have none.",
    owners=["team:fx"],
)


@feed_asset(
    "fx/exchange_rate/v1.0",
    partitions_def=days,
    inputs={"ecb_raw": Input(ecb_raw, mapping=last_seven_days, tagged=True, required="own")},
    checks=[checks.unique("date"), checks.not_null("gbp_per_eur", "usd_per_eur", "rate_date")],
    owners=["team:fx"],
)
def exchange_rate(ecb_raw: "DataFrame", partition: Partition) -> "DataFrame":
    """Exchange rate in effect on a date: that day's rate, else the newest of the six days before, else no row.

    A date is built once its own file is there, even if the file has only a header. A bad record becomes a
    reject of its own date only, although later dates read it, too.
    """
    from pyspark.sql import functions as sf

    from feed_assets import META, is_clean, reject, reject_duplicates

    tagged = reject(ecb_raw, sf.col("date").isNull(), "date: missing")
    tagged = reject(tagged, sf.col("date") != sf.to_date("_partition"), "date: not that of its partition")
    for currency in ("GBP", "USD"):
        tagged = reject(
            tagged, sf.expr(f"{currency} IS NULL OR {currency} <= 0"), f"{currency}: missing or not positive"
        )
    tagged = reject_duplicates(tagged, ["date"], [])
    newest = tagged.where(is_clean()).orderBy(sf.desc("date")).limit(1)
    rejected = tagged.where(~is_clean() & (sf.col("_partition") == partition.key))
    return newest.unionByName(rejected).select(
        sf.lit(partition.key).cast("date").alias("date"),
        sf.col("GBP").alias("gbp_per_eur"),
        sf.col("USD").alias("usd_per_eur"),
        sf.col("date").alias("rate_date"),
        *META,
    )
