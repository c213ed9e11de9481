"""Datasets as File Feeds on Dagster: what a user types.

Names are loaded when they are first used, so that the command line does not pay for Dagster.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from feed_assets.core.cadence import Cadence
    from feed_assets.core.lateness import Late
    from feed_assets.core.plans import Plan, Rule
    from feed_assets.core.retention import Retention
    from feed_assets.orchestration.assets import feed_asset
    from feed_assets.orchestration.by_events import ByEvents, LineageTable
    from feed_assets.orchestration.components import EventTableComponent, ForeignFeedsComponent
    from feed_assets.orchestration.event_tables import event_table
    from feed_assets.orchestration.inputs import Input, foreign_feed
    from feed_assets.orchestration.location import with_automation
    from feed_assets.runs import checks
    from feed_assets.sources.declared import EventFiles, EventSource, SqlTable
    from feed_assets.sources.deletes import DeletesTable
    from feed_assets.sources.rows import Columns

_HOME = {
    "ByEvents": "orchestration.by_events",
    "LineageTable": "orchestration.by_events",
    "Plan": "core.plans",
    "Rule": "core.plans",
    "Cadence": "core.cadence",
    "Columns": "sources.rows",
    "DeletesTable": "sources.deletes",
    "EventFiles": "sources.declared",
    "EventSource": "sources.declared",
    "EventTableComponent": "orchestration.components",
    "ForeignFeedsComponent": "orchestration.components",
    "Input": "orchestration.inputs",
    "Late": "core.lateness",
    "Retention": "core.retention",
    "SqlTable": "sources.declared",
    "event_table": "orchestration.event_tables",
    "feed_asset": "orchestration.assets",
    "foreign_feed": "orchestration.inputs",
    "with_automation": "orchestration.location",
}

__all__ = [
    "ByEvents",
    "Cadence",
    "Columns",
    "DeletesTable",
    "EventFiles",
    "EventSource",
    "EventTableComponent",
    "ForeignFeedsComponent",
    "Input",
    "Late",
    "LineageTable",
    "Plan",
    "Retention",
    "Rule",
    "SqlTable",
    "checks",
    "event_table",
    "feed_asset",
    "foreign_feed",
    "with_automation",
]


def __getattr__(name: str) -> Any:
    if name == "checks":
        return import_module("feed_assets.runs.checks")
    if name not in _HOME:
        raise AttributeError(f"module 'feed_assets' has no attribute {name!r}: it has {', '.join(__all__)}.")
    return getattr(import_module(f"feed_assets.{_HOME[name]}"), name)
