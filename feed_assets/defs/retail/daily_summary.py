"""A day of the web shop in one row, in pounds and in euros, from the shop's data and the bank's rates."""

from typing import TYPE_CHECKING

from feed_assets import ByEvents, checks, feed_asset
from feed_assets.defs.fx.exchange_rate import exchange_rate
from feed_assets.defs.retail.purchases import MONEY, bought, days, num_purchases_per_day, purchases, purchases_per_buyer

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def _disagreeing(audited: checks.Audited) -> float:
    """Return how many of the two figures (purchases, total) differ from those computed from the lines themselves."""
    from pyspark.sql import functions as sf

    lines = bought(audited.inputs["purchases"])
    expected = lines.agg(sf.count_distinct("InvoiceNo"), sf.coalesce(sf.sum("gbp"), sf.lit(0))).collect()[0]
    summed = audited.written.agg(sf.sum("purchases"), sf.sum("total_gbp")).collect()[0]
    return (summed[0] != expected[0]) + (summed[1] != expected[1])


adds_up = checks.Check(
    "adds_up",
    "purchases and total_gbp must equal those of the lines: all inputs of one propagation",
    passes=lambda count: count == 0,
    measure=_disagreeing,
)


@feed_asset(
    "retail/daily_summary/v1.0",
    partitions_def=days,
    inputs={
        "purchases": purchases,
        "num_purchases_per_day": num_purchases_per_day,
        "purchases_per_buyer": purchases_per_buyer,
        "exchange_rate": exchange_rate,
    },
    checks=[checks.not_empty(), checks.unique("date"), adds_up],
    by_events=ByEvents(),
    owners=["team:retail"],
)
def daily_summary(
    purchases: "DataFrame",
    num_purchases_per_day: "DataFrame",
    purchases_per_buyer: "DataFrame",
    exchange_rate: "DataFrame",
) -> "DataFrame":
    """Day in one row: number of purchases, most expensive invoice (if equal, the smallest number), and totals.

    `num_purchases_per_day` has the number of purchases and the date. `purchases` has the most expensive invoice.
    `total_gbp` adds the buyers' sums of `purchases_per_buyer` and the lines of `purchases` without a buyer. `total_eur`
    is `total_gbp` by `exchange_rate`, rounded half even to cents; NULL if there is no rate. The check `adds_up` refuses
    a row whose inputs do not match, for example if the lines are newer than the buyers' sums.
    """
    from pyspark.sql import functions as sf

    lines = bought(purchases)
    invoices = lines.groupBy("InvoiceNo").agg(sf.sum("gbp").alias("gbp"))
    most = invoices.agg(
        sf.min_by("InvoiceNo", _rank()).alias("most_expensive_invoice"),
        sf.max("gbp").cast(MONEY).alias("most_expensive_gbp"),
    )
    gbp = lines.where("CustomerID IS NULL").select("gbp").unionAll(purchases_per_buyer.select("gbp"))
    total = gbp.agg(sf.coalesce(sf.sum("gbp"), sf.lit(0)).cast(MONEY).alias("total_gbp"))
    rate = exchange_rate.select("date", "gbp_per_eur")
    # The quotient has 14 decimals. These are enough to round right: a quotient that close to a tie is a tie.
    eur = sf.bround(sf.col("total_gbp") / sf.col("gbp_per_eur"), 2).cast("decimal(20,2)").alias("total_eur")
    row = num_purchases_per_day.crossJoin(most).crossJoin(total).join(rate, "date", "left")
    return row.select("*", eur)


def _rank() -> "Column":
    """Return the sort key of invoices: greatest sum first, then smallest number, then ids that are no numbers."""
    from pyspark.sql import functions as sf

    number = sf.col("InvoiceNo").try_cast("bigint")
    return sf.struct(-sf.col("gbp"), number.isNull(), number, sf.col("InvoiceNo"))
