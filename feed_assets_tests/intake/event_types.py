"""Types of the columns of pushed events, and the latest time that an event may have."""

from datetime import timedelta

from feed_assets_tests.support.receivers import NOW

TYPES = (
    "id string, at timestamp, n int, b tinyint, big bigint, x double, d decimal(4,2), ok boolean, day date, "
    "l timestamp_ntz, f float"
)
LATEST = (NOW + timedelta(hours=24)).timestamp()
