"""A dataset, a dataset whose function fails, and a table, a topic and a warehouse whose servers do not answer."""

import os

import dagster as dg

from feed_assets import (
    EventSource,
    SqlTable,
    event_table,
    feed_asset,
    foreign_feed,
    kafka_topic,
    warehouse_table,
    with_automation,
)
from feed_assets.settings import expand

RAW, MADE, BROKEN, URL = "planted/raw/v1.0", "planted/made/v1.0", "planted/broken/v1.0", "PLANTED_EVENTS_URL"

raw = foreign_feed(RAW, format="csv", schema="k string, n int")
away = EventSource("away", (SqlTable(f"env:{URL}", "events", order_by="id"),))
told = event_table("planted/told", source=away)
clicks = kafka_topic("planted/clicks", topic="planted.clicks", key=["id"])


@feed_asset(MADE, inputs={"rows": raw})
def made(rows):
    """Return the rows unchanged."""
    return rows


@feed_asset(BROKEN, inputs={"rows": raw})
def broken(rows):
    """Fail as clients do: the error and its cause contain a password."""
    try:
        ask(expand(f"env:{URL}"))
    except LookupError as error:
        raise RuntimeError(f"no answer: https://h/?password={os.environ['AWS_SECRET_ACCESS_KEY']}") from error


def ask(url):
    """Raise the error of a server that does not answer."""
    raise LookupError(f"no answer: {url}")


loaded = warehouse_table("main/planted/made", dataset=made, warehouse="main")

defs = with_automation(dg.Definitions(assets=[raw, told, clicks, made, broken, loaded]))
