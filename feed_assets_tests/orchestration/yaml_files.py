"""YAML files that declare datasets, and the functions that they name."""

from textwrap import dedent

import dagster as dg

from feed_assets import feed_asset, foreign_feed

HERE = __name__
HOURS = dg.HourlyPartitionsDefinition("2026-01-01-00:00")
DAYS = dg.DailyPartitionsDefinition("2026-01-01")
FLAT = foreign_feed("flat", schema="id int")
DIM = foreign_feed("shop/dim", partitions_def=DAYS, schema="id int, at timestamp", event_time="at")
SETTLED = foreign_feed(
    "shop/settled",
    partitions_def=DAYS,
    schema="id int",
    description="Days that are settled.",
    group_name="finance",
    tags={"tier": "gold"},
    kinds={"sftp"},
    metadata={"runbook": "wiki/8"},
    owners=["team:finance"],
)
TABLES = dedent(
    """
    type: feed_assets.StateTablesComponent
    attributes:
      start: "2026-01-01"
      tables:
        - {table: web/foo, completeness: {tiers: [kafka]}}
        - {table: web/extra}
    """
)
DIMS = dedent(
    """
    type: feed_assets.ForeignFeedsComponent
    attributes:
      start_date: "2026-01-01"
      feeds:
        - {feed: shop/dim, schema: "id int, at timestamp", event_time: at}
        - feed: shop/settled
          schema: "id int"
          description: Days that are settled.
          group_name: finance
          tags: {tier: gold}
          kinds: [sftp]
          metadata: {runbook: wiki/8}
          owners: ["team:finance"]
    """
)
REPORT = dedent(
    f"""
    type: feed_assets.FeedAssetComponent
    attributes:
      feed: web/report/v1.0
      function: {HERE}.report
      partitions: {{start: "2026-01-01", every: day, tz: Europe/Berlin}}
      inputs:
        foo: {{asset: web/foo, at: tables, mapping: within, checks: [no_bots]}}
        before: previous_bucket
        dim: {{asset: shop/dim, at: dims, mapping: batch_date, beyond: end of partition}}
        extra: {{asset: web/extra, at: tables, optional: true, late: {{growth: 5%, files: 3, combine: all}}}}
      deps: [{{asset: shop/settled, at: dims, mapping: within}}]
      wait:
        earliest: "0 2 * * *"
        tz: Europe/Berlin
        delay: PT30M
        deadline: PT6H
        warn: PT5H
        at_least: 23 of 24
        after: "03:00:00"
      reprocess: always
      figures: {{revenue: sum(price)}}
      checks:
        - {{check: not_empty}}
        - {{check: references, arguments: [before, foo, id]}}
        - {{check: few, aggregate: count(1), within: [1, 9], severity: WARN}}
      profile: {{measures: {{rows: count(1)}}, baseline: 7 same weekdays, off_by: 3}}
      deep_checks: [{{check: not_null, arguments: [id]}}]
      late:
        growth: 0.05
        max_age: P2D
        cut_off: P7D
        check: hourly
        lookback: [0, 1, 7]
        value_per_gb: 2.5
      retention: {{keep: 3, older_than: P30D}}
      cadence: {{cron: "0 6 * * *", tolerance: PT2H, timezone: Europe/Berlin}}
      completeness: {{grains: [hour, day], ratio: 99%, tz: Europe/Berlin}}
      event_time: at
      chart: {HERE}.chart
      description: Visits.
      group_name: reports
      tags: {{tier: gold}}
      kinds: [python]
      metadata: {{runbook: wiki/7}}
      owners: ["team:web"]
      code_version: "7"
      pool: web
    """
)
FILES = {"tables/defs.yaml": TABLES, "dims/defs.yaml": DIMS, "reports/defs.yaml": REPORT}


def report(foo, before, dim, extra):
    """Return a day's visits."""


def chart(rows):
    """Draw a line."""


def chained(raw):
    """Return the input."""
    return raw


PASSED = feed_asset("t/passed/v1.0", inputs={"raw": FLAT})(chained)


def chained_yaml(attributes):
    """Return YAML of a dataset with these attributes."""
    given = f"{{feed: t/chained/v1.0, function: {HERE}.chained, {attributes}}}"
    return f"type: feed_assets.FeedAssetComponent\nattributes: {given}\n"


def chained_asset(project, attributes, **files):
    definitions = project(FILES | {"chain/defs.yaml": chained_yaml(attributes)} | files)
    return definitions.resolve_asset_graph().get(dg.AssetKey(["t", "chained"])).assets_def
