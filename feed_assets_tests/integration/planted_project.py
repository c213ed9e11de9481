"""A dataset, an event table whose database does not answer, and a dataset whose function fails."""

import os

import dagster as dg

from feed_assets import EventSource, SqlTable, event_table, feed_asset, foreign_feed, with_automation

RAW, MADE, BROKEN, URL = "planted/raw/v1.0", "planted/made/v1.0", "planted/broken/v1.0", "PLANTED_EVENTS_URL"

raw = foreign_feed(RAW, format="csv", schema="k string, n int")
away = EventSource("away", (SqlTable(f"env:{URL}", "events", order_by="id"),))
told = event_table("planted/told", source=away)


@feed_asset(MADE, inputs={"rows": raw})
def made(rows):
    """Return the rows unchanged."""
    return rows


@feed_asset(BROKEN, inputs={"rows": raw})
def broken(rows):
    """Fail as clients do: the error and its cause contain a password."""
    try:
        ask(os.environ[URL])
    except LookupError as error:
        raise RuntimeError(f"no answer: https://h/?password={os.environ['AWS_SECRET_ACCESS_KEY']}") from error


def ask(url):
    """Raise the error of a server that does not answer."""
    raise LookupError(f"no answer: {url}")


defs = with_automation(dg.Definitions(assets=[raw, told, made, broken]))
