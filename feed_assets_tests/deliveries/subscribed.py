"""Projects with subscriptions, and what their targets got."""

import json
from datetime import UTC, datetime, timedelta

import dagster as dg

from feed_assets import (
    Completeness,
    SubPartitions,
    Webhook,
    on_change,
    state_table,
)
from feed_assets.core.feeds import Feed
from feed_assets.core.reports import Report
from feed_assets.ledger.alerts import open_alerts
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.states.count_reports import report
from feed_assets.settings import settings
from feed_assets_tests.support.sum_projects import harness, raw_feed, sums_of

HOOK = Webhook("env:CACHE_URL", "env:CACHE_SECRET")


def subscribed(*targets, **options):
    """Return a harness of raw -> sums with these subscriptions to sums, by name."""
    raw = raw_feed()
    sums = sums_of(raw)
    started = harness(raw, sums, *(on_change(sums, name=name, to=to, **options) for name, to in targets))
    started.tick()  # A subscription begins with the changes after its first tick.
    return started


def posted(hook):
    return [json.loads(body) for _, body in hook.posted]


def alerts():
    with open_ledger(settings().ledger).read() as connection:
        return [each.reason for each in open_alerts(connection) if each.name.startswith("undelivered:")]


def alert_names():
    """Return the names of open alerts about subscriptions, without the dataset."""
    with open_ledger(settings().ledger).read() as connection:
        return [each.name.partition("|")[2] for each in open_alerts(connection) if each.name.startswith("undelivered:")]


def web_table():
    """Declare a table of 5-minute and hourly windows, for regions and their countries."""
    regions = SubPartitions("region", {"apac": None}, below=SubPartitions("country", {"sg": None}))
    return state_table(
        "web/foo",
        partitions_def=dg.HourlyPartitionsDefinition("2026-01-01-00:00"),
        completeness=Completeness(tiers=("kafka",), grains=("5min", "hour")),
        sub_partitions=regions,
    )


def complete_one_hour(world):
    """Report that one hour of Singapore is complete."""
    world.tick()
    start = datetime(2026, 1, 19, 15, tzinfo=UTC)
    counts = tuple((start + timedelta(minutes=minutes), 100) for minutes in range(0, 60, 5))
    reports = [
        Report(Feed.parse("web/foo"), "region=apac/country=sg", f"{tier}1", counts, tier, version="1")
        for tier in ("kafka", "")
    ]
    report(open_ledger(settings().ledger), reports, start + timedelta(days=1))
    world.run_until_idle()
