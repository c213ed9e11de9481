"""Every public declaration, with its minimal arguments."""

from inspect import signature
from typing import Any

import dagster as dg

import feed_assets
from feed_assets import checks

PARTS = (feed_assets.SqlTable("sqlite:///shop.db", "events", "id"),)
SHOP = feed_assets.EventSource("shop", PARTS)
RAW = feed_assets.foreign_feed("t/raw/v1.0", schema="k string")
HOURS = dg.HourlyPartitionsDefinition("2026-01-01-00:00")
HOURLY = feed_assets.foreign_feed("t/hourly/v1.0", schema="k string", partitions_def=HOURS)
DECLARED: dict[str, tuple[Any, dict[str, Any]]] = {
    "BatchDate": (feed_assets.BatchDate, {}),
    "ByEvents": (feed_assets.ByEvents, {}),
    "Cadence": (feed_assets.Cadence, {"cron": "0 6 * * *"}),
    "Columns": (feed_assets.Columns, {}),
    "Completeness": (feed_assets.Completeness, {}),
    "Constant": (feed_assets.Constant, {"value": "t/raw"}),
    "DayToDate": (feed_assets.DayToDate, {}),
    "DeletesTable": (feed_assets.DeletesTable, {"url": "sqlite:///shop.db", "table": "gone"}),
    "EventFiles": (feed_assets.EventFiles, {"prefix": "events", "format": "csv"}),
    "EventTopic": (feed_assets.EventTopic, {"topic": "events"}),
    "TopicCounts": (feed_assets.TopicCounts, {"dataset": "t/hours"}),
    "EventSource": (feed_assets.EventSource, {"name": "shop", "parts": PARTS}),
    "Input": (feed_assets.Input, {"feed": RAW}),
    "Late": (feed_assets.Late, {}),
    "LineageFile": (feed_assets.LineageFile, {"key": "events_pipelines/newest.jsonl"}),
    "LineageTable": (feed_assets.LineageTable, {"url": "sqlite:///shop.db", "table": "lineage"}),
    "Member": (feed_assets.Member, {}),
    "Plan": (feed_assets.Plan, {}),
    "Profile": (feed_assets.Profile, {}),
    "Pull": (feed_assets.Pull, {"blackboard": "partner", "pattern": "%Y-%m-%d/*"}),
    "Regions": (feed_assets.Regions, {}),
    "Resources": (feed_assets.Resources, {}),
    "RefreshView": (feed_assets.RefreshView, {"view": "reports.by_day", "warehouse": "main"}),
    "Compact": (feed_assets.Compact, {}),
    "Retention": (feed_assets.Retention, {"keep": 3}),
    "Rule": (feed_assets.Rule, {"plan": feed_assets.Plan()}),
    "SqlTable": (feed_assets.SqlTable, {"url": "sqlite:///shop.db", "table": "events", "order_by": "id"}),
    "Statement": (feed_assets.Statement, {"sql": "SELECT 1", "warehouse": "main"}),
    "SubPartitions": (feed_assets.SubPartitions, {"name": "country", "members": {"sg": None}}),
    "Wait": (feed_assets.Wait, {}),
    "Watermark": (feed_assets.Watermark, {}),
    "Webhook": (feed_assets.Webhook, {"url": "env:HOOK", "secret": "env:KEY"}),
    "Within": (feed_assets.Within, {}),
    "checks.Check": (checks.Check, {"name": "a", "description": "b", "passes": bool, "aggregate": "count(1)"}),
    "checks.accounted": (checks.accounted, {}),
    "checks.not_empty": (checks.not_empty, {}),
    "checks.not_null": (checks.not_null, {"columns": "a"}),
    "checks.references": (checks.references, {"child": "a", "parent": "b", "on": "k"}),
    "checks.unique": (checks.unique, {"columns": "a"}),
    "checks.within": (checks.within, {"column": "a", "low": 0, "high": 1}),
    "event_table": (feed_assets.event_table, {"name": "t/orders", "source": SHOP}),
    "feed_asset": (feed_assets.feed_asset, {"feed": "t/sums/v1.0", "inputs": {"raw": RAW}}),
    "compacted_copy": (
        feed_assets.compacted_copy,
        {"source": RAW, "feed": "t/copy/v1.0"},
    ),
    "foreign_feed": (feed_assets.foreign_feed, {"feed": "t/raw/v1.0", "schema": "k string"}),
    "kafka_topic": (feed_assets.kafka_topic, {"name": "t/clicks", "topic": "clicks", "key": ["id"]}),
    "kafka_topics": (feed_assets.kafka_topics, {"prefix": "t", "pattern": "t[.](.+)"}),
    "on_change": (feed_assets.on_change, {"dataset": RAW, "name": "a", "to": feed_assets.Webhook("env:A", "env:B")}),
    "profiled": (feed_assets.profiled, {"table": HOURLY, "profile": feed_assets.Profile()}),
    "state_table": (feed_assets.state_table, {"name": "web/foo", "partitions_def": HOURS}),
    "warehouse_table": (
        feed_assets.warehouse_table,
        {"name": "t/table", "topic": feed_assets.kafka_topic("t/clicks", topic="clicks", key=["id"]), "warehouse": "w"},
    ),
    "with_automation": (feed_assets.with_automation, {"definitions": dg.Definitions()}),
}
NO_DECLARATIONS = {
    "EventTableComponent",
    "FeedAssetComponent",
    "ForeignFeedsComponent",
    "PartnerComponent",
    "StateTablesComponent",
    "SubscriptionsComponent",
    "TopicsComponent",
    "checks",
}
NO_DECLARATIONS |= {
    "FeedData",
    "read",
    "Operation",
    "report_state",
    "Partition",
    "Settings",
    "Slice",
    "Span",
    "RunSpec",
    "META",
    "is_clean",
    "merge_by_key",
    "reject",
    "reject_duplicates",
    "Bar",
    "bars",
}


def parameters(name: str) -> list[str]:
    """Return the parameter names of a declaration."""
    declaration, _ = DECLARED[name]
    return [*signature(declaration).parameters]
