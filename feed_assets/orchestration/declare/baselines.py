"""The partitions that a profile is compared with, by the clock of Dagster's own partitions."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import dagster as dg

from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.profiles import Profile
from feed_assets.orchestration.declare.partitions import Partitions, times_of


def check_baseline(feed: Feed, profile: Profile | None, partitions_def: Partitions) -> None:
    """Raise InvalidDefinition if there is a profile and no time that a partition could be before another by."""
    if profile and times_of(partitions_def) is None:
        raise InvalidDefinition(
            f"{feed} has a profile and no partitions of time: expected a dimension of time windows, as it is compared "
            "with the partitions before it. Add one, or remove the profile."
        )


def baseline_of(partitions_def: Partitions, profile: Profile | None, output: Partition) -> list[Partition]:
    """The partitions that a profile is compared with: before its own, of its own keys of other dimensions."""
    times = times_of(partitions_def)
    if profile is None or times is None:
        return []
    own, *others = output.key.split("/")
    start = times.time_window_for_partition_key(own).start
    found = _same(times, start, profile.step) if profile.step else _before(times, start)
    keys = [key for key, _ in zip(found, range(profile.partitions), strict=False)]
    return [Partition(output.feed, "/".join([key, *others])) for key in keys]


def _before(times: dg.TimeWindowPartitionsDefinition, start: datetime) -> Iterator[str]:
    while window := times.get_prev_partition_window(start):
        start = window.start
        yield times.get_partition_key_for_timestamp(start.timestamp())


def _same(times: dg.TimeWindowPartitionsDefinition, start: datetime, step: timedelta) -> Iterator[str]:
    """Those that begin at the same time of earlier days, by the local clock, which some days do not have."""
    while (start := start - step) >= times.start:
        key = times.get_partition_key_for_timestamp(start.timestamp())
        if times.time_window_for_partition_key(key).start == start:
            yield key
