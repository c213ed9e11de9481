"""What feed_assets writes on an asset spec, so that its place in the graph can be read from Dagster's own graph."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from feed_assets.core.cadence import Cadence
from feed_assets.core.lateness import Late
from feed_assets.core.retention import Retention

FEED = "feed_assets/feed"
ROLE = "feed_assets/role"
OUTPUTS = "feed_assets/outputs"
LATE_GROWTH = "feed_assets/late_growth"
LATE_MAX_AGE = "feed_assets/late_max_age_seconds"
IGNORES_QUALITY_OF = "feed_assets/ignores_quality_of"
REQUIRES_OWN_OF = "feed_assets/requires_own_of"
KEEP = "feed_assets/keep"
OLDER_THAN = "feed_assets/older_than_seconds"
CADENCE = "feed_assets/cadence"
BY_EVENTS = "feed_assets/by_events"
SOURCE = "feed_assets/event_source"
TABLE_NAME = "feed_assets/table_name"
FORMAT = "feed_assets/format"
SCHEMA = "feed_assets/schema"
APPENDABLE = "feed_assets/appendable"

ON_TIME, PROPAGATION = "on_time", "propagation"
"""The names of the unpartitioned checks: of a table with a cadence, and of a dataset by events."""

FOREIGN, DATASET, REJECTS, TABLE = "foreign", "dataset", "rejects", "table"


DATA_VERSION_TAG = "dagster/data_version"
"""Dagster's tag of a materialization by which it tells whether data have changed."""


def late_metadata(late: Late) -> dict[str, float]:
    """A late policy as metadata."""
    age = {LATE_MAX_AGE: late.max_age.total_seconds()} if late.max_age is not None else {}
    return {LATE_GROWTH: late.growth, **age}


def late_of(metadata: Mapping[str, Any]) -> Late:
    """The late policy that metadata hold."""
    seconds = metadata.get(LATE_MAX_AGE)
    max_age = timedelta(seconds=value_of(seconds)) if seconds is not None else None
    return Late(value_of(metadata.get(LATE_GROWTH, 0.0)), max_age)


def retention_metadata(retention: Retention | None) -> dict[str, float]:
    """A retention as metadata; none, and everything is kept."""
    if retention is None:
        return {}
    keep = {KEEP: retention.keep} if retention.keep is not None else {}
    age = {OLDER_THAN: retention.older_than.total_seconds()} if retention.older_than is not None else {}
    return {**keep, **age}


def retention_of(metadata: Mapping[str, Any]) -> Retention | None:
    """The retention that metadata hold."""
    keep, seconds = value_of(metadata.get(KEEP)), value_of(metadata.get(OLDER_THAN))
    if keep is None and seconds is None:
        return None
    return Retention(keep, timedelta(seconds=seconds) if seconds is not None else None)


def cadence_metadata(cadence: Cadence | None) -> dict[str, Any]:
    """A cadence as metadata; none, and nobody is told when no event comes."""
    if cadence is None:
        return {}
    seconds = cadence.tolerance.total_seconds()
    return {CADENCE: {"cron": cadence.cron, "tolerance_seconds": seconds, "timezone": cadence.timezone}}


def cadence_of(metadata: Mapping[str, Any]) -> Cadence | None:
    """The cadence that metadata hold."""
    found = value_of(metadata.get(CADENCE))
    if found is None:
        return None
    return Cadence(found["cron"], timedelta(seconds=found["tolerance_seconds"]), found["timezone"])


def value_of(entry: Any) -> Any:
    """The plain value of a metadata entry: Dagster wraps some of them on the way."""
    return getattr(entry, "value", entry)
