"""Purchases in a web shop: clean lines from raw invoices, and two teams' counts of them.

Amounts are pounds sterling, in exact decimals.
"""

from typing import TYPE_CHECKING

import dagster as dg

from feed_assets import Input, Partition, checks, feed_asset, foreign_feed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MONEY = "decimal(20,4)"
"""A type large enough for the greatest possible Quantity times UnitPrice."""

days = dg.DailyPartitionsDefinition("2010-12-01", end_date="2011-12-10")  # the days in the data set

invoices_raw = foreign_feed(
    "retail/invoices_raw/v1.0",
    partitions_def=days,
    schema=(
        "InvoiceNo string, StockCode string, Description string, Quantity int, InvoiceDate timestamp, "
        "UnitPrice decimal(10,4), CustomerID string, Country string"
    ),
    description="Invoice lines of a web shop, including cancellations, as its till writes them.",
    owners=["team:retail"],
)


@feed_asset(
    "retail/purchases/v1.0",
    partitions_def=days,
    inputs={"invoices_raw": Input(invoices_raw, tagged=True)},
    checks=[checks.not_null("InvoiceNo", "InvoiceDate", "gbp"), checks.accounted()],
    event_time="InvoiceDate",
    owners=["team:retail"],
)
def purchases(invoices_raw: "DataFrame", partition: Partition) -> "DataFrame":
    """Invoice lines, cleaned: `gbp` is the sum of a line, `is_cancellation` marks the lines of cancelled invoices.

    Equal lines are kept: an article may be scanned twice. `CustomerID` is a number as text (the raw files have
    17850.0), or NULL. `InvoiceDate` is the shop's clock, treated as UTC. A day without lines is valid.
    """
    from pyspark.sql import functions as sf

    customer = sf.regexp_extract("CustomerID", r"\A([0-9]+)(\.0)?\z", 1)
    return _on_the_day(invoices_raw, partition).withColumns(
        {
            "CustomerID": sf.when(customer != "", customer),
            "is_cancellation": sf.col("InvoiceNo").startswith("C"),
            "gbp": (sf.col("Quantity") * sf.col("UnitPrice")).cast(MONEY),
        }
    )


@feed_asset(
    "retail/num_purchases_per_day/v1.0",
    partitions_def=days,
    inputs={"purchases": purchases},
    checks=[checks.not_empty(), checks.unique("date")],
    owners=["team:retail"],
)
def num_purchases_per_day(purchases: "DataFrame", partition: Partition) -> "DataFrame":
    """Daily number of purchases: invoices that were not cancelled. There is one row, even if the number is 0."""
    from pyspark.sql import functions as sf

    counted = bought(purchases).agg(sf.count_distinct("InvoiceNo").alias("purchases"))
    return counted.select(sf.lit(partition.key).cast("date").alias("date"), "purchases")


@feed_asset(
    "retail/purchases_per_buyer/v1.0",
    partitions_def=days,
    inputs={"purchases": purchases},
    checks=[checks.unique("CustomerID"), checks.not_null("CustomerID")],
    owners=["team:retail"],
)
def purchases_per_buyer(purchases: "DataFrame") -> "DataFrame":
    """Purchases of each buyer on a day, and their sum. Lines without a `CustomerID` are left out."""
    from pyspark.sql import functions as sf

    by_buyer = bought(purchases).where("CustomerID IS NOT NULL").groupBy("CustomerID")
    return by_buyer.agg(sf.count_distinct("InvoiceNo").alias("purchases"), sf.sum("gbp").cast(MONEY).alias("gbp"))


def bought(purchases: "DataFrame") -> "DataFrame":
    """Return the lines of invoices that were not cancelled."""
    return purchases.where("NOT is_cancellation")


def _on_the_day(tagged: "DataFrame", partition: Partition) -> "DataFrame":
    """Reject lines that are not of the partition's day, and lines with missing or impossible values."""
    from pyspark.sql import functions as sf

    from feed_assets import reject

    day, customer = partition.key, sf.col("CustomerID")
    tagged = reject(tagged, sf.col("InvoiceNo").isNull(), "InvoiceNo: missing")
    tagged = reject(tagged, sf.col("InvoiceDate").isNull(), "InvoiceDate: missing")
    tagged = reject(tagged, sf.to_date("InvoiceDate") != sf.lit(day).cast("date"), f"InvoiceDate: not on {day}")
    tagged = reject(tagged, sf.col("Quantity").isNull(), "Quantity: missing")
    tagged = reject(tagged, sf.expr("UnitPrice IS NULL OR UnitPrice < 0"), "UnitPrice: missing or negative")
    return reject(tagged, ~customer.rlike(r"\A[0-9]+(\.0)?\z"), "CustomerID: not a number")
