"""Print rows of a slice as text: `URL JARS`, read first by JDBC and then by Spark's Python workers."""

import json
import sys
from datetime import UTC, datetime

from feed_assets import Operation, Partition, Settings, Slice
from feed_assets.core.events import encode
from feed_assets.core.feeds import Feed
from feed_assets.sources import slice_rows
from feed_assets.spark.session import session

START, END = datetime(2024, 1, 1, 12, 5, tzinfo=UTC), datetime(2024, 1, 1, 12, 30, tzinfo=UTC)


def main(url: str, jars: str) -> None:
    """Read ranges of 7 rows."""
    slice_rows.ROWS_PER_TASK = 7
    spark = session(Settings(spark_jars=jars, spark_conf={"spark.log.level": "OFF"}))
    place, operations = Partition(Feed.parse("shop/orders"), ""), frozenset({Operation.UPSERT})
    piece = Slice(place, encode(START), encode(END), operations, reader=slice_rows.rows_of)
    found = {}
    for way in ("jdbc", "python"):
        frame = piece.read(spark, url, "orders", by="at%x", schema="public")
        plan = frame._jdf.queryExecution().toString()
        found[way] = {
            "scans_jdbc": "JDBC" in plan,
            "kinds": frame.dtypes,
            "tasks": frame.rdd.getNumPartitions(),
            "rows": sorted(map(str, frame.selectExpr(*[f"string(`{name}`)" for name in frame.columns]).collect())),
        }
        slice_rows.JDBC_DRIVERS.clear()
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
