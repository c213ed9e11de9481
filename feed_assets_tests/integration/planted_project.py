"""A dataset, a table of which a database tells that does not answer, and one whose function fails."""

import dagster as dg

from feed_assets import EventSource, SqlTable, event_table, feed_asset, foreign_feed, with_automation

RAW, MADE, BROKEN, URL = "planted/raw/v1.0", "planted/made/v1.0", "planted/broken/v1.0", "PLANTED_EVENTS_URL"

raw = foreign_feed(RAW, format="csv", schema="k string, n int")
away = EventSource("away", (SqlTable(f"env:{URL}", "events", order_by="id"),))
told = event_table("planted/told", source=away)


@feed_asset(MADE, inputs={"rows": raw})
def made(rows):
    """The rows as they came."""
    return rows


@feed_asset(BROKEN, inputs={"rows": raw})
def broken(rows):
    """Fails, so that what is said of it is looked through, too."""
    raise RuntimeError("as it should")


defs = with_automation(dg.Definitions(assets=[raw, told, made, broken]))
