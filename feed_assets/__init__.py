"""Datasets as File Feeds on Dagster: the names that a user types.

Names are loaded when they are first used, so that the command line does not import Dagster.
"""

import gc
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str

    from feed_assets.core.cadence import Cadence
    from feed_assets.core.charts import Bar, bars
    from feed_assets.core.compact import Compact
    from feed_assets.core.completeness import Completeness
    from feed_assets.core.delivery_targets import RefreshView, Statement, Webhook
    from feed_assets.core.events import Operation
    from feed_assets.core.feeds import Partition
    from feed_assets.core.late_policy import Late
    from feed_assets.core.plans import Plan, Rule, RunSpec
    from feed_assets.core.profiles import Profile
    from feed_assets.core.pulls import Pull
    from feed_assets.core.resources import Resources
    from feed_assets.core.retention import Retention
    from feed_assets.core.slices import Slice
    from feed_assets.core.spans import Span
    from feed_assets.core.sub_partitions import Member, Regions, SubPartitions
    from feed_assets.core.waits import Wait
    from feed_assets.orchestration.declare.by_events import ByEvents, LineageFile, LineageTable
    from feed_assets.orchestration.declare.event_tables import event_table
    from feed_assets.orchestration.declare.input_specs import Input, Watermark, foreign_feed
    from feed_assets.orchestration.declare.mappings import BatchDate, DayToDate, Within
    from feed_assets.orchestration.declare.on_change import on_change
    from feed_assets.orchestration.declare.pattern_tables import kafka_topics
    from feed_assets.orchestration.declare.state_tables import state_table
    from feed_assets.orchestration.declare.topic_tables import kafka_topic
    from feed_assets.orchestration.declare.warehouse_tables import warehouse_table
    from feed_assets.orchestration.execute.assets import feed_asset
    from feed_assets.orchestration.execute.compacted_copy import compacted_copy
    from feed_assets.orchestration.execute.components import (
        EventTableComponent,
        ForeignFeedsComponent,
        StateTablesComponent,
    )
    from feed_assets.orchestration.execute.dataset_component import FeedAssetComponent
    from feed_assets.orchestration.execute.partner_component import PartnerComponent
    from feed_assets.orchestration.execute.profiled import profiled
    from feed_assets.orchestration.execute.subscriptions_component import SubscriptionsComponent
    from feed_assets.orchestration.execute.topics_component import TopicsComponent
    from feed_assets.orchestration.location import with_automation
    from feed_assets.reading.data import FeedData
    from feed_assets.reading.reader import read
    from feed_assets.runs import checks
    from feed_assets.settings import Settings
    from feed_assets.sources.declared import EventFiles, EventSource, EventTopic, SqlTable, TopicCounts
    from feed_assets.sources.deletes import DeletesTable
    from feed_assets.sources.event_rows import Columns, Constant
    from feed_assets.sources.report_reader import report_state
    from feed_assets.spark.merge import merge_by_key
    from feed_assets.spark.parse import META, is_clean
    from feed_assets.spark.rejects import reject, reject_duplicates

_MODULES = {
    "core.cadence": ("Cadence",),
    "core.charts": ("Bar", "bars"),
    "core.completeness": ("Completeness",),
    "core.delivery_targets": ("RefreshView", "Statement", "Webhook"),
    "core.events": ("Operation",),
    "core.feeds": ("Partition",),
    "core.late_policy": ("Late",),
    "core.sub_partitions": ("Member", "Regions", "SubPartitions"),
    "core.plans": ("Plan", "Rule", "RunSpec"),
    "core.profiles": ("Profile",),
    "core.pulls": ("Pull",),
    "core.slices": ("Slice",),
    "core.spans": ("Span",),
    "core.waits": ("Wait",),
    "core.resources": ("Resources",),
    "core.compact": ("Compact",),
    "core.retention": ("Retention",),
    "orchestration.execute.assets": ("feed_asset",),
    "orchestration.execute.compacted_copy": ("compacted_copy",),
    "orchestration.execute.partner_component": ("PartnerComponent",),
    "orchestration.execute.profiled": ("profiled",),
    "orchestration.execute.subscriptions_component": ("SubscriptionsComponent",),
    "orchestration.execute.topics_component": ("TopicsComponent",),
    "orchestration.declare.by_events": ("ByEvents", "LineageFile", "LineageTable"),
    "orchestration.execute.components": ("EventTableComponent", "ForeignFeedsComponent", "StateTablesComponent"),
    "orchestration.execute.dataset_component": ("FeedAssetComponent",),
    "orchestration.declare.event_tables": ("event_table",),
    "orchestration.declare.input_specs": ("Input", "Watermark", "foreign_feed"),
    "orchestration.declare.mappings": ("BatchDate", "DayToDate", "Within"),
    "orchestration.declare.on_change": ("on_change",),
    "orchestration.declare.state_tables": ("state_table",),
    "orchestration.declare.pattern_tables": ("kafka_topics",),
    "orchestration.declare.topic_tables": ("kafka_topic",),
    "orchestration.declare.warehouse_tables": ("warehouse_table",),
    "orchestration.location": ("with_automation",),
    "reading.reader": ("read",),
    "reading.data": ("FeedData",),
    "settings": ("Settings",),
    "sources.declared": ("EventFiles", "EventSource", "EventTopic", "SqlTable", "TopicCounts"),
    "sources.deletes": ("DeletesTable",),
    "sources.event_rows": ("Columns", "Constant"),
    "sources.report_reader": ("report_state",),
    "spark.merge": ("merge_by_key",),
    "spark.parse": ("META", "is_clean"),
    "spark.rejects": ("reject", "reject_duplicates"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "META",
    "Bar",
    "BatchDate",
    "ByEvents",
    "Cadence",
    "Columns",
    "Compact",
    "Completeness",
    "Constant",
    "DayToDate",
    "DeletesTable",
    "EventFiles",
    "EventSource",
    "EventTableComponent",
    "EventTopic",
    "FeedAssetComponent",
    "FeedData",
    "ForeignFeedsComponent",
    "Input",
    "Late",
    "LineageFile",
    "LineageTable",
    "Member",
    "Operation",
    "Partition",
    "PartnerComponent",
    "Plan",
    "Profile",
    "Pull",
    "RefreshView",
    "Regions",
    "Resources",
    "Retention",
    "Rule",
    "RunSpec",
    "Settings",
    "Slice",
    "Span",
    "SqlTable",
    "StateTablesComponent",
    "Statement",
    "SubPartitions",
    "SubscriptionsComponent",
    "TopicCounts",
    "TopicsComponent",
    "Wait",
    "Watermark",
    "Webhook",
    "Within",
    "bars",
    "checks",
    "compacted_copy",
    "event_table",
    "feed_asset",
    "foreign_feed",
    "is_clean",
    "kafka_topic",
    "kafka_topics",
    "merge_by_key",
    "on_change",
    "profiled",
    "read",
    "reject",
    "reject_duplicates",
    "report_state",
    "state_table",
    "warehouse_table",
    "with_automation",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name != "checks" and name not in _HOME:
        raise AttributeError(f"module 'feed_assets' has no attribute {name!r}: it has {', '.join(__all__)}.")
    with _no_collections():
        if name == "checks":
            return import_module("feed_assets.runs.checks")
        return getattr(import_module(f"feed_assets.{_HOME[name]}"), name)


@contextmanager
def _no_collections() -> Generator[None]:
    """Switch off garbage collection for an import: it would scan all that Dagster has loaded, and free nothing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def __dir__() -> list[str]:
    """Return all public names, loaded or not."""
    return sorted({*globals(), *__all__, "__version__"})


def _version() -> str:
    """Return the version of the installed package; `0+unknown` if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("feed-assets")
    except PackageNotFoundError:
        return "0+unknown"
