"""Datasets as File Feeds on Dagster: what a user types.

Names are loaded when they are first used, so that the command line does not pay for Dagster.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from feed_assets.core.cadence import Cadence
    from feed_assets.core.events import Operation
    from feed_assets.core.feeds import Partition
    from feed_assets.core.lateness import Late
    from feed_assets.core.plans import Plan, Rule, Work
    from feed_assets.core.propagation import Slice
    from feed_assets.core.retention import Retention
    from feed_assets.orchestration.assets import feed_asset
    from feed_assets.orchestration.declare.by_events import ByEvents, LineageTable
    from feed_assets.orchestration.declare.components import EventTableComponent, ForeignFeedsComponent
    from feed_assets.orchestration.declare.event_tables import event_table
    from feed_assets.orchestration.declare.inputs import Input, foreign_feed
    from feed_assets.orchestration.location import with_automation
    from feed_assets.runs import checks
    from feed_assets.settings import Settings
    from feed_assets.sources.declared import EventFiles, EventSource, SqlTable
    from feed_assets.sources.deletes import DeletesTable
    from feed_assets.sources.rows import Columns, Constant
    from feed_assets.spark.parse import META, is_clean
    from feed_assets.spark.rejects import reject, reject_duplicates

_HOME = {
    "ByEvents": "orchestration.declare.by_events",
    "Cadence": "core.cadence",
    "Columns": "sources.rows",
    "Constant": "sources.rows",
    "DeletesTable": "sources.deletes",
    "EventFiles": "sources.declared",
    "EventSource": "sources.declared",
    "EventTableComponent": "orchestration.declare.components",
    "ForeignFeedsComponent": "orchestration.declare.components",
    "Input": "orchestration.declare.inputs",
    "Late": "core.lateness",
    "LineageTable": "orchestration.declare.by_events",
    "META": "spark.parse",
    "Operation": "core.events",
    "Partition": "core.feeds",
    "Plan": "core.plans",
    "Retention": "core.retention",
    "Rule": "core.plans",
    "Settings": "settings",
    "Slice": "core.propagation",
    "SqlTable": "sources.declared",
    "Work": "core.plans",
    "event_table": "orchestration.declare.event_tables",
    "feed_asset": "orchestration.assets",
    "foreign_feed": "orchestration.declare.inputs",
    "is_clean": "spark.parse",
    "reject": "spark.rejects",
    "reject_duplicates": "spark.rejects",
    "with_automation": "orchestration.location",
}

__all__ = [
    "META",
    "ByEvents",
    "Cadence",
    "Columns",
    "Constant",
    "DeletesTable",
    "EventFiles",
    "EventSource",
    "EventTableComponent",
    "ForeignFeedsComponent",
    "Input",
    "Late",
    "LineageTable",
    "Operation",
    "Partition",
    "Plan",
    "Retention",
    "Rule",
    "Settings",
    "Slice",
    "SqlTable",
    "Work",
    "checks",
    "event_table",
    "feed_asset",
    "foreign_feed",
    "is_clean",
    "reject",
    "reject_duplicates",
    "with_automation",
]


def __getattr__(name: str) -> Any:
    if name == "checks":
        return import_module("feed_assets.runs.checks")
    if name not in _HOME:
        raise AttributeError(f"module 'feed_assets' has no attribute {name!r}: it has {', '.join(__all__)}.")
    return getattr(import_module(f"feed_assets.{_HOME[name]}"), name)
