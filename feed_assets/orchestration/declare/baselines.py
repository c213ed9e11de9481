"""Baselines: earlier partitions that a profile is compared with."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import dagster as dg

from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.profiles import Profile
from feed_assets.orchestration.declare.partitions import Partitions, times_of
from feed_assets.orchestration.declare.time_windows import bounds, key_at, moved, repeats_hourly


def check_baseline(feed: Feed, profile: Profile | None, partitions_def: Partitions) -> None:
    """Raise InvalidDefinition if a dataset with a profile has no time partitions."""
    if profile and times_of(partitions_def) is None:
        raise InvalidDefinition(
            f"{feed} has a profile, but no time partitions: expected a dimension of time windows, because a profile is "
            "compared with earlier partitions. Add one, or remove the profile."
        )


def baseline_of(partitions_def: Partitions, profile: Profile | None, output: Partition) -> list[Partition]:
    """Return the earlier partitions that the profile of `output` is compared with.

    They differ from `output` only in time: their keys of other dimensions are equal.
    """
    times = times_of(partitions_def)
    if profile is None or times is None:
        return []
    own, *other_keys = output.key.split("/")
    start = bounds(times, own)[0]
    window_keys = _same_time(times, start, profile.step) if profile.step else _before(times, start)
    keys = [key for key, _ in zip(window_keys, range(profile.partitions), strict=False)]
    return [Partition(output.feed, "/".join([key, *other_keys])) for key in keys]


def _before(times: dg.TimeWindowPartitionsDefinition, start: datetime) -> Iterator[str]:
    while (start := moved(times, start, -1)) >= times.start:
        yield key_at(times, start)


def _same_time(times: dg.TimeWindowPartitionsDefinition, start: datetime, step: timedelta) -> Iterator[str]:
    """Yield the keys of earlier windows at the same local time, one every `step`.

    Skip days that do not have this time.
    """
    local, zone = start.astimezone(ZoneInfo(times.timezone)), ZoneInfo(times.timezone)
    while (moment := (local := local - step).astimezone(UTC)) >= times.start:
        is_there = moment.astimezone(zone).replace(tzinfo=None) == local.replace(tzinfo=None)
        key = key_at(times, moment)
        if bounds(times, key)[0] == moment and (is_there or not repeats_hourly(times)):
            yield key
