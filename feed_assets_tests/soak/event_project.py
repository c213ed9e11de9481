"""A dataset that is built by the events of another team, in four partitions: its rows name the slices that it read."""

import dagster as dg
from pyspark.sql import SparkSession

from feed_assets import ByEvents, EventSource, SqlTable, event_table, feed_asset, with_automation
from feed_assets_tests.soak.project import KEYS

A, B, REPORT = "team/a", "team/b", "soak/report/v1.0"
URL = "SOAK_EVENTS"
"""The environment variable with the URL of the other team's database."""

keys = dg.StaticPartitionsDefinition([*KEYS])
team = EventSource("team", (SqlTable(f"env:{URL}", "events", order_by="id"),))
a, b = (event_table(name, source=team, partitions_def=keys) for name in (A, B))


@feed_asset(REPORT, partitions_def=keys, inputs={"a": a, "b": b}, by_events=ByEvents(pipelines={"nightly": [A, B]}))
def report(a, b):
    """Return the slice of either table that it was to read."""
    rows = [(str(piece.partition.feed), piece.version) for piece in (a, b)]
    return SparkSession.active().createDataFrame(rows, "name string, slice string")


defs = with_automation(dg.Definitions(assets=[a, b, report]))
