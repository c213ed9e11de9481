"""The newest visit of each customer, built in increments from a table of another team, the CRM.

The dataset is defined only if RETAIL_CRM has the URL of the CRM's database. Otherwise each tick would report that the
event source cannot be read.
"""

import os
from typing import TYPE_CHECKING, Any

import dagster as dg

from feed_assets import (
    ByEvents,
    Columns,
    DeletesTable,
    EventSource,
    Operation,
    Plan,
    Rule,
    Slice,
    SqlTable,
    checks,
    event_table,
    feed_asset,
)
from feed_assets.defs.retail.purchases import MONEY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

VARIABLE = "RETAIL_CRM"
"""The environment variable with the URL of the CRM's database."""

crm = EventSource(
    "crm", (SqlTable(f"env:{VARIABLE}", "events", order_by="id", columns=Columns(partition_key=None, context=None)),)
)
forgotten = DeletesTable(f"env:{VARIABLE}", "forgotten", key="customer")
visits = event_table(
    "crm/visits",
    source=crm,
    table_name="visits",
    description="Visits in the CRM: what a customer bought at one moment. Customers are deleted on request.",
)


@feed_asset(
    "retail/customers/v1.0",
    inputs={"visits": visits},
    checks=[checks.unique("customer"), checks.not_null("customer", "gbp", "visited_at")],
    by_events=ByEvents(plans=[Rule(Plan("reload"), operations=frozenset({Operation.OVERWRITE}))]),
    owners=["team:retail"],
)
def customers(visits: Slice, previous: "DataFrame | None") -> "DataFrame":
    """Newest visit of each customer with its total in pounds, without deleted customers.

    New rows of the CRM are merged into the last published version. A visit that arrives late does not replace a newer
    one. If the CRM has overwritten its table, all rows are read.
    """
    from pyspark.sql import SparkSession

    from feed_assets import merge_by_key

    spark: Any = SparkSession.active()
    rows = visits.read(spark, f"env:{VARIABLE}", "visits", by="visited_at")
    new = rows.selectExpr("customer", "country", f"CAST(gbp AS {MONEY})", "visited_at")
    gone = spark.createDataFrame([*forgotten.rows(visits.start, visits.end)], "customer string, visited_at timestamp")
    return merge_by_key(previous, new, "customer", deletes=gone, newest_by="visited_at")


@dg.definitions
def defs() -> dg.Definitions:
    """Return the CRM's table and the dataset. Return nothing if RETAIL_CRM is not set."""
    return dg.Definitions(assets=[visits, customers]) if VARIABLE in os.environ else dg.Definitions()
