"""Rules for what a cadence expects: each time partition, or some event at each tick of a cron."""

from functools import lru_cache

import dagster as dg

from feed_assets.core.cadence import Cadence, is_finer, longest_pause
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import Feed
from feed_assets.orchestration.declare.partitions import Partitions, times_of
from feed_assets.orchestration.declare.time_windows import bounds, ends_from, key_at

_PARTITIONS_COMPARED = 400
"""Number of partitions whose ends are compared with a cron's ticks. They cover more than a year of days."""


def check_cadence(feed: Feed, cadence: Cadence | None, partitions_def: Partitions) -> None:
    """Raise InvalidDefinition for a cadence without cron on partitions without time."""
    if cadence and cadence.cron is None and times_of(partitions_def) is None:
        raise InvalidDefinition(
            f"{feed} has a cadence without a cron and no partitions of time, so nothing shows that data are missing: "
            "expected a cron, such as Cadence('0 6 * * *')."
        )


def freshness_of(cadence: Cadence | None) -> dg.FreshnessPolicy | None:
    """Return Dagster's freshness policy for a cadence with a cron. Return None if it has no cron."""
    pause = longest_pause(cadence) if cadence else None
    return dg.FreshnessPolicy.time_window(fail_window=pause) if pause else None


def expects_partitions(cadence: Cadence | None, partitions_def: Partitions) -> bool:
    """Return whether a cadence expects every time partition, and not only some event at each tick of a cron."""
    times = times_of(partitions_def)
    return cadence is not None and times is not None and not _is_finer(cadence, times)


@lru_cache(maxsize=16_384)
def _is_finer(cadence: Cadence, times: dg.TimeWindowPartitionsDefinition) -> bool:
    _, first = bounds(times, key_at(times, times.start))
    return is_finer(cadence, ends_from(times, first, _PARTITIONS_COMPARED))
