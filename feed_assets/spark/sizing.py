"""Spark configuration by the bytes that a run reads: no shuffles for small data, parallel work for large data."""

from collections.abc import Collection, Mapping, Sequence

from feed_assets.core.feeds import Update

SMALL_BYTES = 8 << 20
"""Greatest number of input bytes of a small run. For such a run, one shuffle partition is faster than several."""

_PARTITION_BYTES = 32 << 20
_MOST_PARTITIONS = 2_000
_LEAST_PARTITIONS = 8

# Measured with 40 partitions of 1,500 rows: each partition takes 0.4 s instead of 0.75 s.
SMALL: Mapping[str, str] = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
}


_DEFAULTS = {
    "spark.sql.shuffle.partitions": "200",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.autoBroadcastJoinThreshold": "10485760b",
}
"""Spark's own values, as a session returns them."""


def conf_for(size: int, current: Mapping[str, str], own: Collection[str]) -> dict[str, str]:
    """Return the session settings to change while a run reads `size` bytes.

    `own` has the names that the user sets. `current` has the session's values. A value that is neither Spark's default
    nor ours was set elsewhere, such as on a Connect server, and stays. More shuffle partitions than needed do no harm,
    because adaptive execution joins small ones.
    """
    target_conf = SMALL if size <= SMALL_BYTES else _large(size)
    adjustable = {name for name, value in SMALL.items() if current.get(name, value) in (value, _DEFAULTS[name])}
    changes = {name for name in adjustable if name not in own and target_conf[name] != current.get(name)}
    return {name: value for name, value in target_conf.items() if name in changes}


def _large(size: int) -> dict[str, str]:
    partitions = min(max(-(-size // _PARTITION_BYTES), _LEAST_PARTITIONS), _MOST_PARTITIONS)
    return {**_DEFAULTS, "spark.sql.shuffle.partitions": str(partitions)}


def bytes_of(updates: Sequence[Update]) -> int:
    """Return the bytes of the files of some updates."""
    return sum(file.size for update in updates for file in update.files)
