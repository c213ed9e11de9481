"""What feed_assets writes on an asset spec, so that its place in the graph can be read from Dagster's own graph."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from feed_assets.core.lateness import Late

FEED = "feed_assets/feed"
ROLE = "feed_assets/role"
OUTPUTS = "feed_assets/outputs"
LATE_GROWTH = "feed_assets/late_growth"
LATE_MAX_AGE = "feed_assets/late_max_age_seconds"
IGNORES_QUALITY_OF = "feed_assets/ignores_quality_of"
FORMAT = "feed_assets/format"
SCHEMA = "feed_assets/schema"
APPENDABLE = "feed_assets/appendable"

FOREIGN, DATASET, REJECTS = "foreign", "dataset", "rejects"


def late_metadata(late: Late) -> dict[str, float]:
    """A late policy as metadata."""
    age = {LATE_MAX_AGE: late.max_age.total_seconds()} if late.max_age is not None else {}
    return {LATE_GROWTH: late.growth, **age}


def late_of(metadata: Mapping[str, Any]) -> Late:
    """The late policy that metadata hold."""
    seconds = metadata.get(LATE_MAX_AGE)
    max_age = timedelta(seconds=value_of(seconds)) if seconds is not None else None
    return Late(value_of(metadata.get(LATE_GROWTH, 0.0)), max_age)


def value_of(entry: Any) -> Any:
    """The plain value of a metadata entry: Dagster wraps some of them on the way."""
    return getattr(entry, "value", entry)
